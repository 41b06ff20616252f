"""Session time of one cell in the terms of the load profile: DB CPU, CPU WAIT, waits, DB time.

DB time is all session time except sleep at the client: on a CPU, in the run queue, and asleep in any other
wait. It includes the run-queue time of a session that its client woke and that still shows that wait, and
sleep while an answer is sent (family network). If dbdyno drives the load and cannot tell waits for the client
from others, it is the time in calls by the driver's clock, and its source says that it includes the client.

The server's ``state`` is not used. In calls of microseconds it is read at another instant than the wait
event, and a woken session shows its old state until it gets a CPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from dbdyno.model.results.brief import STATUS, material
from dbdyno.model.results.ledger_rows import account_rows, queue_labels, top_level
from dbdyno.model.schema.tables import ByCell, Tables, known_sum, rows, sum_if_all_known
from dbdyno.model.sources.source import HIDDEN_STATUS
from dbdyno.model.sources.wait_families import Family, WaitFamilies, families_of
from dbdyno.model.units import NS_PER_S

if TYPE_CHECKING:
    from dbdyno.model.plan.plan import Plan

# These figures cover the sessions that dbdyno drives, within the window, from their measured calls. A
# session's measured calls start in [t0, t1), and the last one may end later. Their sum is therefore divided
# by the session's own span (first start to last end) and multiplied by the part of the window in which it
# lived. This includes a call in flight at t0 and excludes time after t1.

_EARLY = ("lost", "aborted", "limit")


def calls_per_s(sessions: pl.DataFrame, t0_ns: int, t1_ns: int) -> float | None:
    """Returns the calls per second of all sessions in the window; ``None`` without measured calls."""
    return _sum(sessions, pl.col("calls") * NS_PER_S, 0.0, t0_ns, t1_ns)


def in_call(sessions: pl.DataFrame, t0_ns: int, t1_ns: int) -> float | None:
    """Returns the seconds per second in successful calls of all sessions, by the driver's clock.

    A session with one call across the whole window counts as fully in it. ``None`` without measured calls.
    """
    return _sum(sessions, pl.col("in_call_ns"), _whole(), t0_ns, t1_ns)


def each_in_call(sessions: pl.DataFrame, t0_ns: int, t1_ns: int) -> pl.DataFrame:
    """Returns for each session ``alive``, the share of the window in which it lived, and ``in_call``, the
    share in which it was in calls.

    ``in_call`` is NULL without measured calls.
    """
    known = (pl.col("last_end_ns") > pl.col("first_start_ns")) | _throughout()
    spent = _each(pl.col("in_call_ns"), _whole(), t0_ns, t1_ns)
    return sessions.select(
        "session", alive=_alive(t0_ns, t1_ns), in_call=pl.when(known.fill_null(False)).then(spent)
    )


def _throughout() -> pl.Expr:
    return (pl.col("straddle_in") > 0) & (pl.col("calls") + pl.col("errors") == 0)


def _whole() -> pl.Expr:
    return pl.when(_throughout()).then(1.0).otherwise(0.0)


def _alive(t0_ns: int, t1_ns: int) -> pl.Expr:
    end = pl.when(pl.col("end_reason").is_in(_EARLY)).then(pl.min_horizontal("last_end_ns", pl.lit(t1_ns)))
    return (end.otherwise(t1_ns) - t0_ns).clip(0) / (t1_ns - t0_ns)


def _each(amount: pl.Expr, otherwise: pl.Expr | float, t0_ns: int, t1_ns: int) -> pl.Expr:
    span = pl.col("last_end_ns") - pl.col("first_start_ns")
    return pl.when(span > 0).then(amount / span * _alive(t0_ns, t1_ns)).otherwise(otherwise)


def _sum(
    sessions: pl.DataFrame, amount: pl.Expr, otherwise: pl.Expr | float, t0_ns: int, t1_ns: int
) -> float | None:
    total = float(sessions.select(_each(amount, otherwise, t0_ns, t1_ns).sum()).item() or 0.0)
    return total if total > 0 else None


Row = dict[str, object]

DB_CPU, CPU_WAIT = "DB CPU", "CPU WAIT"
RUNNABLE = "CPU or CPU WAIT"
"""Label of a process whose run-queue time is unknown."""
ON_CPU = (DB_CPU, CPU_WAIT, RUNNABLE)
UNLABELLED = "active without wait event"
POOL_QUEUE = "pool queue"
_WHOLE = {"run": DB_CPU, "runq": CPU_WAIT, "pool.queue": POOL_QUEUE}
NO_EVENT, UNSEEN = "no wait event", "asleep, reason unknown"
# seconds per second: smaller rows are zero up to rounding
_SECOND = 1e-12


class Part(NamedTuple):
    """A ranked part of DB time, in seconds per second."""

    aas: float
    low: float | None
    high: float | None
    source: str
    runq: float | None = None  # run-queue time under its label, which is counted in CPU WAIT
    waits: float | None = None  # waits that began, per second
    sleeps: float | None = None  # sleeps that began, per second; a wait may consist of several


class Time(NamedTuple):
    """A figure in seconds per second; without one, ``status`` gives the reason."""

    aas: float | None
    status: str
    source: str


def account(ledger: pl.DataFrame, name: str) -> Time:
    """Returns the sum over an account's rows in the scope of the rung."""
    account_part = account_rows(ledger, name)
    if account_part.is_empty():
        return Time(None, "off", "")
    return Time(
        known_sum(account_part["aas"]), str(account_part["status"][0]), str(account_part["source"][0])
    )


