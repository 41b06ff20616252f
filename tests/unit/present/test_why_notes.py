"""Accounts of a comparison beside its quantities: a difference between both has its reason."""

from __future__ import annotations

import pytest
from tests.unit.compare_runs import noisy
from tests.unit.report_results import World

from dbdyno.conclude.compare import compare_variants
from dbdyno.model.results.comparison import Account, Comparison, Line, MetricTable, Why
from dbdyno.present.compare.compare import _why_notes
from dbdyno.present.figures.compare_rows import Place

PLACE = Place("lio", "", 4)


def _comparison(cpu_s: float, asleep_s: float) -> Comparison:
    """Two variants with calls of 10 ms and 4 ms of CPU by the tasks' own count."""
    metrics = (("calls_per_s", 100.0), ("response_mean_ns", 10e6), ("cpu_per_call_ns", 4e6))
    tables = tuple(
        MetricTable(
            metric=name,
            title=name,
            unit="",
            higher_is_better=True,
            lines=tuple(Line(workload="lio", sessions=4, variant=v, rank=1, repeats=4, mean=m) for v in "ab"),
            claims=(),
        )
        for name, m in metrics
    )
    accounts = tuple(
        Account(account=name, baseline_s=s, variant_s=s, difference_s=0.0)
        for name, s in (("run", cpu_s), ("sleep", asleep_s))
    )
    whole = cpu_s + asleep_s
    why = Why(
        workload="lio",
        sessions=4,
        baseline="a",
        variant="b",
        unit="call",
        repeats=4,
        baseline_s=whole,
        variant_s=whole,
        difference_s=0.0,
        accounts=accounts,
    )
    plain = compare_variants(noisy(World(rungs=(1, 4), repeats=4, variants=("base", "second"))))
    return plain.model_copy(update={"metrics": tables, "why": (why,)})


@pytest.mark.parametrize(
    ("cpu_s", "asleep_s", "words"),
    [
        (0.004, 0.006, []),
        (0.00425, 0.00575, ["schedstat"]),
        (0.004, 0.012, ["parallel workers"]),
    ],
    ids=["same", "another count", "workers"],
)
def test_a_figure_that_differs_from_the_same_in_another_table_has_a_reason(
    cpu_s: float, asleep_s: float, words: list[str]
) -> None:
    notes = list(_why_notes(_comparison(cpu_s, asleep_s), PLACE))
    assert len(notes) == len(words)
    assert all(word in note for word, note in zip(words, notes, strict=True))
