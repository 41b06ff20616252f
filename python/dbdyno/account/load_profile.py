"""Tables ``profile`` and ``top_events``. ``profile`` has the work of a window per second, transaction,
execution and call. ``top_events`` has the ten largest parts of the foreground's DB time, among them DB CPU
and CPU WAIT.

Every figure is scaled to the window. Counters of a driven load are read before the barrier and after all
sessions have reported; the window gets the part of its calls, so that it agrees with the headline. Other
counters, and those of an observation, grow between the reads nearest to t0 and t1, and lag by the growth
that sessions have not reported yet. Activity of dbdyno's own connections is left out of transactions and
executions, and of blocks if the server counts those by connection; else the source says that it is
included. A column without its divisor is NULL: the row of the divisor (transactions, executions, calls)
has the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from dbdyno.account.making import makes
from dbdyno.model.results.ledger_rows import among, groups, of_cells
from dbdyno.model.results.raw import OWN, OWN_READS
from dbdyno.model.results.session_time import (
    CPU_WAIT,
    DB_CPU,
    NO_EVENT,
    Part,
    Time,
    account,
    base,
    calls_per_s,
    db_time,
    parts,
)
from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.tables import Tables, rows, sum_if_all_known, sum_of_known
from dbdyno.model.sources.wait_families import LOG_BYTES
from dbdyno.model.units import NS_PER_S

DB_TIME, SERVERS_TIME, HIT_RATIO = "DB time", "DB time, by the server's clock", "cache hit ratio"
TRANSACTIONS, EXECUTIONS, CALLS = "transactions", "executions", "calls"
OWN_SAMPLES = "dbdyno's own samples"

_COUNTERS = (  # name in the profile, the engine's counter, unit
    ("logical reads", "logical_reads", "blocks"),
    ("physical reads", "physical_reads", "blocks"),
    ("block changes", "blocks_dirtied", "blocks"),
    ("block writes", "block_writes", "blocks"),
    ("WAL", LOG_BYTES, "bytes"),
    ("temporary files", "temporary_bytes", "bytes"),
    (EXECUTIONS, "executions", "count"),
    ("commits", "transactions_committed", "count"),
    ("rollbacks", "transactions_rolled_back", "count"),
    ("logons", "logons", "count"),
    ("deadlocks", "deadlocks", "count"),
)
_DB_TIME = "db_time_ns"  # no server has it by connection
_STATEMENTS = ("executions", "blocks_dirtied")
"""Counters by statement. The data source of that name has the cure if they are missing."""
_NO_STATEMENTS = "needs a counter of statements loaded in the server"
_NO_COUNTER = "the server has no such counter, or it may not be read"
_BARE = ("off", "not supported", "not permitted", "not here")
OWN_LEFT_OUT, OWN_INCLUDED = ", less dbdyno's own", ", dbdyno's own included"
_RAN = 10
"""Number of executions from which on at least one transaction should be counted."""
_APART, _APART_S = 2.0, 1.0
"""Ratio and difference (s) from which on the server's DB time and that of its sessions contradict each other.