_HIDDEN = (
    (pl.col("scope") == "rung")
    & pl.col("account").is_in(["sleep", "client"])
    & pl.col("status").str.contains(HIDDEN_STATUS, literal=True)
).any()


def hidden(ledger: pl.DataFrame) -> bool:
    """Returns whether sessions of a cell are hidden from dbdyno's database role. Sums over all sessions are
    then unknown."""
    return bool(ledger.select(_HIDDEN).item())


def too_brief(ledger: pl.DataFrame) -> bool:
    """Returns whether sums over a cell's sessions lack much of the time of sessions too brief to be sampled.
    This is so if only their CPU time is known, or the trace could not read their waits."""
    if account(ledger, "runq").status == STATUS:
        return True
    theirs = ledger.filter(pl.col("scope") == "brief")
    asleep = theirs.filter(pl.col("account") == "sleep")
    if asleep.is_empty() or known_sum(asleep["aas"]) is not None:
        return False
    unnamed = float(theirs.filter(pl.col("account") == "unaccounted")["aas"].sum())
    whole = unnamed + sum(account(ledger, name).aas or 0.0 for name in ("run", "runq", "sleep"))
    return bool(material(unnamed, whole))


def parts(cell: Tables) -> dict[str, Part]:
    """Returns all parts by name, from a cell's ``ledger`` and ``events``."""
    ledger = top_level(cell["ledger"], (pl.col("scope") == "rung") & (pl.col("aas") > _SECOND))
    by_name: dict[str, Part] = {}
    rows = ledger.to_dicts()
    for name, label in (*_WHOLE.items(), (UNLABELLED, UNLABELLED)):
        for row in (r for r in rows if r["account"] == name):
            by_name[label] = Part(row["aas"], row["low"], row["high"], row["source"])
    queued, counts = _queued(cell["ledger"]), _counts(cell["events"])
    for row in (r for r in rows if r["account"] == "sleep"):
        detail = row["detail"] or UNSEEN
        more = (queued.get(detail), *counts.get(detail, (None, None)))
        by_name[detail] = Part(row["aas"], row["low"], row["high"], row["source"], *more)
    by_name |= _queued_only(cell["ledger"], by_name, counts)
    return by_name | _sending(cell["events"], families_of(cell), queued, counts)


def db_time(cell: Tables, window: Mapping[str, int]) -> Time:
    """Returns the DB time by the ledger. If dbdyno drives the load and the ledger has no waits, returns the
    time in calls by the driver, which includes the client's."""
    by_ledger = served(cell)
    if by_ledger.aas is not None or not window["sessions"]:
        return by_ledger
    driven = in_call(cell["cell_sessions"], window["t0_ns"], window["t1_ns"])
    if driven is None:
        return Time(None, "no measured calls", "driver")
    failed = int(cell["cell_sessions"]["errors"].sum()) > 0
    source = "driver, with the client's time"
    return Time(driven, "ok", f"{source}, failed calls left out" if failed else source)


def whole(rung: Mapping[str, Any]) -> float | None:
    """Returns the seconds per second that shares in a row of table ``rungs`` refer to: the sessions, or the
    mean number of tasks if each session is a tree of tasks."""
    return rung.get("tasks_aas") or rung.get("sessions")


def served(cell: Tables) -> Time:
    """Returns the DB time by the ledger: run, run queue and sleep not at the client. If tasks cannot be
    read, it uses labels."""
    by_name = parts(cell)
    run = account(cell["ledger"], "run")
    if too_brief(cell["ledger"]):
        return Time(None, STATUS, "ledger")
    sampled = cell["ledger"].filter((pl.col("scope") == "rung") & (pl.col("account") == "client"))
    if hidden(cell["ledger"]):
        return Time(None, str(sampled["status"][0]), "ledger")
    if known_sum(sampled["aas"]) is None:
        why = str(sampled["status"][0]) if sampled.height else "off"
        return Time(None, f"{why}: needs samples of the sessions", "ledger")
    total = sum(part.aas for name, part in by_name.items() if name != UNSEEN)
    if run.aas is None:
        return Time(total, "ok", "activity samples, the server's word alone")
    return Time(total, "ok", "ledger: run, run queue, sleep not at the client")


