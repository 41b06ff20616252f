"""Wait chains from tables written by hand: chains, cycles, several blockers, roots that are gone, sums."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from dbdyno.account.chains import (
    ASLEEP,
    CHAIN,
    CYCLE,
    DOING,
    ENDED,
    NOT_SAMPLED,
    OBJECT,
    PREPARED_TRANSACTION,
    RELEASED,
    STATEMENT,
    wait_chains,
    wait_chains_total,
)
from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.tables import empty, rows
from dbdyno.model.sources.source import HIDDEN_STATUS
from dbdyno.model.sources.wait_families import Family, WaitFamilies

WALL_S = 10.0
FAMILIES = WaitFamilies({"Lock": Family.LOCK, "Client": Family.CLIENT, "IO": Family.IO})
ROOT: dict[str, Any] = {
    "state": "active",
    "user": "app",
    "database": "d",
    "application": "shop",
    "status": "ok",
}
COMMITS = ROOT | {"blocker_wait_class": "IO", "blocker_wait_event": "WalSync", "task_state": "S"}
RUNS = ROOT | {"task_state": "R"}
IDLE = ROOT | {"state": "idle in transaction", "task_state": "S"}
IDLE |= {"blocker_wait_class": "Client", "blocker_wait_event": "ClientRead"}


def cell(name: str = "c1") -> dict[str, Any]:
    return {"cell": name, "workload": "w", "variant": "base", "sessions": 0, "repeat": 1}


def waiter(
    pid: int, blocker: int | None, sample: int = 0, event: str = "transactionid", **more: Any
) -> dict[str, Any]:
    row = cell() | {
        "sample": sample,
        "before_ns": 0,
        "after_ns": 1,
        "pid": pid,
        "session": pid,
        "seconds": 0.1,
    }
    row |= {
        "wait_class": "Lock",
        "wait_event": event,
        "blocker": blocker,
        "object": event,
        "relation": "t",
    }
    return row | {"status": "ok"} | more


def tables(
    blocked: list[dict[str, Any]],
    slept: dict[str, float] | None = None,
    tasks: list[dict[str, Any]] | None = None,
) -> dict[str, pl.DataFrame]:
    """``slept``: seconds per second by event, in the ledger."""
    slept = {"Lock/transactionid": 2.0} if slept is None else slept
    scope = cell() | {"scope": "rung", "who": "rung", "status": "ok", "source": "trace"}
    ledger = [
        scope | {"account": a, "detail": d, "aas": v} for a, d, v in (("run", None, 1.0), ("runq", None, 0.0))
    ]
    ledger += [scope | {"account": "sleep", "detail": d, "aas": v} for d, v in slept.items()]
    window = cell() | {"t0_ns": 0, "t1_ns": 10**10, "wall_s": WALL_S, "status": "ok"}
    whole = {
        "worker": False,
        "from_ns": 0,
        "to_ns": 10**10,
        "wall_ns": 10**10,
        "over_ns": 10**10,
        "partial": False,
    }
    filled = {
        "windows": rows("windows", [window]),
        "ledger": rows("ledger", ledger),
        "cut_blocked": rows("cut_blocked", blocked),
        "cut_tasks": rows("cut_tasks", [cell() | whole | t for t in tasks or []]),
        "wait_families": FAMILIES.table(),
    }
    others = ("events", "cut_levels", "cell_sessions", "cell_sources", "cut_sampler", "served")
    return {**{name: empty(name) for name in others}, **filled}


def seconds(chains: pl.DataFrame, by: str) -> dict[str, float]:
    return {r["name"]: r["seconds"] for r in chains.filter(pl.col("by") == by).to_dicts()}


def test_a_chain_of_three_ends_at_its_root() -> None:
    blocked = [waiter(1, 2, event="tuple"), waiter(2, 3), waiter(3, 9, **COMMITS, query_id=77)]
    result = wait_chains(tables(blocked, {"Lock/tuple": 1.0, "Lock/transactionid": 2.0}))
    assert seconds(result, DOING) == {"IO/WalSync": pytest.approx(30.0)}
    assert seconds(result, CHAIN) == {
        "Lock/tuple -> Lock/transactionid -> Lock/transactionid -> IO/WalSync": pytest.approx(10.0),
        "Lock/transactionid -> Lock/transactionid -> IO/WalSync": pytest.approx(10.0),
        "Lock/transactionid -> IO/WalSync": pytest.approx(10.0),
    }
    root = result.filter(pl.col("by") == STATEMENT).to_dicts()[0]
    assert (root["name"], root["query_id"]) == ("shop (app@d)", 77)
    assert seconds(result, OBJECT) == {
        "t (transactionid)": pytest.approx(20.0),
        "t (tuple)": pytest.approx(10.0),
    }


def test_parts_add_up_to_the_ledgers_lock_waits() -> None:
    blocked = [waiter(p, 9, s, **(COMMITS if s % 3 else IDLE)) for s in range(12) for p in (1, 2, 3)]
    result = wait_chains(
        tables(blocked, {"Lock/transactionid": 2.5, "Lock/relation": 0.25, "IO/WalSync": 1.0})
    )
    for by in (DOING, CHAIN, STATEMENT, OBJECT):
        selected = result.filter(pl.col("by") == by)
        assert selected["seconds"].sum() == pytest.approx(27.5)
        assert selected["lock_share"].sum() == pytest.approx(1.0)
        assert (selected["low"] <= selected["seconds"] + 1e-9).all() and (
            selected["seconds"] <= selected["high"] + 1e-9
        ).all()
    doing = seconds(result, DOING)
    assert doing["client (idle in transaction)"] == pytest.approx(25 / 3)
    assert doing[f"Lock/relation: {NOT_SAMPLED}"] == pytest.approx(2.5)
    assert result.filter(pl.col("status") == NOT_SAMPLED)["samples"].to_list() == [0] * 4


def test_a_runnable_root_is_divided_as_its_window_was() -> None:
    task = {"pid": 9, "tid": 9, "role": "other", "run_ns": 3 * 10**9, "runq_ns": 10**9, "status": "ok"}
    result = wait_chains(tables([waiter(1, 9, **RUNS)], tasks=[task]))
    assert seconds(result, DOING) == {"DB CPU": pytest.approx(15.0), "CPU WAIT": pytest.approx(5.0)}
    unknown = wait_chains(tables([waiter(1, 9, **RUNS)]))
    assert seconds(unknown, DOING) == {"CPU or CPU WAIT": pytest.approx(20.0)}


def test_sessions_that_wait_for_each_other_are_a_deadlock() -> None:
    result = wait_chains(tables([waiter(1, 2, **COMMITS), waiter(2, 1, **COMMITS), waiter(3, 1, **COMMITS)]))
    assert seconds(result, DOING) == {CYCLE: pytest.approx(20.0)}


def test_several_blockers_share_a_waiter() -> None:
    result = wait_chains(tables([waiter(1, 8, **COMMITS), waiter(1, 9, **IDLE)]))
    assert list(seconds(result, DOING).values()) == [pytest.approx(10.0)] * 2


@pytest.mark.parametrize(
    ("root", "doing"),
    [
        ({"blocker": None}, RELEASED),
        ({"blocker": 0, "state": "prepared transaction", "application": "g1"}, PREPARED_TRANSACTION),
        ({"blocker": 9, "status": "vanished"}, ENDED),
        ({"blocker": 9, "state": "hidden", "user": "app", "task_state": "S"}, HIDDEN_STATUS),
        ({"blocker": 9, "helper": "autovacuum worker", "task_state": "S"}, ASLEEP),
    ],
)
def test_a_root_outside_our_sessions_is_named_by_its_state(root: dict[str, Any], doing: str) -> None:
    result = wait_chains(tables([waiter(1, None) | root]))
    assert seconds(result, DOING) == {doing: pytest.approx(20.0)}


def test_a_leader_waits_for_whom_its_worker_waits_for() -> None:
    blocked = [waiter(1, 5), waiter(6, 9, leader_pid=5, **COMMITS) | {"session": None}]
    assert set(seconds(wait_chains(tables(blocked)), DOING)) == {"IO/WalSync"}


def test_foreign_waiters_and_no_waiters_make_no_rows() -> None:
    assert wait_chains(tables([])).is_empty()
    assert wait_chains(tables([waiter(1, 9, **COMMITS) | {"session": None}])).is_empty()


def test_without_task_times_durations_come_from_samples_alone() -> None:
    sampled = tables([waiter(1, 9, s, **COMMITS) for s in range(5)])
    sampled["ledger"] = sampled["ledger"].with_columns(aas=pl.lit(None, pl.Float64))
    assert seconds(wait_chains(sampled), DOING) == {"IO/WalSync": pytest.approx(0.5)}


def test_all_cells_together_add_up() -> None:
    one = tables([waiter(1, 9, **COMMITS)])
    names = [c.name for c in CELL]
    second = one["windows"].with_columns(cell=pl.lit("c2"))
    chains = wait_chains(one)
    both = {"windows": pl.concat([one["windows"], second])}
    both["wait_chains"] = pl.concat([chains, chains.with_columns(cell=pl.lit("c2"))])
    total = wait_chains_total(both)
    assert seconds(total, DOING) == {"IO/WalSync": pytest.approx(40.0)}
    assert total.select(names)["cell"].unique().to_list() == ["all"]
    assert total["share"][0] == pytest.approx(chains["share"][0])
