"""Table ``laws``: Little's law and the utilisation law, each by two sources that know nothing of each other.

From one source they are identities and cannot fail: a session's calls and their durations by the driver's
clock add up to its span. Here one side is the driver's, the other the kernel's or the ledger's.
(Denning, Buzen 1978, The Operational Analysis of Queueing Network Models, Computing Surveys 10, 225-261.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from dbdyno.account.making import makes
from dbdyno.model.plan.kinds import SERVED, kind_of
from dbdyno.model.plan.plan import Plan
from dbdyno.model.results.session_time import each_in_call, in_call
from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.data_sources.laws import HOLDS, LITTLE, UTILISATION, VIOLATED
from dbdyno.model.schema.tables import ByCell, Tables, empty, known_sum, rows
from dbdyno.model.units import NS_PER_S

TOLERANCE = 0.02
"""Share that two reads at different instants explain, as in the cross-check."""
OVERSLEPT_S = 0.001
"""Longest time by which a pause between two calls outlasts the think time: a timer's slack, and a driver
thread that is busy with another session's answer."""
_DRIVER = "driver"

Row = dict[str, Any]


@makes("laws", reads=("rates", "ledger", "data_sources"))
def laws(tables: Tables, plan: Plan) -> pl.DataFrame:
    """Returns the laws of each measurement of a database that dbdyno drove."""
    if not kind_of(plan).among((SERVED,)):
        return empty("laws")
    think = {c.id: c.think_ns / NS_PER_S for c in plan.cells}
    parts = ByCell({n: tables[n] for n in ("rates", "ledger", "data_sources", "cell_sessions")})
    records: list[Row] = []
    for window in tables["windows"].filter(pl.col("sessions") > 0).iter_rows(named=True):
        cell = parts.of(window["cell"])
        if cell["cell_sessions"].height and window["status"] != "invalid":
            head = {c.name: window[c.name] for c in CELL}
            found = (*_littles(cell, window, think.get(window["cell"], 0.0)), *_utilisation(cell))
            records += [head | row for row in found]
    return rows("laws", records)


def _littles(cell: Tables, window: Mapping[str, Any], think_s: float) -> Iterator[Row]:
    rates = cell["rates"].filter(pl.col("scope") == "rung")
    figures: dict[str, float | None] = dict(rates.select("name", "value").rows())
    rate, mean_ns = figures.get("calls_per_s"), figures.get("response_mean_ns")
    failed = figures.get("errors") or 0.0
    failed = failed / (failed + (figures.get("calls") or 0.0) or 1.0)
    memos = cell["ledger"].filter((pl.col("scope") == "memo") & (pl.col("who") == "rung"))
    wall = memos.filter(pl.col("account") == "wall")
    pooled = wall.height > 0 and wall["source"][0] == _DRIVER
    if window["rate_per_s"] is None:
        present = None if pooled else known_sum(wall["aas"])
        rest, error_of_rest = _uncounted(cell, window, rate or 0.0, think_s)
        by_law = None if rate is None or mean_ns is None else rate * mean_ns / NS_PER_S + rest
        error = None if by_law is None else TOLERANCE * by_law + error_of_rest
        if error is not None and by_law is not None and think_s:
            error += failed * by_law
        why = "a pooler's connections are not the sessions" if pooled else "off"
        yield _row(LITTLE, "sessions", present, "os tasks", by_law, _DRIVER, error, why)
    yield _in_progress(cell, window, figures)


def _uncounted(cell: Tables, window: Mapping[str, Any], rate: float, think_s: float) -> tuple[float, float]:
    """Returns the mean number of sessions in no counted call, and its error: those between two calls, and
    those in one call across the whole window.

    Between calls sessions think by the plan; without think time they are those that the driver did not have
    in calls that ended well.
    """
    sessions = cell["cell_sessions"]
    each = each_in_call(sessions, window["t0_ns"], window["t1_ns"])
    none = sessions.filter(pl.col("calls") + pl.col("errors") == 0)["session"]
    across = float(each.filter(pl.col("session").is_in(none.implode()))["in_call"].sum())
    if think_s:
        return rate * think_s + across, rate * OVERSLEPT_S
    idle = each.drop_nulls("in_call").select((pl.col("alive") - pl.col("in_call")).sum()).item()
    return max(0.0, float(idle)) + across, 0.0


