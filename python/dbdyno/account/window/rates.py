"""Table ``rates``: throughput and other figures normalised by time, call and unit of work.

A session's rate is its calls over its own time from first start to last end; the rung's is the sum of
these (docs/how-it-works/counting.md). CPU per call is the sessions' CPU time per second over their calls
per second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from dbdyno.account.making import makes
from dbdyno.account.window import paced
from dbdyno.account.window.attribution import pooled
from dbdyno.account.window.cells import key
from dbdyno.account.window.trees import is_tree
from dbdyno.model.plan.plan import Plan
from dbdyno.model.results.raw import REPLAY_BEHIND, REPLAY_LAG, RawCell
from dbdyno.model.results.session_time import judged
from dbdyno.model.schema.data_sources import files
from dbdyno.model.schema.quantiles import FEW, RESPONSE
from dbdyno.model.schema.tables import (
    ByCell,
    Tables,
    conform,
    empty,
    known_quantiles_ns,
    known_sum,
    rows,
)
from dbdyno.model.sources.wait_families import LOG_BYTES, READ_CALLS, READ_REQUESTS, STORAGE_BYTES
from dbdyno.model.units import NS_PER_S
from dbdyno.stats.autocorrelation import correlated

# Standard errors of a window's own figures, from its course second by second.
#
# The driver reports the number of ended calls about once a second. Neighbouring bins of that series are
# correlated, which :mod:`dbdyno.stats.autocorrelation` takes into account. Variation between repeats is not
# part of these errors: they are a lower bound.

Figure = tuple[str, str, float | None, str, str]
_SOURCE = "driver, by the second"
_FEW = "too few seconds"


def within(cell: RawCell) -> Iterator[Figure]:
    """Yields standard errors of calls/s and mean response time, and their effective number of bins."""
    bins = _bins(cell)
    rate = correlated(bins["rate"].to_list())
    yield ("calls_per_s_se", "1/s", None if rate is None else rate.std_err, _FEW, _SOURCE)
    yield ("effective_bins", "bins", None if rate is None else rate.effective, _FEW, _SOURCE)
    yield ("response_mean_se_ns", "ns", _response_error(bins), _FEW, _SOURCE)


def _bins(cell: RawCell) -> pl.DataFrame:
    """Returns calls, their time and their rate between the reports of the driver."""
    inside = pl.col("at_ns").is_between(cell.meta.t0_ns, cell.meta.t1_ns)
    reports = cell.tables["progress"].filter(inside).sort("at_ns")
    growth = reports.select(pl.col("at_ns", "calls", "in_call_ns").diff()).drop_nulls()
    return growth.filter(pl.col("at_ns") > 0).with_columns(rate=NS_PER_S * pl.col("calls") / pl.col("at_ns"))


@makes("rates", reads=("ledger",))
def rates_judged(tables: Tables, plan: Plan) -> pl.DataFrame:
    """Returns table ``rates``: those of the windows, and whether the client limited them."""
    return judged({**tables, "rates": tables["cut_rates"]}, plan)


@makes("over_time")
def over_time(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Returns table ``over_time``: calls and their mean duration from one report of the driver to the
    next."""
    return pl.concat([empty("over_time"), *map(_over_time, cells)])


def _over_time(cell: RawCell) -> pl.DataFrame:
    inside = pl.col("at_ns").is_between(cell.meta.t0_ns, cell.meta.t1_ns)
    since = (pl.col("at_ns") - cell.meta.t0_ns) / NS_PER_S
    calls, spent = pl.col("calls").diff(), pl.col("in_call_ns").diff()
    looks = (
        cell.tables["progress"]
        .filter(inside)
        .sort("at_ns")
        .select(
            start_s=since.shift(1),
            end_s=since,
            calls=calls,
            errors=pl.col("errors").diff(),
            calls_per_s=calls / since.diff(),
            response_mean_ns=pl.when(calls > 0).then(spent / calls),
        )
    )
    return conform("over_time", looks.filter(pl.col("end_s") > pl.col("start_s")), key(cell))