Both must be exceeded: the ratio alone would trip on tiny times, the difference on long windows."""
_NOT_REPORTED = "not all reported: sessions may report only when they end"
_REPORTED_LATE = "of before the window, too: sessions may report only when they end"
_NO_WARM_UP = ", less warm-up calls"
_PER = {"per_transaction": TRANSACTIONS, "per_execution": EXECUTIONS, "per_call": CALLS}


class Figure(NamedTuple):
    unit: str
    total: float | None  # over the window
    status: str
    source: str


_FIGURES = {
    "cell": pl.String,
    "wall_s": pl.Float64,
    "name": pl.String,
    "unit": pl.String,
    "total": pl.Float64,
    "status": pl.String,
    "source": pl.String,
}
"""Columns of the figures of cells."""


@makes("profile", reads=("ledger", "events"))
def profile(tables: Tables) -> pl.DataFrame:
    """Returns the profile of each cell, driven or observed. Reads ``windows``, ``ledger``, ``events``,
    ``cut_levels``, ``cut_sampler`` and ``cell_sessions``."""
    records: list[dict[str, Any]] = []
    for head, window, cell in of_cells(tables):
        known = [(window["cell"], window["wall_s"], n, *f) for n, f in figures(cell, window).items()]
        records += [head | row for row in _rows(pl.DataFrame(known, schema=_FIGURES, orient="row"))]
    return rows("profile", records)


@makes("profile", stage="total")
def profile_total(windows: pl.DataFrame, profile: pl.DataFrame) -> pl.DataFrame:
    """Returns the profile over all usable cells of a workload, variant and rung together (cell ``all``):
    the windows of an observation, or repeats. Each figure is summed over the cells that know it, and so is
    their wall time. The accounts of session time are summed over the same cells, as they are parts of a
    whole."""
    counted = profile.lazy().select(set(_FIGURES) - {"wall_s"}).filter(pl.col("name") != HIT_RATIO)
    records: list[dict[str, Any]] = []
    for head, cells in groups(windows):
        walls = pl.DataFrame({"cell": [w["cell"] for w in cells], "wall_s": [w["wall_s"] for w in cells]})
        in_load = (
            counted.join(walls.lazy(), on="cell", maintain_order="left").select(list(_FIGURES)).collect()
        )
        records += [head | row for row in _rows(_over_the_same_cells(in_load))]
    return rows("profile", records)


_ACCOUNTS = (DB_TIME, DB_CPU, CPU_WAIT)
_ELSEWHERE = f"known only where {DB_TIME} is not"


def _over_the_same_cells(figures: pl.DataFrame) -> pl.DataFrame:
    """Returns the figures with DB time and its parts unknown in cells that do not know all of them, except
    those that no cell knows. A part that no cell knows together with DB time is unknown."""
    known, cells = figures.drop_nulls("total"), set[str]()
    for name in _ACCOUNTS:
        of_account = set(known.filter(pl.col("name") == name)["cell"])
        cells = (cells & of_account) or cells or of_account
    if len(cells) == figures["cell"].n_unique():
        return figures
    outside = pl.col("name").is_in(_ACCOUNTS) & ~pl.col("cell").is_in(list(cells))
    left_out = outside & pl.col("total").is_not_null()
    return figures.with_columns(
        total=pl.when(~outside).then("total"),
        status=pl.when(left_out).then(pl.lit(_ELSEWHERE)).otherwise("status"),
    )


def figures(cell: Tables, window: Mapping[str, Any]) -> dict[str, Figure]:
    """Returns all figures of one cell, by name."""
    wall = window["wall_s"]
    by_name = {DB_TIME: _time_figure(db_time(cell, window), wall)}
    counters = cell["cut_levels"].filter(pl.col("origin") == "engine").to_dicts()
    by_name[SERVERS_TIME] = _counter_growth(cell, counters, _DB_TIME, "s", wall, 1 / NS_PER_S)
    by_name[DB_CPU] = _time_figure(account(cell["ledger"], "run"), wall)
    by_name[CPU_WAIT] = _time_figure(account(cell["ledger"], "runq"), wall)
    if not window["sessions"] and _no_session_seen(cell):
        by_name |= dict.fromkeys(
            (DB_TIME, DB_CPU, CPU_WAIT), Figure("s", 0.0, "ok", "activity samples: nobody")
        )
    by_name |= {n: _counter_growth(cell, counters, key, unit, wall) for n, key, unit in _COUNTERS}
    by_name |= _unreported_figures(by_name, driven=bool(window["sessions"]))
    by_name[TRANSACTIONS] = _transactions(by_name["commits"], by_name["rollbacks"])
    if window["sessions"]:
        rate = calls_per_s(cell["cell_sessions"], window["t0_ns"], window["t1_ns"])
        done = None if rate is None else rate * wall
        by_name[CALLS] = Figure("count", done, "ok" if done else "no measured calls", "driver")
    samples = cell["cut_sampler"].filter(pl.col("via") == "sql").height
    by_name[OWN_SAMPLES] = Figure("count", float(samples), "ok", "activity samples")
    return by_name


def _no_session_seen(cell: Tables) -> bool:
    """Returns whether the server was sampled and no session was ever active: the time is then 0, not
    unknown."""
    foreground = (pl.col("scope") == "brief") | (
        pl.col("account").is_in(["run", "client", "sleep", "unaccounted"])
    )
    sessions = cell["ledger"].filter(pl.col("scope").is_in(["rung", "brief"]) & foreground)
    return sessions.is_empty() and cell["cut_sampler"].filter(pl.col("via") == "sql").height > 0


def _time_figure(time: Time, wall: float) -> Figure:
    known = time.aas is not None
    status = time.status if known or time.status not in _BARE else f"{time.status}: needs the server's tasks"
    return Figure("s", time.aas * wall if time.aas is not None else None, status, time.source)


def _counter_growth(
    cell: Tables, counters: list[dict[str, Any]], key: str, unit: str, wall: float, scale: float = 1.0
) -> Figure:
    """Returns the growth of the server-wide counter, else of this database's."""
    rows_of_key, keys = [row for row in counters if row["key"] == key], {row["key"] for row in counters}
    for scope, source in (("server", "engine counters"), ("database", "engine counters, this database")):
        for row in (r for r in rows_of_key if r["scope"] == scope and r["delta"] is not None):
            if key in (*OWN, *OWN_READS, _DB_TIME):
                counted = (
                    key != _DB_TIME and row["own"] is not None and (key in OWN or OWN_READS[key] in keys)
                )
                source += OWN_LEFT_OUT if counted else OWN_INCLUDED
            source += "" if row["warm_up"] is None else _NO_WARM_UP
            return Figure(unit, scale * row["delta"] / row["wall_ns"] * NS_PER_S * wall, "ok", source)
    status = rows_of_key[0]["status"] if rows_of_key else "off"
    if status in _BARE:
        status = f"{status}: {_missing_reason(cell, key)}"
    return Figure(unit, None, status, "engine counters")


