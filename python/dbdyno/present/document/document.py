"""Defines the document: everything to be shown, as data, one :class:`Document` for every medium.

A builder makes the document of one kind (a comparison, a placement, ...). A renderer of the folder
``media`` shows documents of all kinds in one medium and knows no kind. So a document states the role of a
thing (a claim, a column of numbers, a detail to be folded away), never its look; blocks that only some
media can show are marked.

Blocks stand in reading order. A document begins with its answer (``title``, ``lead``, ``figures``), goes
on with sections, and ends with folded ones.
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
    """A value with its text and unit."""

    text: str
    value: Value = None
    """``None`` if the value is unknown or the cell is empty."""
    unit: str = ""
    note: str = ""
    """The interval of the value, or the reason why it is unknown; shown on hovering."""
    tone: Tone = ""
    bar: Sequence[tuple[float, str]] = ()
    """Shares of a whole and their colours, drawn below or instead of the text."""
    whole: str = ""
    """A longer text that a page shows on demand."""
    target: str = ""
    """The id of the block, or the address of the page as in :class:`Statement`, that has more about it."""


def word(text: str | None, note: str = "") -> Cell:
    """Returns a cell of text."""
    return Cell(text or "", text or None, note=note)


def known(value: float | None, text: Callable[[float], str], unit: str = "", note: str = "") -> Cell:
    """Returns a cell with ``value`` as ``text`` writes it, or ``?`` if it is None."""
    shown = UNKNOWN if value is None else text(value)
    return Cell(shown, value, unit, note)


def optional(value: float | None, text: Callable[[float], str], unit: str = "") -> Cell:
    """Returns the same cell, but an empty one if ``value`` is None."""
    return Cell("", None, unit) if value is None else known(value, text, unit)


def figure_cell(
    name: str, text: Callable[[float], str], unit: str = ""
) -> Callable[[Mapping[str, Any]], Cell]:
    """Returns a function from a row to the cell of its column ``name``."""
    return lambda row: known(row[name], text, unit)


class Column(NamedTuple):
    head: str
    number: bool = False
    """Aligned to the right."""
    rank: int = 0
    """0 if the column is always shown; one column at least has 0. Where a line is too long, columns of the
    highest rank are left out first, and named."""
    wraps: bool = False
    """Whether a text may go on in the next line."""
    sketch: bool = False
    """Whether the column is a drawing of characters, for media without graphics."""
    shortens: bool = False
    """Whether a text may be cut at its end."""
    width: int = 0
    """Characters where rows are printed one by one; 0 leaves the column out there."""
    name: str = ""
    """The heading where there is room for a long one."""
    note: str = ""
    """An explanation of the column."""
    kinds: tuple[str, ...] = ()
    """Kinds of runs, or their tags, that have the column (:mod:`dbdyno.model.plan.kinds`); empty for all."""
    side: Literal["", "a", "b"] = ""
    """The side of a comparison that its figures are of: A, the baseline, or B."""


def numeric(head: str, rank: int = 0) -> Column:
    """Returns a column of numbers."""
    return Column(head, number=True, rank=rank)


class Row(NamedTuple):
    cells: Sequence[Cell]
    tone: Tone = ""
    minor: bool = False
    """Whether the row is left out where space is short; a note then counts such rows."""
    key: bool = False
    """Whether the row is kept where others are left out."""
    id: str = ""
    """Unique in its document; claims refer to it."""


@dataclass(frozen=True)
class Table:
    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    named: bool = False
    """Whether each row is a single line of a name and figures, without wrapping."""
    along_axis: bool = False
    """Whether rows follow load, size or time. Then rows are left out evenly where there is no room for
    all; otherwise the first rows are the most important."""
    in_title_block: bool = False
    """Whether ``Document.about`` has the same facts: media with a title block leave the table out."""

    def with_common_source(self) -> Table:
        """Moves the column ``source`` into the title if all rows have the same source."""
        source = next((n for n, c in enumerate(self.columns) if c.head == "source"), None)
        texts = set() if source is None else {r.cells[source].text for r in self.rows} - {""}
        if source is None or len(texts) != 1 or len(self.rows) < 2:
            return self
        title = f"{self.title}; source: {texts.pop()}".removeprefix("; ")
        return replace(self._of([n for n in range(len(self.columns)) if n != source]), title=title)

    def without_constants(self) -> tuple[Table, list[tuple[str, str]]]:
        """Leaves out columns of texts that are the same in all rows, after the first column.

        Also returns their headings and texts. A table of one row keeps all columns.
        """
        texts = [{r.cells[n].text for r in self.rows} for n in range(len(self.columns))]
        same = [
            n
            for n, c in enumerate(self.columns)
            if n and not c.number and c.head and len(self.rows) > 1 and len(texts[n]) == 1
            if not texts[n] & {"", UNKNOWN} and not any(r.cells[n].tone or r.cells[n].bar for r in self.rows)
        ]
        kept = [n for n in range(len(self.columns)) if n not in same]
        pairs = [(self.columns[n].name or self.columns[n].head, self.rows[0].cells[n].text) for n in same]
        return self._of(kept), pairs

    def _of(self, kept: Sequence[int]) -> Table:
        rows = [r._replace(cells=[r.cells[n] for n in kept]) for r in self.rows]
        return replace(self, columns=[self.columns[n] for n in kept], rows=rows)

    def shown(self, sketches: bool, bars: bool = False) -> Table:
        """Returns the table without empty columns and a common source; sketches and bars are optional."""
        return self.with_common_source()._filled(sketches, bars)

    def _filled(self, sketches: bool, bars: bool) -> Table:
        kept = [
            n
            for n, c in enumerate(self.columns)
            if (sketches or not c.sketch)
            and (not self.rows or any(r.cells[n].text or (bars and r.cells[n].bar) for r in self.rows))
        ]
        return self._of(kept)

    def without_unknown(self, mark: str = UNKNOWN) -> Table:
        """Leaves out columns without any known figure; a remark beside the table has to name them.

        ``mark`` is the text of cells without a figure.
        """
        texts = [{r.cells[n].text for r in self.rows} for n in range(len(self.columns))]
        return self._of([n for n, t in enumerate(texts) if mark not in t or t - {mark, ""}])


def table(
    title: str,
    columns: Sequence[tuple[Column, Callable[[T], Cell]]],
    items: Iterable[T],
    named: bool = False,
    along_axis: bool = False,
) -> Table:
    """Returns a table with one row per item, and the columns that the current kind of run has.

    Each column comes with the function that returns its cell. Slots for nouns in the texts of columns are
    filled.
    """
    columns = [(c, cell) for c, cell in columns if current_kind().among(c.kinds)]
    return Table(
        title,
        [c._replace(head=fill(c.head), name=fill(c.name), note=fill(c.note)) for c, _ in columns],
        [Row([cell(i) for _, cell in columns]) for i in items],
        named,
        along_axis,
    )


def facts(title: str, pairs: Iterable[tuple[str, str | None]]) -> Table:
    """Returns a table of names and values; pairs without a value are left out."""
    rows = [Row([word(name), word(value)]) for name, value in pairs if value]
    return Table(title, (Column(""), Column("", wraps=True)), rows)


def texts(title: str, heads: Sequence[str], rows: Iterable[Sequence[str | None]]) -> Table:
    """Returns a table of texts."""
    return Table(title, [Column(h, wraps=True) for h in heads], [Row([word(t) for t in r]) for r in rows])


@dataclass(frozen=True)
class Paragraph:
    text: str
    tone: Tone = ""
    lead: bool = False
    """Whether the paragraph is an answer rather than a remark."""
    links: Sequence[tuple[str, str]] = ()
    """Parts of the text in their order, each with the id of the block that shows its figure, or the address
    of a page as in :class:`PageLink`."""


class PageLink(NamedTuple):
    """A further page, if a server shows the document. ``kind``: the word before all of its kind, as
    ``Tables``. ``address`` begins with a slash."""

    kind: str
    text: str
    address: str


def links_by_kind(pages: Iterable[PageLink], tone: Tone = "") -> Paragraph:
    """Returns ``Explained: peak. Tables: windows, rungs.`` with its links; of several with one text the first
    one's."""
    kinds: dict[str, dict[str, str]] = {}
    for kind, text, address in pages:
        kinds.setdefault(kind, {}).setdefault(text, address)
    words = " ".join(f"{kind}: {', '.join(links)}." for kind, links in kinds.items())
    return Paragraph(words, tone, links=[link for links in kinds.values() for link in links.items()])


