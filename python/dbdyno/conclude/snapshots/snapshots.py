"""Concludes from two snapshots: restarts and resets between them, and the problems that administrators check
first."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.run.table_scans import not_cached_between
from dbdyno.model.results.claim import Claim, Severity
from dbdyno.model.results.interval import ALL, ARCHIVE_FAILED, CHECKPOINTS, PER_S, STANDING, IntervalFigures
from dbdyno.model.text.visible import one_line, shortened
from dbdyno.model.units import NS_PER_S, format_size

_MIB, _GIB = 1 << 20, 1 << 30
LARGE_TABLE, LARGE_INDEX, SLOT = 64 * _MIB, 8 * _MIB, _GIB
"""Bytes: size of tables whose sequential scans are reported, size of unused indexes worth dropping, WAL that
a slot retains."""
SCANS, SCANNED = 10, 0.1
"""Number of sequential scans of a table, and the share of all rows read that they read."""
STATEMENT, BUSY = 0.25, 0.01
"""A statement's share of the time of all statements, and the least execution time, in seconds per second."""
WRAPAROUND, AGE, AGE_GRAVE = 2**31, 0.25, 0.5
"""Transactions until wraparound (half of the 32-bit space of ids), and shares of them."""
DEAD, DEAD_SHARE = 10_000, 0.2
"""Dead rows of a table, and their share of all its rows."""
READS, READ = 100.0, 0.01
"""Blocks read per second, and their share of all blocks requested."""
TEMPORARY = float(_MIB)
"""Bytes of temporary files written per second."""
REQUESTED = 2
"""Checkpoints on request. A single one is normal, because a base backup requests one."""
ROLLBACKS, ROLLED_BACK = 100, 0.1
"""Rollbacks of a database, and their share of its transactions."""
_NAMED, _TEXT = 3, 100
_ORDER: tuple[Severity, ...] = ("invalid", "warning", "note", "good")


def claims(figures: IntervalFigures) -> list[Claim]:
    """Returns all claims about an interval, the gravest first."""
    all_claims = [
        c
        for check in (
            _restart,
            _resets,
            _evictions,
            _checksums,
            _wraparound,
            _deadlocks,
            _slots,
            _invalid_indexes,
            _statement,
            _cache,
            _seq_scans,
            not_cached_between,
            _temporary,
            _checkpoints,
            _dead_rows,
            _unused_indexes,
            _rollbacks,
            _settings,
            _archive,
        )
        for c in check(figures)
    ]
    return sorted(all_claims, key=lambda c: _ORDER.index(c.severity))


def _time_text(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S}"


def _restart(figures: IntervalFigures) -> Iterator[Claim]:
    start = figures.interval.restarted
    if start is not None:
        lost = any(r.how == "fell" for r in figures.interval.resets)
        values = {"when": f"{_time_text(start.timestamp())} UTC"}
        yield claim("snapshot-restart", values, parts=["lost"] if lost else [])


def _resets(figures: IntervalFigures) -> Iterator[Claim]:
    named = []
    for r in figures.interval.resets:
        what = f"single objects of {r.what}" if r.how == "objects" else r.what
        at = "at an unknown time" if r.at_s is None else f"at {_time_text(r.at_s)} UTC"
        named.append(f"{one_line(what)} ({at})")
    if named:
        yield claim("snapshot-reset", {"what": ", ".join(named)})


def _evictions(figures: IntervalFigures) -> Iterator[Claim]:
    if times := figures.interval.evictions:
        yield claim("snapshot-evictions", {"times": times}, times)


def _worst(figures: IntervalFigures, counter: str) -> dict[str, Any] | None:
    """Returns the sum of a counter over databases and the database with the largest part; None if it is 0 or
    unknown."""
    rows = figures.databases.drop_nulls(counter).sort(counter, descending=True)
    total = rows.filter(pl.col("database") == ALL)
    one = rows.filter(pl.col("database") != ALL)
    if total.is_empty() or not total[counter][0]:
        return None
    return {"n": total[counter][0], "database": one_line(one["database"][0])}


def _checksums(figures: IntervalFigures) -> Iterator[Claim]:
    if values := _worst(figures, "checksum_failures"):
        yield claim("snapshot-checksums", values, values["n"])


def _deadlocks(figures: IntervalFigures) -> Iterator[Claim]:
    if values := _worst(figures, "deadlocks"):
        yield claim("snapshot-deadlocks", values, values["n"])


