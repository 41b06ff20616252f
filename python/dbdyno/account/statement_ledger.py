"""Table ``statement_ledger``: each statement's CPU time, CPU WAIT and sleep by wait event, per cell. Pure.

Traced: sleep and run queue are exact, but for the queue in progress at the start of the window, which several
statements may have had since. CPU time is exact but for slices in which the statement changed: a slice
belongs to the statement at its end, and a clock tick ends a slice, too. Its interval reaches from none of the
slices that began in another statement to all that began in this one. If the clock ticks contradict it (a
statement came and went inside slices), CPU time is divided by ticks instead, with Wilson's interval.

Sampled: the exact time on a CPU and in the run queue, and the sleep in each wait, are divided by samples.

All seconds add up to those of the ledger. Sessions that were not traced throughout are rows of their own,
status lost.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from dbdyno.account.making import makes
from dbdyno.model.results.brief import BRIEF
from dbdyno.model.results.ledger_rows import account_rows, among, groups
from dbdyno.model.results.session_time import NO_EVENT, account, event_name
from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.tables import ByCell, Tables, conform, empty, sum_of_known
from dbdyno.model.sources.source import TRACE
from dbdyno.model.sources.wait_families import Family, families_of
from dbdyno.stats.estimates import wilson

SAMPLES, TICKS, OS_TASKS = "activity samples", "scheduler trace, by clock ticks", "os tasks"
_KEY = ("query_id", "query_status", "worker")
_STRICT = (1.96 / 3.5) ** 2
"""Scales the number of ticks so that Wilson's 95 % interval spans 3.5 standard errors, not 1.96.

Many statements are tested at once, so 1.96 would find contradictions by chance."""
_ROUNDING = 1e-9


@makes("statement_ledger", reads=("ledger", "rates"))
def statement_ledger(tables: Tables) -> pl.DataFrame:
    """Returns the ledger of statements per cell. Reads ``windows`` and the tables :data:`_NEEDED`."""
    frames = [empty("statement_ledger")]
    client = families_of(tables).among(Family.CLIENT)
    parts = ByCell({name: tables[name] for name in _NEEDED})
    for window in tables["windows"].to_dicts():
        cut = parts.of(window["cell"])
        rows = _traced(cut, client) if knows_statements(cut) else _sampled(cut, window, client)
        if rows.height:
            key = [pl.lit(window[c.name]).alias(c.name) for c in CELL]
            rows = _with_halves(rows, cut["ledger"], window["wall_s"])
            frames.append(conform("statement_ledger", _per(rows, cut, window["wall_s"]).with_columns(key)))
    return pl.concat(frames)


_NEEDED = (
    *("ledger", "rates", "cut_tasks", "cut_traced"),
    *("cut_statement_waits", "cut_statement_samples", "cut_statements"),
)


def knows_statements(tables: Tables) -> bool:
    """Returns whether the trace read the ids of statements in these cells."""
    waits = tables["cut_statement_waits"]
    return waits["query_id"].null_count() < waits.height


def statement_times(rows: pl.DataFrame) -> pl.DataFrame:
    """Returns seconds and the longest wait by query id, from the ledger of one cell."""
    account, seconds = pl.col("account"), pl.col("seconds")
    asleep = account == "sleep"
    by_query = (
        rows.filter(account.is_in(["run", "runq", "sleep"]))
        .group_by("query_id", maintain_order=True)
        .agg(
            db_time_s=seconds.sum(),
            cpu_s=seconds.filter(account == "run").sum(),
            cpu_wait_s=seconds.filter(account == "runq").sum(),
            waited_s=seconds.filter(asleep).sum(),
            top_wait=pl.col("detail").filter(asleep).sort_by(seconds.filter(asleep), descending=True).first(),
        )
    )
    return by_query.filter(pl.col("query_id").is_not_null() | (pl.col("db_time_s") > 0))


def _traced(cut: Tables, client: pl.Expr) -> pl.DataFrame:
    """Returns accounts by statement from the trace, in seconds per second."""
    waits = cut["cut_statement_waits"]
    slept = waits.with_columns(account=pl.when(client).then(pl.lit("client")).otherwise(pl.lit("sleep")))
    slept = slept.group_by(*_KEY, "account", detail=event_name(), maintain_order=True).agg(
        value=pl.col("sleep").sum(), sleeps=pl.col("sleeps").sum()
    )
    slept = slept.filter((pl.col("value") != 0) | (pl.col("sleeps") != 0))
    queue = {"value": "runq", "low": "runq_low", "high": "runq_high"}
    queued = waits.group_by(_KEY, maintain_order=True).agg(pl.col(c).sum().alias(n) for n, c in queue.items())
    parts = [_slices(waits), queued.with_columns(account=pl.lit("runq")), slept]
    rows = pl.concat(parts, how="diagonal")
    rows = pl.concat([rows, _not_followed(rows, cut)], how="diagonal")
    value = pl.col("value")
    return rows.with_columns(
        low=pl.coalesce("low", value),
        high=pl.coalesce("high", value),
        source=pl.coalesce("source", pl.lit(TRACE)),
    )


def _not_followed(rows: pl.DataFrame, cut: Tables) -> pl.DataFrame:
    """Returns the ledger's time beyond ``rows`` if some session was not traced throughout; else no row."""
    key = ["pid", "tid", "start_ticks"]
    of_sessions = pl.col("role").is_in(["session", BRIEF])
    sessions = cut["cut_tasks"].filter(of_sessions)
    followed = cut["cut_traced"].filter(of_sessions & (pl.col("status") == "ok"))
    if sessions.join(followed, on=key, how="anti", nulls_equal=True).is_empty():
        return rows.clear()
    followed_aas = dict(rows.group_by("account").agg(pl.col("value").sum()).iter_rows())
    whole = {n: account(cut["ledger"], n).aas for n in ("run", "runq", "sleep", "client")}
    left = {n: aas - followed_aas.get(n, 0.0) for n, aas in whole.items() if aas is not None}
    records = [{"account": n, "value": v} for n, v in left.items() if v > _ROUNDING]
    missing = pl.DataFrame(records, schema={"account": pl.String, "value": pl.Float64})
    return missing.with_columns(query_status=pl.lit("lost"), source=pl.lit(OS_TASKS))


