"""Who says how much was done: driver and engine."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from dbdyno.account.ledger.pooled import QUEUE
from dbdyno.account.ledger.source_reading import LAG_S, SourceReading, Tables, level, rung, rung_rate
from dbdyno.model.units import NS_PER_S

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
