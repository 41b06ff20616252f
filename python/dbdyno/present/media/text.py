"""A document as lines of a given width. No figure is cut: where room is short, whole columns go, by rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from dbdyno.model.visible import one_line
from dbdyno.present.document import (
    Block,
    Column,
    Document,
    Paragraph,
    Section,
    Statements,
    Table,
    Tone,
)

_STYLES: dict[Tone, str] = {
    "": "", "note": "", "good": "green", "warning": "yellow", "invalid": "red", "muted": "dim",
}  # fmt: skip
_GAP = "  "
_LEAST = 16
"""Columns that a text which wraps is left with at least."""


class Line(NamedTuple):
    text: str
    style: str = ""


class Printed:
    """A document, or blocks of one, for rich to print at the width of its console."""

    def __init__(self, shown: Document | Sequence[Block]) -> None:
        self.shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        made = document(self.shown, width) if isinstance(self.shown, Document) else lines(self.shown, width)
        yield from (Text(n.text, style=n.style, no_wrap=True, overflow="ignore") for n in made)


def document(shown: Document, width: int) -> Iterator[Line]:
    """Title, answer, blocks; folded sections are left out."""
    yield from _wrapped(shown.title, width, "bold")
    yield from lines([*shown.lead, *shown.blocks], width)


def lines(blocks: Iterable[Block], width: int) -> Iterator[Line]:
    """Blocks one below the other; a table with a title stands apart from what is above it."""
    for n, block in enumerate(blocks):
        match block:
            case Paragraph():
                yield from _wrapped(block.text, width, _STYLES[block.tone])
            case Statements():
                yield from _statements(block, width)
            case Table():
                if block.title and n:
                    yield Line("")
                yield from _table(block, width)
            case Section(folded=False):
                inner = list(lines(block.blocks, width))
                if inner and block.title:
                    yield Line("")
                    yield from _wrapped(block.title, width, "bold")
                yield from inner
            case _:
                pass  # drawings: tables hold their figures


def _wrapped(text: str, width: int, style: str = "", indent: str = "") -> Iterator[Line]:
    """Lines that end at a word."""
    indent = indent if width > 2 * len(indent) else ""
    for paragraph in text.splitlines():
        for part in wrap(
            one_line(paragraph), max(width, 1), subsequent_indent=indent,
            break_long_words=False, break_on_hyphens=False,
        ):  # fmt: skip
            yield Line(part, style)


def _statements(shown: Statements, width: int) -> Iterator[Line]:
    for item in shown.items:
        evidence = f"  ({item.evidence})" if item.evidence else ""
        yield from _wrapped(f"- {item.text}{evidence}", width, _STYLES[item.tone], indent="  ")


def _table(shown: Table, width: int) -> Iterator[Line]:
    """A line each row; which columns and rows are left out is said below."""
    table = shown.shown(sketches=True)
    major = [r for r in table.rows if not r.minor]
    rows = [[one_line(c.text) for c in r.cells] for r in major]
    heads = [c.head for c in table.columns]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)] if heads else []
    kept = _kept(table.columns, widths, width)
    fitted = _fitted([table.columns[n] for n in kept], [widths[n] for n in kept], width)
    columns = [table.columns[n] for n in kept]
    if shown.title:
        yield from _wrapped(shown.title, width, "underline")
    yield from (Line(t, "dim") for t in _lines([heads[n] for n in kept], columns, fitted))
    for row, texts in zip(major, rows, strict=True):
        for text in _lines([texts[n] for n in kept], columns, fitted):
            yield Line(text, _STYLES[row.tone])
    yield from _wrapped(_left_out(table, kept, len(table.rows) - len(major)), width, "dim")


def _kept(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """The columns that a line has room for."""
    kept = list(range(len(columns)))
    least = [min(w, _LEAST) if c.wraps else w for c, w in zip(columns, widths, strict=True)]
    for rank in sorted({c.rank for c in columns if c.rank}, reverse=True):
        if sum(least[n] + len(_GAP) for n in kept) - len(_GAP) <= width:
            break
        kept = [n for n in kept if columns[n].rank != rank]
    return kept


def _fitted(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """Texts that wrap share what the others leave."""
    fitted = list(widths)
    for n in (n for n, c in enumerate(columns) if c.wraps):
        over = sum(fitted) + len(_GAP) * (len(fitted) - 1) - width
        fitted[n] = max(min(_LEAST, fitted[n]), fitted[n] - max(0, over))
    return fitted


def _lines(texts: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> Iterator[str]:
    cells = [
        (wrap(t, w, break_on_hyphens=False) if c.wraps and len(t) > w else [t])
        for t, c, w in zip(texts, columns, widths, strict=True)
    ]
    for n in range(max(map(len, cells), default=0)):
        parts = [cell[n] if n < len(cell) else "" for cell in cells]
        aligned = [
            p.rjust(w) if c.number else p.ljust(w) for p, c, w in zip(parts, columns, widths, strict=True)
        ]
        yield _GAP.join(aligned).rstrip()


def _left_out(table: Table, kept: Sequence[int], minor: int) -> str:
    heads = [c.head for n, c in enumerate(table.columns) if n not in kept and c.head]
    told = [f"Not shown at this width: {', '.join(heads)}."] if heads else []
    told += [f"{minor} smaller {'row' if minor == 1 else 'rows'} not shown."] if minor else []
    return " ".join(told)
