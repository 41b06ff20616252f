"""Intervals between stored snapshots: compares two, cut into blocks; a figure over several."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import polars as pl

from dbdyno.account.load_profile import time_model as account_time
from dbdyno.account.snapshot_figures import databases, figures
from dbdyno.account.snapshots import interval, ordered
from dbdyno.conclude.compare.intervals import compare_intervals
from dbdyno.conclude.snapshots.trend import concluded
from dbdyno.conduct.history.ends import comparable, ends
from dbdyno.model.engine.snapshot import TABLES, Snapshot, SnapshotInfo
from dbdyno.model.errors import StoreError, UsageError, did_you_mean
from dbdyno.model.results.interval import (
    ALL,
    LOWER_BOUNDS,
    PER_S,
    IntervalFigures,
    LoadPoint,
    TimeModel,
)
from dbdyno.model.results.interval_comparison import IntervalComparison, IntervalSide
from dbdyno.model.results.trend import Figure, LeftOut, Point, Trend
from dbdyno.model.text.nouns import capital
from dbdyno.model.units import NS_PER_S, format_ns
from dbdyno.store import Run, SnapshotStore
from dbdyno.store.listing import list_runs

MOST_BLOCKS = 12
"""If there are more snapshots in between, only every second, third ... is read."""
AROUND, FAR = 10, 5
"""Most snapshots before and after an interval whose load is shown beside it, and how far away they may be, in
lengths of the interval."""
_OF_LOADS = ("databases", "resets")
_OF_BLOCKS = ("databases", "statements", "resets")
SEPARATOR = ".."


def is_interval(word: str) -> bool:
    """Returns whether the text has the form ``SNAP1..SNAP2``."""
    return all(word.partition(SEPARATOR)[::2])


def compared(store: SnapshotStore, a: str, b: str) -> IntervalComparison:
    """Compares the intervals ``SNAP1..SNAP2`` and ``SNAP3..SNAP4``. Raises :class:`UsageError`,
    :class:`NoSuchSnapshot`."""
    return compare_intervals(*(_side(store, word) for word in (a, b)))


def _side(store: SnapshotStore, word: str) -> IntervalSide:
    if not is_interval(word):
        raise UsageError(f"{word!r} is no interval", "SNAP1..SNAP2: two snapshots (dbdyno snapshot list)")
    begin, end = (part.strip() for part in word.split(SEPARATOR, 1))
    first, last = ends(store.list(), (begin, end))
    a, b = ordered(store.read(first), store.read(last))
    inside = [i for i in store.list() if a.info.server_time < i.server_time < b.info.server_time]
    others = [i for i in inside if i.server == b.info.server]
    return side_of(a, b, _blocks(store, [i for i in others if comparable(i, last)]), others)


def side_of(
    first: Snapshot,
    last: Snapshot,
    between: Sequence[Snapshot] = (),
    others: Sequence[SnapshotInfo] = (),
) -> IntervalSide:
    """Returns one side of a comparison. ``between`` has the snapshots of the same server within the
    interval, in order of time; ``others`` has all of them."""
    bare = [_bare(s, _OF_BLOCKS) for s in (first, *between, last)]
    blocks = [_block(a, b) for a, b in pairwise(bare)] if between else []
    between_infos = others or [s.info for s in between]
    return IntervalSide(figures(interval(first, last, between_infos)), blocks)


def _blocks(store: SnapshotStore, inside: Sequence[SnapshotInfo]) -> list[Snapshot]:
    step = -(-(len(inside) + 1) // MOST_BLOCKS)
    return [store.read(i) for i in inside[step - 1 :: step]]


def _bare(snapshot: Snapshot, needed: Collection[str]) -> Snapshot:
    """Returns the snapshot with these tables only."""
    tables: Mapping[str, pl.DataFrame] = {
        name: frame if name in needed else frame.clear() for name, frame in snapshot.tables.items()
    }
    return replace(snapshot, tables=tables, texts=snapshot.texts.clear())


def _block(first: Snapshot, last: Snapshot) -> pl.DataFrame:
    """Returns the table ``statements`` of a block's growth, with the transactions of all databases."""
    interval_figures = figures(interval(first, last))
    all_databases = interval_figures.databases.filter(pl.col("database") == ALL)
    transactions = all_databases["transactions"][0] if all_databases.height else None
    return interval_figures.statements.with_columns(transactions=pl.lit(transactions, pl.Int64))


