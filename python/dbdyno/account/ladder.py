"""Table ``rungs``: one row per workload, variant and session count, its repeats together. Also the part of it
that a ladder needs of a measurement that has just ended.

That part is small, so that the next measurement need not wait. In it, sleep that was not traced is the plain
share of the samples: without intervals, and not apportioned task by task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, get_args

import polars as pl

from dbdyno.account import window
from dbdyno.account.ledger import accounts
from dbdyno.account.ledger.margins import margins
from dbdyno.account.making import makes
from dbdyno.account.window.attribution import pooled
from dbdyno.account.window.trees import is_tree
from dbdyno.model.plan.plan import Plan
from dbdyno.model.results.ledger_rows import BY_LABEL, WORKERS
from dbdyno.model.results.raw import LEFT_OUT, PRELIMINARY, RawCell, RungStatus
from dbdyno.model.results.session_time import is_limit, judged, wait_label
from dbdyno.model.schema.quantiles import RESPONSE
from dbdyno.model.schema.tables import ByCell, Tables, empty, known_quantiles_ns, rows
from dbdyno.model.sources.source import HIDDEN_STATUS
from dbdyno.model.sources.wait_families import AT_CLIENT, WaitFamilies, families_of
from dbdyno.stats.estimates import Mean

Row = dict[str, Any]

_MEANS = ("work_per_s", "driver_cpus", "driver_starved")
_PER_CALL = ("work_per_call", "response_mean_ns", "cpu_per_call_ns", "service_mean_ns", "lag_mean_ns")
"""Quotients with the calls below. Of several repeats they are sums over sums, so that throughput times mean
response time is the number of sessions at work."""
_KEY = ("workload", "variant", "sessions", "rate_per_s")
_PACED_SUMS = ("late", "dropped")
_PACED_MEANS = (
    "offered_per_s",
    "backlog_begin",
    "backlog_end",
    "service_p50_ns",
    "service_p95_ns",
    "service_p99_ns",
)
_ACCOUNTS = {
    "run_aas": "run",
    "runq_aas": "runq",
    "sleep_aas": "sleep",
    "client_aas": "client",
    "pool_queue_aas": "pool.queue",
    "unaccounted_aas": "unaccounted",
}
_WAITS = ("sleep", "client", "unaccounted")
_WHOLE = {("rung", account) for account in _ACCOUNTS.values()}
WORTH_NAMING = 0.01
"""Least share of the sessions' time of a wait that is named as top wait."""
_WORST = get_args(RungStatus)


@makes("rungs", stage="run")
def rungs(tables: Tables, trees: bool = False) -> pl.DataFrame:
    """Returns one row per rung, from ``windows``, ``rates``, ``ledger`` and ``cell_histogram``.

    Invalid cells and cells that the client limited are left out if the rung has others. Intervals are
    Student's over repeats; NULL with one repeat. An observation has one row (rung 0, its windows as
    repeats) without the driver's figures. ``trees``: sessions are trees of tasks, as executions of
    commands are. Shares of sessions with parallel workers are of the time of all their tasks, too.
    """
    trees = trees or tables.get("execution_rates", empty("execution_rates")).height > 0
    records: list[Row] = []
    figures = tables["rates"].filter(pl.col("scope") == "rung")
    parts = ByCell({"rates": figures})
    ledgers = _Ledgers(tables["ledger"])
    for key, cells in tables["windows"].group_by(*_KEY, maintain_order=True):
        head = dict(zip(_KEY, key, strict=True))
        records.append(head | _rung(parts, ledgers, cells, tables["cell_histogram"]))
        if trees or ledgers.have_workers(cells["cell"]):
            known = [v for n in _ACCOUNTS if (v := records[-1][n]) is not None]
            records[-1]["tasks_aas"] = sum(known) if known else None
    ladders = list(dict.fromkeys((r["workload"], r["variant"]) for r in records))
    records.sort(
        key=lambda r: (ladders.index((r["workload"], r["variant"])), r["sessions"], r["rate_per_s"] or 0.0)
    )
    return rows("rungs", [row | {"scaling": _scaling(row, records)} for row in records])


