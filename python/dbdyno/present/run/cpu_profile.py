"""Where CPU time went, and where sessions slept: by code, session, wait event, statement; flame graphs."""

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
from dbdyno.present.figures import selection
from dbdyno.present.figures.figures import percent, work_short
from dbdyno.present.figures.selection import Pick, rows_of
from dbdyno.present.run.statements import texts_of

CLAIM = "cpu-profile"


class Sampled(NamedTuple):
    """Stacks that were sampled, and what they stand for."""

    table: str
    stacks: str
    source: DataSource
    time: str
    head: str
    flame: str
    scaled: str
    kinds: tuple[str, ...]  # of tables in the page; the first two are not folded


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
"""Rows of a table in a page; the export holds all."""
_HEADS = {n: n for n in KINDS} | {"wait": "{~wait_event}"}
_Row = dict[str, Any]
_Columns = list[tuple[Column, Callable[[_Row], Cell]]]


def there(results: Results, of: Sampled = CPU) -> bool:
    """Whether such a profile was taken."""
    return bool(results.tables.get(of.table, empty(of.table)).height)


def pick_of(results: Results, cell: str | None = None, of: Sampled = CPU) -> Pick:
    """As :func:`selection.pick_of`. Raises :class:`UsageError`: the run has no such profile."""
    pick = selection.pick_of(results, cell)
    if pick is None or not there(results, of):
        raise UsageError(
            f"run {results.info.id} has no {_named(of)}: {why(results, of)}",
            f"measure with it: dbdyno run {_flag(of)}, under load",
        )
    return pick


def _named(of: Sampled) -> str:
    return of.source.name


def _flag(of: Sampled) -> str:
    return of.source.option.flag if of.source.option else ""


def blocks(results: Results, pick: Pick, of: Sampled = CPU) -> list[Block]:
    """For a page: by module (sleep: by wait event) and by function, the flame graph, the rest folded."""
    frame = _rows(results, pick, of)
    if frame.is_empty():
        return [Paragraph(f"No {_named(of)} {pick.at}: {why(results, of)}.", "muted")]
    kinds = of.kinds
    first, more = ([by_kind(results, pick, by, SHOWN, of) for by in part] for part in (kinds[:2], kinds[2:]))
    heads = [fill(_HEADS[k]) for k in kinds[2:]]
    title = f"{capital(of.time)} by {', '.join(heads[:-1])} and {heads[-1]}"
    folded = Section(title, more, folded=True)
    return [*first, picture(results, pick, of=of), folded, *remarks(notes(results, frame, of))]


def sleep_blocks(results: Results, pick: Pick) -> list[Block]:
    """For a page: where the sessions slept."""
    return blocks(results, pick, SLEEP)


def by_kind(results: Results, pick: Pick, by: str, most: int | None = None, of: Sampled = CPU) -> Table:
    """Rows of one kind, the largest first."""
    rows = _rows(results, pick, of).filter(pl.col("by") == by)
    whole = float(rows["aas"].sum())
    rest = pl.col("name").is_in([NOT_SAMPLED, OTHERS])
    rows = rows.sort(rest, "aas", "total", descending=[False, True, True], maintain_order=True)
    shown = rows if most is None else pl.concat([rows.filter(~rest).head(most), rows.filter(rest)])
    unit = _unit(results, pick, rows)
    whose = f"{capital(of.time)} of the {noun('owners')} {pick.at}"
    head = f"{whose} by {fill(_HEADS[by])}: {significant(whole)} s per second"
    told = texts_of(results) if by == "statement" else {}
    texts = {str(i): text for i, (text, _) in told.items() if text}
    return table(head, _columns(by, whole, unit, texts, of), shown.to_dicts())


def picture(results: Results, pick: Pick, only: Mapping[str, str] | None = None, of: Sampled = CPU) -> Flame:
    """The flame graph. ``only``: as in :func:`flame.stacks`; raises :class:`UsageError` where none is so."""
    rows = flame.stacks(results, pick, only, tables=(of.table, of.stacks))
    if only and rows.is_empty():
        raise _nothing(results, pick, only, of)
    root = flame.tree(rows)
    scale, unit = _scale(results, pick, of)
    under = "" if of is CPU else f", the outermost on its {noun('wait_event')}"
    caption = (
        f"Width is {of.time}; a frame stands on its caller{under}. Click or Enter zooms, arrow keys move, / "
        "searches, Escape shows all."
    )
    title = f"Flame graph of the {noun('owners')}' {of.time} {pick.at}{_among(only)}"
    return flame.block(f"{of.flame}-{pick.key}", title, caption, root, (scale, unit))


def _among(only: Mapping[str, str] | None) -> str:
    return "".join(f", {fill(_HEADS[n])} {value}" for n, value in (only or {}).items())


def _nothing(results: Results, pick: Pick, only: Mapping[str, str], of: Sampled) -> UsageError:
    frame = _rows(results, pick, of).sort("aas", descending=True)
    there = [frame.filter(pl.col("by") == n)["name"].drop_nulls().to_list() for n in only]
    words = " and ".join(f"{fill(_HEADS[n])} {v!r}" for n, v in only.items())
    listed = "; ".join(
        f"{fill(_HEADS[n])}: {', '.join(t[:12]) or 'none'}" for n, t in zip(only, there, strict=True)
    )
    return UsageError(f"no sample {pick.at} of {words}", f"those of the profile: {listed}")


def hot(results: Results, pick: Pick, by: str, most: int, of: Sampled = CPU) -> Document:
    """What ``dbdyno hot`` prints."""
    frame = _rows(results, pick, of)
    if frame.is_empty():
        return Document("", [Paragraph(f"No {_named(of)} {pick.at}: {why(results, of)}.")])
    return Document("", [by_kind(results, pick, by, most, of), *remarks(notes(results, frame, of))])