def _response_error(bins: pl.DataFrame) -> float | None:
    """Returns the standard error of a ratio of two sums, from its residuals (Cochran 1977, Sampling
    Techniques, 6.4)."""
    calls = int(bins["calls"].sum())
    if not calls:
        return None
    mean_ns = float(bins["in_call_ns"].sum()) / calls
    # Linearised ratio R = sum(y) / sum(x): its error is that of sum(y - R x), over sum(x).
    left = correlated((bins["in_call_ns"] - mean_ns * bins["calls"]).to_list())
    return None if left is None else left.std_err * left.n / calls


_DRIVER, _COUNTERS, _TASKS, _DRIVER_TASKS = "driver", "engine counters", "os tasks", "driver tasks"

Row = dict[str, Any]
# name, unit, value, status where it is None, source


def rates_of(cells: Sequence[RawCell], cut: Tables) -> pl.DataFrame:
    """Returns table ``rates``, from the cells and this room's other tables. An observation has only rates
    of counters in files, and the lag of replication."""
    levels = cut["cut_levels"]
    records: list[Row] = [
        key(cell) | row
        for cell in cells
        for row in (*_file_rates(cell, levels), *_replication_lag(cell, levels))
    ]
    parts = ByCell({name: cut[name] for name in ("cut_work", "cut_tasks", "cut_levels", "cell_histogram")})
    for cell in (c for c in cells if c.tables["sessions"].height):
        in_cell = parts.of(cell.id)
        sessions = _sessions(cell, in_cell)
        head = key(cell)
        records += [
            head | row for row in (*_per_session(cell, sessions), *_per_rung(cell, in_cell, sessions))
        ]
    return rows("rates", records)


def _file_rates(cell: RawCell, levels: pl.DataFrame) -> Iterator[Row]:
    """Yields growth per second of the machine's counters in registered files."""
    for name, file in files().items():
        of_file = pl.col("key").str.starts_with(f"{file.key}.") & (pl.col("origin") == "host")
        for row in levels.filter((pl.col("cell") == cell.id) & of_file).to_dicts():
            value = _quotient(row["delta"], row["wall_ns"], NS_PER_S)
            yield _row("rung", None, f"{row['key']}_per_s", "1/s", value, row["status"], name)


def _replication_lag(cell: RawCell, levels: pl.DataFrame) -> Iterator[Row]:
    """Yields the lag of replay at the ends of the window, the larger of the two."""
    engine_levels = levels.filter((pl.col("cell") == cell.id) & (pl.col("origin") == "engine"))
    for name, unit in ((REPLAY_LAG, "ns"), (REPLAY_BEHIND, "bytes")):
        for row in engine_levels.filter((pl.col("key") == name) & pl.col("last").is_not_null()).to_dicts():
            yield _row("rung", None, name, unit, max(row["first"], row["last"]), row["status"], _COUNTERS)


def _sessions(cell: RawCell, cut: Tables) -> pl.DataFrame:
    """Returns one row per session: its rate, CPU (seconds per second), work and their statuses."""
    span = pl.col("last_end_ns") - pl.col("first_start_ns")
    if paced.is_paced(cell):  # a session may have had a call or two
        span = pl.when(span.is_not_null()).then(paced.span_ns(cell))
    if cell.meta.cell.once:  # a fixed number of calls: their rate is over the time until the last one ended
        span = pl.col("last_end_ns").max() - pl.col("first_start_ns").min()
    worked = cut["cut_work"].filter("is_work")
    cpu = _cpu_by_executions(cell, span) if is_tree(cell) else _cpu_by_tasks(cut["cut_tasks"])
    if pooled(cell):  # its tasks serve all sessions in turn
        cpu = cpu.clear()
    return (
        cell.tables["sessions"]
        .with_columns(
            rate=pl.when(span > 0).then(NS_PER_S * pl.col("calls") / span),
            error_rate=pl.when(span > 0).then(NS_PER_S * pl.col("errors") / span),
        )
        .join(cpu, on="session", how="left")
        .join(
            worked.select("session", work="value", work_unit="unit", work_status="status"),
            on="session",
            how="left",
        )
        .sort("session")
    )