def _rung(parts: ByCell, ledgers: _Ledgers, cells: pl.DataFrame, histogram: pl.DataFrame) -> Row:
    """Returns the figures of one rung: means, sums and percentiles over its best cells."""
    states = states_of_best(parts, cells)
    ids = list(states)
    figures = {c: _figures(parts, c) for c in ids}
    rate = _mean(f.get("calls_per_s") for f in figures.values())
    low, high = (rate.positive95 if rate else None) or (None, None)
    row: Row = {
        "repeats": len(ids),
        # the worst status of the cells that count
        "status": max(states.values(), key=_WORST.index),
        "calls": round(sum(f.get("calls") or 0 for f in figures.values())),
        "errors": round(sum(f.get("errors") or 0 for f in figures.values())),
        "calls_per_s": rate.value if rate else None,
        "calls_per_s_low": low,
        "calls_per_s_high": high,
        "top_wait": ledgers.top_wait(ids),
    }
    row |= {name: _value(_mean(f.get(name) for f in figures.values())) for name in (*_MEANS, *_PACED_MEANS)}
    by_calls = [(f, f.get("calls") or 0.0) for f in figures.values()]
    row |= {name: _quotient((f.get(name), calls) for f, calls in by_calls) for name in _PER_CALL}
    by_work = [(f.get("cpu_per_work_ns"), calls * (f.get("work_per_call") or 0.0)) for f, calls in by_calls]
    row["cpu_per_work_ns"] = _quotient(by_work)
    row |= {name: _known_sum(f.get(name) for f in figures.values()) for name in _PACED_SUMS}
    row |= _response(histogram.filter(pl.col("cell").is_in(ids)), figures.values())
    row |= {n: _value(_mean(ledgers.account(c, a) for c in ids)) for n, a in _ACCOUNTS.items()}
    row["helpers_aas"] = _value(_mean(map(ledgers.helpers, ids)))
    return row


def _status(parts: ByCell, cell: str, status: str) -> str:
    """Returns the cell's status, or ``client`` if the client limited it."""
    return "client" if status != "invalid" and is_limit(_figures(parts, cell)) else status


def states_of_best(parts: ByCell, cells: pl.DataFrame) -> dict[str, str]:
    """Returns the status of each usable cell of one load; without any, of those that the client limited;
    without any, of all."""
    states = {c: _status(parts, c, s) for c, s in cells.select("cell", "status").rows()}
    usable = {c: s for c, s in states.items() if s not in LEFT_OUT}
    return usable or {c: s for c, s in states.items() if s == "client"} or states


def _figures(parts: ByCell, cell: str) -> dict[str, float | None]:
    rates = parts.table("rates", cell)
    return dict(rates.select("name", "value").rows()) if rates.height else {}


def _mean(values: Iterable[float | None]) -> Mean | None:
    """Returns the mean of the known values; None if none is known."""
    mean = Mean.of(v for v in values if v is not None)
    return mean if mean.n else None


def _known_sum(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) if known else None


def _quotient(parts: Iterable[tuple[float | None, float]]) -> float | None:
    """Returns the sum over the sum of quotients of cells, each with its divisor; None if none is known."""
    known = [(quotient, divisor) for quotient, divisor in parts if quotient is not None and divisor > 0]
    return sum(q * d for q, d in known) / sum(d for _, d in known) if known else None


def _value(mean: Mean | None) -> float | None:
    return mean.value if mean else None


def _response(histogram: pl.DataFrame, figures: Iterable[Mapping[str, float | None]]) -> Row:
    """Returns percentiles of the calls of all repeats together."""
    longest = max((f.get("response_max_ns") or 0 for f in figures), default=0) or None
    row: Row = {"response_max_ns": longest}
    for name, value in zip(RESPONSE, known_quantiles_ns(histogram, list(RESPONSE.values())), strict=True):
        # A percentile is the upper end of its bucket, which may lie above the longest call.
        row[name] = value if value is None or longest is None else min(value, longest)
    return row