def hot_rows(results: Results, pick: Pick, by: str, of: Sampled = CPU) -> list[_Row]:
    """The same as data: the rows of the table."""
    frame = _rows(results, pick, of).filter(pl.col("by") == by)
    return frame.sort("aas", "total", descending=True, maintain_order=True).to_dicts()


def why(results: Results, of: Sampled = CPU) -> str:
    """Why there is none."""
    row = results.tables["sources"].filter(pl.col("name") == _named(of))
    told = row.filter(pl.col("status") != "ok")
    if told.height:
        return str(told["detail"][0]) or str(told["status"][0])
    return "no sample met the server" if row.height else f"the run was measured without: {_flag(of)}"


def notes(results: Results, frame: pl.DataFrame, of: Sampled = CPU) -> list[str]:
    """How many samples, how stacks were taken, what was cut or not sampled."""
    stacks = {r["name"]: r for r in frame.filter(pl.col("by") == "stack").to_dicts()}
    count = sum(r["samples"] for r in stacks.values())
    whole = sum(r["aas"] for r in stacks.values())
    told = results.tables["sources"].filter((pl.col("name") == _named(of)) & pl.col("status").is_in(READ))
    how = f" ({str(told['detail'][0]).partition(';')[0]})" if told.height and told["detail"][0] else ""
    made = [
        f"{counted(count, 'sample')}{how}, scaled to {fill(of.scaled)}. Intervals are 95 %; total includes "
        "callees."
    ]
    if lost := max((r["lost"] or 0.0 for r in stacks.values()), default=0.0):
        made.append(
            f"{percent(lost, 1.0, 1)} % of the samples are missing: intervals hold them wherever they belong."
        )
    cut, missing = stacks.get("cut"), stacks.get(NOT_SAMPLED)
    if cut is not None and whole:
        made.append(
            f"{percent(cut['aas'], whole)} % of {of.time} has stacks that were cut: the callers are unknown."
        )
    if missing is not None and whole and missing["aas"] > 0.005 * whole:
        share = percent(missing["aas"], whole)
        missed = (
            "no sample of its tasks, or none of their mode"
            if of is CPU
            else f"no sample of its {noun('wait_event')}"
        )
        made.append(f"{share} % of {of.time} was not sampled: {missed}.")
    return made


def _rows(results: Results, pick: Pick, of: Sampled = CPU) -> pl.DataFrame:
    return rows_of(results, of.table, pick).filter(pl.col("scope") == "rung")


def _unit(results: Results, pick: Pick, rows: pl.DataFrame) -> tuple[str, str]:
    """Column of cost per unit, and the unit's name: of work, else a call."""
    if rows["per_work_ns"].is_not_null().any():
        return "per_work_ns", work_short(results, pick.rung[0])
    return "per_call_ns", noun("call")


def _scale(results: Results, pick: Pick, of: Sampled = CPU) -> tuple[float, str]:
    """What a second per second of the pick is per unit of work; without one it stays what it is."""
    rows = _rows(results, pick, of).filter((pl.col("by") == "function") & (pl.col("aas") > 0))
    column, name = _unit(results, pick, rows)
    costs = rows.drop_nulls(column)
    if costs.is_empty():
        return 1.0, "s per second"
    return float(costs[column][0]) / float(costs["aas"][0]), f"ns per {name}"


def _columns(by: str, whole: float, unit: tuple[str, str], texts: Mapping[str, str], of: Sampled) -> _Columns:
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
        (numeric(of.head), _share("aas", whole, bar=True)),
        (numeric("95 %", 3), lambda r: word(_interval(r, whole))),
        *(code if by in ("function", "module") else []),
        *(kernel if of is CPU else []),
        (numeric("s/s", 5), lambda r: known(r["aas"], significant, "s/s")),
        (numeric(f"per {name}", 2), lambda r: Cell("") if r[column] is None else _cost(r, column)),
    ]  # fmt: skip


def _name(name: str | None, texts: Mapping[str, str]) -> str:
    """A statement's text in one line."""
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


# Why a unit of work takes more CPU.


def cost_tables(change: CostChange, most: int | None = None) -> list[Block]:
    """By module and by function, the largest change first."""
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
    """The tables, and a differential flame graph: colours are differences, widths the larger of both."""
    sides = []
    for results, pick in ((b, second), (a, first)):
        scale, unit = _scale(results, pick)
        sides.append(flame.stacks(results, pick, only).with_columns(pl.col("aas") * scale))
    caption = (
        f"Width is CPU time per {change.unit}, the larger of both. Red: more than {change.baseline}; blue: "
        "less. Click or Enter zooms, arrow keys move, / searches, Escape shows all."
    )
    if only and all(side.is_empty() for side in sides):
        raise _nothing(b, second, only, CPU)
    title = f"CPU time per {change.unit}{_among(only)}: {change.variant} against {change.baseline}"
    picture = flame.block("flame-difference", title, caption, flame.tree(*sides), (1.0, unit), compared=True)
    return Document(title, [picture, *([] if only else cost_tables(change, SHOWN))])


def page(results: Results, pick: Pick, only: Mapping[str, str] | None = None, of: Sampled = CPU) -> Document:
    """The profile by itself, as ``dbdyno flame`` writes it."""
    title = f"{capital(_named(of))} of run {results.info.id}"
    if only:
        return Document(title, [picture(results, pick, only, of)])
    made = sorted(blocks(results, pick, of), key=lambda b: not isinstance(b, Flame))
    return Document(title, made)