def _missing_reason(cell: Tables, key: str) -> str:
    if key not in _STATEMENTS:
        return _NO_COUNTER
    unavailable = cell["cell_sources"].filter(
        (pl.col("name") == "statement counters") & (pl.col("status") != "ok")
    )
    return (
        str(unavailable["detail"][0]) if unavailable.height and unavailable["detail"][0] else _NO_STATEMENTS
    )


def _unreported_figures(figures: Mapping[str, Figure], driven: bool) -> dict[str, Figure]:
    """Returns those of transactions and the server's own time that do not cover the window, as unknown.

    Backends report transactions that touch no table late: some servers count them only when their session
    ends. So no transaction beside executed statements, or far less time than the sessions were served, was
    not reported yet; far more time was reported late. A driven load waits until all its sessions have
    reported.
    """
    ran, *ended = (figures[n].total for n in (EXECUTIONS, "commits", "rollbacks"))
    reported, served, waited = (figures[n].total for n in (SERVERS_TIME, DB_TIME, CPU_WAIT))
    status = _NOT_REPORTED if ran is not None and ran >= _RAN and ended == [0.0, 0.0] else ""
    if not driven and reported is not None and served is not None:
        least = served - (waited or 0.0)  # before a call gets a CPU the server does not see it
        if least > _APART * reported and least - reported > _APART_S:
            status = _NOT_REPORTED
        elif reported > _APART * served and reported - served > _APART_S:
            status = _REPORTED_LATE
    names = ("commits", "rollbacks", SERVERS_TIME)
    known = (n for n in names if status and figures[n].total is not None)
    return {n: figures[n]._replace(total=None, status=status) for n in known}


def _transactions(commits: Figure, rollbacks: Figure) -> Figure:
    if commits.total is None or rollbacks.total is None:
        bad = commits if commits.total is None else rollbacks
        return Figure("count", None, bad.status, bad.source)
    return Figure("count", commits.total + rollbacks.total, "ok", commits.source)