class _Ledgers:
    """Sums of the rungs' and helpers' rows of a ledger by cell, aggregated once for all cells."""

    def __init__(self, ledger: pl.DataFrame) -> None:
        shown = pl.col("scope").is_in(["rung", "helper"]) & ~BY_LABEL
        asked = ledger.filter(shown & pl.col("account").is_in(list(_ACCOUNTS.values())))
        known = pl.when(pl.col("aas").count() > 0).then(pl.col("aas").sum())
        sums = asked.group_by("cell", "scope", "account").agg(known)
        self._sums: dict[tuple[str, str, str], float | None] = {
            (c, s, a): aas for c, s, a, aas in sums.iter_rows()
        }
        sampled = asked.filter((pl.col("scope") == "rung") & pl.col("account").is_in(["sleep", "client"]))
        hidden = sampled.filter(pl.col("status").str.contains(HIDDEN_STATUS))
        self._hidden = set(hidden["cell"])
        self._with_workers = set(ledger.filter(WORKERS)["cell"])
        waits = sampled.filter(pl.col("detail").is_not_null() & (pl.col("account") == "sleep"))
        self._waits = waits.select("cell", "detail", "aas")

    def account(self, cell: str, account: str) -> float | None:
        """Returns the sum over the account's rows of a cell's rung; None if unknown."""
        if account in _WAITS and cell in self._hidden:
            return None  # the sum would cover only the visible sessions
        return self._sums.get((cell, "rung", account))

    def have_workers(self, cells: Iterable[str]) -> bool:
        """Returns whether sessions of one of these cells had parallel workers."""
        return not self._with_workers.isdisjoint(cells)

    def helpers(self, cell: str) -> float | None:
        """Returns CPU time of the server's own processes; 0 if tasks can be read and there are no such
        processes."""
        key = (cell, "helper", "run")
        if key in self._sums:
            return self._sums[key]
        return None if self.account(cell, "run") is None else 0.0

    def top_wait(self, cells: Iterable[str]) -> str | None:
        """Returns the wait in which sessions slept longest; None if all have less than
        :data:`WORTH_NAMING` of their time."""
        wanted = set(cells)
        whole = sum(v or 0.0 for (c, s, a), v in self._sums.items() if c in wanted and (s, a) in _WHOLE)
        waits = self._waits.filter(pl.col("cell").is_in(wanted) & (pl.col("aas") > 0))
        largest = waits.group_by("detail").agg(pl.col("aas").sum()).sort("aas", "detail", descending=True)
        largest = largest.filter(pl.col("aas") >= WORTH_NAMING * whole)
        return None if largest.is_empty() else str(largest["detail"][0])


def _scaling(row: Row, ladder: list[Row]) -> float | None:
    """Returns throughput per session relative to the lowest usable rung of the ladder, else to the lowest
    measured one."""
    if row["rate_per_s"] is not None:
        return None  # an open load: its throughput is the rate that was asked for
    same = [r for r in ladder if (r["workload"], r["variant"]) == (row["workload"], row["variant"])]
    measured = [r for r in same if r["calls_per_s"] and r["status"] != "invalid"]
    usable = [r for r in measured if r["status"] not in LEFT_OUT] or measured
    if not usable or row["calls_per_s"] is None:
        return None
    lowest = min(usable, key=lambda r: int(r["sessions"]))
    return float(row["calls_per_s"] * lowest["sessions"] / (row["sessions"] * lowest["calls_per_s"]))


def just_measured(cell: RawCell, plan: Plan) -> dict[str, pl.DataFrame]:
    """Returns tables ``windows``, ``rates``, ``rungs`` and ``histogram`` of one cell. In ``rungs``, column
    :data:`PRELIMINARY` says whether sleep is to be apportioned anew when the run is derived."""
    whole = pooled(cell) or is_tree(cell)
    tables = window.cut_without_samples([cell]) if whole else window.cut_rates([cell])
    tables["cut_samples"] = window.cut_samples([cell])
    if not whole:
        tables |= {"cut_traced": window.cut_traced([cell]), "cut_waits": window.cut_waits([cell])}
    tables["ledger"] = accounts(tables)["ledger"] if whole else _ledger(tables)
    tables["rates"] = judged(tables, plan)
    sampled = not whole and tables["cut_waits"].is_empty()
    tables["rungs"] = rungs(tables, is_tree(cell)).with_columns(pl.lit(sampled).alias(PRELIMINARY))
    return {n: tables[n] for n in ("windows", "rates", "rungs")} | {"histogram": tables["cell_histogram"]}


