"""What is to be shown, as data: one :class:`Document` for every medium.

A builder makes the document of one kind (a comparison, a placement, ...); a renderer of the folder ``media``
shows documents of all kinds in one medium and knows no kind. So a document says what a thing *is* (a claim, a
column of numbers, a detail to be folded away), never how it looks; what only some media can show is marked.

Blocks stand in reading order. A document begins with its answer (``title``, ``lead``, ``figures``), goes on
with sections, and ends with folded ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeVar

from dbdyno.model.plan.kinds import current_kind
from dbdyno.model.text.nouns import fill

UNKNOWN = "?"
Tone = Literal["", "good", "note", "warning", "invalid", "muted"]
Value = float | str | None
T = TypeVar("T")


class Cell(NamedTuple):
    """A value, how it is written, and its unit."""

    text: str
    value: Value = None
    """``None``: unknown, or nothing."""
    unit: str = ""
    note: str = ""
    """Its interval, or why it is unknown: shown where there is a pointer."""
    tone: Tone = ""
    bar: Sequence[tuple[float, str]] = ()
    """Shares of a whole and their colours, drawn below or instead of the text."""


def word(text: str | None, note: str = "") -> Cell:
    return Cell(text or "", text or None, note=note)


def known(value: float | None, text: Callable[[float], str], unit: str = "", note: str = "") -> Cell:
    """``value`` as ``text`` writes it; ``?`` where it is unknown."""
    shown = UNKNOWN if value is None else text(value)
    return Cell(shown, value, unit, note)


def optional(value: float | None, text: Callable[[float], str], unit: str = "") -> Cell:
    """The same; nothing where there is no value."""
    return Cell("", None, unit) if value is None else known(value, text, unit)


class Column(NamedTuple):
    head: str
    number: bool = False
    """Aligned to the right."""
    rank: int = 0
    """0: always shown, as one at least is. Where a line is too long the highest go first, and are named."""
    wraps: bool = False
    """A text that may go on in the next line."""
    sketch: bool = False
    """A drawing made of characters: only where there are no drawings."""
    shortens: bool = False
    """A text that may lose its end."""
    width: int = 0
    """Characters, where rows are printed one by one; 0: not shown there."""
    name: str = ""
    """The head where there is room for it."""
    note: str = ""
    """What it means."""
    kinds: tuple[str, ...] = ()
    """Kinds of runs, or their tags, that have it (:mod:`dbdyno.model.plan.kinds`); empty: all."""


def numeric(head: str, rank: int = 0) -> Column:
    """A column of numbers."""
    return Column(head, number=True, rank=rank)


class Row(NamedTuple):
    cells: Sequence[Cell]
    tone: Tone = ""
    minor: bool = False
    """Left out where space is short, and it is said so."""
    key: bool = False
    """Kept where other rows are left out for want of lines."""
    id: str = ""
    """Unique in its document: what claims refer to."""


@dataclass(frozen=True)
class Table:
    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    named: bool = False
    """The rows are single lines of a name and figures, none of them wraps."""
    along_axis: bool = False
    """The rows follow load, size or time: where there is room for few, they are taken all along it. Else the
    first ones are the ones that count most."""

    def with_common_source(self) -> Table:
        """Where all rows are of one source, it stands in the title, and has no column."""
        found = next((n for n, c in enumerate(self.columns) if c.head == "source"), None)
        texts = set() if found is None else {r.cells[found].text for r in self.rows} - {""}
        if found is None or len(texts) != 1 or len(self.rows) < 2:
            return self
        kept = [n for n in range(len(self.columns)) if n != found]
        rows = [r._replace(cells=[r.cells[n] for n in kept]) for r in self.rows]
        title = f"{self.title}; source: {texts.pop()}".removeprefix("; ")
        return replace(self, title=title, columns=[self.columns[n] for n in kept], rows=rows)

    def shown(self, sketches: bool, bars: bool = False) -> Table:
        """Without empty columns, and without that of a source that all rows have; with or without sketches
        and bars."""
        return self.with_common_source()._filled(sketches, bars)

    def _filled(self, sketches: bool, bars: bool) -> Table:
        kept = [
            n
            for n, c in enumerate(self.columns)
            if (sketches or not c.sketch)
            and (not self.rows or any(r.cells[n].text or (bars and r.cells[n].bar) for r in self.rows))
        ]
        rows = [r._replace(cells=[r.cells[n] for n in kept]) for r in self.rows]
        return replace(self, columns=[self.columns[n] for n in kept], rows=rows)

    def without_unknown(self, mark: str = UNKNOWN) -> Table:
        """Leaves out columns in which nothing is known; what is missing has to be said beside the table.

        ``mark`` stands in cells without a figure."""
        texts = [{r.cells[n].text for r in self.rows} for n in range(len(self.columns))]
        kept = [n for n, t in enumerate(texts) if mark not in t or t - {mark, ""}]
        rows = [r._replace(cells=[r.cells[n] for n in kept]) for r in self.rows]
        return replace(self, columns=[self.columns[n] for n in kept], rows=rows)


def table(
    title: str,
    columns: Sequence[tuple[Column, Callable[[T], Cell]]],
    items: Iterable[T],
    named: bool = False,
    along_axis: bool = False,
) -> Table:
    """A row for each of ``items``; each column that this kind of run has with the way to its cell. Slots for
    nouns in the columns' texts are filled."""
    columns = [(c, cell) for c, cell in columns if current_kind().among(c.kinds)]
    return Table(
        title,
        [c._replace(head=fill(c.head), name=fill(c.name), note=fill(c.note)) for c, _ in columns],
        [Row([cell(i) for _, cell in columns]) for i in items],
        named,
        along_axis,
    )


