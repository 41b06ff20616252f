"""The sampled tier against the exact one, and against simpler formulas, on the same windows.

``tiers``: how often each account of the sampled ledger has the traced figure inside its own 95 % interval.
``naive``: CPU as "active without wait event" and waiting as "elapsed less CPU", beside the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from dbdyno.conduct.measure.cell import Setting, Unit
from dbdyno.conduct.measure.cells import measure_cell
from dbdyno.conduct.selftest import tiers_of
from dbdyno.drive import Interrupt
from dbdyno.engines import open_server
from dbdyno.model.engine.protocols import Server, Target
from dbdyno.model.engine.truth import TruthCase
from dbdyno.model.plan.plan import Cell, Experiment, Plan, PlannedScript
from dbdyno.model.results.raw import RawCell
from dbdyno.model.sources.source import TRACE
from dbdyno.model.units import NS_PER_S

_SPIN = "do $$ begin for i in 1..2000000 loop end loop; end $$"
_SELECT = "select relname from pg_class where oid = 1259"
_SMALL = 0.005  # accounts below this share of the sessions' time are left out: they decide nothing
_TABLE = TruthCase(
    name="bench",
    kind="commit",
    title="",
    sql="",
    setup=(
        "create table if not exists dbdyno.bench (id int primary key, n bigint) with (fillfactor = 50)",
        "truncate dbdyno.bench",
        "insert into dbdyno.bench select i, 0 from generate_series(1, 64) as i",
    ),
)


@dataclass(frozen=True)
class Load:
    name: str
    sql: str
    sessions: int
    think_ms: int = 0


_UPDATE = "update dbdyno.bench set n = n + 1 where id = (random() * 3)::int + 1"
LOADS = (
    Load("read-only OLTP, 8 sessions", _SELECT, 8),
    Load("read-only OLTP, 16 sessions", _SELECT, 16),
    Load("read-only OLTP with 2 ms of think time, 16 sessions", _SELECT, 16, 2),
    Load("commits, 8 sessions", "update dbdyno.bench set n = n + 1 where id = (random() * 60)::int + 4", 8),
    Load("four hot rows, 16 sessions", _UPDATE, 16),
    Load("CPU loops, 8 sessions", _SPIN, 8),
    Load("sleep 3 ms, CPU 3 ms, 6 sessions",
         "do $$ begin perform pg_sleep(0.003); for i in 1..100000 loop end loop; end $$", 6),
)  # fmt: skip


def main(count: int, seconds: float) -> None:
    """Measures ``count`` windows of ``seconds`` for each load."""
    with open_server("postgres", Target(sessions=30)) as server:
        rows = [row for load in LOADS for row in _load(server, load, count, seconds)]
    frame = pl.DataFrame(rows)
    if frame.is_empty():
        print("the scheduler trace is not permitted here: nothing to compare with")
        return
    for keys in (["load"], ["account"], []):
        figures = (
            pl.len().alias("accounts"),
            (100 * pl.col("inside").mean()).round(1).alias("inside %"),
            (100 * pl.col("error").abs().mean()).round(2).alias("mean error, % of W"),
            (100 * pl.col("half").mean()).round(2).alias("mean half width, % of W"),
        )
        part = frame.group_by(keys, maintain_order=True).agg(*figures) if keys else frame.select(*figures)
        with pl.Config(tbl_rows=-1, fmt_str_lengths=60, tbl_hide_dataframe_shape=True):
            print(part)


def naive(_count: int, seconds: float) -> None:
    """Measures one window of each load and returns CPU and waiting in seconds per second."""
    chosen = (
        Load("one CPU loop per CPU", _SPIN, 2),
        Load("four CPU loops per CPU", _SPIN, 8),
        *LOADS[:3],
    )
    with open_server("postgres", Target(sessions=30)) as server:
        for load in chosen:
            raw = _measure(server, load, 1, seconds)
            for tier, tables in tiers_of(raw):
                if tier != TRACE:
                    print(f"{load.name}: {_naive(tables['ledger'])}", flush=True)


def _naive(book: pl.DataFrame) -> str:
    rung = book.filter((pl.col("scope") == "rung") | (pl.col("who") == "rung"))

    def aas(account: str) -> float:
        return float(rung.filter(pl.col("account") == account)["aas"].sum())

    cpu, wait = aas("run"), aas("runq")
    asleep = aas("sleep")
    return (
        f"CPU {cpu:.2f}, CPU WAIT {wait:.2f}, asleep {asleep:.2f}, client {aas('client'):.2f}; "
        f"'active without wait event' says CPU {aas('naive.cpu'):.2f}; "
        f"'elapsed - CPU' says waiting {aas('naive.active') - cpu:.2f} (truth: asleep {asleep:.2f})"
    )


def _load(server: Server, load: Load, count: int, seconds: float) -> Iterator[dict[str, object]]:
    for number in range(1, count + 1):
        books = {tier: tables["ledger"] for tier, tables in tiers_of(_measure(server, load, number, seconds))}
        if TRACE in books:
            exact = books.pop(TRACE)
            for sampled in books.values():
                yield from _compare(load, exact, sampled)


def _compare(load: Load, exact: pl.DataFrame, sampled: pl.DataFrame) -> Iterator[dict[str, object]]:
    """Compares the accounts of the rung and its sessions that sleep or wait in the run queue."""
    keys = ["scope", "session", "who", "account", "detail"]
    chosen = pl.col("account").is_in(["sleep", "client", "label.runq"]) & (pl.col("scope") != "helper")
    left, right = (book.filter(chosen).select(*keys, "aas", "low", "high") for book in (exact, sampled))
    both = left.join(right, on=keys, how="full", coalesce=True, nulls_equal=True, suffix="_sampled")
    for row in both.iter_rows(named=True):
        wall = load.sessions if "rung" in (row["scope"], row["who"]) else 1
        truth, estimate = row["aas"] or 0.0, row["aas_sampled"] or 0.0
        if max(truth, estimate) < _SMALL * wall:
            continue
        low, high = row["low_sampled"] or 0.0, row["high_sampled"]
        whole = "of the rung" if wall > 1 else "of a session"
        yield {
            "load": load.name,
            "account": f"{row['account']} {whole}",
            "inside": high is not None and low - 1e-9 <= truth <= high + 1e-9,
            "error": (estimate - truth) / wall,
            "half": ((high or 0.0) - low) / 2 / wall,
        }


def _measure(server: Server, load: Load, number: int, seconds: float) -> RawCell:
    assert server.truths and server.scripts
    server.truths.truth_setup(_TABLE)
    workload = server.scripts.script([PlannedScript(name=load.name, text=load.sql)])
    cell = Cell(
        id=f"{number:04}",
        workload=workload.name,
        variant="base",
        sessions=load.sessions,
        repeat=number,
        params={},
        settle_ns=NS_PER_S,
        measure_ns=int(seconds * NS_PER_S),
        think_ns=load.think_ms * 1_000_000,
    )
    plan = Plan(
        experiment=Experiment(script=load.name), cpus=1, call_target_ns=None, cells=(cell,), expected_ns=0
    )
    return measure_cell(Setting(server, plan, Interrupt()), cell, Unit(workload, None))
