"""What a noise record says about two runs, each on a start of the server of its own."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import polars as pl
import pytest
from tests.unit.compare_runs import noisy
from tests.unit.report_results import World

from dbdyno.conclude.compare import Options, compare_runs
from dbdyno.conclude.noise_records import OLD_DAYS, NoiseRecord, machine_of, settings_of
from dbdyno.model.plan.plan import Variant
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.results import Results

WORLD = World(rungs=(1, 4), repeats=6, variants=("base",))


def _started(results: Results, main_pid: int) -> Results:
    """Returns the run on a server with this main process, and with its variant in the plan."""
    variants = (Variant(name="base", params={"tables": "own"}),)
    environment = results.environment
    server = environment.server.model_copy(update={"main_pid": main_pid})
    return replace(
        results,
        plan=results.plan.model_copy(update={"variants": variants}),
        environment=environment.model_copy(update={"server": server}),
    )


A = _started(noisy(WORLD, id="first", spread=0.001, drift=0.0), 7)
RATIO = 1.05
"""Of B to A, a difference that six such repeats decide."""


def _faster(results: Results) -> Results:
    rate = pl.col("name").str.ends_with("_per_s")
    rates = results.tables["rates"].with_columns(
        value=pl.when(rate).then(pl.col("value") * RATIO).otherwise("value")
    )
    return replace(results, tables={**results.tables, "rates": rates})


B = _faster(_started(noisy(WORLD, id="other", seed=2, spread=0.001, drift=0.0), 8))


def _record(floor: float | None, **changes: Any) -> NoiseRecord:
    environment = A.environment
    of_run = {
        "run": "noise",
        "measured": A.info.started - timedelta(days=1),
        "machine": machine_of(environment),
        "server": environment.server.name,
        "settings": settings_of(environment.server),
        "workload": "lio",
        "params": A.plan.variants[0].params,
        "sessions": 4,
        "budget": {"floor": floor},
    }
    return NoiseRecord(**of_run | changes)


def _claims(*records: NoiseRecord, options: Options | None = None, b: Results = B) -> list[Claim]:
    conclusions = compare_runs(A, b, options, records).conclusions
    return [c for c in conclusions if c.id == "restart-differences"]


def test_a_difference_within_that_of_restarts_is_marked() -> None:
    (claim,) = _claims(_record(0.071))
    assert claim.text.startswith(
        "Restarts alone make differences of up to 7.1 % at 4 sessions between two runs"
    )
    assert claim.text.endswith(
        "The difference at 4 sessions is smaller than that, and may come from the restarts."
    )
    summary = compare_runs(A, B, None, [_record(0.071)]).summary
    assert summary[1] == claim.text


def test_a_larger_difference_is_not_marked() -> None:
    (claim,) = _claims(_record(0.03))
    assert "up to 3 %" in claim.text and "smaller" not in claim.text


def test_the_newest_record_counts() -> None:
    (claim,) = _claims(_record(0.03), _record(0.2, measured=A.info.started - timedelta(days=9)))
    assert "up to 3 %" in claim.text


@pytest.mark.parametrize(
    "changes",
    [
        {"machine": "another"},
        {"server": "another 1.0"},
        {"settings": {"other": "1"}},
        {"workload": "other"},
        {"params": {"tables": "shared"}},
        {"sessions": 2},
        {"measured": A.info.started - timedelta(days=OLD_DAYS + 1)},
        {"budget": {"floor": None}},
    ],
)
def test_a_record_that_does_not_apply_says_nothing(changes: dict[str, Any]) -> None:
    assert _claims(_record(0.071, **changes)) == []


def test_response_times_and_runs_on_one_start_have_no_such_sentence() -> None:
    assert _claims(_record(0.071), options=Options(metric="response_mean_ns")) == []
    assert _claims(_record(0.071), b=_started(B, 7)) == []
