"""Tables of the live view: columns with their explanation, order, filter, search, and how they are drawn."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from dbdyno.model.engine.live import LiveColumn, LiveRows, LiveScreen, Unit
from dbdyno.model.text.visible import one_line
from dbdyno.model.units import (
    NS_PER_S,
    counted,
    format_average,
    format_count,
    format_ns,
    format_rate,
    format_size,
)


def number(value: float | None, unknown: str = "?") -> str:
    """Formats seconds per second with three digits."""
    return unknown if value is None else format_average(value)


def share(value: float | None) -> str:
    """Formats a share in per cent, with at most one decimal."""
    if value is None:
        return "?"
    return f"{100 * value:.0f}" if value >= 0.0995 else f"{100 * value:.1f}"


def clock(seconds: float) -> str:
    """Formats seconds as ``1:02:03``."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole % 3600 // 60:02}:{whole % 60:02}"


def first_line(text: str) -> str:
    """Returns a statement in one line, without its indentation."""
    return " ".join(text.split())


@dataclass(frozen=True)
class Column:
    """A column. ``value`` is what rows are sorted by, ``text`` what they show; ``width`` 0: the rest of the
    line."""

    name: str
    head: str
    explains: str
    value: Callable[[Any], Any]
    text: Callable[[Any], str]
    width: int = 5
    rank: int = 0  # columns of the highest rank are the first to be left out of a narrow terminal
    left: bool = False
    style: str = ""
    least: int = 20  # width of a column that takes the rest of the line


@dataclass(frozen=True)
class Order:
    column: str
    reverse: bool = False


@dataclass(frozen=True)
class Sheet:
    """The table of a screen, with all rows."""

    name: str
    explains: str
    columns: Sequence[Column]
    key: Callable[[Any], Hashable]
    order: str  # name of the column by which rows are sorted at first
    rows: Sequence[Any] = ()
    none: str = ""
    notes: Sequence[str] = ()
    detail: Callable[[Any], str] = field(default=lambda _row: "")  # a long text of a single row
    searched: Callable[[Any], str] | None = None

    def column(self, name: str) -> Column:
        return next((c for c in self.columns if c.name == name), self.columns[0])

    def words(self, row: Any) -> str:
        """Returns the text that filter and search look at."""
        if self.searched is not None:
            return self.searched(row)
        return " ".join((*(c.text(row) for c in self.columns), self.detail(row))).lower()

    def ordered(self, order: Order, filter_text: str = "") -> list[Any]:
        """Returns the rows that pass the filter. Numbers begin with the greatest, words with the first;
        unknown values are last in either direction."""
        column = self.column(order.column)
        shown = [r for r in self.rows if filter_text.lower() in self.words(r)] if filter_text else self.rows
        known = [r for r in shown if column.value(r) is not None]
        down = order.reverse if column.left else not order.reverse
        known = sorted(sorted(known, key=lambda r: str(self.key(r))), key=column.value, reverse=down)
        return [*known, *(r for r in shown if column.value(r) is None)]


def _least_width(column: Column, sorted_by: str) -> int:
    """Returns the least width of a column, with room for the mark of the order."""
    wide = column.width or column.least
    return max(wide, len(column.head) + 1) if column.name == sorted_by else wide


def fit_columns(columns: Sequence[Column], width: int, sorted_by: str) -> list[Column]:
    """Returns the columns that fit into ``width``, with the one that rows are sorted by."""
    shown = list(columns)
    while sum(_least_width(c, sorted_by) + 1 for c in shown) - 1 > width:
        droppable = [c for c in shown if c.name != sorted_by and c.rank]
        if not droppable:
            break
        worst = max(c.rank for c in droppable)
        shown.remove([c for c in droppable if c.rank == worst][-1])
    return shown


