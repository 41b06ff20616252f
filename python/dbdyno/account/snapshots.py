"""The difference of two snapshots: the growth of every counter in between. Pure.

No growth is negative. A counter that was reset in between shows the count since the reset: a lower bound,
with its own seconds. A reset is known by its time, or by a value that fell. Unknown growth is NULL, and
``status`` has the reason: :mod:`dbdyno.model.results.interval`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from dbdyno.model.engine.snapshot import TABLES, Snapshot, SnapshotInfo, SnapshotTable
from dbdyno.model.errors import UsageError
from dbdyno.model.results.interval import LOWER_BOUNDS, Interval, Reset
from dbdyno.model.schema.column import Column

STATEMENTS = "statements"
_WAS, _GROWTH = "_was", "_growth"
_OBJECTS = ("relations", "indexes")
"""Tables that are read database by database."""
_OF_INDEXES = {
    "index_scans": "scans",
    "index_rows": "rows_fetched",
    "index_blocks_read": "blocks_read",
    "index_blocks_hit": "blocks_hit",
}
"""Counters of tables that the server sums over the existing indexes. They fall when one is dropped."""
_PARTS = {("relations", c) for c in (*_OF_INDEXES, "toast_blocks_read", "toast_blocks_hit")}
"""Counters of other objects than the table itself. A rewrite of the table gives long values a new TOAST
table."""
_NAMES = {"relations": ("schema", "relation"), "indexes": ("schema", "index"), "databases": ("database",)}
"""Columns by which a re-created object is recognised."""


def interval(first: Snapshot, last: Snapshot, between: Sequence[SnapshotInfo] = ()) -> Interval:
    """Returns the difference of two snapshots. ``between``: other snapshots of this server in between,
    whose own transactions are left out, too. Raises :class:`UsageError` if the two are of different
    servers, or no time passed from ``first`` to ``last``."""
    a, b = first.info, last.info
    if a.server != b.server:
        raise UsageError(
            f"{_named(a)} and {_named(b)} are of different servers ({a.address}, {b.address})",
            "give two snapshots of one server",
        )
    seconds = (b.server_time - a.server_time).total_seconds()
    if seconds <= 0:
        same = "are the same snapshot" if a.id == b.id else "are not in the order of the server's clock"
        cure = "give an earlier and a later one; if the clock was set back in between, two taken since then"
        raise UsageError(f"{_named(a)} and {_named(b)} {same}", cure)
    difference = _Difference(first, last, seconds, between)
    tables = {name: difference.table(name) for name in TABLES}
    tables["relations"] = _with_kept_indexes(tables["relations"], tables["indexes"])
    return Interval(
        a,
        b,
        seconds,
        tables,
        difference.restarted,
        difference.resets(tables),
        difference.evictions,
        _texts(first, last),
        sum(difference.own().values()),
    )


def ordered(first: Snapshot, last: Snapshot) -> tuple[Snapshot, Snapshot]:
    """Returns the earlier one first."""
    return (last, first) if last.info.server_time < first.info.server_time else (first, last)


def _named(info: SnapshotInfo) -> str:
    return f"snapshot {info.name or info.id or info.taken}"


class _Difference:
    def __init__(
        self, first: Snapshot, last: Snapshot, seconds: float, between: Sequence[SnapshotInfo]
    ) -> None:
        self._first, self._last, self._seconds, self._between = first, last, seconds, between
        self._end_s = last.info.server_time.timestamp()
        start = last.info.started
        same = start is None or first.info.started is None or start == first.info.started
        self.restarted = None if same else start
        self._statements = self._reset_of(STATEMENTS)
        self._databases, self._partly = self._reset_databases()
        self.evictions = self._evictions()

    def table(self, name: str) -> pl.DataFrame:
        """Returns the difference of one table of the schema."""
        table = TABLES[name]
        both = self._joined(name, table)
        # Sums of squares (f64) fall by rounding, so only whole numbers prove a reset.
        own = [c.name for c in table.counters if c.type == "i64" and (name, c.name) not in _PARTS]
        fell = pl.any_horizontal(pl.lit(False), *(pl.col(c) < pl.col(c + _WAS) for c in own))
        at, anew = self._anew(name, table)
        both = both.with_columns(_reset=(fell.fill_null(False) | anew) & pl.col("_a") & pl.col("_b"), _at=at)
        both = both.with_columns(status=self._status(name))
        return self._finished(name, table, both)

    def _joined(self, name: str, table: SnapshotTable) -> pl.DataFrame:
        key = [c.name for c in table.key]
        a, b = (_one_row_per_key(s.tables[name], table) for s in (self._first, self._last))
        a = a.rename({c: c + _WAS for c in a.columns if c not in key}).with_columns(_a=True)
        both = a.join(
            b.with_columns(_b=True),
            on=key,
            how="full",
            coalesce=True,
            nulls_equal=True,
            maintain_order="right_left",
        )
        return both.with_columns(pl.col("_a", "_b").fill_null(False))

    def _anew(self, name: str, table: SnapshotTable) -> tuple[pl.Expr, pl.Expr]:
        """Returns two expressions: when a row's counting began anew, and whether that was in between."""
        gauges = {c.name for c in table.gauges}
        if name == "databases":
            at = pl.col("reset_s")
            return at, pl.col("database_id").is_in(list(self._databases))
        if name in _OBJECTS:
            times = pl.DataFrame(
                list(self._databases.items()), schema={"id": pl.Int64, "at": pl.Float64}, orient="row"
            )
            at = (
                pl.col("database_id").replace_strict(times["id"], times["at"], default=None)
                if len(times)
                else pl.lit(None, pl.Float64)
            )
            anew = pl.col("database_id").is_in(times["id"].implode())
            # Where the server records it for each; the first snapshot may not have read it.
            start_s = self._first.info.server_time.timestamp()
            alone = (_changed("reset_s") & (pl.col("reset_s") >= start_s - 1)).fill_null(False)
            return pl.max_horizontal(at, pl.when(alone).then("reset_s")), anew | alone
        if name == STATEMENTS:
            at = pl.max_horizontal("since_s", pl.lit(self._statements, pl.Float64))
            return at, _changed("since_s") | pl.lit(self._statements is not None)
        if "reset_s" in gauges:
            return pl.col("reset_s"), _changed("reset_s")
        return pl.lit(None, pl.Float64), pl.lit(False)

    def _status(self, name: str) -> pl.Expr:
        reset: pl.Expr = pl.lit("reset")
        only_last: pl.Expr = pl.lit("new")
        if name == STATEMENTS and self._statements is not None:
            only_last = reset
        elif name == STATEMENTS and self.evictions:
            reset = pl.lit("evicted")
        elif name in _NAMES:
            names = ["database_id", *_NAMES[name]] if name in _OBJECTS else list(_NAMES[name])
            gone = self._first.tables[name].select(names).unique()
            remade = pl.struct(names).is_in(gone.to_struct().implode()) if gone.height else pl.lit(False)
            only_last = pl.when(remade).then(pl.lit("remade")).otherwise(pl.lit("new"))
        unread_a, unread_b = (self._unread(name, s) for s in (self._first, self._last))
        return (
            pl.when(pl.col("_a") & pl.col("_b") & pl.col("_reset"))
            .then(reset)
            .when(pl.col("_a") & pl.col("_b"))
            .then(pl.lit("ok"))
            .when(pl.col("_b") & unread_a | pl.col("_a") & unread_b)
            .then(pl.lit("unread"))
            .when(pl.col("_b"))
            .then(only_last)
            .otherwise(pl.lit("gone"))
        )

    def _unread(self, name: str, snapshot: Snapshot) -> pl.Expr:
        """Returns an expression: whether the snapshot could not have read the row, so that its absence
        means nothing."""
        if snapshot.tables[name].is_empty() and name in snapshot.info.missing:
            return pl.lit(True)
        if name not in _OBJECTS:
            return pl.lit(False)
        read = pl.col("database").is_in(snapshot.info.databases)
        read_was = pl.col("database" + _WAS).is_in(snapshot.info.databases)
        known_ids = snapshot.tables["databases"]["database_id"]
        unread = pl.when("_b").then(~read).otherwise(~read_was).fill_null(False)
        return unread & pl.col("database_id").is_in(known_ids.implode())

    def _finished(self, name: str, table: SnapshotTable, both: pl.DataFrame) -> pl.DataFrame:
        status, in_last = pl.col("status"), pl.col("_b")
        whole, anew = status == "ok", status.is_in(["new", "remade", *LOWER_BOUNDS])
        growth = [
            pl.when(whole).then(_growth(name, c)).when(anew).then(pl.col(c.name)).alias(c.name)
            for c in table.counters
        ]
        changes = [
            (pl.col(c.name) - pl.col(c.name + _WAS)).alias(c.name + _GROWTH)
            for c in table.gauges
            if c.type == "i64"
        ]
        attributes = [
            pl.when(in_last).then(pl.col(c.name)).otherwise(pl.col(c.name + _WAS)).alias(c.name)
            for c in table.attributes
        ]
        start_s = None if self.restarted is None else self.restarted.timestamp()
        since = pl.coalesce(pl.col("_at"), pl.lit(start_s, pl.Float64))
        # A reset just before the read leaves next to no time: rates divide by this.
        part = (self._end_s - since).clip(0.001, self._seconds).fill_null(self._seconds)
        seconds = pl.when(status.is_in(LOWER_BOUNDS)).then(part).otherwise(self._seconds).alias("seconds")
        growth_rows = both.select(
            *(c.name for c in table.key),
            *attributes,
            *growth,
            *(c.name for c in table.gauges),
            *changes,
            status,
            seconds,
            *(["value_was"] if name == "settings" else []),
        )
        if name == "settings":
            other = (status == "ok") & pl.col("value").ne_missing(pl.col("value_was"))
            growth_rows = growth_rows.with_columns(
                status=pl.when(other).then(pl.lit("changed")).otherwise(status)
            )
        return self._less_own(growth_rows) if name == "databases" else growth_rows

    def _less_own(self, databases: pl.DataFrame) -> pl.DataFrame:
        """Subtracts the transactions in which snapshots were taken."""
        own = self.own()
        if not own:
            return databases
        taken = pl.col("database").replace_strict(own, default=0, return_dtype=pl.Int64)
        less = pl.max_horizontal(pl.col("commits") - taken, pl.lit(0))
        return databases.with_columns(commits=pl.when(pl.col("commits").is_not_null()).then(less))

    def own(self) -> dict[str, int]:
        """Returns the number of dbdyno's own transactions in the growth, by database. After a reset, only
        later ones count."""
        counted = [(self._first.info.server_time, self._first.info.own_transactions)]
        for info in self._between:
            counted += [(info.server_time, info.own_before), (info.server_time, info.own_transactions)]
        counted.append((self._last.info.server_time, self._last.info.own_before))
        names = dict(self._last.tables["databases"].select("database", "database_id").iter_rows())
        sums: dict[str, int] = {}
        for at, transactions in counted:
            for name, number in transactions.items():
                began_s = self._databases.get(names.get(name, -1), 0.0)
                since = self._end_s if began_s is None else began_s
                sums[name] = sums.get(name, 0) + (number if at.timestamp() >= since else 0)
        return sums

    # When counters were reset.

    def _reset_of(self, what: str) -> float | None:
        return next((r.at_s for r in self._noted() if r.what == what), None)

    def _noted(self) -> list[Reset]:
        """Returns the resets whose time the server recorded."""
        a, b = (s.tables["resets"].select("what", "reset_s") for s in (self._first, self._last))
        both = b.join(a.rename({"reset_s": "reset_s_was"}), on="what", how="left", maintain_order="left")
        known = both.filter(pl.col("what").is_in(a["what"].implode()) & _changed("reset_s"))
        return [Reset(what, at, "reset") for what, at in known.select("what", "reset_s").iter_rows()]

    def _reset_databases(self) -> tuple[dict[int, float | None], dict[str, float]]:
        """Returns two mappings. Database id -> time, if all its counters were reset. Database name ->
        time, if only single objects' were: the server records both in the same column."""
        a, b = (s.tables["databases"] for s in (self._first, self._last))
        kept = ["database_id", *(c.name for c in TABLES["databases"].counters), "reset_s"]
        was = a.select(kept).rename({c: c + _WAS for c in kept[1:]})
        both = b.join(was, on="database_id", how="inner")
        fell = pl.any_horizontal(pl.col(c) < pl.col(c + _WAS) for c in kept[1:-1]).fill_null(False)
        both = both.select("database_id", "database", "reset_s", fell=fell, changed=_changed("reset_s"))
        read, standing = self._read_twice(), self._standing()
        whole: dict[int, float | None] = {}
        partly: dict[str, float] = {}
        for number, name, at, has_fallen, changed in both.iter_rows():
            if has_fallen or (changed and number in read and number not in standing):
                whole[number] = at if changed else None
            elif changed:
                partly[name or "shared objects"] = at
        return whole, partly

    def _read_twice(self) -> set[int]:
        """Returns the databases whose objects are in both snapshots."""
        a, b = (set(s.tables["relations"]["database_id"].unique()) for s in (self._first, self._last))
        return a & b

    def _standing(self) -> set[int]:
        """Returns the databases with an object whose counters are unchanged and not 0: not all of their
        counters were reset."""
        table = TABLES["relations"]
        counters = [c.name for c in table.counters]
        key = [c.name for c in table.key]
        a = self._first.tables["relations"].filter(pl.any_horizontal(pl.col(c) > 0 for c in counters))
        same = a.join(self._last.tables["relations"], on=[*key, *counters], how="semi", nulls_equal=True)
        return set(same["database_id"])

    def _evictions(self) -> int | None:
        a, b = (
            next(iter(s.tables["resets"].filter(pl.col("what") == STATEMENTS)["evictions"]), None)
            for s in (self._first, self._last)
        )
        if a is None or b is None:
            return None
        return int(b) if b < a or self._statements is not None else int(b - a)

    def resets(self, tables: Mapping[str, pl.DataFrame]) -> tuple[Reset, ...]:
        """Returns every reset in between."""
        names = dict(self._last.tables["databases"].select("database_id", "database").iter_rows())
        whole = [
            Reset(names[n] or "shared objects", at, "reset" if at is not None else "fell")
            for n, at in self._databases.items()
        ]
        partly = [Reset(name, at, "objects") for name, at in self._partly.items()]
        databases = {r.what for r in (*whole, *partly)}
        noted = [r for r in self._noted() if r.what not in databases]
        fell = [Reset(n, None, "fell") for n in tables if self._fell_unnoted(n, tables[n])]
        return (*whole, *partly, *noted, *fell)

    def _fell_unnoted(self, name: str, table: pl.DataFrame) -> bool:
        """Returns whether rows were reset without a recorded time that covers them."""
        rows = table.filter(pl.col("status") == "reset")
        if name == "databases" or rows.is_empty() or (name == STATEMENTS and self._statements is not None):
            return False
        start_s = self._first.info.server_time.timestamp()
        if name in _OBJECTS:
            unnoted = rows.filter(pl.col("reset_s").fill_null(0.0) < start_s - 1)
            return not set(unnoted["database_id"]) <= {*self._databases}
        noted = rows["reset_s"] if "reset_s" in rows.columns else rows.get_column("since_s", default=None)
        return noted is None or not (noted.fill_null(0.0) >= start_s - 1).all()