def _cpu_by_tasks(tasks: pl.DataFrame) -> pl.DataFrame:
    """Returns ``cpu`` of each session and its status."""
    of_sessions = tasks.filter(pl.col("role") == "session")
    return of_sessions.group_by("session").agg(
        # Over the task's own life, as the rate is. A worker's time counts over its leader's window.
        cpu=_sum(pl.col("run_ns") / pl.when("worker").then("over_ns").otherwise("wall_ns")),
        cpu_status=pl.col("status").sort_by("worker").first(),
    )


def _cpu_by_executions(cell: RawCell, span: pl.Expr) -> pl.DataFrame:
    """Returns the same for trees of processes: the CPU time of their executions, over the span of the
    rate."""
    counted = cell.tables["executions"].filter((pl.col("outcome") == "ok") & pl.col("measured"))
    used = counted.group_by("session").agg(used=_sum(pl.col("user_ns") + pl.col("system_ns")))
    spans = cell.tables["sessions"].select("session", span=span).join(used, on="session")
    return spans.select(
        "session",
        cpu=pl.when(pl.col("span") > 0).then(pl.col("used") / pl.col("span")),
        cpu_status=pl.when(pl.col("used").is_null()).then(pl.lit("not supported")).otherwise(pl.lit("ok")),
    )


def _per_session(cell: RawCell, sessions: pl.DataFrame) -> Iterator[Row]:
    for s in sessions.iter_rows(named=True):
        work, work_source = _work_per_call(cell, s["work"], s["calls_total"])
        idle = "ok" if s["calls"] else "no measured calls"
        work_status = "ok" if work is not None else s["work_status"] or "not supported"
        cpu_status = s["cpu_status"] or ("shared" if pooled(cell) else "off")
        per_call = _quotient(s["cpu"], s["rate"], NS_PER_S)
        mean_ns = _quotient(s["in_call_ns"], s["calls"])
        figures = (
            ("calls_per_s", "1/s", s["rate"], idle, _DRIVER),
            ("errors_per_s", "1/s", s["error_rate"], idle, _DRIVER),
            ("executions", "calls", s["calls_total"] + s["errors_total"], "ok", _DRIVER),
            ("response_mean_ns", "ns", mean_ns, idle, _DRIVER),
            ("response_max_ns", "ns", s["max_ns"], idle, _DRIVER),
            ("work_per_call", cell.meta.workload.work_unit, work, work_status, work_source),
            *_work_rate(cell, s["rate"], work, work_status, work_source),
            ("cpu_per_call_ns", "ns", per_call, cpu_status, _cpu_source(cell)),
            ("cpu_per_work_ns", "ns", _quotient(per_call, work), cpu_status, _cpu_source(cell)),
        )
        yield from (_row("session", s["session"], *figure) for figure in figures)


def _per_rung(cell: RawCell, cut: Tables, sessions: pl.DataFrame) -> Iterator[Row]:
    measured = sessions.filter(pl.col("calls") > 0)
    calls, errors = int(sessions["calls"].sum()), int(sessions["errors"].sum())
    idle = "ok" if calls else "no measured calls"
    rate = known_sum(measured["rate"])
    known = sessions.filter(pl.col("work").is_not_null() & (pl.col("calls_total") > 0))
    work, work_source = _work_per_call(cell, known_sum(known["work"]), int(known["calls_total"].sum()))
    if 0 < known.height < sessions.height:
        work_source += f", {known.height} of {sessions.height} sessions"
    work_status = "ok" if work is not None else _first_bad(sessions["work_status"], "not supported")
    cpu, cpu_status = _rung_cpu(cell, cut, sessions)
    per_call = _quotient(cpu, rate, NS_PER_S)
    straddling = int((sessions["straddle_in"] + sessions["straddle_out"]).sum())
    figures = (
        ("calls", "calls", float(calls), "ok", _DRIVER),
        ("errors", "calls", float(errors), "ok", _DRIVER),
        ("calls_per_s", "1/s", rate, idle, _DRIVER),
        ("errors_per_s", "1/s", known_sum(sessions["error_rate"]), idle, _DRIVER),
        ("straddling_calls", "calls", float(straddling), "ok", _DRIVER),
        ("response_mean_ns", "ns", _quotient(float(sessions["in_call_ns"].sum()), calls), idle, _DRIVER),
        *(
            (n, "ns", value, FEW if calls and n in RESPONSE else idle, _DRIVER)
            for n, value in _extremes(cell, cut["cell_histogram"], sessions)
        ),
        *paced.figures(cell),
        ("work_per_call", cell.meta.workload.work_unit, work, work_status, work_source),
        *_work_rate(cell, rate, work, work_status, work_source),
        ("cpu_per_call_ns", "ns", per_call, cpu_status, _cpu_source(cell)),
        ("cpu_per_work_ns", "ns", _quotient(per_call, work), cpu_status, _cpu_source(cell)),
        *within(cell),
        *_counters_per_call(cut, sessions, rate),
        *_calibrated(cell),
        _round_trips(sessions),
        *_driver(cell, cut["cut_tasks"].filter(pl.col("role") == "driver"), rate),
    )
    yield from (_row("rung", None, *figure) for figure in figures)