def facts(title: str, pairs: Iterable[tuple[str, str | None]]) -> Table:
    """Names and values; those without a value are left out."""
    rows = [Row([word(name), word(value)]) for name, value in pairs if value]
    return Table(title, (Column(""), Column("", wraps=True)), rows)


def texts(title: str, heads: Sequence[str], rows: Iterable[Sequence[str | None]]) -> Table:
    """A table of nothing but texts."""
    return Table(title, [Column(h, wraps=True) for h in heads], [Row([word(t) for t in r]) for r in rows])


@dataclass(frozen=True)
class Paragraph:
    text: str
    tone: Tone = ""
    lead: bool = False
    """An answer, not a remark."""
    links: Sequence[tuple[str, str]] = ()
    """Parts of the text in their order, and the ids of what shows their figures."""


class Statement(NamedTuple):
    """A claim, or the reason why there is none."""

    text: str
    title: str = ""
    evidence: str = ""
    tone: Tone = ""
    id: str = ""
    advice: str = ""
    """What to do about it."""
    note: str = ""
    """Its interval, what it rests on: where there is room."""
    target: str = ""
    """The id of the chart, row or section that shows its figure."""


@dataclass(frozen=True)
class Statements:
    """A list of claims."""

    items: Sequence[Statement]
    brief: bool = False
    """A page shows their texts, and the rest of each on demand."""


class KeyFigure(NamedTuple):
    name: str
    cell: Cell
    note: str = ""
    target: str = ""
    """The id of what shows it in full."""


class Key(NamedTuple):
    """An entry of the legend, which is text: it wraps on a phone and can be read aloud."""

    label: str
    colour: str
    mark: Literal["fill", "line", "dash", "dot"] = "line"
    opacity: float = 1.0


@dataclass(frozen=True)
class Chart:
    """A chart as a Vega-Lite specification."""

    id: str  # unique in its document
    title: str
    caption: str  # one sentence: what to see
    spec: dict[str, Any]
    legend: Sequence[Key] = ()
    log: bool = False  # offers a logarithmic scale
    wide: bool = False  # takes the page's whole width
    marks: int = 1  # how many data points it draws at least: checked in the browser


@dataclass(frozen=True)
class Drawing:
    """A drawing that needs no code: SVG, safe as it is."""

    svg: str
    caption: str = ""


@dataclass(frozen=True)
class Strip:
    """Sessions over time as rows; each piece of a row is split into where the time went."""

    id: str  # unique in its document
    title: str
    caption: str
    parts: Sequence[tuple[str, str]]
    """Name and colour, the first at the bottom; without a colour it is not drawn."""
    names: Sequence[str]
    """Names of the rows."""
    pieces: Sequence[Sequence[Sequence[int] | None]]
    """Per row and piece the percentage of each part; ``None``: nothing is known."""
    start_s: float
    end_s: float
    left_out: int = 0
    """Rows for which there was no room."""
    marks: Sequence[tuple[float, str]] = ()
    """Moments: second, and what happened."""


@dataclass(frozen=True)
class Flame:
    """Stacks as a tree of frames: a flame graph."""

    id: str  # unique in its document
    title: str
    caption: str
    names: Sequence[str]
    """Frames: ``module`function``."""
    root: Sequence[Any]
    """A frame: number of its name, value, difference to what it is compared with, frames that it calls."""
    colours: Mapping[str, str]
    """Module -> name of a colour."""
    scale: float
    """A value times this is in the unit."""
    unit: str
    compared: bool = False


@dataclass(frozen=True)
class Verbatim:
    """A text whose lines stay as they are."""

    text: str
    sketch: bool = False
    """A drawing made of characters: only where there are no drawings."""


class Option(NamedTuple):
    key: str
    """The same in all choices of a document, which a page changes together by one selector."""
    label: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Choice:
    """The same blocks for one of several: a page has a selector, other media show the first."""

    name: str
    options: Sequence[Option]
    note: str = ""
    """What is left out."""


@dataclass(frozen=True)
class Section:
    title: str
    blocks: Sequence[Block]
    id: str = ""
    folded: bool = False
    """A detail: a page opens it on demand, a terminal leaves it out."""
    detail: bool = False
    """A terminal leaves it out."""
    minor: bool = False
    """A terminal leaves it out where lines are few, and names it."""
    name: str = ""
    """In a table of contents, where the title is long."""


Block = Paragraph | Statements | Table | Chart | Drawing | Strip | Flame | Verbatim | Choice | Section


@dataclass(frozen=True)
class Document:
    title: str
    blocks: Sequence[Block]
    lead: Sequence[Paragraph] = ()
    """The answer in words."""
    figures: Sequence[KeyFigure] = ()
    """The answer in numbers."""
    footer: str = ""
    more: Sequence[Paragraph] = ()
    """Where the rest is, for media that leave details out."""


def walk(blocks: Iterable[Block]) -> Iterator[Block]:
    """Every block, those of sections and choices after them."""
    for block in blocks:
        yield block
        if isinstance(block, Section):
            yield from walk(block.blocks)
        elif isinstance(block, Choice):
            yield from walk(b for option in block.options for b in option.blocks)


def remarks(texts: Iterable[str]) -> list[Paragraph]:
    """What to bear in mind, a paragraph each."""
    return [Paragraph(t, "muted") for t in texts]