def _ledger(cut: Tables) -> pl.DataFrame:
    """Returns run, run queue and sleep of all sessions together, as far as they are known. Times of traced
    tasks are the trace's, as in the ledger of the whole run."""
    tasks = margins(cut).filter((pl.col("role") == "session") & (pl.col("wall_ns") > 0))
    wall = float((tasks["wall_ns"] / tasks["over_ns"]).sum())
    run, runq = (_known(tasks[f"{n}_ns"] / tasks["over_ns"]) for n in ("run", "runq"))
    slept = _named(_slept(cut), families_of(cut))
    share = float(slept["share"].sum())
    asleep = wall * share
    if run is not None and runq is not None:
        runq = min(runq, wall - run) if wall > run else 0.0  # reads may be stale by a tick
        asleep = wall - run - runq
    records = [_row("run", None, run), _row("runq", None, runq)]
    records += [_row(account, name, asleep * part / share) for account, name, part in slept.iter_rows()]
    none = 0.0 if cut["cut_samples"].height else None
    if none is not None and not share:
        records.append(_row("sleep", None, asleep))  # asleep, but no sample saw it
    records.append(_row("unaccounted", None, none))
    seen = {row["account"] for row in records}
    records += [_row(n, None, none) for n in ("sleep", "client") if n not in seen]
    head = cut["windows"].select("cell", "workload", "variant", "sessions", "repeat").row(0, named=True)
    return rows("ledger", [head | row for row in records])


def _slept(cut: Tables) -> pl.DataFrame:
    """Returns ``share`` of the sessions' sleep by wait event where it was traced, else the share of their
    samples."""
    label = ("wait_class", "wait_event")
    traced = cut["cut_waits"].filter((pl.col("role") == "session") & (pl.col("sleep_ns") > 0))
    if traced.height:
        by_event = traced.group_by(label, maintain_order=True).agg(share=pl.col("sleep_ns").sum())
        return by_event.with_columns(pl.col("share") / pl.col("share").sum())
    spans = cut["cut_sampler"].select("via", "sample", weight=pl.col("high_ns") - pl.col("low_ns"))
    seen = cut["cut_samples"].filter(pl.col("role") == "session")
    seen = seen.filter(pl.col("via") == pl.col("via").min()).join(spans, on=["via", "sample"])
    state = pl.col("task_state")
    asleep = pl.when(state.is_null()).then(pl.col("wait_class").is_not_null()).otherwise(state != "R")
    whole = float(seen["weight"].sum()) or 1.0
    return (
        seen.filter(asleep)
        .group_by(label, maintain_order=True)
        .agg(share=pl.col("weight").sum() / whole)
        .filter(pl.col("share") > 0)
    )


def _named(slept: pl.DataFrame, families: WaitFamilies) -> pl.DataFrame:
    """Divides sleep into accounts ``client`` and ``sleep``, and labels the latter by wait event."""
    client = families.among(*AT_CLIENT)
    account = pl.when(client).then(pl.lit("client")).otherwise(pl.lit("sleep"))
    return slept.select(
        account.alias("account"), pl.when(~client).then(wait_label()).alias("detail"), "share"
    )


def _known(values: pl.Series) -> float | None:
    return None if values.is_empty() or values.null_count() else float(values.sum())


def _row(account: str, name: str | None, aas: float | None) -> dict[str, Any]:
    known = {"status": "ok" if aas is not None else "off", "source": "os tasks, activity samples"}
    return {"scope": "rung", "who": "rung", "account": account, "detail": name, "aas": aas, **known}