def _cpu_source(cell: RawCell) -> str:
    return "executions" if is_tree(cell) else _TASKS


def _rung_cpu(cell: RawCell, cut: Tables, sessions: pl.DataFrame) -> tuple[float | None, str]:
    """Returns CPU of all sessions; behind a pooler that of its server connections."""
    if pooled(cell):
        tasks = cut["cut_tasks"].filter(pl.col("role") == "session")
        known = tasks.height > 0 and not tasks["run_ns"].null_count()
        cpu = float((tasks["run_ns"] / tasks["over_ns"]).sum()) if known else None
        return cpu, "ok" if known else _first_bad(tasks["status"], "off")
    known = sessions.height > 0 and not sessions["cpu"].null_count()
    cpu = float(sessions["cpu"].sum()) if known else None
    return cpu, "ok" if known else _first_bad(sessions["cpu_status"], "off")


def _extremes(
    cell: RawCell, histogram: pl.DataFrame, sessions: pl.DataFrame
) -> Iterator[tuple[str, float | None]]:
    """Yields percentiles and the longest call. No percentile lies above the longest."""
    ended = sessions.select(pl.col("max_ns").cast(pl.Float64).max()).item()
    longest = max((v for v in (ended, paced.longest_ns(cell)) if v is not None), default=None)
    for name, value in zip(RESPONSE, known_quantiles_ns(histogram, list(RESPONSE.values())), strict=True):
        yield name, value if value is None or longest is None else min(float(value), longest)
    yield "response_max_ns", longest


def _round_trips(sessions: pl.DataFrame) -> Figure:
    """Returns messages per call that the driver sent and waited for, failed calls included. Lost sessions
    are left out: their last call was sent and never ended."""
    whole = sessions.filter(~pl.col("end_reason").is_in(["lost", "aborted"]))
    sent = float((whole["calls_total"] + whole["errors_total"]).sum())
    counted = None if whole["round_trips"].null_count() else float(whole["round_trips"].sum())
    status = "not supported" if counted is None else "no measured calls"
    return ("round_trips_per_call", "round trips", _quotient(counted, sent), status, _DRIVER)


_A_CALL = {
    LOG_BYTES: "bytes",
    READ_REQUESTS: "requests",
    READ_CALLS: "system calls",
    STORAGE_BYTES: "bytes",
}


def _counters_per_call(cut: Tables, sessions: pl.DataFrame, rate: float | None) -> Iterator[Figure]:
    """Yields the growth of counters per call: over the sessions' own calls if the engine counts by
    session, else all growth of the server in the window over the calls."""
    calls = pl.col("calls_total") + pl.col("errors_total")
    counted = sessions.join(cut["cut_work"].drop_nulls("value"), on="session").group_by("name")
    own = {name: sums for name, *sums in counted.agg(pl.col("value").sum(), calls.sum()).iter_rows()}
    levels = cut["cut_levels"].filter(pl.col("origin") == "engine").unique("key", keep="first")
    server = {key: read for key, *read in levels.select("key", "delta", "wall_ns", "status").iter_rows()}
    for name, unit in _A_CALL.items():
        if name in own:
            yield (f"{name}_per_call", unit, _quotient(*own[name]), "ok", _COUNTERS)
            continue
        growth, over_ns, status = server.get(name, (None, None, "off"))
        per_call = _quotient(_quotient(growth, over_ns, NS_PER_S), rate)
        yield (f"{name}_per_call", unit, per_call, status, f"{_COUNTERS}, server-wide")