def _slices(waits: pl.DataFrame) -> pl.DataFrame:
    """Returns CPU time by statement: of slices, or of clock ticks where these contradict the slices."""
    rows = waits.group_by(_KEY, maintain_order=True).agg(pl.col("run", "came", "left", "run_samples").sum())
    run, came, left, met = (rows[n].to_numpy() for n in ("run", "came", "left", "run_samples"))
    whole, ticks = run.sum(), met.sum()
    # A slice counts for the statement at its end. ``came`` began in another statement and may be its time;
    # ``left`` began in this one and counts for another.
    least, most = run - came, run + left
    value, low, high, source = run, least.clip(0.0), np.minimum(most, whole), TRACE
    if ticks > 0:
        strict = wilson(met / ticks, ticks * _STRICT)
        beyond = np.maximum(strict[0] * whole - most, least - strict[1] * whole)
        if (beyond > _ROUNDING * whole).any():  # a tolerance, as sums of no slices may be 1e-18
            ends = wilson(met / ticks, ticks)
            value, low, high, source = met / ticks * whole, ends[0] * whole, ends[1] * whole, TICKS
    with_source = rows.select(*_KEY, "run_samples", account=pl.lit("run"), source=pl.lit(source))
    return with_source.hstack([pl.Series("value", value), pl.Series("low", low), pl.Series("high", high)])


def _sampled(cut: Tables, window: dict[str, float], client: pl.Expr) -> pl.DataFrame:
    """Returns accounts by statement from samples; empty if they know no statement, or no states of tasks."""
    samples = cut["cut_statement_samples"].filter(~((pl.col("doing") == "wait") & client))
    exact = {n: account(cut["ledger"], n).aas for n in ("run", "runq")}
    blind = (samples["doing"] == "?").any() or None in exact.values()
    if blind or samples["query_id"].null_count() == samples.height:
        return pl.DataFrame()
    n, total = pl.col("samples"), pl.col("samples").sum()
    low, high = wilson(n / total, total)
    seconds = pl.col("seconds")
    awake = samples.filter(doing="run").group_by("query_id", maintain_order=True).agg(seconds.sum(), n.sum())
    parts = [awake.with_columns(account=pl.lit(a), whole=pl.lit(v)) for a, v in exact.items()]
    share = seconds / seconds.sum()
    shared = [
        p.with_columns(value=share * pl.col("whole"), low=low * pl.col("whole"), high=high * pl.col("whole"))
        for p in parts
    ]
    shared.append(_asleep(samples.filter(doing="wait"), cut["ledger"], window["wall_s"]))
    rows = pl.concat(shared, how="diagonal").rename({"samples": "run_samples"})
    status = pl.coalesce("query_status", pl.lit("ok"))
    return rows.with_columns(query_status=status, source=pl.lit(SAMPLES)).drop("seconds", "whole")


def _asleep(waits: pl.DataFrame, ledger: pl.DataFrame, wall_s: float) -> pl.DataFrame:
    """Returns the ledger's sleep by wait, divided among statements by their samples in this wait.

    A source of more samples than those of statements may have measured the sleep. A wait that no sample with
    a statement contains is a row without one. If the sleep is unknown, each sample stands for its time.
    """
    label, seconds, n = event_name().alias("detail"), pl.col("seconds"), pl.col("samples")
    sampled = waits.select("query_id", "seconds", "samples", label, account=pl.lit("sleep"))
    slept = account_rows(ledger, "sleep")
    if slept.height and slept["aas"].null_count() == 0:
        by_label = slept.group_by(
            pl.col("detail").fill_null("").replace(NO_EVENT, ""), maintain_order=True
        ).agg(whole=pl.col("aas").sum())
        rows = sampled.join(by_label, on="detail", how="full", coalesce=True, maintain_order="left_right")
        rows = rows.filter(pl.col("whole") > 0).with_columns(account=pl.lit("sleep"))
    else:
        rows = sampled.with_columns(whole=seconds.sum().over("detail") / wall_s)
    low, high = wilson(n / n.sum().over("detail"), n.sum().over("detail"))
    part = pl.col("whole")
    unnamed = seconds.is_null()
    return rows.with_columns(
        value=pl.when(unnamed).then(part).otherwise(seconds / seconds.sum().over("detail") * part),
        low=pl.when(unnamed).then(0.0).otherwise(low * part),
        high=pl.when(unnamed).then(part).otherwise(high * part),
        query_status=pl.when(unnamed).then(pl.lit("lost")),
    )


