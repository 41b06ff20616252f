"""Checks of machine and server as claims of a run, if they touch what the run measured."""

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
def climbed() -> Climb:
    return climb("fake:cpus=8,cpu=10ms", [2])


def claims(climbed: Climb, *checks: Condition, **tables: pl.DataFrame) -> dict[str, Claim]:
    results = derive(climbed.info, climbed.plan, climbed.environment, climbed.cells)
    environment = climbed.environment.model_copy(update={"conditions": checks})
    case = Case(climbed.plan, environment, {**results.tables, **tables}, dict(climbed.info.workloads))
    return {c.id: c for check in (conditions, short_compiled) for c in check(case)}


def _head(climbed: Climb) -> dict[str, object]:
    cell = climbed.cells[0].meta.cell
    keys = ("workload", "variant", "sessions", "repeat")
    return {"cell": cell.id, **{k: getattr(cell, k) for k in keys}}


def wal(climbed: Climb, per_call: float) -> pl.DataFrame:
    row = {"name": "WAL", "unit": "bytes", "per_call": per_call, "status": "ok", "source": "counters"}
    return rows("profile", [_head(climbed) | row])


def test_the_check_of_durability_is_a_claim_of_a_run_that_writes(climbed: Climb) -> None:
    assert claims(climbed, BAD, SWAP) == {}
    assert claims(climbed, BAD, profile=wal(climbed, 20)) == {}
    claim = claims(climbed, BAD, profile=wal(climbed, 500))["condition-durable"]
    assert (claim.severity, claim.advice) == ("warning", "do it")
    assert claim.slots == {"title": "durable", "value": "off", "why": "Why.", "cure": "do it"}


def test_other_checks_are_claims_of_each_run_and_name_the_variant(climbed: Climb) -> None:
    claims_by_id = claims(climbed, CLOCK, CLOCK.model_copy(update={"id": "direct", "variant": "direct"}))
    assert claims_by_id["condition-clock"].severity == "note"
    assert claims_by_id["condition-direct"].subject == "direct"


@pytest.mark.parametrize(
    ("calls", "exec_ms", "jit_ms", "share"),
    [(100, 2000, 1500, 0.75), (100, 2000, 50, None), (1, 5000, 4000, None)],
)
def test_short_statements_that_are_compiled_are_a_claim(
    climbed: Climb, calls: int, exec_ms: int, jit_ms: int, share: float | None
) -> None:
    row = {
        "rank": 1,
        "query_id": 7,
        "toplevel": True,
        "calls": calls,
        "exec_ns": exec_ms * 10**6,
        "jit_ns": jit_ms * 10**6,
        "status": "ok",
        "source": "counters",
    }
    claim = claims(climbed, statements=rows("statements", [_head(climbed) | row])).get("short-compiled")
    assert (claim.value.value if claim and claim.value else None) == share


def test_a_check_with_another_result_is_kept_once(climbed: Climb) -> None:
    environment = climbed.environment.with_conditions([BAD, CLOCK])
    same = environment.with_conditions([BAD])
    assert same is environment
    other = BAD.model_copy(update={"value": "on", "variant": "safe"})
    assert environment.with_conditions([other]).conditions == (BAD, CLOCK, other)


def test_two_runs_are_compared_by_their_checks(climbed: Climb) -> None:
    results = derive(climbed.info, climbed.plan, climbed.environment.with_conditions([BAD]), climbed.cells)
    assert _environment(results)["check: durable"] == "bad: off"
