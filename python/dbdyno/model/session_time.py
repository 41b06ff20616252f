"""The sessions' time of one cell in the profile's words: DB CPU, CPU WAIT, waits, DB time.

DB time is the time that sessions are served: in a call by the driver's clock where we drive. On somebody
else's load it is all session time that is not sleep at the client: on a CPU, in the run queue (run-queue
time of a session that was woken by its client and still bears that wait's label is in it), asleep
in any other wait. Sleep while an answer is being sent (the family network) is in it.
The server's word ``state`` plays no part: of a call of microseconds it comes from another instant than the
wait event, and a woken session bears its old one until it gets a CPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import polars as pl

from dbdyno.model.brief import STATUS, material
from dbdyno.model.driver_rates import in_call
from dbdyno.model.ledger_rows import account_rows, queue_labels, top_level
from dbdyno.model.source import HIDDEN_STATUS
from dbdyno.model.wait_families import Family, WaitFamilies, families_of

Tables = Mapping[str, pl.DataFrame]
Row = dict[str, object]

DB_CPU, CPU_WAIT = "DB CPU", "CPU WAIT"
UNLABELLED = "active without wait event"
POOL_QUEUE = "pool queue"
_WHOLE = {"run": DB_CPU, "runq": CPU_WAIT, "pool.queue": POOL_QUEUE}
NO_EVENT, UNSEEN = "no wait event", "asleep, seen by no sample"
_SECOND = 1e-12


class Part(NamedTuple):
    """A ranked part of DB time, in seconds per second."""

    aas: float
    low: float | None
    high: float | None
    source: str
    runq: float | None = None  # in the run queue under its label: counted in CPU WAIT
    waits: float | None = None  # a second


class Time(NamedTuple):
    """A figure in seconds per second, or why not."""

    aas: float | None
    status: str
    source: str


def account(ledger: pl.DataFrame, name: str) -> Time:
    """Sum over an account's rows of a cell's rung."""
    mine = account_rows(ledger, name)
    if mine.is_empty():
        return Time(None, "off", "")
    known = mine["aas"].drop_nulls()
    return Time(float(known.sum()) if len(known) else None, str(mine["status"][0]), str(mine["source"][0]))


def hidden(ledger: pl.DataFrame) -> bool:
    """Whether sessions of a cell are hidden from our role: sums over all of them are unknown."""
    rows = ledger.filter((pl.col("scope") == "rung") & pl.col("account").is_in(["sleep", "client"]))
    return bool(rows["status"].str.contains(HIDDEN_STATUS).any())


def too_brief(ledger: pl.DataFrame) -> bool:
    """Whether sums over a cell's sessions lack much of those too brief to be sampled: nothing but their CPU
    time is known, or the trace could not read what they waited for."""
    if account(ledger, "runq").status == STATUS:
        return True
    theirs = ledger.filter(pl.col("scope") == "brief")
    asleep = theirs.filter(pl.col("account") == "sleep")
    if asleep.is_empty() or asleep["aas"].drop_nulls().len():
        return False
    unnamed = float(theirs.filter(pl.col("account") == "unaccounted")["aas"].sum())
    whole = unnamed + sum(account(ledger, name).aas or 0.0 for name in ("run", "runq", "sleep"))
    return bool(material(unnamed, whole))


def parts(cell: Tables) -> dict[str, Part]:
    """All parts by name, of a cell's ``ledger`` and ``events``."""
    ledger = top_level(cell["ledger"]).filter((pl.col("scope") == "rung") & (pl.col("aas") > _SECOND))
    found: dict[str, Part] = {}
    for name, label in (*_WHOLE.items(), (UNLABELLED, UNLABELLED)):
        for row in ledger.filter(pl.col("account") == name).iter_rows(named=True):
            found[label] = Part(row["aas"], row["low"], row["high"], row["source"])
    queued, waits = _queued(cell["ledger"]), _waits(cell["events"])
    for row in ledger.filter(pl.col("account") == "sleep").iter_rows(named=True):
        detail = row["detail"] or UNSEEN
        counted = waits.get(detail)
        found[detail] = Part(row["aas"], row["low"], row["high"], row["source"], queued.get(detail), counted)
    return found | _sending(cell["events"], families_of(cell), queued, waits)


def db_time(cell: Tables, window: Mapping[str, int]) -> Time:
    """By the driver where we drive, else by the ledger."""
    if window["sessions"]:
        driven = in_call(cell["cell_sessions"], window["t0_ns"], window["t1_ns"])
        if driven is None:
            return Time(None, "no measured calls", "driver")
        failed = int(cell["cell_sessions"]["errors"].sum()) > 0
        return Time(driven, "ok", "driver, failed calls left out" if failed else "driver")
    return served(cell)


def served(cell: Tables) -> Time:
    """By the ledger: run + run queue + sleep not at the client; where tasks cannot be read by labels."""
    found = parts(cell)
    run = account(cell["ledger"], "run")
    if too_brief(cell["ledger"]):
        return Time(None, STATUS, "ledger")
    sampled = cell["ledger"].filter((pl.col("scope") == "rung") & (pl.col("account") == "client"))
    if hidden(cell["ledger"]):
        return Time(None, str(sampled["status"][0]), "ledger")
    if not sampled["aas"].drop_nulls().len():
        why = str(sampled["status"][0]) if sampled.height else "off"
        return Time(None, f"{why}: needs samples of the sessions", "ledger")
    total = sum(part.aas for name, part in found.items() if name != UNSEEN)
    if run.aas is None:
        return Time(total, "ok", "activity samples, the server's word alone")
    return Time(total, "ok", "ledger: run, run queue, sleep not at the client")


def base(cell: Tables, window: Mapping[str, int]) -> float:
    """What shares are of: DB time, or the sum of its parts where that is more (parallel workers; a backend
    works a little after its answer was sent, too). 0: the parts are not the whole, as sessions are hidden
    or brief ones not known."""
    if not window["sessions"] and hidden(cell["ledger"]):
        return 0.0
    time = db_time(cell, window)
    if time.status == STATUS:
        return 0.0
    return max(time.aas or 0.0, sum(part.aas for part in parts(cell).values()))


def _queued(ledger: pl.DataFrame) -> dict[str, float]:
    return dict(queue_labels(ledger).drop_nulls(["detail", "aas"]).select("detail", "aas").rows())


def _waits(events: pl.DataFrame) -> dict[str, float]:
    counted = _labelled(events).drop_nulls("waits_per_s").group_by("label").agg(pl.col("waits_per_s").sum())
    return dict(counted.rows())


def _labelled(events: pl.DataFrame) -> pl.DataFrame:
    named = pl.concat_str("wait_class", pl.lit("/"), pl.col("wait_event").fill_null("?"))
    label = pl.when(pl.col("wait_class").is_null()).then(pl.lit(NO_EVENT)).otherwise(named)
    return events.filter(pl.col("scope") == "rung").with_columns(label=label)


def _sending(
    events: pl.DataFrame, families: WaitFamilies, queued: dict[str, float], waits: dict[str, float]
) -> dict[str, Part]:
    """Asleep while an answer is sent: inside a call, though at the client."""
    sending = families.among(Family.NETWORK)
    ends = [pl.col(f"sleep{end}").sum() for end in ("", "_low", "_high")]
    rows = _labelled(events).filter(sending & pl.col("sleep").is_not_null())
    found = rows.group_by("label", maintain_order=True).agg(*ends, pl.col("source").first())
    return {
        label: Part(aas, low, high, source, queued.get(label), waits.get(label))
        for label, aas, low, high, source in found.rows()
        if aas > _SECOND
    }
