"""Renders a document as lines of a given width. No figure is cut: columns are left out by rank instead.

On a terminal, a document fits on one screen: minor sections are left out first, the answer stays. A file
gets all of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from dbdyno.model.text.visible import lines as lines_of
from dbdyno.model.text.visible import one_line
from dbdyno.model.units import counted
from dbdyno.present.document.document import (
    UNKNOWN,
    Block,
    Choice,
    Column,
    Document,
    Paragraph,
    Row,
    Section,
    Statements,
    Table,
    Tone,
    Verbatim,
)

_STYLES: dict[Tone, str] = {
    "": "",
    "note": "",
    "good": "green",
    "warning": "yellow",
    "invalid": "red",
    "muted": "dim",
}
_MARKS: dict[Tone, str] = {"warning": "!", "invalid": "!"}
_GAP = "  "
_UNITS = re.compile(r"(?<=\d) (?=%|(?:[kMG]|[mun]?s|min)\b)")
"""Spaces between a number and its unit, at which lines do not break."""
_FILLER = "\ufdd0"  # a Unicode noncharacter
"""Inserted after a character that is two columns wide, so that lengths are columns; removed before
printing."""
_LEAST, _SHORTENED = 16, 24
"""Least width of a column that wraps, and of one that shortens."""


SCREEN = 22
"""Lines of a document on a terminal of 25 lines; the others show the path of the page and the observer's
cost."""


class Room(NamedTuple):
    """The content that a screen has room for."""

    minor: bool = True
    """Whether minor sections are shown."""
    rows: int | None = None
    """Most rows of a table; ``None`` for all."""
    advice: bool = True
    """Whether the advice of claims is shown."""
    lead: int | None = None
    """Most paragraphs of the answer; ``None`` for all."""


_ALL = Room()
_ROOMS = (
    _ALL,
    Room(minor=False),
    Room(minor=False, rows=12),
    Room(minor=False, rows=12, advice=False),
    Room(minor=False, rows=12, advice=False, lead=1),
    Room(minor=False, rows=8, advice=False, lead=1),
    Room(minor=False, rows=5, advice=False, lead=1),
)


class Line(NamedTuple):
    text: str
    style: str = ""

    def printed(self) -> Text:
        return Text(self.text, style=self.style, no_wrap=True, overflow="ignore")


class Printed:
    """A document, or blocks of one, that rich prints at the width of its console."""

    def __init__(self, shown: Document | Sequence[Block]) -> None:
        self.shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        if not isinstance(self.shown, Document):
            rendered: Iterable[Line] = lines(self.shown, width)
        elif console.is_terminal:
            rendered = on_screen(self.shown, width)
        else:
            rendered = document(self.shown, width)
        yield from (n.printed() for n in rendered)


class Running:
    """A table whose rows are printed as they come, with columns of fixed width."""

    def __init__(self, columns: Sequence[Column], width: int) -> None:
        widths = [max(c.width, len(_filled(c.head))) for c in columns]
        self._kept = _kept(columns, widths, width)
        self._columns = [columns[n] for n in self._kept]
        self._widths = [widths[n] for n in self._kept]

    def head(self) -> Line:
        return Line(
            next(_lines([_filled(c.head) for c in self._columns], self._columns, self._widths)), "bold"
        )

    def row(self, row: Row) -> Line:
        texts = [_filled(row.cells[n].text) for n in self._kept]
        return Line(next(_lines(texts, self._columns, self._widths)), _STYLES[row.tone])


def on_screen(shown: Document, width: int, most: int = SCREEN) -> list[Line]:
    """Returns the document in at most ``most`` lines: details are left out first, then rows and advice."""
    rendered: list[Line] = []
    for room in _ROOMS:
        rendered = [*document(shown, width, room)]
        if len(rendered) <= most:
            return rendered
    after = [*_after(shown, width, _ROOMS[-1])]
    return [*rendered[: most - len(after) - 1], Line("..."), *after]


def document(shown: Document, width: int, room: Room = _ALL) -> Iterator[Line]:
    """Yields title, answer, blocks without details, and pointers to the rest."""
    yield from _wrapped(shown.title, width, "bold")
    answers = [p for p in shown.lead if p.lead][: room.lead]
    lead = [p for p in shown.lead if not p.lead or p in answers]
    yield from lines([*lead, *shown.blocks], width, room)
    yield from _after(shown, width, room)


def _after(shown: Document, width: int, room: Room) -> Iterator[Line]:
    left = [b.title for b in shown.blocks if isinstance(b, Section) and b.minor and b.title]
    if left and not room.minor:
        yield from _wrapped(f"Further: {'; '.join(left)}. All of it: append | less", width, "dim")
    yield from lines(shown.more, width)


def lines(blocks: Iterable[Block], width: int, room: Room = _ALL) -> Iterator[Line]:
    """Yields blocks one below the other, with a blank line before a table with a title."""
    for n, block in enumerate(blocks):
        match block:
            case Paragraph():
                yield from _wrapped(block.text, width, _STYLES[block.tone])
            case Statements():
                yield from _statements(block, width, room.advice)
            case Table():
                if block.title and n:
                    yield Line("")
                yield from _table(block, width, room.rows)
            case Verbatim():
                yield from (Line(one_line(t)) for t in lines_of(block.text))
            case Choice() if block.options:
                yield from lines(block.options[0].blocks, width, room)
            case Section(folded=False, detail=False) if room.minor or not block.minor:
                inner = list(lines(block.blocks, width, room))
                if inner and (n or block.title):
                    yield Line("")
                if inner and block.title:
                    yield from _wrapped(block.title, width, "bold")
                yield from inner
            case _:
                pass  # drawings: tables hold their figures


def _wrapped(text: str, width: int, style: str = "", indent: str = "", first: str = "") -> Iterator[Line]:
    """Yields lines that end at a word."""
    indent = indent if width > 2 * len(indent) else ""
    for paragraph in lines_of(text):
        joined = _UNITS.sub("\N{NO-BREAK SPACE}", _filled(paragraph))
        for part in wrap(
            joined,
            max(width, 1),
            initial_indent=first,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        ):
            yield Line(_unfilled(part).replace("\N{NO-BREAK SPACE}", " "), style)


def _filled(text: str) -> str:
    line = one_line(text)
    return line if line.isascii() else "".join(c + _FILLER * (cell_len(c) - 1) for c in line)


def _unfilled(text: str) -> str:
    return text.replace(_FILLER, "")


def _statements(shown: Statements, width: int, advice: bool) -> Iterator[Line]:
    for item in shown.items:
        evidence = f"  ({item.evidence})" if item.evidence else ""
        text = f"{_MARKS.get(item.tone, '-')} {item.text}{evidence}"
        yield from _wrapped(text, width, _STYLES[item.tone], indent="  ")
        if advice:
            yield from _wrapped(item.advice, width, "dim", indent="  ", first="  ")


def _table(shown: Table, width: int, most: int | None) -> Iterator[Line]:
    """Yields a line per row, then a note on the columns and rows that are left out."""
    table = shown.shown(sketches=True)
    main = [r for r in table.rows if not r.minor]
    major = (_spread_rows if table.along_axis else _first_rows)(main, most)
    rows = [[_filled(c.text) for c in r.cells] for r in major]
    heads = [_filled(c.head) for c in table.columns]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)] if heads else []
    kept = _kept(_ranked(table, major), widths, width)
    fitted = _fitted([table.columns[n] for n in kept], [widths[n] for n in kept], width)
    columns = [table.columns[n] for n in kept]
    if table.title:
        yield from _wrapped(table.title, width, "underline")
    if any(heads):
        yield from (Line(t, "dim") for t in _lines([heads[n] for n in kept], columns, fitted))
    for row, texts in zip(major, rows, strict=True):
        for text in _lines([texts[n] for n in kept], columns, fitted):
            yield Line(text, _STYLES[row.tone])
    yield from _wrapped(_left_out(table, kept, len(main), len(major)), width, "dim")


def _first_rows(rows: list[Row], most: int | None) -> list[Row]:
    """Returns the first rows, and key rows such as a sum below."""
    if most is None or len(rows) <= most:
        return rows
    after = [r for r in rows[most:] if r.key][-most:]
    return rows[: most - len(after)] + after


def _spread_rows(rows: list[Row], most: int | None) -> list[Row]:
    """Returns the first row, the last, key rows, and some in between."""
    if most is None or len(rows) <= most:
        return rows
    step, last = (len(rows) - 1) / (most - 1), len(rows) - 1
    kept = {round(n * step) for n in range(most)}
    for key in (n for n, r in enumerate(rows) if r.key and n not in kept):
        between = [n for n in kept if 0 < n < last and not rows[n].key]
        if between:
            kept = kept - {min(between, key=lambda n: abs(n - key))} | {key}
    return [rows[n] for n in sorted(kept)]


def _ranked(table: Table, rows: Sequence[Row]) -> list[Column]:
    """Returns the columns, those whose figures are all unknown with the highest rank."""
    highest = 1 + max((c.rank for c in table.columns), default=0)
    unknown = [c.number and {r.cells[n].text for r in rows} == {UNKNOWN} for n, c in enumerate(table.columns)]
    return [c._replace(rank=highest) if u else c for c, u in zip(table.columns, unknown, strict=True)]


def _kept(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """Returns the indexes of the columns that fit into a line. If those without a rank do not, their figures
    are left out from the right, the first one last."""
    kept = list(range(len(columns)))
    least = [min(w, _least(c, w)) for c, w in zip(columns, widths, strict=True)]

    def fits() -> bool:
        return sum(least[n] + len(_GAP) for n in kept) - len(_GAP) <= width

    for rank in sorted({c.rank for c in columns if c.rank}, reverse=True):
        if fits():
            return kept
        kept = [n for n in kept if columns[n].rank != rank]
    for n in reversed([n for n in kept if n and columns[n].number][1:]):
        if fits():
            return kept
        kept.remove(n)
    return kept


def _fitted(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """Returns the widths of columns: those that wrap or shorten share the width that the others leave."""
    fitted = list(widths)
    for n in (n for n, c in enumerate(columns) if c.wraps or c.shortens):
        over = sum(fitted) + len(_GAP) * (len(fitted) - 1) - width
        fitted[n] = max(min(_least(columns[n], fitted[n]), fitted[n]), fitted[n] - max(0, over))
    return fitted


def _least(column: Column, width: int) -> int:
    return _LEAST if column.wraps else _SHORTENED if column.shortens else width


def _lines(texts: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> Iterator[str]:
    cells = [_within(t, c, w) for t, c, w in zip(texts, columns, widths, strict=True)]
    for n in range(max(map(len, cells), default=0)):
        parts = [_unfilled(cell[n]) if n < len(cell) else "" for cell in cells]
        gaps = [" " * (w - cell_len(p)) for p, w in zip(parts, widths, strict=True)]
        aligned = [g + p if c.number else p + g for p, g, c in zip(parts, gaps, columns, strict=True)]
        yield _GAP.join(aligned).rstrip()


def _within(text: str, column: Column, width: int) -> list[str]:
    """Returns the lines of a cell; only texts that wrap have several."""
    if len(text) <= width or not (column.wraps or column.shortens):
        return [text]
    if column.shortens:
        kept = width - 2 if text[width - 1] == _FILLER else width - 1
        return [f"{text[:kept]}…"]
    # One column less with wide characters: a cut before a filler moves it to the next line.
    return wrap(text, width - (_FILLER in text), break_on_hyphens=False)


def _left_out(table: Table, kept: Sequence[int], main: int, shown: int) -> str:
    heads = [c.head for n, c in enumerate(table.columns) if n not in kept and c.head]
    notes = [f"Not shown at this width: {', '.join(dict.fromkeys(heads))}."] if heads else []
    notes += [f"{main - shown} of {main} rows not shown."] if shown < main else []
    minor = len(table.rows) - main
    notes += [f"{counted(minor, 'smaller row')} not shown."] if minor else []
    return " ".join(notes)