def _rows(figures: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Yields the rows of one cell, or of several together."""
    known = figures.drop_nulls("total")
    sums = known.group_by("name").agg(pl.col("total", "wall_s").sum(), n=pl.len())
    summed = {name: more for name, *more in sums.rows()}
    ratios = _ratios(known)
    columns = ("name", "unit", "status", "source")
    labels = (
        f.select(columns).unique("name", keep="first") for f in (figures, known)
    )  # a known figure's status wins
    label_by_name = {row["name"]: row for rows_of_names in labels for row in rows_of_names.to_dicts()}
    for name, cells in figures.group_by("name", maintain_order=True).len().rows():
        row = dict(label_by_name[name])
        if name in summed:
            total, wall, n = summed[name]
            by = {} if name == OWN_SAMPLES else {c: ratios[d].get(name) for c, d in _PER.items()}
            row |= {
                "total": total,
                "per_s": total / wall if wall else None,
                **by,
            }

            row["status"] = row["status"] if n == cells else f"{n} of {cells} windows"
        yield row
    yield _hit_ratio(figures, ratios)


_LOGICAL, _PHYSICAL = "logical reads", "physical reads"
_DIVISORS = (*_PER.values(), _LOGICAL)


def _ratios(known: pl.DataFrame) -> dict[str, dict[str, float]]:
    """Returns the ratio of each figure to each divisor, over the cells that know both: divisor -> figure
    -> ratio."""
    total = pl.col("total")
    divisors = known.filter(pl.col("name").is_in(_DIVISORS))
    by = divisors.group_by("cell").agg(total.filter(pl.col("name") == d).first().alias(d) for d in _DIVISORS)
    both = known.select("cell", "name", "total").join(by, on="cell").group_by("name")
    sums = both.agg(
        sum_.alias(f"{d}{end}")
        for d in _DIVISORS
        for end, sum_ in (("", total.filter(pl.col(d).is_not_null()).sum()), ("_by", pl.col(d).sum()))
    ).to_dicts()
    return {d: {r["name"]: r[d] / r[f"{d}_by"] for r in sums if r[f"{d}_by"] > 0} for d in _DIVISORS}


def _hit_ratio(figures: pl.DataFrame, ratios: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    row: dict[str, Any] = {"name": HIT_RATIO, "unit": "ratio", "source": "engine counters"}
    if (misses := ratios[_LOGICAL].get(_PHYSICAL)) is not None:
        return row | {"total": 1 - misses, "status": "ok"}
    unknown = figures.filter((pl.col("cell") == figures["cell"][0]) & pl.col("total").is_null())
    bad = dict(unknown.select("name", "status").rows())
    return row | {"status": bad.get(_LOGICAL) or bad.get(_PHYSICAL) or "no logical reads"}


TOP = 10


def _rows_of(by_name: Mapping[str, Part], base_s: float) -> Iterator[dict[str, Any]]:
    """Yields rows of table ``event_seconds``. The one without a name has the base of the shares."""
    yield {"name": None, "seconds": base_s, "source": ""}
    for name, part in by_name.items():
        figures = {"low": part.low, "high": part.high, "waits": part.waits, "sleeps": part.sleeps}
        yield {"name": name, "seconds": part.aas, "runq_s": part.runq, "source": part.source, **figures}


@makes("event_seconds", reads=("ledger", "events"))
def event_seconds(tables: Tables) -> pl.DataFrame:
    """Returns the seconds of all events and accounts of each cell, and the base of their shares."""
    records: list[dict[str, Any]] = []
    for head, window, cell in of_cells(tables):
        records += [head | row for row in _seconds(cell, window)]
    return rows("event_seconds", records)


@makes("top_events")
def top_events(windows: pl.DataFrame, event_seconds: pl.DataFrame) -> pl.DataFrame:
    """Returns the top events of each cell. Seconds of a wait are true sleep. Its run-queue seconds stand
    beside it and are counted in CPU WAIT, so the shares of DB time add up to 100 % at most."""
    by_cell = event_seconds.partition_by("cell", as_dict=True, maintain_order=True)
    keys = windows.select(c.name for c in CELL).to_dicts()
    return rows("top_events", [key | row for key in keys for row in _ranked(by_cell[(key["cell"],)])])


@makes("top_events", stage="total")
def top_events_total(windows: pl.DataFrame, event_seconds: pl.DataFrame) -> pl.DataFrame:
    """Returns the top events over all usable cells of a workload, variant and rung together (cell
    ``all``): the windows of an observation, or repeats."""
    records: list[dict[str, Any]] = []
    for head, cells in groups(windows):
        records += [head | row for row in _ranked(events_together(cells, event_seconds))]
    return rows("top_events", records)


def events_together(cells: Sequence[Mapping[str, Any]], event_seconds: pl.DataFrame) -> pl.DataFrame:
    """Returns the seconds of all events over cells together, in the columns of ``event_seconds``, and their
    wall time ``wall_s``. ``cells`` are rows of ``windows``. Errors of cells are taken as independent, so
    half-widths add in quadrature.

    Cells whose shares have no base, as their DB time is incomplete, are left out if others have one.
    """
    all_rows = among(event_seconds, cells)
    bases = all_rows.filter(pl.col("name").is_null())
    complete = bases.filter(pl.col("seconds") != 0)
    if 0 < complete.height < bases.height:
        bases = complete
        all_rows = all_rows.join(complete.select("cell"), on="cell", how="semi", maintain_order="left")
    walls = {w["cell"]: w["wall_s"] for w in cells}
    value, source = pl.col("seconds"), pl.col("source")
    below, above = ((value - pl.col(end)).pow(2).sum().sqrt() for end in ("low", "high"))
    # A part of 0 s has only time in the run queue, whose source is another column's.
    sources = source.filter(value != 0).unique(maintain_order=True).str.join("; ")
    together = all_rows.group_by("name", maintain_order=True).agg(
        value.sum(),
        low=pl.when(pl.col("low").null_count() == 0).then(value.sum() - below),
        high=pl.when(pl.col("high").null_count() == 0).then(value.sum() + above),
        runq_s=sum_of_known("runq_s"),
        waits=sum_if_all_known("waits"),
        sleeps=sum_of_known("sleeps"),
        source=pl.when(sources.str.len_chars().is_between(1, _LONG)).then(sources).otherwise(source.first()),
    )
    return together.with_columns(wall_s=pl.lit(float(sum(walls[cell] for cell in bases["cell"]))))


_LONG = 120
"""Most characters of the sources of a part; if there are more, they are those of its first cell alone."""


def _seconds(cell: Tables, window: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    wall, by_part = window["wall_s"], parts(cell)
    in_seconds = {name: _to_seconds(p, wall) for name, p in by_part.items()}
    return _rows_of(in_seconds, base(cell, window, by_part) * wall)


def _to_seconds(part: Part, wall: float) -> Part:
    low, high, runq, waits, sleeps = (
        None if v is None else v * wall for v in (part.low, part.high, part.runq, part.waits, part.sleeps)
    )
    return Part(part.aas * wall, low, high, part.source, runq, waits, sleeps)


def _ranked(seconds: pl.DataFrame) -> list[dict[str, Any]]:
    """Returns the largest parts of rows of ``event_seconds``, of a cell or of several together."""
    base_s = float(seconds.filter(pl.col("name").is_null())["seconds"].sum())
    taken = seconds.filter(pl.col("name").is_not_null() & (pl.col("seconds") > 0))
    largest = taken.sort("seconds", descending=True, maintain_order=True).head(TOP).to_dicts()
    return [
        {
            "rank": rank,
            **{n: row[n] for n in ("name", "seconds", "low", "high", "runq_s", "source")},
            "share": row["seconds"] / base_s if base_s else None,
            "waits": _rounded(row["waits"]),
            "sleeps": _rounded(row["sleeps"]),
            "mean_ns": row["seconds"] / row["waits"] * NS_PER_S if row["waits"] else None,
            "mean_queued_ns": _mean_queued_ns(row),
        }
        for rank, row in enumerate(largest, 1)
    ]


def _mean_queued_ns(row: Mapping[str, Any]) -> float | None:
    """Returns the mean wait with its time in the run queue. Without a wait event sessions are in the run
    queue for other reasons than waits: they were preempted."""
    if not row["waits"] or row["name"] == NO_EVENT:
        return None
    return float((row["seconds"] + (row["runq_s"] or 0.0)) / row["waits"] * NS_PER_S)


def _rounded(count: float | None) -> float | None:
    return None if count is None else float(round(count))


def time_model(profiles: pl.DataFrame, events: pl.DataFrame) -> tuple[float, pl.DataFrame]:
    """Returns DB time (s) of several cells together, and its parts as columns of
    :class:`~dbdyno.model.results.interval.TimeModel`. Reads their ``profile`` and ``top_events``. Errors
    of the cells are taken as independent."""
    times = profiles.filter(pl.col("name").is_in([DB_TIME, SERVERS_TIME])).sort(
        pl.col("name") == SERVERS_TIME
    )
    known = times.drop_nulls("total").unique("cell", keep="first", maintain_order=True)
    total = float(known["total"].sum())
    value = pl.col("seconds")
    below, above = ((value - pl.col(end)).pow(2).sum().sqrt() for end in ("low", "high"))
    parts = events.group_by("name", maintain_order=True).agg(
        value.sum(),
        low=value.sum() - below,
        high=value.sum() + above,
        waits=sum_if_all_known("waits"),
        sleeps=sum_if_all_known("sleeps"),
        source=pl.col("source").unique(maintain_order=True).str.join("; ").str.slice(0, 120),
    )
    share = (pl.col("seconds") / total).alias("share") if total else pl.lit(None, pl.Float64).alias("share")
    return total, parts.with_columns(share).sort("seconds", descending=True)
