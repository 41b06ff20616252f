"""Rules about costs: what they name is compared by itself, in ``compare`` and after a run."""

from __future__ import annotations

import pytest
from tests.unit import report_results

from dbdyno.cli.compare import _rules
from dbdyno.cli.gate_options import judged_run
from dbdyno.conclude import compare
from dbdyno.conclude.compare import Options
from dbdyno.model.errors import UsageError


def test_rules_name_the_costs_that_are_compared_by_themselves() -> None:
    rules, costs = _rules(["wal_bytes_per_call:worse:5%", "p99:worse", "user_cpu_per_call:worse"], 0.02)
    assert len(rules) == 3
    assert costs == ("wal_bytes_per_call", "cpu_user_per_call_ns")
    assert _rules([], 0.02) == ((), ())


@pytest.mark.parametrize(
    ("rule", "costs"), [("wal_bytes_per_call:worse", ("wal_bytes_per_call",)), ("worse", ())]
)
def test_a_run_is_compared_with_the_costs_of_its_rules(
    monkeypatch: pytest.MonkeyPatch, rule: str, costs: tuple[str, ...]
) -> None:
    asked = []

    def compared(_results: object, options: Options) -> None:
        asked.append(options.costs)
        raise UsageError("enough")

    monkeypatch.setattr(compare, "compare_variants", compared)
    judged_run((rule,), report_results.results())
    assert asked == [costs]