def _widths(columns: Sequence[Column], width: int, sorted_by: str) -> list[tuple[Column, int]]:
    """Returns the columns with their widths; one without a width of its own takes the rest of the line."""
    rest = width - sum(_least_width(c, sorted_by) + 1 for c in columns if c.width)
    return [(c, _least_width(c, sorted_by) if c.width else max(c.least, rest)) for c in columns]


def _heads(columns: Sequence[tuple[Column, int]], order: Order, marks: str) -> Text:
    """Returns the line of heads. ``marks``: the characters for a falling and a rising order."""
    line = Text()
    for column, wide in columns:
        head, style = column.head, "bold"
        if column.name == order.column:
            head, style = head + marks[order.reverse != column.left], "bold underline"
        line.append(" " if line else "").append(_pad(head, wide, left=column.left), style)
    return line


def _line(row: Any, columns: Sequence[tuple[Column, int]]) -> Text:
    line = Text()
    for column, wide in columns:
        text = _pad(one_line(column.text(row)), wide, left=column.left)
        line.append(" " if line else "").append(text, column.style)
    return line


def _pad(text: str, width: int, *, left: bool) -> str:
    size = cell_len(text)
    if size > width:
        return set_cell_size(text, width)
    return text + " " * (width - size) if left else " " * (width - size) + text


def table(
    sheet: Sheet, rows: Sequence[Any], order: Order, chosen: Hashable, size: tuple[int, int], marks: str
) -> Iterator[Text]:
    """Yields the heads and as many rows around the chosen one as fit into ``size``: width and lines."""
    width, room = size[0], max(3, size[1] - 1)
    columns = _widths(fit_columns(sheet.columns, width, order.column), width, order.column)
    yield _heads(columns, order, marks)
    if not rows:
        yield Text("no row passes the filter" if sheet.rows else sheet.none, "dim")
        return
    if len(rows) > room:
        room = max(2, room - 1)
    keys = [sheet.key(r) for r in rows]
    at = keys.index(chosen) if chosen in keys else 0
    first = max(0, min(at - room // 2, len(rows) - room))
    for row in rows[first : first + room]:
        line = _line(row, columns)
        if sheet.key(row) == chosen:
            line.stylize("reverse")
        yield line
    if len(rows) > room:
        yield Text(f"{counted(len(rows), 'row')}; {first + 1} to {first + room} shown", "dim")


# -- screens of the engine ---------------------------------------------------------------------------

_FORMATS: Mapping[Unit, Callable[[Any], str]] = {
    "text": lambda v: first_line(str(v)),
    "id": str,
    "count": lambda v: f"{v:,}" if isinstance(v, int) and v < 100_000 else format_count(v),
    "seconds": lambda v: clock(v) if v >= 60 else format_ns(v * NS_PER_S),
    "bytes": format_size,
    "per_s": format_rate,
    "bytes_per_s": lambda v: f"{format_size(v)}/s",
    "share": share,
}


def engine_sheet(screen: LiveScreen, read: LiveRows | None, notes: Sequence[str] = ()) -> Sheet:
    """Returns the table of an engine's screen; ``read`` None: it was not read yet."""
    return Sheet(
        screen.name,
        screen.explains,
        [_engine_column(c) for c in screen.columns],
        lambda row: tuple(row.get(name) for name in screen.key),
        screen.order,
        () if read is None else read.rows,
        "reading ..." if read is None else "none that could be read" if read.partial else screen.none,
        [*notes, *(() if read is None else read.notes)],
        lambda row: str(row.get(screen.detail) or "") if screen.detail else "",
    )


def _engine_column(column: LiveColumn) -> Column:
    words = column.unit == "text"
    unknown = "" if words else "-" if column.unit in ("seconds", "id") else "?"

    def value(row: Mapping[str, Any]) -> Any:
        return row.get(column.name)

    def text(row: Mapping[str, Any]) -> str:
        return unknown if value(row) is None else _FORMATS[column.unit](value(row))

    return Column(
        column.name, column.head, column.explains, value, text, column.width, column.rank, left=words
    )
