"""DB time and work by each data source, and helpers for all readings of sources."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import polars as pl

from dbdyno.account.ledger.margins import UNREAD
from dbdyno.account.ledger.pooled import QUEUE
from dbdyno.model.results.brief import NEAR_NS
from dbdyno.model.results.ledger_rows import BY_LABEL, account_rows
from dbdyno.model.results.session_time import UNLABELLED, in_call
from dbdyno.model.schema.tables import empty, known_sum
from dbdyno.model.sources.source import HIDDEN_STATUS, TRACE
from dbdyno.model.sources.wait_families import AT_CLIENT, families_of
from dbdyno.model.units import NS_PER_S

TOLERANCE: dict[str, float] = {
    # Largest difference of two sources relative to the first: 2 % for times, 0.5 % for counts.
    "cpu_used": 0.02,
    "cpu_sessions": 0.02,
    "cpu_used_machine": 0.02,
    "db_time": 0.02,
    "run_and_runq": 0.02,
    "executions": 1e-9,  # whole calls; sums of quotients are not
    "work_per_call": 0.005,
    "logical_reads": 0.005,
}
LAG_S = 1.0
"""Delay of a server's reports of its sessions' figures.

Sessions flush their statistics at most once a second, and a statement in progress reports nothing before its
end."""
TICK_S = 0.004
"""Largest age of a task's figures at a read: a tick at HZ=250."""
TRIP_S = 0.005
"""Time of a message to the server or back that the server may count: about one time slice at most."""
ANY = float("inf")


class SourceReading(NamedTuple):
    """The value of a quantity by one source.

    ``low_by`` and ``high_by``: the largest differences below and above the reference that ``reason``
    explains, in units. A difference beyond the tolerance but within these is not comparable.
    """

    quantity: str
    source: str
    value: float | None
    unit: str
    status: str
    reason: str = ""
    low_by: float = 0.0
    high_by: float = 0.0
    interval_of: str | None = None  # memo of the rung whose interval also counts as agreement


def hidden(accounts: pl.DataFrame) -> bool:
    """Returns whether the sums lack sessions that our role cannot see."""
    return bool(accounts["status"].str.contains(HIDDEN_STATUS).any())


class OfCell(dict[str, pl.DataFrame]):
    """The tables of one cell, with indexes for single rows."""

    @cached_property
    def levels(self) -> dict[tuple[str, str], list[dict[str, Any]]]:
        """Rows of ``cut_levels`` by origin and key."""
        by_key: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in self["cut_levels"].iter_rows(named=True):
            by_key.setdefault((row["origin"], row["key"]), []).append(row)
        return by_key

    @cached_property
    def rung_rates(self) -> dict[str, dict[str, Any]]:
        """Rows of ``rates`` of the rung, by name."""
        rows = self["rates"].filter(pl.col("scope") == "rung")
        return {row["name"]: row for row in rows.iter_rows(named=True)}

    @cached_property
    def _accounts(self) -> dict[tuple[str, str], pl.DataFrame]:
        rows = self["ledger"].filter((pl.col("who") == "rung") & ~BY_LABEL)
        return {
            (part["scope"][0], part["account"][0]): part for part in rows.partition_by("scope", "account")
        }

    def rung(self, account: str, scope: str = "rung") -> pl.DataFrame:
        """Returns the rows of the rung's account; with scope ``memo``, of its memo. An account that is
        divided by label has only its total."""
        return self._accounts.get((scope, account), empty("ledger"))

    def level(self, origin: str, key: str, scope: str | None = None) -> dict[str, Any] | None:
        """Returns the row of one counter (of the innermost group); None if there is none."""
        rows = self.levels.get((origin, key), [])
        return next((row for row in rows if scope in (None, row["scope"])), None)


def level(
    cut: OfCell, origin: str, key: str, scope: str | None = None, absent: str = "off"
) -> tuple[float | None, str]:
    """Returns the growth of one counter (of the innermost group) per ns of wall time, and the status."""
    row = cut.level(origin, key, scope)
    if row is None:
        return None, absent
    return (None, row["status"]) if row["delta"] is None else (row["delta"] / row["wall_ns"], "ok")


_UNIT = "seconds per second"
_SERVED = ("run", "runq", "sleep", UNLABELLED)
_BEHIND = "the server does not see the pool's queue"
_LEDGER = "calls are so short that the way to the server and back counts"
_DB_TIME_SCOPE = "of all calls since the start; run-queue time before a call gets a CPU is missing"
_LATE = "the server reports up to 1 s late, and nothing of a transaction in progress"
_HELD = "a session that touches no table, or is in one long transaction, reports its time when it ends"
_WARM_UP = "the server reports calls before the start with those after it: their part is estimated"
_NAMELESS = "the trace could not read the wait events: sleep for the client cannot be separated"
_STATE = "samples in state active: run-queue time under state idle is missing"


