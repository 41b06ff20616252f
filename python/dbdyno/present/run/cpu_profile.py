"""Shows where CPU time went and where sessions slept: by code, session, wait event, statement; flame
graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from dbdyno.model.errors import UsageError
from dbdyno.model.results.comparison import CodeCost, CostChange
from dbdyno.model.results.cpu_profile import LABELS, NOT_SAMPLED, OTHERS
from dbdyno.model.results.results import Results
from dbdyno.model.schema.data_source import DataSource
from dbdyno.model.schema.data_sources.profile import CPU_PROFILE
from dbdyno.model.schema.data_sources.sleeps import OFF_CPU
from dbdyno.model.schema.tables import empty
from dbdyno.model.sources.source import READ
from dbdyno.model.text.nouns import capital, fill, noun
from dbdyno.model.text.visible import visible
from dbdyno.model.units import counted, format_ns, format_p, significant
from dbdyno.present.charts import flame
from dbdyno.present.document.document import (
    UNKNOWN,
    Block,
    Cell,
    Column,
    Document,
    Flame,
    Paragraph,
    Section,
    Table,
    known,
    numeric,
    remarks,
    table,
    word,
)
from dbdyno.present.figures import selection, title_block
from dbdyno.present.figures.figures import percent, work_short
from dbdyno.present.figures.selection import Pick, rows_of
from dbdyno.present.run.statements import texts_of

CLAIM = "cpu-profile"


class Sampled(NamedTuple):
    """A kind of sampled stacks: its tables and data source, and its words in headings and captions."""

    table: str
    stacks: str
    source: DataSource
    time: str
    head: str
    flame: str
    scaled: str
    kinds: tuple[str, ...]  # kinds of tables in a page; the first two are not folded


KINDS = ("function", "module", "session", *LABELS)
CPU = Sampled(
    *("cpu_profile", "cpu_stacks", CPU_PROFILE, "CPU time", "CPU %", "flame", "each task's exact CPU time"),
    ("module", "function", "session", *LABELS),
)
SLEEP = Sampled(
    *(
        "sleep_profile",
        "sleep_code",
        OFF_CPU,
        "sleep",
        "sleep %",
        "sleep",
        "the exact sleep of each {~wait_event}",
    ),
    ("wait", "function", "module", "session", "statement"),
)
_SHORT = 100
SHOWN = 20
"""Most rows of a table in a page; the export has all."""
_HEADS = {n: n for n in KINDS} | {"wait": "{~wait_event}"}
_Row = dict[str, Any]
_Columns = list[tuple[Column, Callable[[_Row], Cell]]]


def has_profile(results: Results, sampled: Sampled = CPU) -> bool:
    """Returns whether the run has such a profile."""
    return bool(results.tables.get(sampled.table, empty(sampled.table)).height)


def pick_of(results: Results, cell: str | None = None, sampled: Sampled = CPU) -> Pick:
    """Returns the pick as :func:`selection.pick_of`. Raises UsageError if the run has no such profile."""
    pick = selection.pick_of(results, cell)
    if pick is None or not has_profile(results, sampled):
        raise UsageError(
            f"run {results.info.id} has no {sampled.source.name}: {why(results, sampled)}",
            f"measure with it: dbdyno run {_flag(sampled)}, under load",
        )
    return pick


def _flag(sampled: Sampled) -> str:
    return sampled.source.option.flag if sampled.source.option else ""


def blocks(results: Results, pick: Pick, sampled: Sampled = CPU) -> list[Block]:
    """Returns the part of a page: by module (sleep: wait event) and function, the flame graph, the rest
    folded."""
    frame = _rows(results, pick, sampled)
    if frame.is_empty():
        return [Paragraph(f"No {sampled.source.name} {pick.at}: {why(results, sampled)}.", "muted")]
    kinds = sampled.kinds
    first, more = (
        [by_kind(results, pick, by, SHOWN, sampled) for by in part] for part in (kinds[:2], kinds[2:])
    )
    heads = [fill(_HEADS[k]) for k in kinds[2:]]
    title = f"{capital(sampled.time)} by {', '.join(heads[:-1])} and {heads[-1]}"
    folded = Section(title, more, folded=True)
    return [*first, picture(results, pick, sampled=sampled), folded, *remarks(notes(results, frame, sampled))]


def sleep_blocks(results: Results, pick: Pick) -> list[Block]:
    """Returns the part of a page on where sessions slept."""
    return blocks(results, pick, SLEEP)


def by_kind(results: Results, pick: Pick, by: str, most: int | None = None, sampled: Sampled = CPU) -> Table:
    """Returns the rows of one kind, the largest first; ``most`` limits them."""
    rows = _rows(results, pick, sampled).filter(pl.col("by") == by)
    whole = float(rows["aas"].sum())
    rest = pl.col("name").is_in([NOT_SAMPLED, OTHERS])
    rows = rows.sort(rest, "aas", "total", descending=[False, True, True], maintain_order=True)
    shown = rows if most is None else pl.concat([rows.filter(~rest).head(most), rows.filter(rest)])
    unit = _unit(results, pick, rows)
    whose = f"{capital(sampled.time)} of the {noun('owners')} {pick.at}"
    head = f"{whose} by {fill(_HEADS[by])}: {significant(whole)} s per second"
    statement_texts = texts_of(results) if by == "statement" else {}
    texts = {str(i): text for i, (text, _) in statement_texts.items() if text}
    return table(head, _columns(by, whole, unit, texts, sampled), shown.to_dicts())


def picture(
    results: Results, pick: Pick, only: Mapping[str, str] | None = None, sampled: Sampled = CPU
) -> Flame:
    """Returns the flame graph; ``only`` is as in :func:`flame.stacks`.

    Raises UsageError if no sample matches ``only``.
    """
    rows = flame.stacks(results, pick, only, tables=(sampled.table, sampled.stacks))
    if only and rows.is_empty():
        raise _no_sample_error(results, pick, only, sampled)
    root = flame.tree(rows)
    scale, unit = _scale(results, pick, sampled)
    under = "" if sampled is CPU else f", the outermost on its {noun('wait_event')}"
    caption = (
        f"Width is {sampled.time}; a frame stands on its caller{under}. Click or Enter zooms, arrow keys "
        "move, / searches, Escape shows all."
    )
    title = f"Flame graph of the {noun('owners')}' {sampled.time} {pick.at}{_among(only)}"
    return flame.block(f"{sampled.flame}-{pick.key}", title, caption, root, (scale, unit))


def _among(only: Mapping[str, str] | None) -> str:
    return "".join(f", {fill(_HEADS[n])} {value}" for n, value in (only or {}).items())


def _no_sample_error(results: Results, pick: Pick, only: Mapping[str, str], sampled: Sampled) -> UsageError:
    frame = _rows(results, pick, sampled).sort("aas", descending=True)
    names = [frame.filter(pl.col("by") == n)["name"].drop_nulls().to_list() for n in only]
    words = " and ".join(f"{fill(_HEADS[n])} {v!r}" for n, v in only.items())
    listed = "; ".join(
        f"{fill(_HEADS[n])}: {', '.join(t[:12]) or 'none'}" for n, t in zip(only, names, strict=True)
    )
    return UsageError(f"no sample {pick.at} of {words}", f"those of the profile: {listed}")


def hot(results: Results, pick: Pick, by: str, most: int, sampled: Sampled = CPU) -> Document:
    """Returns the output of ``dbdyno hot``."""
    frame = _rows(results, pick, sampled)
    if frame.is_empty():
        return Document("", [Paragraph(f"No {sampled.source.name} {pick.at}: {why(results, sampled)}.")])
    return Document("", [by_kind(results, pick, by, most, sampled), *remarks(notes(results, frame, sampled))])


def hot_rows(results: Results, pick: Pick, by: str, sampled: Sampled = CPU) -> list[_Row]:
    """Returns the rows of that table as data."""
    frame = _rows(results, pick, sampled).filter(pl.col("by") == by)
    return frame.sort("aas", "total", descending=True, maintain_order=True).to_dicts()


def why(results: Results, sampled: Sampled = CPU) -> str:
    """Returns the reason why the run has no such profile."""
    row = results.tables["sources"].filter(pl.col("name") == sampled.source.name)
    failed = row.filter(pl.col("status") != "ok")
    if failed.height:
        return str(failed["detail"][0]) or str(failed["status"][0])
    return "no sample met the server" if row.height else f"the run was measured without: {_flag(sampled)}"


def notes(results: Results, frame: pl.DataFrame, sampled: Sampled = CPU) -> list[str]:
    """Returns notes on the number of samples, the method, and stacks that were cut or not sampled."""
    stacks = {r["name"]: r for r in frame.filter(pl.col("by") == "stack").to_dicts()}
    count = sum(r["samples"] for r in stacks.values())
    whole = sum(r["aas"] for r in stacks.values())
    read = results.tables["sources"].filter(
        (pl.col("name") == sampled.source.name) & pl.col("status").is_in(READ)
    )
    how = f" ({str(read['detail'][0]).partition(';')[0]})" if read.height and read["detail"][0] else ""
    lines = [
        f"{counted(count, 'sample')}{how}, scaled to {fill(sampled.scaled)}. Intervals are 95 %; total "
        "includes callees."
    ]
    if lost := max((r["lost"] or 0.0 for r in stacks.values()), default=0.0):
        lines.append(
            f"{percent(lost, 1.0, 1)} % of the samples are missing: intervals hold them wherever they belong."
        )
    cut, missing = stacks.get("cut"), stacks.get(NOT_SAMPLED)
    if cut is not None and whole:
        lines.append(
            f"{percent(cut['aas'], whole)} % of {sampled.time} has stacks that were cut: the callers are "
            "unknown."
        )
    if missing is not None and whole and missing["aas"] > 0.005 * whole:
        share = percent(missing["aas"], whole)
        missed = (
            "no sample of its tasks, or none of their mode"
            if sampled is CPU
            else f"no sample of its {noun('wait_event')}"
        )
        lines.append(f"{share} % of {sampled.time} was not sampled: {missed}.")
    return lines


def _rows(results: Results, pick: Pick, sampled: Sampled = CPU) -> pl.DataFrame:
    return rows_of(results, sampled.table, pick).filter(pl.col("scope") == "rung")


def _unit(results: Results, pick: Pick, rows: pl.DataFrame) -> tuple[str, str]:
    """Returns the column of cost per unit and the unit: work if known, else a call."""
    if rows["per_work_ns"].is_not_null().any():
        return "per_work_ns", work_short(results, pick.rung[0])
    return "per_call_ns", noun("call")


def _scale(results: Results, pick: Pick, sampled: Sampled = CPU) -> tuple[float, str]:
    """Returns the factor from seconds per second to cost per unit, and the unit; seconds per second if
    unknown."""
    rows = _rows(results, pick, sampled).filter((pl.col("by") == "function") & (pl.col("aas") > 0))
    column, name = _unit(results, pick, rows)
    costs = rows.drop_nulls(column)
    if costs.is_empty():
        return 1.0, "s per second"
    return float(costs[column][0]) / float(costs["aas"][0]), f"ns per {name}"


def _columns(
    by: str, whole: float, unit: tuple[str, str], texts: Mapping[str, str], sampled: Sampled
) -> _Columns:
    column, name = unit
    module: _Columns = [(Column("module", rank=1), lambda r: word(visible(r["module"] or "")))]
    kernel: _Columns = [(numeric("kernel %", 4)._replace(note="of its time, with callees"), _kernel)]
    code: _Columns = [
        (numeric("total %", 1)._replace(note="with callees"), _share("total", whole)),
    ]
    query: _Columns = [(Column("query id", rank=2), lambda r: word(_text(r["name"])))]
    return [
        *(query if texts else []),
        (Column(_HEADS[by], shortens=True), lambda r: word(_name(r["name"], texts))),
        *(module if by == "function" else []),
        (numeric(sampled.head), _share("aas", whole, bar=True)),
        (numeric("95 %", 3), lambda r: word(_interval(r, whole))),
        *(code if by in ("function", "module") else []),
        *(kernel if sampled is CPU else []),
        (numeric("s/s", 5), lambda r: known(r["aas"], significant, "s/s")),
        (numeric(f"per {name}", 2), lambda r: Cell("") if r[column] is None else _cost(r, column)),
    ]


def _name(name: str | None, texts: Mapping[str, str]) -> str:
    """Returns the text of a statement in one line, else the name itself."""
    if name is None or name not in texts:
        return _text(name)
    text = visible(" ".join(texts[name].split()))
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 3]}..."


def _text(name: str | None) -> str:
    return visible(name or UNKNOWN)


def _cost(row: _Row, column: str) -> Cell:
    return known(row[column], format_ns, "ns")


def _share(column: str, whole: float, bar: bool = False) -> Callable[[_Row], Cell]:
    def cell(row: _Row) -> Cell:
        if row[column] is None or whole <= 0:
            return Cell("")
        part = row[column] / whole
        drawn = ((min(1.0, part), "run"),) if bar else ()
        return known(part, lambda v: percent(v, digits=1))._replace(bar=drawn)

    return cell


def _interval(row: _Row, whole: float) -> str:
    if row["low"] is None or row["name"] == NOT_SAMPLED or whole <= 0:
        return ""
    if row["by"] == "wait" and row["low"] == row["high"]:
        return "exact"
    return f"{percent(row['low'], whole, 1)} to {percent(row['high'], whole, 1)}"


def _kernel(row: _Row) -> Cell:
    part, whole = (row["total_kernel"], row["total"]) if row["total"] else (row["kernel"], row["aas"])
    return Cell("") if part is None or not whole else known(part / whole, lambda v: percent(v))


def cost_tables(change: CostChange, most: int | None = None) -> list[Block]:
    """Returns changes of CPU time per unit of work by module and by function, the largest first."""
    whole = f"{_signed(change.difference_ns)} of CPU time per {change.unit}"
    title = f"{change.variant} against {change.baseline}: {whole}"
    both = (("function", change.functions), ("module", change.modules))
    tables = [_cost_table(title, by, change, rows[:most]) for by, rows in both if rows]
    text = "Intervals are 95 %. p is adjusted for all rows that were compared (Holm); ! marks p below 5 %."
    return [*tables, Paragraph(text, "muted")]


def _cost_table(title: str, by: str, change: CostChange, rows: Sequence[CodeCost]) -> Table:
    columns: list[tuple[Column, Callable[[CodeCost], Cell]]] = [
        (Column(by, shortens=True), lambda c: word(visible(c.name))),
        (numeric("difference"), lambda c: known(c.difference_ns, _signed, "ns")),
        (numeric("95 %", 2), lambda c: word(f"{_signed(c.low_ns)}..{_signed(c.high_ns)}")),
        (numeric(change.baseline, 3), lambda c: known(c.baseline_ns, format_ns, "ns")),
        (numeric(change.variant, 3), lambda c: known(c.variant_ns, format_ns, "ns")),
        (numeric("p", 1), lambda c: known(c.p_holm, lambda p: f"{'! ' if p < _SURE else ''}{format_p(p)}")),
    ]
    if by == "function":
        columns.insert(1, (Column("module", rank=4), lambda c: word(visible(c.module or ""))))
    return table(f"{title}, by {by}", columns, rows)


_SURE = 0.05


def _signed(ns: float) -> str:
    return f"{'-' if ns < 0 else '+'}{format_ns(abs(ns))}"


def difference(
    b: Results,
    second: Pick,
    a: Results,
    first: Pick,
    change: CostChange,
    only: Mapping[str, str] | None = None,
) -> Document:
    """Returns the tables and a differential flame graph: colours show differences, widths the larger side.

    Raises UsageError if no sample matches ``only``.
    """
    sides = []
    for results, pick in ((b, second), (a, first)):
        scale, unit = _scale(results, pick)
        sides.append(flame.stacks(results, pick, only).with_columns(pl.col("aas") * scale))
    caption = (
        f"Width is CPU time per {change.unit}, the larger of both. Red: more than {change.baseline}; blue: "
        "less. Click or Enter zooms, arrow keys move, / searches, Escape shows all."
    )
    if only and all(side.is_empty() for side in sides):
        raise _no_sample_error(b, second, only, CPU)
    title = f"CPU time per {change.unit}{_among(only)}: {change.variant} against {change.baseline}"
    picture = flame.block("flame-difference", title, caption, flame.tree(*sides), (1.0, unit), compared=True)
    tables = [] if only else cost_tables(change, SHOWN)
    return Document(title, [picture, *tables], about=title_block.of_both(a, b))


def page(
    results: Results, pick: Pick, only: Mapping[str, str] | None = None, sampled: Sampled = CPU
) -> Document:
    """Returns the profile by itself, as ``dbdyno flame`` writes it."""
    title = f"{capital(sampled.source.name)} of run {results.info.id}"
    about = title_block.of_run(results)
    if only:
        return Document(title, [picture(results, pick, only, sampled)], about=about)
    ordered = sorted(blocks(results, pick, sampled), key=lambda b: not isinstance(b, Flame))
    return Document(title, ordered, about=about)
