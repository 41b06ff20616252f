"""What each data source gives for DB time and for the work done, and what all readings of sources share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import polars as pl

from dbdyno.account.ledger.margins import UNREAD
from dbdyno.account.ledger.pooled import QUEUE
from dbdyno.model.ledger_rows import account_rows
from dbdyno.model.session_time import UNLABELLED, in_call
from dbdyno.model.source import HIDDEN_STATUS, TRACE
from dbdyno.model.tables import Tables
from dbdyno.model.units import NS_PER_S
from dbdyno.model.wait_families import AT_CLIENT, families_of

TOLERANCE: dict[str, tuple[float, float]] = {
    # quantity: (relative, absolute); a difference within either agrees
    "cpu_used": (0.05, 0.05),  # cores; task figures are up to a tick old, one tick a task and read
    "cpu_sessions": (0.05, 0.05),
    "cpu_used_machine": (0.10, 0.10),  # cores; /proc/stat is sampled by ticks
    "db_time": (0.05, 0.05),  # seconds per second
    "run_and_runq": (0.10, 0.10),  # seconds per second; besides, the samples' own interval
    "executions": (0.0, 0.01),  # calls: they are whole, and sums of quotients are not
    "work_per_call": (1e-6, 0.0),
    "logical_reads": (0.05, 100.0),  # blocks a second
}
LAG_S = 1.0
"""A server reports its sessions' figures this much later: at most once a second by the
engines that there are, and a statement under way shows nothing before its end."""


class SourceReading(NamedTuple):
    quantity: str
    source: str
    value: float | None
    unit: str
    status: str
    reason: str = ""
    lag_s: float = 0.0  # adds its share of the window to the tolerance
    interval_of: str | None = None  # memo of the rung whose interval may hold the reference, too


def rung(ledger: pl.DataFrame, account: str, scope: str = "rung") -> pl.DataFrame:
    """Rows of an account (or, with scope ``memo``, of a memo) of the rung."""
    return account_rows(ledger, account, scope=scope).filter(pl.col("who") == "rung")


def hidden(accounts: pl.DataFrame) -> bool:
    """Whether sessions that our role cannot see are missing in rows of the ledger."""
    return bool(accounts["status"].str.contains(HIDDEN_STATUS).any())


def level(
    cut: Tables, origin: str, key: str, scope: str | None = None, absent: str = "off"
) -> tuple[float | None, str]:
    """Growth per ns of wall time of one counter (the innermost group's)."""
    found = cut["cut_levels"].filter((pl.col("origin") == origin) & (pl.col("key") == key))
    if scope is not None:
        found = found.filter(pl.col("scope") == scope)
    if found.is_empty():
        return None, absent
    row = found.row(0, named=True)
    return (None, row["status"]) if row["delta"] is None else (row["delta"] / row["wall_ns"], "ok")


def rung_rate(cut: Tables, name: str) -> dict[str, Any] | None:
    rows = cut["rates"].filter((pl.col("scope") == "rung") & (pl.col("name") == name))
    return rows.row(0, named=True) if rows.height else None


_UNIT = "seconds per second"
_SERVED = ("run", "runq", "sleep", UNLABELLED)
_BEHIND = "the server does not see the pool's queue"
_LEDGER = "run, run queue and sleep outside class Client; a driver's call is longer by the way to it and back"
_DB_TIME_SCOPE = (
    "a session is active from when it got a CPU for a call until its end: run-queue time before that "
    "is missing, and the server reports late"
)
_NAMELESS = "the trace could not read the wait events: sleep for the client cannot be separated"
_STATE = "share of samples in state active: time in the run queue under state idle is missing"


def db_time(cut: Tables) -> Iterator[SourceReading]:
    """How long sessions were served: driver, ledger, scheduler trace, the server's counters, samples."""
    window = cut["windows"].row(0, named=True)
    if window["sessions"]:
        driven = in_call(cut["cell_sessions"], window["t0_ns"], window["t1_ns"])
        yield SourceReading("db_time", "driver", driven, _UNIT, "ok" if driven else "no measured calls")
    queued = rung(cut["ledger"], QUEUE)["aas"]
    yield _ledger(cut)
    yield from _traced(cut, float(queued.sum()))
    if queued.len():
        yield SourceReading("db_time", "engine counters", None, _UNIT, _BEHIND)
        return
    value, status = level(cut, "engine", "db_time_ns", "server", absent="off")
    yield SourceReading("db_time", "engine counters", value, _UNIT, status, _DB_TIME_SCOPE, lag_s=LAG_S)
    active = rung(cut["ledger"], "naive.active", "memo")["aas"].drop_nulls()
    value = float(active.sum()) if len(active) else None
    status = "ok" if value is not None else "off"
    yield SourceReading(
        "db_time", "activity samples: active", value, _UNIT, status, _STATE, interval_of="naive.active"
    )


def _ledger(cut: Tables) -> SourceReading:
    """All accounts of the sessions but client and unaccounted."""
    sampled = rung(cut["ledger"], "client")
    if not sampled["aas"].drop_nulls().len() or hidden(sampled):
        return SourceReading(
            "db_time", "ledger", None, _UNIT, str(sampled["status"][0]) if sampled.height else "off"
        )
    rows = account_rows(cut["ledger"], *_SERVED, QUEUE)
    return SourceReading("db_time", "ledger", float(rows["aas"].drop_nulls().sum()), _UNIT, "ok", _LEDGER)


def _traced(cut: Tables, queued: float) -> Iterator[SourceReading]:
    """Run and run queue of the sessions' tasks, and their sleeps other than at the client; a pool's queue is
    ``queued``."""
    tasks = cut["cut_traced"].filter(pl.col("role") == "session")
    if tasks.is_empty():
        return
    over = tasks.select("pid", "tid", "start_ticks", "over_ns").unique(["pid", "tid", "start_ticks"])
    client = families_of(cut).among(*AT_CLIENT)
    waits = cut["cut_waits"].filter((pl.col("role") == "session") & ~client)
    refused = waits.filter(pl.col("status") != "ok")
    if float(refused["sleep_ns"].sum()) > UNREAD * max(0.0, float(tasks["sleep_ns"].sum())):
        yield SourceReading("db_time", TRACE, None, _UNIT, str(refused["status"][0]), _NAMELESS)
        return
    slept = waits.join(over, on=["pid", "tid", "start_ticks"], nulls_equal=True)
    known = tasks.drop_nulls(["run_ns", "runq_ns"])
    if known.height < tasks.height:
        yield SourceReading("db_time", TRACE, None, _UNIT, str(tasks["status"][0]))
        return
    runnable = float(((known["run_ns"] + known["runq_ns"]) / known["over_ns"]).sum())
    asleep = float((slept["sleep_ns"] / slept["over_ns"]).sum() or 0.0)
    yield SourceReading("db_time", TRACE, runnable + asleep + queued, _UNIT, "ok", _LEDGER)


_READS = "logical reads"
_SERVERS = "all of the server's sessions, dbdyno's own too; the server reports late"


def executions(cut: Tables) -> Iterator[SourceReading]:
    """The driver's calls against the engine's, for sessions that both know, from the barrier on.

    The engine's are its own count where it keeps one for a session, else its count of work over the work
    of one call at calibration: equal only if every call was executed, once, with the same plan.
    """
    own = cut["cut_work"].filter(pl.col("name").is_in(["calls", "executions"]))
    calibrated = rung_rate(cut, "work_per_call_calibrated")
    if own.height:
        counted, source = own.select("session", "status", counted="value"), "engine counters"
    elif calibrated is not None:
        work = cut["cut_work"].filter("is_work")
        counted = work.select("session", "status", counted=pl.col("value") / calibrated["value"])
        source = "engine counters, by work"
    else:
        return
    if counted.is_empty():
        return
    driven = cut["rates"].filter((pl.col("scope") == "session") & (pl.col("name") == "executions"))
    both = driven.select("session", "value").join(counted.drop_nulls("counted"), on="session")
    known, status = both.height > 0, str(counted["status"][0])
    status = "ok" if known else status if status != "ok" else "lost"
    yield SourceReading("executions", "driver", _total(both["value"], known), "calls", status)
    yield SourceReading("executions", source, _total(both["counted"], known), "calls", status)


def work(cut: Tables) -> Iterator[SourceReading]:
    """Over the rung, its lowest and highest session, and at calibration."""
    whole = rung_rate(cut, "work_per_call")
    if whole is None:
        return
    mine = cut["rates"].filter((pl.col("name") == "work_per_call") & (pl.col("scope") == "session"))
    known = mine.filter(pl.col("source").str.starts_with("engine"))["value"].drop_nulls().sort()
    yield SourceReading("work_per_call", whole["source"], whole["value"], whole["unit"], whole["status"])
    if len(known):
        yield SourceReading("work_per_call", "engine counters, lowest session", known[0], whole["unit"], "ok")
        yield SourceReading(
            "work_per_call", "engine counters, highest session", known[-1], whole["unit"], "ok"
        )
    calibrated = rung_rate(cut, "work_per_call_calibrated")
    if calibrated is not None and whole["source"] != "calibration":
        yield SourceReading("work_per_call", "calibration", calibrated["value"], whole["unit"], "ok")


def logical_reads(cut: Tables) -> Iterator[SourceReading]:
    """Blocks a second, where the workload counts them: the sessions' probes against the server; behind a
    pooler, where there are none, the calls times what one did at calibration."""
    probed = cut["cut_work"].filter(pl.col("is_work") & (pl.col("name") == "lio")).height > 0
    rate = rung_rate(cut, "work_per_s")
    if rate is None or not (probed or _calibrated_reads(cut)):
        return
    unit, source = "blocks per second", "engine counters of the sessions" if probed else "calls x calibration"
    yield SourceReading("logical_reads", source, rate["value"], unit, rate["status"])
    value, status = level(cut, "engine", "logical_reads", "server", absent="off")
    value = None if value is None else value * NS_PER_S
    yield SourceReading("logical_reads", "engine counters", value, unit, status, _SERVERS, lag_s=LAG_S)


def _calibrated_reads(cut: Tables) -> bool:
    work = rung_rate(cut, "work_per_call")
    known = work is not None and work["source"] == "calibration" and work["unit"] == _READS
    return known and rung(cut["ledger"], QUEUE).height > 0


def _total(values: pl.Series, known: bool) -> float | None:
    return float(values.sum()) if known else None