def _growth(table: str, counter: Column) -> pl.Expr:
    """Returns the growth of a row that was not reset. A sum of squares is rounded, so that it can seem to
    fall."""
    now, was = pl.col(counter.name), pl.col(counter.name + _WAS)
    if counter.type == "f64":
        return (now - was).clip(0.0)
    return pl.when(now < was).then(now).otherwise(now - was) if (table, counter.name) in _PARTS else now - was


def _with_kept_indexes(relations: pl.DataFrame, indexes: pl.DataFrame) -> pl.DataFrame:
    """Sums counters by index anew for tables where an index was dropped, or its counters were reset."""
    key = ["database_id", "relation_id"]
    lost = pl.col("status").is_in(["gone", "remade", *LOWER_BOUNDS])
    sums = indexes.group_by(key).agg(
        lost.any().alias("_lost"),
        *(
            pl.when(pl.col(index_counter).count() > 0).then(pl.col(index_counter).sum()).alias(f"_{c}")
            for c, index_counter in _OF_INDEXES.items()
        ),
    )
    both = relations.join(sums.filter("_lost"), on=key, how="left", maintain_order="left", nulls_equal=True)
    whole = pl.col("_lost").fill_null(False) & (pl.col("status") == "ok")
    return both.with_columns(
        *(pl.when(whole).then(pl.col(f"_{c}").fill_null(0)).otherwise(c).alias(c) for c in _OF_INDEXES),
        status=pl.when(whole).then(pl.lit("index dropped")).otherwise("status"),
    ).select(relations.columns)


def _changed(column: str) -> pl.Expr:
    """Returns an expression: whether a time is recorded and differs from the former one."""
    return pl.col(column).is_not_null() & pl.col(column).ne_missing(pl.col(column + _WAS))


def _one_row_per_key(rows: pl.DataFrame, table: SnapshotTable) -> pl.DataFrame:
    """Sums rows with equal keys. A server without permission to see a row hides the columns that
    distinguish it."""
    key = [c.name for c in table.key]
    if not rows.select(key).is_duplicated().any():
        return rows
    sums = [
        pl.when(pl.col(c.name).null_count() < pl.len()).then(pl.col(c.name).sum()).alias(c.name)
        for c in table.counters
    ]
    rest = [pl.col(c.name).max() for c in table.gauges] + [pl.col(c.name).first() for c in table.attributes]
    merged = rows.group_by(key, maintain_order=True).agg(*sums, *rest)
    return merged.select(rows.columns)


def _texts(first: Snapshot, last: Snapshot) -> pl.DataFrame:
    return pl.concat([last.texts, first.texts]).unique("query_id", keep="first", maintain_order=True)