def db_time(cut: OfCell) -> Iterator[SourceReading]:
    """Yields DB time by driver, ledger, scheduler trace, the server's counters and samples."""
    window = cut["windows"].row(0, named=True)
    if window["sessions"]:
        driven = in_call(cut["cell_sessions"], window["t0_ns"], window["t1_ns"])
        yield SourceReading("db_time", "driver", driven, _UNIT, "ok" if driven else "no measured calls")
    queue = cut.rung(QUEUE)["aas"]
    trips = trips_of(cut)
    yield _ledger(cut, trips)
    yield from _traced(cut, float(queue.sum()), trips)
    if queue.len():
        yield SourceReading("db_time", "engine counters", None, _UNIT, _BEHIND)
        return
    value, status = level(cut, "engine", "db_time_ns", "server", absent="off")
    waits = float(cut.rung("runq")["aas"].sum())
    late, warm = _unreported(cut, "db_time_ns", value), _warm_up_part(cut, "db_time_ns", value)
    before, after = (ANY if existed else 0.0 for existed in _sessions_at_ends(cut))
    held = bool(before or after)
    yield SourceReading(
        "db_time",
        "engine counters",
        value,
        _UNIT,
        status,
        _HELD if held else _LATE if late else _WARM_UP if warm else _DB_TIME_SCOPE,
        low_by=waits + trips + late + warm + after,
        high_by=trips + late + warm + before,
    )
    value = known_sum(cut.rung("naive.active", "memo")["aas"])
    status = "ok" if value is not None else "off"
    yield SourceReading(
        "db_time",
        "activity samples: active",
        value,
        _UNIT,
        status,
        _STATE,
        low_by=waits + trips,
        high_by=trips,
        interval_of="naive.active",
    )


def trips_of(cut: OfCell) -> float:
    """Returns the seconds per second that messages between driver and sessions are on their way."""
    rate, each = (cut.rung_rates.get(name) for name in ("calls_per_s", "round_trips_per_call"))
    known = rate is not None and rate["value"] is not None
    return float(TRIP_S * rate["value"] * ((each and each["value"]) or 1.0)) if rate and known else 0.0


def _unreported(cut: OfCell, key: str, value: float | None) -> float:
    """Returns the part of a counter that may be missing in the window, or too much, because it is reported
    late."""
    window = cut["windows"].row(0, named=True)
    rows = [row for row in cut.levels.get(("engine", key), []) if row["scope"] == "server"]
    exact = window["sessions"] > 0 and any(row["own"] is not None for row in rows)
    wall_s = window["wall_s"]
    return 0.0 if exact or value is None else abs(value) * LAG_S / wall_s


def _sessions_at_ends(cut: OfCell) -> tuple[bool, bool]:
    """Returns whether sessions of an observed load existed at t0, and at t1. Their work before t0 may be
    reported in the window, and their work in the window after t1. All sessions of a driven load have
    reported when counters are read."""
    window = cut["windows"].row(0, named=True)
    if window["sessions"]:
        return False, False
    sessions = cut["cut_tasks"].filter((pl.col("role") == "session") & ~pl.col("worker"))
    return tuple(  # type: ignore[return-value]
        bool(sessions.select((~pl.col("partial") | at_end).any()).item())
        for at_end in (
            pl.col("from_ns") <= window["t0_ns"] + NEAR_NS,
            pl.col("to_ns") >= window["t1_ns"] - NEAR_NS,
        )
    )


def _warm_up_part(cut: OfCell, key: str, value: float | None) -> float:
    """Returns the part of a counter that was subtracted for calls before the barrier."""
    row = cut.level("engine", key, "server")
    part = row["warm_up"] if row else None
    return 0.0 if value is None or part is None else abs(value) * part / (1 - part)


def _ledger(cut: OfCell, trips: float) -> SourceReading:
    """Yields all accounts of the sessions but client and unaccounted."""
    sampled = cut.rung("client")
    if known_sum(sampled["aas"]) is None or hidden(sampled):
        return SourceReading(
            "db_time", "ledger", None, _UNIT, str(sampled["status"][0]) if sampled.height else "off"
        )
    rows = account_rows(cut["ledger"], *_SERVED, QUEUE)
    value = float(rows["aas"].sum())
    return SourceReading("db_time", "ledger", value, _UNIT, "ok", _LEDGER, trips, trips)