class Statement(NamedTuple):
    """A claim, or the reason why there is none."""

    text: str
    title: str = ""
    evidence: str = ""
    tone: Tone = ""
    id: str = ""
    advice: str = ""
    """An action that the reader can take."""
    note: str = ""
    """The interval of the claim and its evidence; shown where there is room."""
    target: str = ""
    """The id of the chart, row or section that shows the figure of the claim."""
    pages: Sequence[PageLink] = ()


@dataclass(frozen=True)
class Statements:
    """A list of claims."""

    items: Sequence[Statement]
    brief: bool = False
    """Whether a page shows only the texts at first, and the rest of each claim on demand."""


class KeyFigure(NamedTuple):
    name: str
    cell: Cell
    note: str = ""
    target: str = ""
    """The id of the block that shows the figure in full."""


class Key(NamedTuple):
    """An entry of the legend. It is text: it wraps on a phone and screen readers can read it."""

    label: str
    colour: str
    mark: Literal["fill", "line", "dash", "dots", "dot"] = "line"
    opacity: float = 1.0


@dataclass(frozen=True)
class Chart:
    """A chart as a Vega-Lite specification."""

    id: str  # unique in its document
    title: str
    caption: str  # one sentence on what the reader should see
    spec: dict[str, Any]
    legend: Sequence[Key] = ()
    log: bool = False  # offers a logarithmic scale
    wide: bool = False  # takes the whole width of the page
    marks: int = 1  # least number of data points that it draws, which tests check in a browser
    other: Chart | None = None
    """The same figures in another form: a page has a button with its title that shows it instead. Paper and
    other media have the first form alone."""


