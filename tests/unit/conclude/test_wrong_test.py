"""The wrong test for the machine: hot rows, one latch, a cache in place of a disk; each side of its limit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from tests.unit import report_results

from dbdyno.conclude.run.case import Case
from dbdyno.conclude.run.counting import cached
from dbdyno.conclude.run.locks import HOT, LATCH, hot_rows, latch
from dbdyno.engines.postgres.wait_events import advice, families
from dbdyno.model.plan.data_size import few_rows
from dbdyno.model.plan.parameter import Parameter, Rows
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import rows

ROW, LATCH_EVENT = "Lock/transactionid", "LWLock/WALInsert"
BRANCHES = Parameter(
    doc="", type="int", default=1, rows=Rows(one="branch", many="branches", cure="prepare -s {n} --replace")
)


def _case(shares: Mapping[str, float], scale: int | None = None, chains: pl.DataFrame | None = None) -> Case:
    """Eight sessions at the top; ``shares`` of DB time by event there. Intervals of 10 % of the value."""
    results: Results = report_results.results(report_results.World(rungs=(1, 8)))
    top = {"cell": "all", "workload": "lio", "variant": "base", "sessions": 8, "repeat": 1}
    same = {"unit": "s", "source": "os tasks", "runq_s": None, "status": "ok"}
    events: list[dict[str, Any]] = [
        top
        | same
        | {
            "rank": i,
            "name": name,
            "share": share,
            "seconds": 80 * share,
            "low": 72 * share,
            "high": 88 * share,
            "per_s": 8 * share,
        }
        for i, (name, share) in enumerate(shares.items(), 1)
    ]
    known = {c.name for c in report_results.tables.TABLES["top_events"]}
    tables = {
        **results.tables,
        "top_events": rows("top_events", [{k: v for k, v in e.items() if k in known} for e in events]),
        "wait_families": families().table(),
        "wait_advice": advice().table(),
    }
    if chains is not None:
        tables["wait_chains"] = chains
    workloads = dict(results.info.workloads)
    plan = results.plan
    if scale is not None:
        workloads = {
            n: w.model_copy(update={"parameters": {"scale": BRANCHES}}) for n, w in workloads.items()
        }
        cells = tuple(c.model_copy(update={"params": {"scale": scale}}) for c in plan.cells)
        plan = plan.model_copy(update={"cells": cells})
    return Case(plan, results.environment, tables, workloads)


def _chains(*objects: tuple[str, float]) -> pl.DataFrame:
    top = {"cell": "all", "workload": "lio", "variant": "base", "sessions": 8, "repeat": 1}
    same = {"by": "object", "query_id": None, "low": 0.0, "high": 9.0, "samples": 20, "longest_s": None}
    return rows(
        "wait_chains",
        [
            top
            | same
            | {
                "rank": i,
                "name": name,
                "lock_share": share,
                "seconds": share,
                "share": share,
                "status": "ok",
                "source": "lock waits",
            }
            for i, (name, share) in enumerate(objects, 1)
        ],
    )


def _only_claim(claims: list[Claim]) -> Claim:
    (one,) = claims
    return one


@pytest.mark.parametrize(("share", "claims"), [(HOT - 0.01, 0), (HOT + 0.01, 1)])
def test_waits_for_rows_are_hot_rows_from_the_limit_on(share: float, claims: int) -> None:
    assert len(list(hot_rows(_case({ROW: share})))) == claims
    assert not list(hot_rows(_case({"Lock/relation": share, LATCH_EVENT: share})))


def test_hot_rows_are_those_of_a_table_and_too_few_for_the_sessions() -> None:
    chains = _chains(("pgbench_branches (transactionid)", 0.8), ("pg_class (relation)", 0.2))
    claim = _only_claim(list(hot_rows(_case({ROW: 0.3, "Lock/tuple": 0.2}, scale=1, chains=chains))))
    assert claim.value is not None and claim.value.value == pytest.approx(0.5)
    values = [claim.slots[n] for n in ("place", "sessions", "rows")]
    assert (claim.case, *values) == ("few", " at 8 sessions", 8, "1 branch")
    assert "80 % of the lock waits are for pgbench_branches." in claim.text
    assert claim.advice.endswith("prepare -s 8 --replace")


def test_with_as_many_rows_as_sessions_the_number_is_not_to_blame() -> None:
    claim = _only_claim(list(hot_rows(_case({ROW: 0.3}, scale=8))))
    assert claim.case == "waits" and "more rows" in claim.advice


@pytest.mark.parametrize(("share", "claims"), [(LATCH - 0.01, 0), (LATCH + 0.01, 1)])
def test_one_latch_is_a_claim_from_the_limit_on(share: float, claims: int) -> None:
    latches = list(latch(_case({LATCH_EVENT: share})))
    assert len(latches) == claims
    if latches:
        assert latches[0].slots["event"] == "LWLock/WALInsert" and "buffers of the WAL" in latches[0].text
        assert "less WAL" in latches[0].advice


def test_the_end_of_a_table_is_a_short_lock_and_a_row_is_not() -> None:
    assert _only_claim(list(latch(_case({"Lock/extend": 0.2, ROW: 0.2})))).slots["event"] == "Lock/extend"


def test_a_latch_without_advice_of_the_engine_has_a_general_one() -> None:
    claim = _only_claim(list(latch(_case({"LWLock/OidGen": 0.2}))))
    assert "Sessions wait for" not in claim.text and claim.advice


@pytest.mark.parametrize(
    ("value", "mode", "few"),
    [(7, "read-write", True), (8, "read-write", False), (7, "read-only", False)],
)
def test_rows_are_few_below_the_number_of_sessions_and_where_they_are_changed(
    value: int, mode: str, few: bool
) -> None:
    own = Rows(one="warehouse", many="warehouses", having={"mode": "read-write"}, cure="warehouses={n}")
    parameters = {
        "warehouses": Parameter(doc="", type="int", default=100, rows=own),
        "mode": Parameter(doc="", type="choice", default="read-write"),
    }
    workload = next(iter(report_results.results().info.workloads.values())).model_copy(
        update={"parameters": parameters}
    )
    cure = few_rows(workload, {"warehouses": value, "mode": mode}, 8)
    assert (cure is not None) == few
    assert cure is None or cure == ("7 warehouses", "warehouses", "warehouses=8")


@pytest.mark.parametrize(
    ("expect", "physical", "claims"),
    [
        ("disk", 0.04, ["hardly-physical"]),
        ("disk", 0.06, []),
        ("cache", 0.002, ["not-cached"]),
        ("cache", 0.0005, []),
    ],
)
def test_the_purpose_of_a_test_decides_what_its_reads_should_be(
    expect: str, physical: float, claims: list[str]
) -> None:
    results = report_results.results(report_results.World(rungs=(1,)))
    profile = results.tables["profile"].filter(~pl.col("name").is_in(["logical reads", "physical reads"]))
    row = results.tables["profile"].head(1).to_dicts()[0]
    totals = {"logical reads": 10_000.0, "physical reads": 10_000.0 * physical}
    more = rows("profile", [row | {"name": n, "total": v} for n, v in totals.items()])
    experiment = results.plan.experiment.model_copy(update={"expect": expect})
    plan = results.plan.model_copy(update={"experiment": experiment})
    tables = {**results.tables, "profile": pl.concat([profile, more])}
    case = Case(plan, results.environment, tables, results.info.workloads)
    assert [c.id for c in cached(case)] == claims
    plain = replace(results, tables=tables)
    bare = {n: w.model_copy(update={"cached": None}) for n, w in plain.info.workloads.items()}
    assert not list(cached(Case(results.plan, results.environment, tables, bare)))
