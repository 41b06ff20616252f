"""Was the client what limited the measurement?

A driver thread that is busy, or waits for a CPU, holds up every session whose answer has come: a thread that
is late by 1 ms with 200 answers at hand costs the sessions 0.2 s. What counts is therefore the time that
sessions waited for the driver, over all their time but thinking. With long calls it hardly matters that
threads wait for a CPU, and a server that has all CPUs busy would not make more calls for a faster driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from dbdyno.model.bycell import ByCell
from dbdyno.model.plan import Plan
from dbdyno.model.tables import rows
from dbdyno.model.units import NS_PER_S
from dbdyno.model.variant import cpus_under

WAITED = 0.25
"""Limited by the client: sessions waited for the driver in more than this share of their time (thinking left
out), and used less of the CPUs that they may use than all but :data:`LEFT`."""
LEFT = 0.25
WAITED_MOST = 0.75
"""Beyond this share it is the client whatever the server used: there most sessions are."""

WORTH_TELLING = 0.05
"""Share from which on response times are visibly the driver's, too."""

STARVED = 0.05
"""Run-queue time of the driver's threads over their runnable time (run + run queue)."""

MACHINE_SHARE = 0.10
"""More of the machine's CPUs than this the driver should not take."""

Figures = Mapping[str, float | None]
Tables = Mapping[str, pl.DataFrame]


def is_limit(figures: Figures) -> bool:
    """Whether the client limited the measurement; from the rung's rates. Unknown is no."""
    return figures.get("client_limits") == 1.0


def busy(figures: Figures) -> float | None:
    """Share of the window in which a driver thread was on a CPU or waited for one; mean of the threads."""
    run, runq, threads = (figures.get(n) for n in ("driver_cpus", "driver_runq", "driver_threads"))
    return None if run is None or runq is None or not threads else min(1.0, (run + runq) / threads)


def judged(tables: Tables, plan: Plan) -> pl.DataFrame:
    """Table ``rates`` with two more figures a cell: ``driver_delay``, ``client_limits`` (1: yes)."""
    rates = tables["rates"].filter(~pl.col("name").is_in(["driver_delay", "client_limits"]))
    threads = tables["cut_tasks"].filter(pl.col("role") == "driver")
    in_rungs = rates.filter(pl.col("scope") == "rung")
    parts = ByCell({"rates": in_rungs, "ledger": tables["ledger"], "threads": threads})
    usable = tables["windows"].filter(pl.col("status") != "invalid")  # what is not has its own reason
    made = [row for w in usable.iter_rows(named=True) for row in _of_cell(w, parts, plan)]
    return pl.concat([rates, rows("rates", made)])


def _of_cell(window: Mapping[str, Any], parts: ByCell, plan: Plan) -> Iterator[dict[str, Any]]:
    rates = parts.table("rates", window["cell"])
    figures: dict[str, float | None] = dict(rates.select("name", "value").rows())
    think_ns = next((c.think_ns for c in plan.cells if c.variant == window["variant"]), 0)
    thinking = (figures.get("calls_per_s") or 0.0) * think_ns / NS_PER_S
    client = _client(parts.table("ledger", window["cell"]))
    waiting = queued(figures, parts.table("threads", window["cell"])) if client is None else client - thinking
    share = delay(figures, window["sessions"] - thinking, waiting)
    if share is None:
        return
    cpus = cpus_under(plan.variant(window["variant"]).limits, plan.cpus)
    observed = rates.filter((pl.col("name") == "cpu_per_call_ns") & (pl.col("status") == "off")).is_empty()
    left = _left(figures, cpus, observed=observed)
    limits = share > WAITED_MOST or (share > WAITED and left > LEFT)
    head = {c: rates[c][0] for c in rates.columns} | {"status": "ok", "source": "driver tasks, ledger"}
    yield head | {"name": "driver_delay", "unit": "of session time", "value": share}
    yield head | {"name": "client_limits", "unit": "", "value": float(limits)}


def delay(figures: Figures, sessions: float, waiting: float | None) -> float | None:
    """Share of the sessions' time in which they waited for the driver; ``None``: unknown.

    ``sessions``: session time without thinking, in seconds per second; ``waiting``: the part of it in which
    the server waited for the client. It is the driver that it waited for, for as long as threads are busy or
    wait for a CPU. The driver's own work on an answer is no delay.
    """
    run, share = figures.get("driver_cpus"), busy(figures)
    if run is None or share is None or waiting is None or sessions <= 0:
        return None
    return max(0.0, min(waiting, share * sessions) - run) / sessions


def queued(figures: Figures, threads: pl.DataFrame) -> float | None:
    """Answers at the driver where no ledger tells them: on average half of those that come between two
    sleeps of a thread, while it is awake. It sleeps when it has none left; if it never does, it has all."""
    rate, share = figures.get("calls_per_s"), busy(figures)
    if rate is None or share is None or threads["voluntary"].null_count():
        return None
    sleeps = NS_PER_S * float((threads["voluntary"] / threads["wall_ns"]).sum())
    return threads.height * share * max(1.0, rate / (2 * sleeps)) if sleeps > 0 else float("inf")


def _client(ledger: pl.DataFrame) -> float | None:
    mine = ledger.filter((pl.col("scope") == "rung") & (pl.col("account") == "client"))["aas"]
    return float(mine.sum()) if len(mine) and not mine.null_count() else None


def _left(figures: Figures, cpus: float, *, observed: bool) -> float:
    """Share of the server's CPUs that its sessions did not use. Where it is unknown: all, of a server that
    is elsewhere; none, where nothing of it was to be read, as it may have the same CPUs as the driver."""
    rate, per_call_ns = figures.get("calls_per_s"), figures.get("cpu_per_call_ns")
    if rate is None or per_call_ns is None:
        return 1.0 if observed else 0.0
    return 1 - rate * per_call_ns / NS_PER_S / cpus