def _wraparound(figures: IntervalFigures) -> Iterator[Claim]:
    rows = figures.interval.tables["databases"].filter(pl.col("status").is_in(STANDING))
    for row in rows.drop_nulls("transaction_age").sort("transaction_age", descending=True).head(1).to_dicts():
        share = row["transaction_age"] / WRAPAROUND
        if share < AGE:
            return
        pace = (row["transaction_age_growth"] or 0) / figures.interval.seconds
        days = (WRAPAROUND - row["transaction_age"]) / pace / 86_400 if pace > 0 else 0.0
        values = {"database": one_line(row["database"] or "?"), "share": share, "age": row["transaction_age"]}
        grave: Severity = "warning" if share >= AGE_GRAVE else "note"
        yield claim(
            "snapshot-wraparound",
            values | {"days": days},
            share,
            parts=["days"] if days else [],
            severity=grave,
        )


def _slots(figures: IntervalFigures) -> Iterator[Claim]:
    rows = figures.interval.tables["slots"].filter(pl.col("status") != "gone")
    for row in rows.sort("retained_bytes", descending=True, nulls_last=True).head(_NAMED).to_dicts():
        values = {
            "slot": one_line(row["slot"]),
            "idle": "" if row["active"] else ", and nothing receives from it",
        }
        if row["wal_status"] == "lost":
            yield claim("snapshot-slot", values, case="lost")
        elif (row["retained_bytes"] or 0) >= SLOT:
            values["size"] = format_size(row["retained_bytes"])
            yield claim("snapshot-slot", values, case="kept")


def _statement(figures: IntervalFigures) -> Iterator[Claim]:
    much = (
        (pl.col("share") >= STATEMENT)
        & (pl.col("calls") > 0)
        & (pl.col("exec_ns") >= BUSY * NS_PER_S * pl.col("seconds"))
    )
    for row in figures.statements.filter(much).head(1).to_dicts():
        known = figures.interval.texts.filter(pl.col("query_id") == row["query_id"])["text"]
        text = " ".join((known[0] if len(known) else "its text is not known").split())
        values = {
            "share": row["share"],
            "mean": row["exec_ns"] / row["calls"],
            "calls": row["calls"],
            "id": row["query_id"],
            "text": one_line(shortened(text, _TEXT)),
        }
        yield claim("snapshot-statement", values, row["share"])


def _cache(figures: IntervalFigures) -> Iterator[Claim]:
    for row in figures.databases.filter(pl.col("database") == ALL).to_dicts():
        share, reads = row["hit_ratio"], row[f"blocks_read{PER_S}"]
        if share is None or reads < READS or 1 - share < READ:
            return
        time = row["block_read_ns"]
        values = {"share": share, "reads": reads, "mean": (time or 0) / row["blocks_read"]}
        case = "timed" if time else "untimed"
        yield claim("snapshot-cache", values, share, case=case, parts=[case])


def _seq_scans(figures: IntervalFigures) -> Iterator[Claim]:
    rows = figures.relations.filter(pl.col("kind") != "system")
    total = float(rows["rows_read"].sum())
    large = (pl.col("size_bytes") >= LARGE_TABLE) & (pl.col("seq_scans") >= SCANS) & (pl.col("seq_rows") > 0)
    for row in rows.filter(large & (pl.col("seq_rows") >= SCANNED * total)).head(_NAMED).to_dicts():
        values = {
            "table": qualified(row),
            "size": format_size(row["size_bytes"]),
            "scans": row["seq_scans"],
            "share": row["seq_rows"] / total,
            "rows": row["seq_rows"] / row["seq_scans"],
        }
        yield claim("snapshot-seq-scans", values, values["share"])


def qualified(row: dict[str, Any]) -> str:
    """Returns the name of a table with its database: ``shop: public.orders``."""
    return one_line(f"{row['database'] or 'shared'}: {row['name']}")


def _temporary(figures: IntervalFigures) -> Iterator[Claim]:
    values = _worst(figures, "temporary_bytes")
    if values and values["n"] / figures.interval.seconds >= TEMPORARY:
        files = figures.databases.filter(pl.col("database") == ALL)["temporary_files"][0]
        values |= {"size": format_size(values["n"]), "files": files or 0}
        yield claim("snapshot-temporary", values, values["n"])


def _checkpoints(figures: IntervalFigures) -> Iterator[Claim]:
    timed, requested = (figures.server.get(name, (None, 0.0))[0] for name in CHECKPOINTS)
    if timed is not None and requested is not None and requested >= REQUESTED and requested > timed:
        yield claim("snapshot-checkpoints", {"requested": requested, "all": timed + requested}, requested)