def loads(store: SnapshotStore, first: SnapshotInfo, last: SnapshotInfo) -> list[LoadPoint]:
    """Returns the load between consecutive snapshots within the interval and around it, in order of time.

    Of many snapshots within it only every second, third ... is read. On each side these are at most
    :data:`AROUND`, no farther than :data:`FAR` times the interval's length.
    """
    every = sorted((i for i in store.list() if comparable(i, last)), key=lambda i: i.server_time)
    far = FAR * (last.server_time - first.server_time)
    near = [i for i in every if first.server_time - far <= i.server_time <= last.server_time + far]
    before = [i for i in near if i.server_time < first.server_time][-AROUND:]
    after = [i for i in near if i.server_time > last.server_time][:AROUND]
    inside = [i for i in every if first.server_time < i.server_time < last.server_time]
    step = -(-(len(inside) + 1) // MOST_BLOCKS)
    chosen = [*before, first, *inside[step - 1 :: step], last, *after]
    points = []
    one = _bare(store.read(chosen[0]), _OF_LOADS)
    for info in chosen[1:]:
        other = _bare(store.read(info), _OF_LOADS)
        if other.info.server_time > one.info.server_time:
            start, end = one.info.server_time, other.info.server_time
            skipped = [i for i in every if start < i.server_time < end]
            rows = databases(interval(one, other, skipped)).filter(pl.col("database") == ALL).to_dicts()
            row = rows[0] if rows else {}
            rates = row.get(f"transactions{PER_S}"), row.get(f"active_ns{PER_S}")
            reported = first.server_time <= start and end <= last.server_time
            points.append(LoadPoint(start, end, *rates, reported))
        one = other
    return points


# Where session time went.


def time_model_of(record: Run, cells: Collection[str]) -> TimeModel | None:
    """Returns the time model of these measurements; None if the run was not derived or has none of them."""
    read = _read(record)
    return None if read is None else _together([_only(record, read, cells)])


def time_model(root: Path, first: SnapshotInfo, last: SnapshotInfo) -> TimeModel | None:
    """Returns the time model from all runs of the store ``root`` on the same server: of their windows within
    the interval, each instant counted once. Observations of selected sessions are left out. None if there
    are no windows."""
    tables_by_run = []
    until = first.taken
    for listed in list_runs(root):
        if listed.started > last.taken or (listed.ended is not None and listed.ended < first.taken):
            continue
        try:
            record = Run(listed.path)
            read = _read(record) if _is_of(record, last) else None
        except StoreError:
            continue
        if read is not None:
            inside, until = _inside(record, read[0], until, last.taken)
            tables_by_run.append(_only(record, read, set(inside["cell"])))
    return _together(tables_by_run)


_Read = tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]
"""Tables ``windows``, ``profile``, ``top_events``."""


def _read(record: Run) -> _Read | None:
    windows, profiles, events = (record.read_table(n) for n in ("windows", "profile", "top_events"))
    if windows is None or profiles is None or events is None:
        return None
    return windows, profiles, events


def _only(record: Run, read: _Read, cells: Collection[str]) -> tuple[str, _Read]:
    windows, profiles, events = (t.filter(pl.col("cell").is_in(list(cells))) for t in read)
    return record.id, (windows, profiles, events)


def _is_of(record: Run, info: SnapshotInfo) -> bool:
    servers = {i.server for i in SnapshotStore(record.path).list()}
    return info.server in servers and not record.plan.experiment.observes_some


def _inside(
    record: Run, windows: pl.DataFrame, start: datetime, end: datetime
) -> tuple[pl.DataFrame, datetime]:
    """Windows between two moments, and the end of the last one."""
    begun = record.info.started.timestamp() - record.info.started_monotonic_ns / NS_PER_S
    t0, t1 = (pl.col(n) / NS_PER_S + begun for n in ("t0_ns", "t1_ns"))
    usable = pl.col("status") != "invalid"
    inside = windows.filter((t0 >= start.timestamp()) & (t1 <= end.timestamp()) & usable)
    if inside.is_empty():
        return inside, start
    return inside, datetime.fromtimestamp(inside.select(t1.max()).item(), UTC)


def _together(tables_by_run: Sequence[tuple[str, _Read]]) -> TimeModel | None:
    used = {run: read for run, read in tables_by_run if read[0].height and read[2].height}
    if not used:
        return None
    windows, profiles, events = (
        pl.concat([read[n].with_columns(cell=run + "/" + pl.col("cell")) for run, read in used.items()])
        for n in range(3)
    )
    total, parts = account_time(profiles, events)
    return TimeModel(tuple(used), windows.height, float(windows["wall_s"].sum()), total, parts)


# A figure over consecutive snapshots.