def _driver(cell: RawCell, tasks: pl.DataFrame, rate: float | None) -> Iterator[Figure]:
    """Yields the CPUs that the driver's threads used in the window (without dbdyno's observers), their CPU
    time per call, and the share of their runnable time in the run queue."""
    hosts = cell.tables.get("drivers", empty("drivers"))
    away = (
        hosts.height > 0 and tasks.height != hosts["threads"].fill_null(0).sum()
    )  # some driver threads are on other hosts
    known = tasks.height > 0 and not tasks["run_ns"].null_count() and not away
    status = "ok" if known else "not here" if away else _first_bad(tasks["status"], "off")
    # The threads live all the time: a late read shortens their brackets, but not their work.
    run, runq = (known_sum(tasks[c] / tasks["wall_ns"]) if known else None for c in ("run_ns", "runq_ns"))
    runnable = None if run is None or runq is None else run + runq
    starved = 0.0 if runnable == 0 else _quotient(runq, runnable)
    yield ("driver_threads", "threads", float(tasks.height) if known else None, status, _DRIVER_TASKS)
    yield ("driver_cpus", "cores", run, status, _DRIVER_TASKS)
    yield ("client_cpu_per_call_ns", "ns", _quotient(run, rate, NS_PER_S), status, _DRIVER_TASKS)
    yield ("driver_runq", "cores", runq, status, _DRIVER_TASKS)
    yield ("driver_starved", "", starved, status, _DRIVER_TASKS)


def _calibrated(cell: RawCell) -> Iterator[Figure]:
    """Yields the work of a call at calibration, if the workload keeps it constant."""
    calibration, workload = cell.meta.calibration, cell.meta.workload
    if calibration is not None and calibration.work_per_call is not None and workload.work_constant:
        unit = workload.work_unit
        yield ("work_per_call_calibrated", unit, calibration.work_per_call, "ok", "calibration")


def _work_per_call(cell: RawCell, work: float | None, calls: int) -> tuple[float | None, str]:
    """Returns counted work per call; else that of calibration, or of the workload's parameters. The source
    has its name."""
    if work is not None and calls:
        return work / calls, _COUNTERS
    calibration = cell.meta.calibration
    if calibration is not None and calibration.work_per_call is not None and work is None:
        return calibration.work_per_call, "calibration"
    stated = cell.meta.workload.work_of(cell.meta.cell.params) if work is None else None
    return stated, _COUNTERS if stated is None else "parameters, verified in each call"


def _work_rate(
    cell: RawCell, rate: float | None, work: float | None, status: str, source: str
) -> Iterator[Figure]:
    """Yields work per second if all calls do the same work; otherwise it would grow with the data."""
    if cell.meta.workload.work_constant:
        yield ("work_per_s", "1/s", None if rate is None or work is None else rate * work, status, source)


def _row(
    scope: str, session: int | None, name: str, unit: str, value: float | None, status: str, source: str
) -> Row:
    if value is None and status == "ok":
        status = "no measured calls"
    return {
        "scope": scope,
        "session": session,
        "name": name,
        "unit": unit,
        "value": None if value is None else float(value),
        "status": status if value is None else "ok",
        "source": source,
    }


def _sum(expr: pl.Expr) -> pl.Expr:
    """Returns a sum that is NULL if one part is."""
    return pl.when(expr.is_null().any()).then(None).otherwise(expr.sum())


def _first_bad(statuses: pl.Series, otherwise: str) -> str:
    return next((s for s in statuses.to_list() if s not in (None, "ok")), otherwise)


def _quotient(value: float | None, by: float | None, scale: float = 1) -> float | None:
    return None if value is None or not by else scale * value / by