def _in_progress(cell: Tables, window: Mapping[str, Any], figures: Mapping[str, float | None]) -> Row:
    """Returns the law of calls in progress. Of a paced load these are the calls that a session works on."""
    source = cell["data_sources"].filter((pl.col("quantity") == "db_time") & (pl.col("source") == "ledger"))
    straddling = 0.0
    ledger: Row = source.row(0, named=True) if source.height else {"value": None, "status": "off"}
    if window["rate_per_s"] is None:
        driven = in_call(cell["cell_sessions"], window["t0_ns"], window["t1_ns"])
    else:
        rate, mean_ns = figures.get("calls_per_s"), figures.get("service_mean_ns")
        driven = None if rate is None or mean_ns is None else rate * mean_ns / NS_PER_S
        # Calls that are due in the window are worked on beyond its end, and older ones at its start.
        straddling = 2 * max(1.0, driven or 0.0) * (mean_ns or 0.0) / NS_PER_S / window["wall_s"]
    error = None if driven is None else TOLERANCE * driven + straddling
    law = _row(
        LITTLE, "calls in progress", ledger["value"], "ledger", driven, _DRIVER, error, ledger["status"]
    )
    if law["verdict"] == VIOLATED and (failed := figures.get("errors")):
        return law | {"verdict": "unknown", "status": f"the time of {failed:,.0f} failed calls is unknown"}
    explained = ledger.get("verdict") in ("agrees", "not comparable")
    if law["verdict"] == VIOLATED and (explained or window["rate_per_s"] is not None):
        return law | {
            "verdict": "unknown",
            "status": ledger.get("reason") or "the way to the server and back",
        }
    return law


_CPU = (
    ("cpu_used", "CPU of the server", pl.col("source") == "cgroup"),
    ("cpu_used_machine", "CPU of the machine", pl.col("source") == "host"),
)
_VERDICTS = {"agrees": HOLDS, "differs": VIOLATED}


def _utilisation(cell: Tables) -> Iterator[Row]:
    for quantity, name, counted in _CPU:
        sources = cell["data_sources"].filter(pl.col("quantity") == quantity)
        tasks, kernel = sources.filter(pl.col("verdict") == "reference"), sources.filter(counted)
        if tasks.is_empty() or kernel.is_empty() or not tasks["source"][0].startswith("os tasks"):
            continue
        row = kernel.row(0, named=True)
        by_law = tasks["value"][0]
        law = _row(
            UTILISATION,
            name,
            row["value"],
            row["source"],
            by_law,
            tasks["source"][0],
            row["tolerance"],
            row["status"],
        )
        # The cross-check knows what explains a difference: ticks, shared groups, tasks that ended.
        verdict = _VERDICTS.get(row["verdict"], "unknown")
        status = row["reason"] or row["status"] if verdict == "unknown" else "ok"
        yield law | {"verdict": verdict, "status": status}


def _row(
    law: str,
    of: str,
    value: float | None,
    value_source: str,
    by_law: float | None,
    by_law_source: str,
    error: float | None,
    why: str,
) -> Row:
    row: Row = {"law": law, "of": of, "value": value, "source": value_source}
    row |= {"by_law": by_law, "by_law_source": by_law_source, "error": error}
    if value is None or not by_law or error is None:
        unknown = why if value is None and why != "ok" else "no measured calls" if not by_law else "off"
        return row | {"verdict": "unknown", "status": unknown}
    verdict = HOLDS if abs(value - by_law) <= error else VIOLATED
    return row | {"relative_difference": (value - by_law) / by_law, "verdict": verdict, "status": "ok"}
