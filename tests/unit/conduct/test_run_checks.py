"""Checks of machine and server as claims of a run: only where they touch what it measured."""

from __future__ import annotations

import polars as pl
import pytest
from tests.fakery import Climb, climb

from dbdyno.conclude.compare.comparisons import _environment
from dbdyno.conclude.run.case import Case
from dbdyno.conclude.run.checks import conditions, short_compiled
from dbdyno.conduct.derive.derive import derive
from dbdyno.model.engine.condition import Condition
from dbdyno.model.results.claim import Claim
from dbdyno.model.schema.tables import rows

BAD = Condition(
    id="durable", title="durable", state="bad", value="off", why="Why.", cure="do it", touches="writes"
)
CLOCK = BAD.model_copy(update={"id": "clock", "state": "worth a look", "touches": "every run"})
SWAP = BAD.model_copy(update={"id": "swap", "touches": ""})


@pytest.fixture(scope="module")
def made() -> Climb:
    return climb("fake:cpus=8,cpu=10ms", [2])


def claims(made: Climb, *found: Condition, **tables: pl.DataFrame) -> dict[str, Claim]:
    results = derive(made.info, made.plan, made.environment, made.cells)
    environment = made.environment.model_copy(update={"conditions": found})
    case = Case(made.plan, environment, {**results.tables, **tables}, dict(made.info.workloads))
    return {c.id: c for check in (conditions, short_compiled) for c in check(case)}


def _head(made: Climb) -> dict[str, object]:
    cell = made.cells[0].meta.cell
    keys = ("workload", "variant", "sessions", "repeat")
    return {"cell": cell.id, **{k: getattr(cell, k) for k in keys}}


def wal(made: Climb, per_call: float) -> pl.DataFrame:
    row = {"name": "WAL", "unit": "bytes", "per_call": per_call, "status": "ok", "source": "counters"}
    return rows("profile", [_head(made) | row])


def test_durability_touches_a_run_that_writes(made: Climb) -> None:
    assert claims(made, BAD, SWAP) == {}
    assert claims(made, BAD, profile=wal(made, 20)) == {}
    found = claims(made, BAD, profile=wal(made, 500))["condition-durable"]
    assert (found.text, found.severity, found.advice) == ("durable: off. Why.", "warning", "do it")


def test_others_touch_each_run_and_name_the_variant(made: Climb) -> None:
    found = claims(made, CLOCK, CLOCK.model_copy(update={"id": "direct", "variant": "direct"}))
    assert found["condition-clock"].severity == "note"
    assert found["condition-direct"].text.startswith("direct: ")


@pytest.mark.parametrize(
    ("calls", "exec_ms", "jit_ms", "share"),
    [(100, 2000, 1500, 0.75), (100, 2000, 50, None), (1, 5000, 4000, None)],
)
def test_short_statements_that_are_compiled(
    made: Climb, calls: int, exec_ms: int, jit_ms: int, share: float | None
) -> None:
    row = {
        "rank": 1, "query_id": 7, "toplevel": True, "calls": calls, "exec_ns": exec_ms * 10**6,
        "jit_ns": jit_ms * 10**6, "status": "ok", "source": "counters",
    }  # fmt: skip
    found = claims(made, statements=rows("statements", [_head(made) | row])).get("short-compiled")
    assert (found.value.value if found and found.value else None) == share


def test_what_was_found_otherwise_is_kept_once(made: Climb) -> None:
    environment = made.environment.with_conditions([BAD, CLOCK])
    same = environment.with_conditions([BAD])
    assert same is environment
    other = BAD.model_copy(update={"value": "on", "variant": "safe"})
    assert environment.with_conditions([other]).conditions == (BAD, CLOCK, other)


def test_two_runs_are_compared_by_their_checks(made: Climb) -> None:
    results = derive(made.info, made.plan, made.environment.with_conditions([BAD]), made.cells)
    assert _environment(results)["check: durable"] == "bad: off"