def base(cell: Tables, window: Mapping[str, int], of_cell: Mapping[str, Part] | None = None) -> float:
    """Returns the total that shares refer to: DB time, or the sum of its parts (``found``) if that is
    larger. The sum can be larger because of parallel workers, and because a backend still works after
    sending its answer. Returns 0 if the parts are incomplete, because sessions are hidden or brief ones are
    unknown."""
    if not window["sessions"] and hidden(cell["ledger"]):
        return 0.0
    time = db_time(cell, window)
    if time.status == STATUS:
        return 0.0
    whole = parts(cell) if of_cell is None else of_cell
    return max(time.aas or 0.0, sum(part.aas for part in whole.values()))


def _queued(ledger: pl.DataFrame) -> dict[str, float]:
    return dict(queue_labels(ledger).drop_nulls(["detail", "aas"]).select("detail", "aas").rows())


_Counts = dict[str, tuple[float | None, float | None]]
"""Waits and sleeps that began per second, by label; ``None`` if unknown."""


def _queued_only(ledger: pl.DataFrame, slept: Mapping[str, Part], counts: _Counts) -> dict[str, Part]:
    """Returns waits in which no session of this cell slept, so that their time in the run queue is part of
    the sum over cells."""
    rows = queue_labels(ledger).filter(pl.col("aas") > _SECOND).drop_nulls("detail").to_dicts()
    return {
        (name := row["detail"]): Part(
            0.0, 0.0, 0.0, row["source"], row["aas"], *counts.get(name, (None, None))
        )
        for row in rows
        if row["detail"] not in slept
    }


def _counts(events: pl.DataFrame) -> _Counts:
    traced = _labelled(events).drop_nulls("sleeps_per_s").group_by("label")
    counted = traced.agg(sum_if_all_known("waits_per_s"), pl.col("sleeps_per_s").sum())
    return {label: (waits, sleeps) for label, waits, sleeps in counted.rows()}


def wait_label() -> pl.Expr:
    """Returns the expression for a row's ``class/event``, or a fixed text if it has no wait event."""
    named = pl.concat_str("wait_class", pl.lit("/"), pl.col("wait_event").fill_null("?"))
    return pl.when(pl.col("wait_class").is_null()).then(pl.lit(NO_EVENT)).otherwise(named)


def event_name() -> pl.Expr:
    """Returns the expression for a row's ``class/event``, empty if it has no wait event."""
    return pl.concat_str("wait_class", "wait_event", separator="/", ignore_nulls=True)


def _labelled(events: pl.DataFrame) -> pl.DataFrame:
    return events.filter(pl.col("scope") == "rung").with_columns(label=wait_label())


def _sending(
    events: pl.DataFrame, families: WaitFamilies, queued: dict[str, float], counts: _Counts
) -> dict[str, Part]:
    """Returns the sleep while an answer is sent, which is part of a call although it is a wait for the
    client."""
    sending = families.among(Family.NETWORK)
    ends = [pl.col(f"sleep{end}").sum() for end in ("", "_low", "_high")]
    rows = _labelled(events).filter(sending & pl.col("sleep").is_not_null())
    summed = rows.group_by("label", maintain_order=True).agg(*ends, pl.col("source").first())
    return {
        label: Part(aas, low, high, source, queued.get(label), *counts.get(label, (None, None)))
        for label, aas, low, high, source in summed.rows()
        if aas > _SECOND
    }


# Criteria by which the client limited the measurement. A driver thread that is busy, or waits for a CPU,
# delays every session whose answer has arrived: if it is late by 1 ms with 200 answers waiting, the sessions
# lose 0.2 s. The criterion is therefore the time that sessions waited for the driver, relative to all their
# time except thinking. Waits of the threads for a CPU matter little with long calls, and a server with all
# CPUs busy would not make more calls with a faster driver.

WAITED = 0.25
"""The client is the limit if sessions waited for the driver for more than this share of their time without
thinking, and left more than :data:`LEFT` of their CPUs unused."""
LEFT = 0.25
WAITED_MOST = 0.75
"""Beyond this share the client is the limit whatever the server used: most sessions wait at the driver."""

WORTH_TELLING = 0.05
"""Share from which on the driver visibly contributes to response times."""

STARVED = 0.05
"""Run-queue time of the driver's threads relative to their runnable time (run + run queue)."""

MACHINE_SHARE = 0.10
"""The driver should not take more than this share of the machine's CPUs."""

Figures = Mapping[str, float | None]


def is_limit(figures: Figures) -> bool:
    """Returns whether the client limited the measurement, from the rung's rates; False if unknown."""
    return figures.get("client_limits") == 1.0


