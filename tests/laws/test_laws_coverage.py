"""Law of the intervals: an account lies in its own in 95 of 100 windows, and they are not just wide."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import polars as pl
import pytest
from tests.fake_engine.truth import Truth
from tests.fakery import Climb, S, climb, sampled_again

from dbdyno.account.ledger import ledger
from dbdyno.account.window import cut
from dbdyno.model.results.raw import RawCell

WALL_NS = 10 * S
SEEDS = 10
LAWS = {
    "fake:cpus=2,cpu=2ms,wait=IO/DataFileRead:3ms,think=1ms,spread=0.5": 6,
    "fake:cpus=2,cpu=5ms,lock=LWLock/WALWrite:3ms,think=1ms,quota=1.2,spread=0.3": 6,
    "fake:cpus=3,call=cpu:3ms+IO/DataFileRead:2ms+cpu:1ms+Lock/tuple:4ms,spread=0.3": 10,
    "fake:cpus=4,cpu=8ms,think=30ms,spread=0.7": 3,
    "fake:cpus=2,cpu=500us,think=300us,driver=20us,spread=0.5": 8,
}
# account: the most that its interval may be wide in the mean, of the wall time of its sessions, by
# 100 samples a second and by 10: sampling alone is 2 z sqrt(p (1 - p) / n), 0.06 and 0.2 at one half
WIDEST = {
    "sleep": (0.06, 0.17),
    "client": (0.06, 0.17),
    "runq": (0.12, 0.22),
    "unaccounted": (0.07, 0.2),
}


class Tried(NamedTuple):
    load: str
    account: str
    held: bool
    width: float
    sessions: int


@cache
def _play(dsn: str, sessions: int) -> Climb:
    return climb(dsn, [sessions])


def _known_sums(truth: Truth) -> dict[tuple[str, str | None], float]:
    """Returns seconds per second under the ledger's names."""
    sums_ns = {("client", None): truth.client, ("unaccounted", None): 0}
    for (wait_class, event), ns in truth.sleep.items():
        sums_ns["sleep", f"{wait_class}/{event}" if wait_class else "no wait event"] = ns
    for label, under in truth.labels.items():
        name = f"{label.wait_class}/{label.wait_event}" if label.wait_class else "no wait event"
        sums_ns["runq", name] = sums_ns.get(("runq", name), 0) + under.runq
    return {k: ns / WALL_NS for k, ns in sums_ns.items()}


def _sample_again(played: Climb, seed: int, memory_hz: float) -> RawCell:
    (cell,) = played.cells
    again = sampled_again(played.server, cell, seed, memory_hz)
    own = cell.meta.cell.model_copy(update={"id": f"{cell.id}-{seed}"})
    return RawCell(cell.meta.model_copy(update={"cell": own}), again.tables)


def _judge(load: str, row: dict | None, key: tuple[str, str | None], exact: float, sessions: int) -> Tried:
    """Judges a row. A label that a window's samples did not meet is 0 there, without an interval."""
    if row is None:
        return Tried(load, key[0], exact < 1e-9, 0.0, sessions)
    held = row["low"] - 1e-9 <= exact <= row["high"] + 1e-9
    return Tried(load, key[0], held, (row["high"] - row["low"]) / sessions, sessions)


def _tries(memory_hz: float) -> pl.DataFrame:
    tried = []
    for dsn, sessions in LAWS.items():
        played = _play(dsn, sessions)
        (cell,) = played.cells
        truth = played.server.truth(cell.id, cell.meta.t0_ns, cell.meta.t1_ns)
        known = {n: _known_sums(t) for n, t in truth.items()}
        whole = {
            k: sum(t.get(k, 0.0) for t in known.values()) for k in {k for t in known.values() for k in t}
        }
        rows_of_all = ledger(cut([_sample_again(played, seed, memory_hz) for seed in range(SEEDS)]))
        widest = rows_of_all.filter(
            pl.col("who").is_in(["rung", "session"]) & pl.col("account").is_in(list(WIDEST))
        )
        widest = widest.filter((pl.col("account") != "runq") | pl.col("parent").is_not_null())
        rows = {(r["cell"], r["session"], r["account"], r["detail"]): r for r in widest.to_dicts()}
        labels = {key[2:] for key in rows if key[3] is not None or key[2] in ("client", "unaccounted")}
        for of, exact in ((None, whole), *known.items()):
            size = sessions if of is None else 1
            for at in rows_of_all["cell"].unique():
                tried += [
                    _judge(dsn, rows.get((at, of, *key)), key, exact.get(key, 0.0), size) for key in labels
                ]
    return pl.DataFrame(tried, schema=["load", "account", "held", "width", "size"], orient="row")


@pytest.mark.parametrize(("memory_hz", "tier"), [(100.0, 0), pytest.param(0.0, 1, marks=pytest.mark.whole)])
def test_intervals_hold_the_truth(memory_hz: float, tier: int):
    """This tries all sessions and rungs of five loads, each sampled ten times."""
    tried = _tries(memory_hz)
    for alone in (True, False):
        part = tried.filter((pl.col("size") == 1) == alone)
        for (account,), rows in part.group_by("account"):
            share, width = rows["held"].mean(), rows["width"].mean()
            assert rows.height >= 5 * SEEDS
            assert share >= 0.95, f"{account}: {share:.3f} of {rows.height}, {width:.4f} wide"
            assert width <= WIDEST[str(account)][tier], f"{account}: {width:.4f} wide"
    for (load, account), rows in tried.group_by("load", "account"):
        share = rows["held"].mean()
        assert share >= 0.93, f"{account} of {load}: {share:.3f} of {rows.height}"