def _with_halves(rows: pl.DataFrame, ledger: pl.DataFrame, wall_s: float) -> pl.DataFrame:
    """Returns rows in seconds, with CPU time divided into user and kernel mode in the proportion of all
    sessions. Intervals are Fréchet's bounds: a statement's time in one mode is at least its CPU time less
    all time in the other mode, and at most all time in this mode."""
    halves = {n: account(ledger, f"run.{n}").aas for n in ("user", "system")}
    run = rows.filter(account="run")
    parts = [rows]
    if None not in halves.values() and (whole := sum(filter(None, halves.values()))) > 0:
        for name, aas in halves.items():
            part = aas or 0.0
            value, low, high = pl.col("value"), pl.col("low"), pl.col("high")
            parts.append(
                run.with_columns(
                    account=pl.lit(f"run.{name}"),
                    value=value * part / whole,
                    low=(low - (whole - part)).clip(0.0),
                    high=pl.min_horizontal(high, pl.lit(part)),
                    run_samples=pl.lit(None, pl.Int64),
                )
            )
    both = pl.concat(parts, how="diagonal_relaxed")
    return both.with_columns(pl.col("value", "low", "high") * wall_s).rename({"value": "seconds"})


def _per(rows: pl.DataFrame, cut: Tables, wall_s: float) -> pl.DataFrame:
    """Adds each statement's share, and its seconds per call and per unit of work."""
    busy = pl.col("account").is_in(["run", "runq", "sleep"])
    measured = _measured_part(cut["rates"])
    part = wall_s / pl.col("wall_s") if measured is None else pl.lit(measured)
    counted = cut["cut_statements"].filter("toplevel").with_columns(calls=pl.col("calls") * part)
    calls = counted.group_by("query_id").agg(pl.col("calls").sum())
    rates = cut["rates"].filter((pl.col("scope") == "rung") & (pl.col("name") == "work_per_s"))
    work = float(rates["value"].sum()) * wall_s
    seconds = pl.col("seconds")
    with_calls = rows.join(calls.drop_nulls(), on="query_id", how="left", maintain_order="left")
    return with_calls.with_columns(
        share=pl.when(pl.col("account") != "client").then(seconds / seconds.filter(busy).sum()),
        per_call_s=pl.when(pl.col("calls") > 0).then(seconds / pl.col("calls")),
        per_work_s=seconds / work if work > 0 else pl.lit(None, pl.Float64),
    ).drop("calls")


def _measured_part(rates: pl.DataFrame) -> float | None:
    """Returns the measured part of the driver's calls, which statement counters count from the first one on.
    None if dbdyno does not drive the load: then counters are scaled by time."""

    def total(scope: str, *names: str) -> float:
        return float(rates.filter(pl.col("name").is_in(names) & (pl.col("scope") == scope))["value"].sum())

    made = total("session", "executions")
    return total("rung", "calls", "errors") / made if made else None


@makes("statement_ledger", stage="total")
def statement_ledger_total(tables: Tables) -> pl.DataFrame:
    """Returns the ledger over all usable cells of a workload, variant and load together (cell ``all``)."""
    frames = [empty("statement_ledger")]
    busy = pl.col("account").is_in(["run", "runq", "sleep"])
    seconds = pl.col("seconds")
    for head, cells in groups(tables["windows"]):
        rows = among(tables["statement_ledger"], cells)
        per = ("per_call_s", "per_work_s")
        sums = rows.group_by(*_KEY, "account", "detail", maintain_order=True).agg(
            pl.col("seconds", "low", "high").sum(),
            *(sum_of_known(n) for n in ("sleeps", "run_samples")),
            # Seconds over seconds per call are calls: these add up over cells, quotients do not.
            *((seconds.filter(pl.col(n) > 0) / pl.col(n).filter(pl.col(n) > 0)).sum().alias(n) for n in per),
            pl.col("source").unique().sort().str.join("; "),
        )
        frames.append(
            conform(
                "statement_ledger",
                sums.with_columns(
                    **{n: pl.when(pl.col(n) > 0).then(seconds / pl.col(n)) for n in per},
                    share=pl.when(pl.col("account") != "client").then(seconds / seconds.filter(busy).sum()),
                    **{n: pl.lit(v) for n, v in head.items()},
                ),
            )
        )
    return pl.concat(frames)