ALIASES = {
    "ins_ps": "rows_inserted_per_s", "upd_ps": "rows_updated_per_s", "del_ps": "rows_deleted_per_s",
    "hot_ps": "rows_hot_updated_per_s", "seq_ps": "seq_scans_per_s", "idx_ps": "index_scans_per_s",
    "rows_ps": "rows_read_per_s", "tps": "transactions_per_s", "lio_ps": "logical_reads_per_s",
    "calls_ps": "calls_per_s", "scans_ps": "scans_per_s", "size": "size_bytes",
}  # fmt: skip
_TABLE_OF = {"table": "relations", "index": "indexes", "statement": "statements", "database": "databases",
             "server": "server"}  # fmt: skip
_FIRST = {"table": "rows_written_per_s", "index": "scans_per_s", "statement": "mean_ns",
          "database": "transactions_per_s", "server": ""}  # fmt: skip
"""Kind of object -> default figure."""
_GAP = 2.5
"""A gap: this multiple of the median distance of two snapshots."""


class Followed(NamedTuple):
    kind: str
    name: str


def trend_of(
    store: SnapshotStore, kind: str, name: str, figure: str | None, since: datetime | None, limit: int
) -> Trend:
    """Returns a figure over the newest ``limit`` snapshots of one server and the same databases.

    ``kind``: table | index | statement | database | server; ``name``: the object's name, with or without
    schema, or the query id; for the server the figure. Raises :class:`UsageError` that lists what exists.
    """
    followed = Followed(kind, name)
    every = [i for i in store.list() if since is None or i.taken >= since]
    snapshots = [i for i in every if comparable(i, every[-1])][-limit:]
    if len(snapshots) < 2:
        raise UsageError(
            f"{len(snapshots)} snapshots: a figure needs at least two", "dbdyno snapshot --every 10min"
        )
    others = [i.id for i in every if not comparable(i, snapshots[-1])]
    needed = {_TABLE_OF[kind], "databases", "resets", "settings"}
    needed |= {"indexes"} if kind == "table" else set()
    wanted = figure or (name if kind == "server" else _FIRST[kind])
    rows: list[_Row] = []
    before, columns, named = _bare(store.read(snapshots[0]), needed), set[str](), set[str]()
    for info in snapshots[1:]:
        after = _bare(store.read(info), needed)
        same_ids = kind != "statement" or after.info.major == before.info.major
        if after.info.server_time > before.info.server_time and same_ids:
            between = figures(interval(before, after))
            frame = _frame(between, kind)
            columns |= _names(frame)
            objects = _objects_named(frame, followed)
            named |= {title for title, _ in objects}
            rows.append((between, objects[0][1] if len({t for t, _ in objects}) == 1 else None))
        before = after
    _check(followed, named)
    column = _column(wanted, columns)
    left_out = [LeftOut("another server, or other databases", tuple(others))] if others else []
    if kind == "statement":
        rows, of_others = _of_one_major(rows, snapshots)
        left_out += of_others
    points = _points(rows, column)
    if not points:
        raise UsageError(f"{column} of {kind} {name} is not known in these snapshots", "dbdyno snapshot show")
    title = "the server" if kind == "server" else f"{kind} {min(named)}"
    return concluded(
        Trend(
            Figure(_title(column), column, None, _unit(column)),
            _unit(column),
            title,
            snapshots[-1].address,
            points,
            left_out,
            thing="interval",
        )
    )


_Row = tuple[IntervalFigures, Mapping[str, Any] | None]
"""An interval, and the row of the followed object; None if it has none."""


def _of_one_major(
    rows: Sequence[_Row], snapshots: Sequence[SnapshotInfo]
) -> tuple[list[_Row], list[LeftOut]]:
    """Returns the intervals of the latest major version in which the id was met, and what is left out: in
    another version the same statement has another id, and the same id may be another statement."""
    major = next(f.interval.last.major for f, row in reversed(rows) if row is not None)
    kept = [(f, row) for f, row in rows if f.interval.last.major == major]
    why = (
        "the ids of statements differ between major versions of the server: version {}, where the id is of {}"
    )
    left_out = [
        LeftOut(why.format(other, major), tuple(i.id for i in snapshots if i.major == other))
        for other in dict.fromkeys(i.major for i in snapshots)
        if other != major
    ]
    return kept, left_out


def _frame(between: IntervalFigures, kind: str) -> pl.DataFrame:
    """Returns a row for each object, with ``_title`` and ``_name``."""
    if kind == "server":
        rates = {
            f"{n}{PER_S}": None if v is None or s <= 0 else v / s for n, (v, s) in between.server.items()
        }
        return pl.DataFrame([{"_name": "", "_title": "server", "status": "ok", **rates}])
    if kind == "table":
        return between.relations.with_columns(
            _name=pl.col("name").str.split(".").list.last(), _title=pl.col("database") + "." + pl.col("name")
        )
    if kind == "index":
        indexes = between.interval.tables["indexes"]
        title = pl.concat_str("database", "schema", "index", separator=".")
        return indexes.with_columns(
            _name="index", _title=title, name=pl.col("schema") + "." + pl.col("index")
        )
    if kind == "database":
        return between.databases.with_columns(_name="database", _title="database")
    ids = pl.col("query_id").cast(pl.String)
    sums = between.statements.group_by("query_id").agg(
        *(pl.col(c.name).sum() for c in TABLES["statements"].counters),
        pl.col("seconds").max(),
        pl.col("status").max(),
    )
    return sums.with_columns(_name=ids, _title=ids, mean_ns=pl.col("exec_ns") / pl.col("calls"))