def busy(figures: Figures) -> float | None:
    """Returns the share of the window in which a driver thread ran or waited for a CPU, as the mean over
    threads."""
    run, runq, threads = (figures.get(n) for n in ("driver_cpus", "driver_runq", "driver_threads"))
    return None if run is None or runq is None or not threads else min(1.0, (run + runq) / threads)


def judged(tables: Tables, plan: Plan) -> pl.DataFrame:
    """Returns the table ``rates`` with two more figures per cell: ``driver_delay``, and ``client_limits`` (1
    if true)."""
    rates = tables["rates"].filter(~pl.col("name").is_in(["driver_delay", "client_limits"]))
    threads = tables["cut_tasks"].filter(pl.col("role") == "driver")
    in_rungs = rates.filter(pl.col("scope") == "rung")
    parts = ByCell({"rates": in_rungs, "ledger": tables["ledger"], "threads": threads})
    usable = tables["windows"].filter(pl.col("status") != "invalid")  # an invalid cell has its own reason
    figures = [row for w in usable.iter_rows(named=True) for row in _of_cell(w, parts, plan)]
    return pl.concat([rates, rows("rates", figures)])


def _of_cell(window: Mapping[str, Any], parts: ByCell, plan: Plan) -> Iterator[dict[str, Any]]:
    rates = parts.table("rates", window["cell"])
    figures: dict[str, float | None] = dict(rates.select("name", "value").rows())
    think_ns = next((c.think_ns for c in plan.cells if c.variant == window["variant"]), 0)
    thinking = (figures.get("calls_per_s") or 0.0) * think_ns / NS_PER_S
    client = _client(parts.table("ledger", window["cell"]))
    waiting = queued(figures, parts.table("threads", window["cell"])) if client is None else client - thinking
    lag_ns, mean_ns = figures.get("driver_lag_mean_ns"), figures.get("response_mean_ns")
    share = delay(figures, window["sessions"] - thinking, waiting)
    if lag_ns is not None and mean_ns:  # paced: nothing is due during most of a session's time
        share = min(1.0, lag_ns / mean_ns)
    if share is None:
        return
    from dbdyno.model.plan.plan import cpus_under  # costs nothing: with a plan at hand, the module is loaded

    cpus = cpus_under(plan.variant(window["variant"]).limits, plan.cpus)
    observed = rates.filter((pl.col("name") == "cpu_per_call_ns") & (pl.col("status") == "off")).is_empty()
    left = _left(figures, cpus, observed=observed)
    limits = share > WAITED_MOST or (share > WAITED and left > LEFT)
    head = {c: rates[c][0] for c in rates.columns} | {"status": "ok", "source": "driver tasks, ledger"}
    yield head | {"name": "driver_delay", "unit": "of session time", "value": share}
    yield head | {"name": "client_limits", "unit": "", "value": float(limits)}


def delay(figures: Figures, sessions: float, waiting: float | None) -> float | None:
    """Returns the share of the sessions' time in which they waited for the driver; ``None`` if unknown.

    ``sessions`` is session time without thinking, in seconds per second. ``waiting`` is the part of it in
    which the server waited for the client. This wait is attributed to the driver while its threads are busy
    or wait for a CPU. The driver's own work on an answer is no delay.
    """
    run, share = figures.get("driver_cpus"), busy(figures)
    if run is None or share is None or waiting is None or sessions <= 0:
        return None
    return max(0.0, min(waiting, share * sessions) - run) / sessions


def queued(figures: Figures, threads: pl.DataFrame) -> float | None:
    """Returns the mean number of answers waiting at the driver, for cells without a ledger of client waits.
    A thread sleeps when no answer is left. While it is awake, half of the answers that arrive between two
    sleeps are waiting on average. If it never sleeps, all are."""
    rate, share = figures.get("calls_per_s"), busy(figures)
    if rate is None or share is None or threads["voluntary"].null_count():
        return None
    sleeps = NS_PER_S * float((threads["voluntary"] / threads["wall_ns"]).sum())
    return threads.height * share * max(1.0, rate / (2 * sleeps)) if sleeps > 0 else float("inf")


def _client(ledger: pl.DataFrame) -> float | None:
    client_aas = ledger.filter((pl.col("scope") == "rung") & (pl.col("account") == "client"))["aas"]
    return float(client_aas.sum()) if len(client_aas) and not client_aas.null_count() else None


def _left(figures: Figures, cpus: float, *, observed: bool) -> float:
    """Returns the share of the server's CPUs that its sessions did not use. If it is unknown, returns 1 for
    a server on another host. Returns 0 if nothing could be read of a server that may share its CPUs with the
    driver."""
    rate, per_call_ns = figures.get("calls_per_s"), figures.get("cpu_per_call_ns")
    if rate is None or per_call_ns is None:
        return 1.0 if observed else 0.0
    return 1 - rate * per_call_ns / NS_PER_S / cpus