def _traced(cut: OfCell, queued: float, trips: float) -> Iterator[SourceReading]:
    """Yields run, run queue, and sleep other than at the client of the sessions' tasks. ``queued``: time
    in a pool's queue."""
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
    known = tasks.filter(pl.col("status") == "ok").drop_nulls(["run_ns", "runq_ns"])
    if known.height < tasks.height:
        why = tasks.filter(pl.col("status") != "ok")["status"]
        yield SourceReading("db_time", TRACE, None, _UNIT, str(why[0]) if why.len() else "lost")
        return
    runnable = float(((known["run_ns"] + known["runq_ns"]) / known["over_ns"]).sum())
    asleep = float((slept["sleep_ns"] / slept["over_ns"]).sum() or 0.0)
    value = runnable + asleep + queued
    yield SourceReading("db_time", TRACE, value, _UNIT, "ok", _LEDGER, trips, trips)


_READS = "logical reads"
_VARIES = "this workload does not promise the same work in each call"
_OTHERS = "the server counts other sessions and dbdyno's own statements, too"
_STATEMENT_BLOCKS = 20.0
"""Largest number of catalog blocks that a statement or a connection of dbdyno's reads."""


def executions(cut: OfCell) -> Iterator[SourceReading]:
    """Yields calls by the driver and by the engine, over sessions that both know, from the barrier on.

    The engine's is its own count if it keeps one by session, else its count of work divided by the work of
    one call at calibration. Both are equal only if every call was executed, once, with the same plan.
    """
    own = cut["cut_work"].filter(pl.col("name").is_in(["calls", "executions"]))
    calibrated = cut.rung_rates.get("work_per_call_calibrated")
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


def work(cut: OfCell) -> Iterator[SourceReading]:
    """Yields work per call over the rung, of its lowest and highest session, and at calibration."""
    whole = cut.rung_rates.get("work_per_call")
    if whole is None:
        return
    by_session = cut["rates"].filter((pl.col("name") == "work_per_call") & (pl.col("scope") == "session"))
    known = by_session.filter(pl.col("source").str.starts_with("engine"))["value"].drop_nulls().sort()
    calibrated = cut.rung_rates.get("work_per_call_calibrated")
    free = ("", 0.0, 0.0) if calibrated is not None else (_VARIES, ANY, ANY)
    yield SourceReading("work_per_call", whole["source"], whole["value"], whole["unit"], whole["status"])
    if len(known):
        for which, value in (("lowest", known[0]), ("highest", known[-1])):
            source = f"engine counters, {which} session"
            yield SourceReading("work_per_call", source, value, whole["unit"], "ok", *free)
    if calibrated is not None and whole["source"] != "calibration":
        yield SourceReading("work_per_call", "calibration", calibrated["value"], whole["unit"], "ok")


def logical_reads(cut: OfCell) -> Iterator[SourceReading]:
    """Yields blocks per second of workloads that count them: by the sessions' probes and by the server.
    Behind a pooler there are no probes, and the first is calls times blocks per call at calibration."""
    probed = cut["cut_work"].filter(pl.col("is_work") & (pl.col("name") == "lio")).height > 0
    calls, each = (cut.rung_rates.get(name) for name in ("calls_per_s", "work_per_call"))
    if calls is None or each is None or not (probed or _calibrated_reads(cut)):
        return
    unit, source = "blocks per second", "engine counters of the sessions" if probed else "calls x calibration"
    known = calls["value"] is not None and each["value"] is not None
    read = calls["value"] * each["value"] if known else None
    yield SourceReading("logical_reads", source, read, unit, each["status"])
    value, status = level(cut, "engine", "logical_reads", "server", absent="off")
    value = None if value is None else value * NS_PER_S
    late = _unreported(cut, "logical_reads", value)
    more = ANY if (cut["cut_tasks"]["role"] == "other").any() else _STATEMENT_BLOCKS * _own_statements(cut)
    reason = _LATE if late else _OTHERS
    yield SourceReading(
        "logical_reads", "engine counters", value, unit, status, reason, ANY if late else 0.0, late + more
    )


def _own_statements(cut: OfCell) -> float:
    """Returns statements per second of dbdyno's own, samples included."""
    row = cut.level("engine", "transactions_committed", "server")
    if row is None or row["own"] is None or row["wall_ns"] is None:
        return 0.0
    return float(row["own"] / row["wall_ns"] * NS_PER_S)


def _calibrated_reads(cut: OfCell) -> bool:
    work = cut.rung_rates.get("work_per_call")
    known = work is not None and work["source"] == "calibration" and work["unit"] == _READS
    return known and cut.rung(QUEUE).height > 0


def _total(values: pl.Series, known: bool) -> float | None:
    return float(values.sum()) if known else None