def _objects_named(frame: pl.DataFrame, followed: Followed) -> list[tuple[str, Mapping[str, Any]]]:
    if followed.kind != "server":
        parts = pl.col("_name") == followed.name, pl.col("_title") == followed.name
        whole = [pl.col("name") == followed.name] if "name" in frame.columns else []
        frame = frame.filter(pl.any_horizontal(*parts, *whole))
    return [(row["_title"], row) for row in frame.to_dicts()]


def _check(followed: Followed, named: Collection[str]) -> None:
    if not named:
        raise UsageError(
            f"no {followed.kind} {followed.name!r} in these snapshots", "dbdyno report SNAP1 SNAP2 shows them"
        )
    if len(named) > 1:
        shown = ", ".join(sorted(named)[:5])
        raise UsageError(f"{followed.name!r} is one of {len(named)}: {shown}", "give the whole name")


def _names(frame: pl.DataFrame) -> set[str]:
    """Returns the names of the figures: counters as rates, other columns as they are."""
    numbers = {n for n, t in frame.schema.items() if t.is_numeric() or t == pl.Null}
    counters = {c.name for t in TABLES.values() for c in t.counters}
    counters |= {"rows_read", "rows_written", "transactions", "logical_reads"}
    columns = {n.removesuffix(PER_S) + PER_S if n in counters or n.endswith(PER_S) else n for n in numbers}
    return {n for n in columns if not n.endswith(("_id", "_age", "_s")) or n.endswith(PER_S)} - {
        "rank",
        "seconds",
    }


def _column(name: str, columns: Collection[str]) -> str:
    """Raises :class:`UsageError` that lists the existing figures."""
    wanted = ALIASES.get(name, name)
    for candidate in (wanted, wanted + PER_S, wanted.removesuffix("_ps") + PER_S):
        if candidate in columns:
            return candidate
    raise UsageError(
        f"no figure {name!r}; there are {', '.join(sorted(columns))}",
        did_you_mean(name, (*columns, *ALIASES)),
    )


def _points(rows: Sequence[tuple[IntervalFigures, Mapping[str, Any] | None]], column: str) -> list[Point]:
    usual = median(between.interval.seconds for between, _ in rows)
    points = []
    for between, row in rows:
        value = None if row is None else _value(row, column)
        if value is None or row is None:
            continue
        info, seconds = between.interval.last, between.interval.seconds
        bounded = row.get("status") in LOWER_BOUNDS or str(row.get("status")).startswith("lower")
        remarks = [
            "reset: lower bound" if bounded else "",
            "the server was restarted" if between.interval.restarted else "",
        ]
        remarks.append(f"gap: {format_ns(seconds * NS_PER_S)}" if seconds > _GAP * usual else "")
        around = {"server": info.version, **_settings(between)}
        points.append(
            Point(
                info.id,
                info.name or "",
                info.taken,
                value,
                0,
                flagged=bounded or value <= 0,
                remark="; ".join(filter(None, remarks)),
                around=around,
            )
        )
    return points


def _value(row: Mapping[str, Any], column: str) -> float | None:
    if column in row:
        value = None if row[column] is None else float(row[column])
        return value if value is None or math.isfinite(value) else None  # a mean of no calls
    growth = row.get(column.removesuffix(PER_S))
    seconds = row.get("seconds")
    return None if growth is None or not seconds else float(growth) / seconds


def _settings(between: IntervalFigures) -> dict[str, str]:
    frame = between.interval.tables["settings"].filter(pl.col("status") != "gone")
    return {name: value or "" for name, value in frame.select("setting", "value").iter_rows()}


def _title(column: str) -> str:
    text = column.removesuffix(PER_S).removesuffix("_ns").removesuffix("_bytes").replace("_", " ")
    return f"{capital(text)}{' per second' if column.endswith(PER_S) else ''}"


def _unit(column: str) -> str:
    """Returns the unit. Nanoseconds per second are shown as a time, too."""
    inner = column.removesuffix(PER_S)
    if inner.endswith("_ns"):
        return "ns"
    unit = "bytes" if inner.endswith("_bytes") else ""
    return f"{unit}/s" if column.endswith(PER_S) else unit
