"""Reads samples of numbers from text: one per file, or two from one table.

One sample is a number per line, or a column. Two are two columns, or a column of numbers and one that
names groups. Any other text is an error that names the line.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from dbdyno.model.errors import UsageError, did_you_mean
from dbdyno.store.table_cells import is_missing, is_number, number, plain
from dbdyno.store.table_lines import content, refuse_log
from dbdyno.store.table_text import Line, Sheet, read_text

CURE = "one number per line (# begins a comment), or CSV with a header and --column NAME"
_TABLE = "a header such as before,after or group,value, then the numbers"
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(,\d{3})+\Z", re.ASCII)
_GROUPS = frozenset({"group", "variant", "version", "side", "name", "build", "commit", "config", "setting"})
_MOST_SHOWN = 8


class Numbers(NamedTuple):
    name: str
    values: tuple[float, ...]
    lines: tuple[int, ...]


class _Sheet(Sheet):
    """A table of samples. An empty ``decimal`` is determined by :meth:`read_by` from the columns that are
    read."""

    def read_by(self, *columns: int) -> _Sheet:
        if self.decimal:
            return self
        words = [(r.number, r.fields[i]) for i in columns for r in self.lines]
        return replace(self, decimal=_decimal(self.source, words))

    @property
    def names(self) -> tuple[str, ...]:
        wide = len(self.lines[0].fields) if self.lines else 0
        return self.header or tuple(f"column {i + 1}" for i in range(wide))

    def where(self, line: Line, index: int) -> str:
        if len(self.names) == 1:
            return f"{self.source}, line {line.number}"
        return super().where(line, index)

    def words(self, column: int) -> list[str]:
        """Returns the cells of a column without missing ones."""
        return [r.fields[column] for r in self.lines if not is_missing(r.fields[column])]

    def is_numeric(self, column: int) -> bool:
        """Returns whether most cells are numbers; any other cell is an error when it is read."""
        words = self.words(column)
        return 2 * sum(map(is_number, words)) > len(words)

    def numbers(self, column: int, name: str, rows: Sequence[Line] | None = None) -> Numbers:
        sheet = self.read_by(column)
        checked = [
            (_checked(sheet, r, column), r.number)
            for r in (self.lines if rows is None else rows)
            if not is_missing(r.fields[column])
        ]
        if not checked:
            raise UsageError(f"{self.source} has no values in {name}", CURE)
        values, lines = zip(*checked, strict=True)
        return Numbers(name, values, lines)


def read_sample(path: Path, column: str | None = None, decimal: str | None = None) -> Numbers:
    """Returns one sample. Raises :class:`UsageError` naming a line without a number."""
    sheet = _sheet(path, decimal, one_column=True)
    if column is not None and (sheet.header or len(sheet.names) > 1):
        return sheet.numbers(sheet.place(column, "--column"), path.name)
    if len(sheet.names) > 1:
        numeric = [i for i in range(len(sheet.names)) if sheet.is_numeric(i)]
        if sheet.header is None or len(numeric) != 1:
            raise UsageError(
                f"{path} is a table",
                f"choose a column: --column {' | '.join(map(quote, sheet.names[:_MOST_SHOWN]))}",
            )
        return sheet.numbers(numeric[0], path.name)
    for row in sheet.lines:
        if is_missing(row.fields[0]):
            raise UsageError(
                f"{path}, line {row.number}: {row.fields[0]!r} is not a number", "leave the line out"
            )
    return sheet.numbers(0, path.name)


def read_pair(
    path: Path, columns: Sequence[str] = (), column: str | None = None, decimal: str | None = None
) -> tuple[Numbers, Numbers]:
    """Returns two columns of one table, the baseline first; or two groups of ``column``.

    ``column`` is by default the only column of numbers. ``columns`` are the names of two columns or
    groups.
    """
    sheet = _sheet(path, decimal, one_column=False)
    if len(sheet.names) < 2:
        raise UsageError(
            f"{path} has one column: one sample cannot be compared",
            f"name a second file; or a table: {_TABLE}",
        )
    folded = [n.casefold() for n in sheet.names]
    if columns and all(c.casefold() in folded for c in columns):
        first, second = (sheet.place(c, "--columns") for c in columns)
        sheet = sheet.read_by(first, second)
        return sheet.numbers(first, sheet.names[first]), sheet.numbers(second, sheet.names[second])
    numeric = [i for i in range(len(sheet.names)) if sheet.is_numeric(i)]
    grouping = _grouping(sheet, numeric)
    if not columns and column is None and grouping is None and len(numeric) == 2:
        first, second = numeric
        sheet = sheet.read_by(first, second)
        return sheet.numbers(first, sheet.names[first]), sheet.numbers(second, sheet.names[second])
    return _groups(sheet, columns, column, grouping, [i for i in numeric if i != grouping])


def _grouping(sheet: _Sheet, numeric: Sequence[int]) -> int | None:
    """Returns the index of the column that names groups: by its repeated words, or by its heading; None
    without one."""
    for i, name in enumerate(sheet.names):
        kinds = set(sheet.words(i))
        named = name.casefold() in _GROUPS and len(kinds) == 2
        if named or (i not in numeric and 1 < len(kinds) < len(sheet.lines)):
            return i
    return None


def _groups(
    sheet: _Sheet, columns: Sequence[str], column: str | None, grouping: int | None, numeric: Sequence[int]
) -> tuple[Numbers, Numbers]:
    shown = ", ".join(sheet.names[:_MOST_SHOWN])
    if grouping is None:
        if columns:
            unknown = next(c for c in columns if c.casefold() not in map(str.casefold, sheet.names))
            raise UsageError(f"{sheet.source} has no column {unknown!r}", did_you_mean(unknown, sheet.names))
        if len(numeric) > 2:
            names = quote(",".join(sheet.names[i] for i in numeric[:2]))
            raise UsageError(
                f"{sheet.source} has {len(numeric)} columns of numbers ({shown})",
                f"choose two: --columns {names}",
            )
        raise UsageError(f"{sheet.source} has no two columns of numbers, and none that names groups", _TABLE)
    if column is None and len(numeric) != 1:
        raise UsageError(
            f"{sheet.source} has {len(numeric)} columns of numbers beside {sheet.names[grouping]} ({shown})",
            "choose the one to compare: --column NAME; or two columns: --columns A,B",
        )
    values = numeric[0] if column is None else sheet.place(column, "--column")
    kinds = list(dict.fromkeys(sheet.words(grouping)))
    wanted = list(columns) or kinds
    for name in wanted:
        if name not in kinds:
            raise UsageError(
                f"{sheet.source} has no column and no group {name!r}",
                did_you_mean(name, [*kinds, *sheet.names]),
            )
    if len(wanted) != 2:
        listed = ", ".join(kinds[:_MOST_SHOWN])
        raise UsageError(
            f"{sheet.source} has {len(kinds)} groups in {sheet.names[grouping]} ({listed})",
            f"choose two: --columns {quote(','.join(kinds[:2]))}",
        )
    sheet = sheet.read_by(values)
    first, second = (
        sheet.numbers(values, name, [r for r in sheet.lines if r.fields[grouping] == name]) for name in wanted
    )
    return first, second


# -- text --


def _sheet(path: Path, decimal: str | None, *, one_column: bool) -> _Sheet:
    lines, _, _ = content(read_text(path, CURE))
    refuse_log([line for _, line in lines], str(path))
    if not lines:
        raise UsageError(f"{path} has no values", CURE)
    separator = _separator([line for _, line in lines], one_column)
    rows = [Line(n, tuple(map(plain, _fields(line, separator)))) for n, line in lines]
    header = None if any(is_number(f) for f in rows[0].fields) else rows[0].fields
    if header and len(header) == 1 and header[0][:1].isdigit():  # 12 ms
        header = None
    first, rows = rows[0], rows if header is None else rows[1:]
    if not rows:
        raise UsageError(f"{path}, line {first.number}: {lines[0][1]!r} is not a number", CURE)
    wide = len(header or rows[0].fields)
    short = next((r.number for r in rows if len(r.fields) != wide), None)
    if short is not None:
        raise UsageError(
            f"{path}, line {short}: not as many fields as the {'header' if header else 'first'} has", CURE
        )
    return _Sheet(str(path), header, tuple(rows), None, decimal or "")


def _separator(lines: Sequence[str], one_column: bool) -> str | None:
    """Returns the separator; ``None`` is white space, empty a single column."""
    for sign in "\t;|":
        if sign in lines[0]:
            return sign
    body = lines if "," in lines[0] else lines[1:]  # else the first may be a header
    if one_column and all(map(is_number, body)):
        return ""  # commas are part of the numbers
    if "," in lines[0]:
        return ","
    return "" if one_column else None


def _fields(line: str, separator: str | None) -> list[str]:
    if separator == "":
        return [line.strip("\"'")]
    if separator is None:
        return [f.strip("\"'") for f in line.split()]
    return [f.strip() for f in next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])]


def _decimal(source: str, words: Sequence[tuple[int, str]]) -> str:
    """Returns the decimal sign of ``words``, which come with the numbers of their lines.

    Raises UsageError if a number such as 1,234 is ambiguous.
    """
    with_comma = [(n, w) for n, w in words if "," in w and is_number(w)]
    if not with_comma:
        return "."
    if all(_THOUSANDS.match(w) for _, w in with_comma) and not any(w.count(",") > 1 for _, w in with_comma):
        line, word = with_comma[0]
        raise UsageError(
            f"{source}, line {line}: {word!r} may be {word.replace(',', '.')} or {word.replace(',', '')}",
            "say which: --decimal , or --decimal .",
        )
    return "," if all(number(w, ",") is not None for _, w in with_comma) else "."


def _checked(sheet: _Sheet, line: Line, column: int) -> float:
    value = sheet.number(line, column)
    place, word = sheet.where(line, column), line.fields[column]
    if not math.isfinite(value):
        raise UsageError(f"{place}: {word} is not a finite number", "leave it out, or measure again")
    if value < 0:
        raise UsageError(f"{place}: {word} is below 0", "rates, times and counts are 0 or more")
    return value
