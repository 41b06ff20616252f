"""Explains data sources: why a figure is unknown, how waits were measured, the cross-check of one
quantity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import polars as pl

from dbdyno.model.results.results import Results
from dbdyno.model.schema.quantiles import FEW, RESPONSE
from dbdyno.model.sources.source import HIDDEN_STATUS, READ, TRACE
from dbdyno.model.text.nouns import fill, noun
from dbdyno.model.units import counted, format_given, significant
from dbdyno.present.document.document import (
    UNKNOWN,
    Block,
    Cell,
    Column,
    Paragraph,
    Row,
    Section,
    Table,
    Tone,
    known,
    numeric,
    remarks,
    table,
    word,
)
from dbdyno.present.figures import figures
from dbdyno.present.figures.accounts import POOLER
from dbdyno.present.figures.figures import difference, quantity
from dbdyno.present.figures.selection import Pick, pick_of, rows_of

# Columns of table rungs by the table that has their status: rates, or scope and account of the ledger.
_RATES = (
    *("calls_per_s", "work_per_s", "work_per_call", "cpu_per_call_ns", "cpu_per_work_ns"),
    *("response_mean_ns", *RESPONSE, "response_max_ns"),
    *(f"service_{s}_ns" for s in ("mean", "p50", "p95", "p99")),
)
_LEDGER = {
    "run_aas": ("rung", "run"),
    "runq_aas": ("rung", "runq"),
    "sleep_aas": ("rung", "sleep"),
    "client_aas": ("rung", "client"),
    "pool_queue_aas": ("rung", "pool.queue"),
    "unaccounted_aas": ("rung", "unaccounted"),
    "helpers_aas": ("helper", "run"),
}
# The source of a column whose status is in neither table.
_SOURCE_OF = {"helpers_aas": "os tasks", "driver_cpus": "driver tasks", "driver_starved": "driver tasks"}
_WORDS = {
    "not here": "{~server_processes} are not visible from here",
    "not permitted": "a right is missing",
    "not supported": "{~no_such_counter}",
    "off": "it was switched off",
    "limited": "a part of it was lost",
    "lost": "the source broke off",
    "reset": "the server's counters were reset",
    "too short": "the window is too short",
    "vanished": "the process ended while it was read",
    "too brief": "many sessions or parallel workers were too brief to be sampled",
    FEW: "too few {~calls}",
    "no measured calls": "no measured {~calls}",
    "shared": "sessions take turns on the server connections of a pool",
}
_OPTIONAL = ("pool_queue_aas",)
"""Columns that do not apply, rather than unknown, unless the ledger has a row: a rung without a pooler."""
_FIXED = {
    "scaling": "the rate of this rung or of the lowest one is unknown",
    "top_wait": "no wait took 1 % of {~session_time}, or there were no activity samples",
}


class Unknown(NamedTuple):
    """The reason why a column has unknown figures."""

    column: str
    why: str
    cure: str


def reasons(results: Results, columns: tuple[str, ...]) -> list[Unknown]:
    """Returns the reason for each of ``columns`` of table ``rungs`` that has a NULL."""
    rungs = results.tables["rungs"]
    absent = [c for c in columns if c in rungs.columns and rungs[c].null_count()]
    return [_reason(results, c) for c in absent if c not in _OPTIONAL or _evidence(results, c).height]


def in_words(status: str) -> str:
    """Returns a status of the schema as a clause."""
    return fill(_WORDS[status]) if status in _WORDS else status


def _reason(results: Results, column: str) -> Unknown:
    if column in _FIXED:
        return Unknown(column, fill(_FIXED[column]), "")
    rows = _evidence(results, column)
    failed = rows.filter(pl.col("status") != "ok").select("status", "source").unique(maintain_order=True)
    if failed.is_empty() and column in _SOURCE_OF:
        named = results.tables["sources"].filter(pl.col("name") == _SOURCE_OF[column])
        failed = named.filter(pl.col("status") != "ok").select("status", pl.col("name").alias("source"))
    if failed.is_empty():
        return Unknown(column, "no data source measured it", "dbdyno doctor lists the data sources")
    reasons = (in_words(s) if s == FEW else f"{source}: {in_words(s)}" for s, source in failed.rows())
    why = "; ".join(dict.fromkeys(reasons))
    return Unknown(column, why, _cure(results, failed["source"].to_list()))


def _evidence(results: Results, column: str) -> pl.DataFrame:
    if column in _LEDGER:
        scope, account = _LEDGER[column]
        named = (pl.col("account") == account) | pl.col("account").str.starts_with(f"{account}.")
        rows = results.tables["ledger"].filter((pl.col("scope") == scope) & named)
        return rows.filter(pl.col("aas").is_null())
    name = column if column in _RATES else ""
    rates = results.tables["rates"]
    return rates.filter((pl.col("scope") == "rung") & (pl.col("name") == name) & pl.col("value").is_null())


def _cure(results: Results, names: list[str]) -> str:
    """Returns the details of failing sources, which say how to make them available."""
    sources = results.tables["sources"].filter(pl.col("name").is_in(names) & (pl.col("status") != "ok"))
    return "; ".join(dict.fromkeys(d for d in sources["detail"].to_list() if d))


_ESTIMATED = "Seconds by event are estimated; their sums (CPU, run queue, sleep) are exact."
_TIER_WORDS = {
    TRACE: "Waits{where}: exact. The scheduler trace measures sleep and run queue at every switch.",
    "wait event word, estimated": f"Waits{{where}}: sampled from the server's memory{{hz}}. {_ESTIMATED}",
    "activity samples, estimated": "Waits{where}: sampled from {view}{hz}. " + _ESTIMATED,
    "activity samples, the server's word alone": "Waits{where}: sampled from {view}{hz}. "
    "The server's processes are not visible, so sleep and run queue are not separated.",
}
_READS = {"wait event word, estimated": "wait event word"}
_SAMPLES = "activity samples"


class Tier(NamedTuple):
    """A data source of waits, and the number of measurements that used it."""

    source: str
    cells: int


def tiers(results: Results, cell: str | None = None) -> list[Tier]:
    """Returns the data sources of table events, the most used first; of one cell, or of all."""
    rows = _sources_of_waits(results, cell)
    by_source = rows.group_by("source", maintain_order=True).agg(pl.col("cell").n_unique())
    return [Tier(s, n) for s, n in by_source.sort("cell", descending=True, maintain_order=True).rows()]


def caption(results: Results, cell: str | None = None) -> str:
    """Returns ``Waits: exact (scheduler trace).``; of both kinds, with the number of measurements of each."""
    rows = _sources_of_waits(results, cell).drop_nulls("source").rows()
    kinds = {
        "exact": [r for r in rows if r[1] == TRACE],
        "sampled": [r for r in rows if r[1] != TRACE],
    }
    kinds = {kind: of_kind for kind, of_kind in kinds.items() if of_kind}
    parts = []
    for kind, of_kind in kinds.items():
        names = dict.fromkeys(source.partition(",")[0] for _, source in of_kind)
        many = counted(len({c for c, _ in of_kind}), _cells(results).removesuffix("s"))
        where = f" in {many}" if cell is None and len(kinds) > 1 else ""
        parts.append(f"{kind} ({', '.join(names)}){where}")
    return f"Waits: {' and '.join(parts) or 'unknown'}."


def _sources_of_waits(results: Results, cell: str | None) -> pl.DataFrame:
    """Returns cell and source of the rows of table events; of one cell, or of all."""
    silent = (pl.col("status") == "no samples") | (pl.col("source") == POOLER)
    wanted = (pl.col("scope") == "rung") & ~silent
    if cell is not None:
        wanted &= pl.col("cell") == cell
    each = results.tables["events"].lazy().filter(wanted).select("cell", "source").unique(maintain_order=True)
    return each.with_columns(pl.col("source").str.split("; ")).explode("source").collect()


def named(source: str) -> str:
    """Returns data sources of a table in words for readers, each once: ``wait event word, sampled``."""
    words = source.replace(", estimated", ", sampled")
    return "; ".join(dict.fromkeys(words.split("; ")))


def wait_methods(results: Results) -> list[str]:
    """Returns sentences on how waits were measured."""
    used = tiers(results)
    whole = results.tables["windows"].height
    sentences = [_tier(results, t, whole) for t in used]
    if not used:
        hidden = results.tables["ledger"]["status"].str.contains(HIDDEN_STATUS, literal=True).any()
        why = f"They are {HIDDEN_STATUS}." if hidden else "No data source read them together with the tasks."
        sentences.append(f"Waits: unknown. {why}")
    return sentences


def _tier(results: Results, tier: Tier, whole: int) -> str:
    where = f" ({tier.cells} of {whole} {_cells(results)})" if tier.cells < whole else ""
    text = _TIER_WORDS.get(tier.source, f"Waits{{where}}: {tier.source}.")
    return text.format(hz=_rate(results, tier.source), where=where, view=noun("activity_view"))


def _cells(results: Results) -> str:
    return "windows" if figures.is_observation(results) else "measurements"


def _rate(results: Results, source: str) -> str:
    """Returns the rate of sampling: the plan's for the activity view; for the others, the one in
    ``sources``."""
    if source.startswith(_SAMPLES):
        return f" at {format_given(results.plan.experiment.sample_hz)} Hz"
    name = _READS.get(source, "")
    reads = results.tables["sources"].filter((pl.col("name") == name) & pl.col("status").is_in(READ))
    rates: list[str] = reads["provenance"].str.extract(r"(\d[\d.]*) ?Hz").drop_nulls().to_list()
    return f" at {rates[0]} Hz" if rates else ""


# The cross-check: the same quantity from every data source, and the differences between them.

MAX_COLUMNS = 60
Record = dict[str, Any]
_TOLERANCES = (
    "Sources agree up to a difference of 2 % (CPU time, {~db_time}) or 0.5 % (counts). They are not "
    "comparable where a larger difference lies within a source's resolution or lag, or in what it measures "
    "besides."
)
_TONES: dict[str, Tone] = {"differs": "warning", "agrees": "good"}


def cross_check(results: Results, pick: Pick) -> list[Block]:
    """Returns one row per quantity and source; the first source of a quantity is the reference."""
    if pick.cell is None and results.tables["windows"].height == 1:
        pick = pick_of(results, results.tables["windows"]["cell"].item()) or pick
    if pick.cell is None:
        return [Paragraph("Data sources are compared window by window: choose one.", "muted")]
    checked = [
        r for r in rows_of(results, "data_sources", pick).to_dicts() if figures.has_quantity(r["quantity"])
    ]
    if not checked:
        return [Paragraph(f"Cross-check {pick.at}: no quantity has more than one data source.", "muted")]
    order = [r["quantity"] for r in checked]
    rows = sorted(checked, key=lambda r: order.index(r["quantity"]))
    title = f"Cross-check of data sources {pick.at}{pick.which}"
    return [table(title, _COLUMNS, rows, named=True), *remarks([fill(_TOLERANCES)])]


def differences(results: Results) -> Section | None:
    """Returns relative differences: a row per quantity and source, a column per rung (mean of repeats) or
    window.

    None if there is nothing to compare.
    """
    frame = results.tables["data_sources"].filter(pl.col("verdict") != "reference")
    quantities = filter(figures.has_quantity, frame["quantity"].unique())
    frame = frame.filter(pl.col("quantity").is_in([*quantities]))
    if frame.is_empty():
        return None
    frame = figures.by_load(results, frame)
    column, names = _columns(results, frame)
    cells = {
        (q, s, c): Cell(
            UNKNOWN if value is None else difference(value), value, tone="warning" if differs else "good"
        )
        for q, s, c, value, differs in frame.with_columns(column.alias("column"))
        .group_by("quantity", "source", "column", maintain_order=True)
        .agg(pl.col("relative_difference").mean(), (pl.col("verdict") == "differs").any().alias("differs"))
        .rows()
    }
    pairs = dict.fromkeys((q, s) for q, s, _ in cells)
    shown = names[:MAX_COLUMNS]
    rows = [
        Row([word(f"{quantity(q)}: {s}"), *(cells.get((q, s, c), word("")) for c in shown)]) for q, s in pairs
    ]
    left = f"; {len(names) - len(shown)} more are in the export" if len(shown) < len(names) else ""
    what = "window" if figures.is_observation(results) else "load"
    title = f"Relative difference to the reference, a column a {what}{left}"
    heads = [Column("quantity: source"), *(numeric(n) for n in shown)]
    return Section(f"Differences at every {what}", [Table(title, heads, rows)], folded=True)


def _columns(results: Results, frame: pl.DataFrame) -> tuple[pl.Expr, list[str]]:
    if figures.is_observation(results):
        return pl.col("repeat").cast(pl.String), [str(n) for n in frame["repeat"].unique().sort().to_list()]
    one = frame.select("workload", "variant").n_unique() == 1
    load = figures.load_of(results).column
    keys = frame.select("workload", "variant", load).unique(maintain_order=True)
    keys = keys.sort("workload", "variant", load)
    number = pl.col(load).cast(pl.String).str.strip_suffix(".0")
    if one:
        return number, keys.select(number).to_series().to_list()
    name = pl.concat_str("variant", pl.lit(", "), number)
    return name, keys.select(name).to_series().to_list()


def _difference(row: Record) -> Cell:
    reference = row["verdict"] == "reference"
    return Cell("" if reference else difference(row["relative_difference"]), row["relative_difference"])


def _why(row: Record) -> Cell:
    return word(in_words(row["status"]) if row["value"] is None else row["reason"])


_COLUMNS: tuple[tuple[Column, Callable[[Record], Cell]], ...] = (
    (Column("quantity"), lambda r: word(quantity(r["quantity"]))),
    (Column("source", wraps=True), lambda r: word(r["source"])),
    (numeric("value"), lambda r: known(r["value"], lambda v: significant(v, 4), r["unit"])),
    (Column("unit", rank=2), lambda r: word(r["unit"])),
    (numeric("difference"), _difference),
    (
        numeric("agrees up to", 3),
        lambda r: word("") if r["tolerance"] is None else known(r["tolerance"], lambda v: significant(v, 2)),
    ),
    (Column("verdict"), lambda r: word(r["verdict"])._replace(tone=_TONES.get(r["verdict"], ""))),
    (Column("why", rank=4, wraps=True), _why),
)
