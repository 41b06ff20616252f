"""Who says how long sessions were served (DB time): driver, ledger, scheduler, the server itself, samples."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from dbdyno.account.ledger.margins import UNREAD
from dbdyno.account.ledger.pooled import QUEUE
from dbdyno.account.ledger.sample_rows import UNLABELLED
from dbdyno.account.ledger.source_reading import LAG_S, SourceReading, Tables, hidden, level, rung
from dbdyno.model.ledger_rows import account_rows
from dbdyno.model.session_time import in_call
from dbdyno.model.source import TRACE
from dbdyno.model.wait_families import AT_CLIENT, families_of

_UNIT = "seconds per second"
_SERVED = ("run", "runq", "sleep", UNLABELLED)
_BEHIND = "the server does not see the pool's queue"
_LEDGER = "run, run queue and sleep outside class Client; a driver's call is longer by the way to it and back"
_SERVERS = (
    "a session is active from when it got a CPU for a call until its end: run-queue time before that "
    "is missing, and the server reports late"
)
_NAMELESS = "the trace could not read the wait events: sleep for the client cannot be separated"
_STATE = "share of samples in state active: time in the run queue under state idle is missing"


def db_time(cut: Tables) -> Iterator[SourceReading]:
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
    yield SourceReading("db_time", "engine counters", value, _UNIT, status, _SERVERS, lag_s=LAG_S)
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
