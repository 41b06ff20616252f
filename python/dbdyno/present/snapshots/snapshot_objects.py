"""Shows the most accessed tables, and indexes, between two snapshots."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from dbdyno.model.results.interval import STANDING, IntervalFigures
from dbdyno.model.units import counted, format_ns
from dbdyno.present.document.document import Block, Choice, Option, Paragraph, remarks
from dbdyno.present.snapshots.snapshot_parts import Figures, Spec, Words, growth, listed, rate, share, size

_NAME = Words("table", lambda r: _named(r), wraps=True)
_WHOLE = Words("table", lambda r: f"{r['database'] or '(shared)'}: {_named(r)}", wraps=True)
_ACCESS = (
    Spec("rows %", "rows_share", share, note="of all rows read by scans of tables shown here and not",
         bar=True),
    Spec("tab %", "table_hit_ratio", share, note="blocks of the table found in the cache",
         long="tab hit %", source="table_blocks_hit"),
    Spec("idx %", "index_hit_ratio", share, note="blocks of its indexes found in the cache",
         long="idx hit %", source="index_blocks_hit"),
    Spec("tab read", "table_blocks_read", unit="blocks"),
    Spec("tab hit", "table_blocks_hit", unit="blocks"),
    Spec("idx read", "index_blocks_read", unit="blocks"),
    Spec("idx hit", "index_blocks_hit", unit="blocks"),
    Spec("rows/s", "rows_read_per_s", rate, rank=2),
    Spec("toast read", "toast_blocks_read", unit="blocks", rank=5, optional=True),
    Spec("toast hit", "toast_blocks_hit", unit="blocks", rank=5, optional=True),
)  # fmt: skip
_SCANS = (
    Spec("seq", "seq_scans", long="seq scans"), Spec("seq rows", "seq_rows"),
    Spec("idx", "index_scans", long="idx scans"), Spec("idx rows", "index_rows"),
    Spec("ins", "rows_inserted", long="inserted"), Spec("upd", "rows_updated", long="updated"),
    Spec("del", "rows_deleted", long="deleted"),
    Spec("HOT %", "hot_share", share, rank=2, note="updated in place, without new index entries",
         source="rows_hot_updated"),
    Spec("new page", "rows_newpage_updated", rank=5, optional=True,
         note="updated rows whose new version went to another page"),
)  # fmt: skip
_UPKEEP = (
    Spec("size", "size_bytes", size, "bytes", source="table_bytes"),
    Spec("growth", "size_bytes_growth", growth, "bytes", source="table_bytes"),
    Spec("live", "live_rows"), Spec("dead", "dead_rows"),
    Spec("dead %", "dead_share", share, rank=1, source="dead_rows"),
    Spec("vac", "vacuums", note="vacuums by hand"),
    Spec("avac", "autovacuums", long="autovac", note="by autovacuum"),
    Spec("ana", "analyzes", note="analyzes by hand"),
    Spec("aana", "autoanalyzes", long="autoana", note="by autovacuum"),
    Spec("vac time", "vacuum_ns", format_ns, "ns", rank=4, optional=True),
    Spec("ana time", "analyze_ns", format_ns, "ns", rank=4, optional=True),
)  # fmt: skip


def _named(row: Figures) -> str:
    parts = f" ({row['partitions']} partitions)" if row["partitions"] else ""
    return f"{row['name']}{parts}"


def most_accessed(figures: IntervalFigures, most: int, databases: Sequence[str]) -> list[Block]:
    """Returns the tables by rows read: in all databases, or in one of ``databases`` by the selector of a
    page."""
    frame = figures.relations.filter(pl.col("status").is_in(STANDING) & (pl.col("kind") != "system"))
    if frame.is_empty():
        return [Paragraph("No tables were read.", "muted")]
    options = [Option("all", "all databases", _tables(figures, frame, most, len(databases) > 1))]
    for name in databases if len(databases) > 1 else ():
        of_database = frame.filter(pl.col("database") == name)
        if of_database.height:
            options.append(Option(name, name, _tables(figures, of_database, most, False)))
    notes = ["System tables are left out. Partitions are summed under the table that they belong to."]
    return [Choice("Database", options), *remarks(notes)]


def _tables(figures: IntervalFigures, frame: pl.DataFrame, most: int, several: bool) -> list[Block]:
    read, dead = pl.col("rows_read"), pl.col("dead_rows")
    used = frame.with_columns(
        rows_share=pl.when(read.sum() > 0).then(read / read.sum()),
        rows_read_per_s=read / pl.col("seconds"),
        dead_share=pl.when(dead + pl.col("live_rows") > 0).then(dead / (dead + pl.col("live_rows"))),
    )
    busy = used.filter((read > 0) | (pl.col("rows_written") > 0))
    rows = busy.head(most).to_dicts()
    if not rows:
        return [Paragraph("No table was read or written.", "muted")]
    name = _WHOLE if several else _NAME
    titles = ("By rows read", "Scans and writes", "Size and upkeep")
    blocks: list[Block] = []
    for title, columns in zip(titles, (_ACCESS, _SCANS, _UPKEEP), strict=True):
        blocks += listed(figures, "relations", title, (name, *columns), rows)
    rest = busy.height - len(rows)
    quiet = used.height - rest - len(rows)
    notes = [f"{counted(rest, 'more table')} read or written."] if rest else []
    notes += [f"{counted(quiet, 'table')} neither read nor written."] if quiet else []
    return [*blocks, *remarks(notes)]


_INDEX = Words("index", lambda r: f"{r['database'] or '(shared)'}: {r['schema']}.{r['index']}", wraps=True)
_TABLE = Words("table", lambda r: r["relation"], rank=3, shortens=True)
_USE = (
    Spec("blocks %", "blocks_share", share, rank=3, note="of the blocks of all indexes asked for", bar=True),
    Spec("scans", "scans"), Spec("entries", "entries_read"), Spec("rows", "rows_fetched", rank=1),
    Spec("read", "blocks_read", unit="blocks"), Spec("hit", "blocks_hit", unit="blocks"),
    Spec("hit %", "hit_ratio", share, rank=1, source="blocks_hit"),
    Spec("size", "size_bytes", size, "bytes"), Spec("growth", "size_bytes_growth", growth, "bytes", rank=2),
)  # fmt: skip


def indexes(figures: IntervalFigures, unused: pl.DataFrame, most: int) -> list[Block]:
    """Returns the most used indexes, and those in ``unused``, the largest first."""
    system = figures.relations.filter(pl.col("kind") == "system").select("database_id", "relation_id")
    rows = figures.interval.tables["indexes"].filter(pl.col("status").is_in(STANDING))
    user_indexes = rows.join(system, on=["database_id", "relation_id"], how="anti")
    both = pl.col("blocks_hit") + pl.col("blocks_read")
    used = user_indexes.filter((pl.col("scans") > 0) | (both > 0)).with_columns(
        hit_ratio=pl.when(both > 0).then(pl.col("blocks_hit") / both),
        blocks_share=pl.when(both.sum() > 0).then(both / both.sum()),
    )
    order = used.sort(both, "scans", descending=True, nulls_last=True)
    if user_indexes.is_empty():
        return [Paragraph("No indexes.", "muted")]
    columns = (_INDEX, _TABLE, *_USE)
    shown = order.head(most).to_dicts()
    blocks = listed(figures, "indexes", "By blocks asked for", columns, shown) if shown else []
    if unused.height:
        few = (
            _INDEX,
            _TABLE,
            Spec("size", "size_bytes", size, "bytes"),
            Spec("rows written", "rows_written", source="rows_inserted"),
        )
        title = "Without a scan in this interval, the largest first"
        blocks += listed(figures, "indexes", title, few, unused.head(most).to_dicts())
        total = float(unused["size_bytes"].sum())
        blocks += remarks(
            [
                f"{unused.height:,} of {user_indexes.height:,} indexes had no scan in this interval and "
                f"serve no constraint: {size(total)} together."
            ]
        )
    return blocks