@dataclass(frozen=True)
class Drawing:
    """A drawing as SVG without script; the markup is already safe."""

    svg: str
    caption: str = ""


@dataclass(frozen=True)
class Strip:
    """Sessions over time, one row each. Each piece of a row is split by where its time went."""

    id: str  # unique in its document
    title: str
    caption: str
    parts: Sequence[tuple[str, str]]
    """Name and colour of each part, the lowest first; a part without a colour is not drawn."""
    names: Sequence[str]
    """Names of the rows."""
    pieces: Sequence[Sequence[Sequence[int] | None]]
    """Percentage of each part, by row and piece; ``None`` for a piece without data."""
    start_s: float
    end_s: float
    left_out: int = 0
    """Number of rows without room."""
    marks: Sequence[tuple[float, str]] = ()
    """Moments as pairs of a second and its event."""
    clock_ms: int | None = None
    """Second 0 in milliseconds of wall-clock time, if the axis has that."""


@dataclass(frozen=True)
class Flame:
    """A flame graph: stacks as a tree of frames."""

    id: str  # unique in its document
    title: str
    caption: str
    names: Sequence[str]
    """Texts of frames: ``module`function``."""
    root: Sequence[Any]
    """A frame as a list: index of its name, value, difference to the compared run, frames that it calls."""
    colours: Mapping[str, str]
    """Name of a colour by module."""
    scale: float
    """Factor from a value to the unit."""
    unit: str
    compared: bool = False


@dataclass(frozen=True)
class Verbatim:
    """A text whose lines are kept."""

    text: str
    sketch: bool = False
    """Whether the text is a drawing of characters, for media without graphics."""


class Option(NamedTuple):
    key: str
    """A key shared by all choices of a document; a page switches them together with one selector."""
    label: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Choice:
    """The same blocks for one of several loads or windows: a page has a selector, other media show the
    first."""

    name: str
    options: Sequence[Option]
    note: str = ""
    """A remark on what is left out."""
    labels: Sequence[tuple[str, str]] = ()
    """Keys and labels of all options, where a server sends one of them at a time: that of the parameter
    ``show`` of the address."""


@dataclass(frozen=True)
class Section:
    title: str
    blocks: Sequence[Block]
    id: str = ""
    folded: bool = False
    """Whether it is a detail: a page opens it on demand, a terminal leaves it out."""
    detail: bool = False
    """Whether a terminal leaves it out."""
    minor: bool = False
    """Whether a terminal leaves it out where lines are few; the terminal then names it."""
    name: str = ""
    """A short title for the table of contents."""


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
    about: Sequence[tuple[str, str]] = ()
    """Names and values below the answer, on a page: workload, when, server, host, duration, repeats."""
    more: Sequence[Paragraph] = ()
    """Pointers to the rest, for media that leave details out."""


def walk(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yields every block, and after a section or choice the blocks inside it."""
    for block in blocks:
        yield block
        if isinstance(block, Section):
            yield from walk(block.blocks)
        elif isinstance(block, Choice):
            yield from walk(b for option in block.options for b in option.blocks)


def remarks(texts: Iterable[str]) -> list[Paragraph]:
    """Returns each text as a muted paragraph."""
    return [Paragraph(t, "muted") for t in texts]