def _archive(figures: IntervalFigures) -> Iterator[Claim]:
    if times := figures.server.get(ARCHIVE_FAILED, (None, 0.0))[0]:
        yield claim("snapshot-archive", {"times": times}, times)


def _dead_rows(figures: IntervalFigures) -> Iterator[Claim]:
    dead = pl.col("dead_rows")
    share = dead / (dead + pl.col("live_rows"))
    many = (dead >= DEAD) & (share >= DEAD_SHARE) & (pl.col("vacuums") + pl.col("autovacuums") == 0)
    rows = figures.relations.with_columns(_share=share).filter(many & (pl.col("kind") != "system"))
    for row in rows.sort("dead_rows", descending=True).head(_NAMED).to_dicts():
        last = f", last {_time_text(row['vacuumed_s'])} UTC" if row["vacuumed_s"] else ", nor ever before"
        values = {"table": qualified(row), "share": row["_share"], "dead": row["dead_rows"], "last": last}
        yield claim("snapshot-dead-rows", values, row["_share"])


def unused(figures: IntervalFigures) -> pl.DataFrame:
    """Returns indexes that no scan used in the interval and that no constraint needs, the largest first, with
    ``rows_written`` of their tables."""
    indexes, relations = figures.interval.tables["indexes"], figures.interval.tables["relations"]
    written = relations.select(
        "database_id",
        "relation_id",
        "kind",
        rows_written=pl.sum_horizontal("rows_inserted", "rows_updated", "rows_deleted"),
    )
    free = ~pl.any_horizontal(pl.col("is_unique", "is_primary", "is_constraint").fill_null(True))
    idle = (pl.col("scans") == 0) & pl.col("status").is_in(["ok", "new"]) & pl.col("is_valid").fill_null(True)
    both = indexes.filter(free & idle).join(written, on=["database_id", "relation_id"], how="left")
    return both.filter(pl.col("kind") != "system").sort("size_bytes", descending=True, nulls_last=True)


def _unused_indexes(figures: IntervalFigures) -> Iterator[Claim]:
    rows = unused(figures).filter((pl.col("size_bytes") >= LARGE_INDEX) & (pl.col("rows_written") > 0))
    if rows.height:
        largest = ", ".join(
            f"{index_name(r)} ({format_size(r['size_bytes'])})" for r in rows.head(_NAMED).to_dicts()
        )
        values = {
            "n": several(rows.height, "index"),
            "size": format_size(float(rows["size_bytes"].sum())),
            "index": largest,
        }
        yield claim("snapshot-unused-indexes", values, rows.height)


def index_name(row: dict[str, Any]) -> str:
    return one_line(f"{row['database'] or 'shared'}: {row['schema']}.{row['index']}")


def several(number: int, what: str) -> str:
    """Formats a count of things whose plural ends in "es": ``1 index``, ``2 indexes``."""
    return f"{number:,} {what}{'' if number == 1 else 'es'}"


def _invalid_indexes(figures: IntervalFigures) -> Iterator[Claim]:
    rows = figures.interval.tables["indexes"].filter(~pl.col("is_valid") & pl.col("status").is_in(STANDING))
    if rows.height:
        named = [index_name(r) for r in rows.sort("size_bytes", descending=True).head(_NAMED).to_dicts()]
        more = [f"{rows.height - _NAMED} more"] if rows.height > _NAMED else []
        values = {"n": several(rows.height, "invalid index"), "indexes": ", ".join([*named, *more])}
        yield claim("snapshot-invalid-indexes", values, rows.height)


def _rollbacks(figures: IntervalFigures) -> Iterator[Claim]:
    rows = figures.databases.filter(pl.col("database") != ALL)
    many = (
        (pl.col("rollbacks") >= ROLLBACKS)
        & (pl.col("rollbacks") >= ROLLED_BACK * pl.col("transactions"))
        & (pl.col("transactions") > 0)
    )
    for row in rows.filter(many).sort("rollbacks", descending=True).head(_NAMED).to_dicts():
        share = row["rollbacks"] / row["transactions"]
        yield claim("snapshot-rollbacks", {"share": share, "database": one_line(row["database"])}, share)


def _settings(figures: IntervalFigures) -> Iterator[Claim]:
    rows = figures.interval.tables["settings"].filter(pl.col("status") == "changed").to_dicts()
    if rows:
        named = [one_line(f"{r['setting']} {r['value_was']} to {r['value']}") for r in rows[:_NAMED]]
        more = [f"{len(rows) - _NAMED} more"] if len(rows) > _NAMED else []
        yield claim("snapshot-settings", {"n": len(rows), "settings": ", ".join([*named, *more])})
