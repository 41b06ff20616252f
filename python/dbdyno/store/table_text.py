"""Parses a table written as text: its lines, separators, header, and the format of its numbers."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from dbdyno.model.errors import UsageError, did_you_mean
from dbdyno.store.files import decoded, read_limited
from dbdyno.store.table_cells import (
    EITHER,
    UNKNOWN,
    decimal_sign,
    in_two_ways,
    is_missing,
    is_number,
    number,
    parted,
    plain,
    with_unit,
)
from dbdyno.store.table_lines import content, refuse_log

MOST_BYTES = 16 << 20
MOST_LINES = 20_000
"""Most lines of a table: a ladder has tens of rungs. A larger file is a log, and a fit of it would take
hours."""

FORM = "a header and a line a rung: sessions,throughput (dbdyno help analyze)"
_MAGIC = {
    b"PK\x03\x04": "an Excel workbook or a ZIP archive", b"\xd0\xcf\x11\xe0": "an Excel workbook",
    b"\x1f\x8b": "compressed (gzip)", b"PAR1": "a Parquet file", b"%PDF": "a PDF",
}  # fmt: skip
_LONGEST_UNIT = 6  # characters of a unit in a line below the header: tx/s, Mtx/h
_TYPES = re.compile(
    r"u?(tiny|small|big|huge)?int(eger)?\d*|[iuf]\d+|float\d*|double( precision)?|real"
    r"|(numeric|decimal)(\(.*\))?|varchar(\(.*\))?|text|str|string|bool(ean)?|date|time(stamp.*)?",
    re.IGNORECASE,
)
"""Types that DuckDB and polars print below a heading."""


class Line(NamedTuple):
    number: int  # in the file, from 1
    fields: tuple[str, ...]


@dataclass(frozen=True)
class Sheet:
    """A table. ``header`` is None if the first line has numbers; ``comment`` is the last one before that
    line."""

    source: str
    header: tuple[str, ...] | None
    lines: tuple[Line, ...]
    comment: tuple[str, ...] | None
    decimal: str
    """``.``, ``,`` or :data:`UNKNOWN`."""
    notes: tuple[str, ...] = ()
    separator: str = ","
    units: tuple[str, ...] = ()
    """Units by column, from cells (``100 ms``) or a second header line; empty strings without one. The
    tuple is empty if no column has a unit."""
    is_turned: bool = False
    """Whether each line of the file was a quantity; then ``number`` of a line is that of its column in the
    file."""

    def title(self, index: int) -> str:
        """Returns the heading, with the unit of the cells in brackets."""
        heading, unit = self.header[index] if self.header else "", self.units[index] if self.units else ""
        return f"{heading} ({unit})" if unit else heading

    def bare(self, indices: Iterable[int]) -> Sheet:
        """Returns the table with the cells of these columns stripped of their units."""
        chosen, columns = set(indices), list(zip(*(n.fields for n in self.lines), strict=True))
        new = [parted(c)[0] if i in chosen else c for i, c in enumerate(columns)]
        fields = zip(*new, strict=True)
        lines = (Line(n.number, f) for n, f in zip(self.lines, fields, strict=True))
        return replace(self, lines=tuple(lines))

    def signed(self, indices: Iterable[int]) -> Sheet:
        """Returns the table with the decimal sign that these columns show; columns that are not used do
        not count."""
        columns = [[n.fields[i] for n in self.lines] for i in indices]
        sign, notes = decimal_sign(columns, self.separator)
        return replace(self, decimal=sign, notes=(*self.notes, *notes))

    def place(self, name: str, option: str) -> int:
        """Returns the index of a column by its heading (ignoring case), or by its number from 1."""
        wide = len(self.lines[0].fields) if self.lines else 0
        header = self.header or tuple(str(i + 1) for i in range(wide))
        folded = [h.strip().casefold() for h in header]
        if name.strip().casefold() in folded:
            return folded.index(name.strip().casefold())
        if name.isascii() and name.isdigit() and len(name) < 10 and 1 <= int(name) <= len(header):
            return int(name) - 1
        raise UsageError(f"{self.source} has no column {name!r} ({option})", did_you_mean(name, header))

    def number(self, line: Line, index: int, sign: str = "") -> float:
        """Returns a field as a number, including nan and inf, without a trailing ``sign``.

        Raises UsageError naming the line if it is no number or an ambiguous one.
        """
        text = line.fields[index].removesuffix(sign).strip()
        value = number(text, "." if self.decimal == UNKNOWN else self.decimal)
        if value is None:
            shown = text if len(text) <= 40 else f"{text[:39]}…"
            raise UsageError(
                f"{self.where(line, index)}: {shown!r} is not a number",
                "digits alone: units belong in the header (response_ms, ktps, cpu_pct)"
                if any(c.isdigit() for c in text)
                else "leave the line out, or begin it with #",
            )
        if self.decimal == UNKNOWN and EITHER.match(text):
            raise UsageError(*in_two_ways(text, self.where(line, index)))
        return value

    def where(self, line: Line, index: int) -> str:
        """Returns the place of a field: ``ladder.csv, line 3, tps``."""
        heading = (self.header[index] if self.header else "") or f"column {index + 1}"
        return f"{self.source}, {'column' if self.is_turned else 'line'} {line.number}, {heading}"


def read_text(path: str | Path, form: str = FORM) -> str:
    """Returns the text of a file, or of standard input for ``-``; ``form`` describes the expected text.

    Raises UsageError if the file is missing, too large or binary.
    """
    name = source_name(path)
    try:
        if str(path) == "-":
            content = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            content = read_limited(Path(path), MOST_BYTES)
    except OSError as e:
        raise UsageError(
            f"cannot read {name}: {e.strerror or e}", "name a file of text, or - for input"
        ) from e
    if len(content) > MOST_BYTES:
        raise UsageError(
            f"{name} is larger than {MOST_BYTES >> 20} MiB: not a table of results", f"less of it: {form}"
        )
    return _decoded(content, name, form)


def source_name(path: str | Path) -> str:
    return "standard input" if str(path) == "-" else str(path)


def _decoded(content: bytes, name: str, form: str) -> str:
    """Decodes UTF-8, UTF-16 and UTF-32 with their byte-order marks, else the code page of Windows
    spreadsheets."""
    try:
        text = decoded(content, name)
    except UsageError:
        text = content.decode("cp1252", errors="replace")
    kind = next((k for magic, k in _MAGIC.items() if content.startswith(magic)), None)
    if text.lstrip()[:1] == "{" or re.match(r"\s*\[\s*[\[{]", text):
        kind = "JSON"
    if kind or any(c < " " and c not in "\t\n\r\f" for c in text) or "\ufffd" in text:
        kind = kind or "binary"
        raise UsageError(f"{name} is {kind}, not a table of text", f"save it as CSV: {form}")
    return text


def sheet(text: str, source: str, decimal: str | None = None) -> Sheet:
    """Returns the table in a text. Raises UsageError if it is empty, too long, ragged or has one column.

    Without ``decimal`` the sign is a dot until :meth:`Sheet.signed` determines it.
    """
    numbered, comment, prose = content(text)
    if not numbered:
        raise UsageError(f"{source} is empty: no line with numbers", FORM)
    refuse_log([line for _, line in numbered], source)
    if len(numbered) > MOST_LINES:
        raise UsageError(
            f"{source} has {len(numbered):,} lines: a log, not a ladder (at most {MOST_LINES:,})",
            "sum it up: one line per load and repeat",
        )
    separator = _separator([line for _, line in numbered])
    lines, is_turned = _turned(_split(numbered, separator, source))
    above = tuple(map(plain, _fields(comment, separator))) if comment else None
    header = None if _are_numbers(lines[0].fields) else lines[0].fields
    rest = lines if header is None else [n for n in lines if n.fields != header]
    below, rest = _units_below(rest) if header else ((), rest)
    columns = list(zip(*(n.fields for n in rest), strict=True))
    units = tuple(parted(c)[1] or (below[i] if below else "") for i, c in enumerate(columns))
    notes = _notes(prose, is_turned)
    return Sheet(source, header, tuple(rest), above, decimal or ".", notes, separator, units, is_turned)


def _notes(prose: Sequence[int], is_turned: bool) -> tuple[str, ...]:
    notes = []
    if prose:
        numbers = ", ".join(map(str, prose[:5])) + (", ..." if len(prose) > 5 else "")
        notes.append(f"no part of the table, left out: line{'' if len(prose) == 1 else 's'} {numbers}")
    if is_turned:
        notes.append("each line is a quantity: its columns were read as the lines of a ladder")
    return tuple(notes)


def _turned(lines: list[Line]) -> tuple[list[Line], bool]:
    """Transposes a table whose lines are quantities (``clients,1,2,4``), and returns whether it did."""
    first = [n.fields[0] for n in lines]
    wide = len(lines[0].fields)
    all_named = wide > 2 and not any(is_number(f) or is_missing(f) for f in first)
    if not all_named or not _are_numbers(lines[0].fields[1:]):
        return lines, False
    if not all(is_number(f) or is_missing(f) or with_unit(f) for n in lines for f in n.fields[1:]):
        return lines, False
    columns = zip(*(n.fields for n in lines), strict=True)
    return [Line(i, fields) for i, fields in enumerate(columns, start=1)], True


def _units_below(lines: list[Line]) -> tuple[tuple[str, ...], list[Line]]:
    """Returns the units of a second header line, ``,(tps),(ms)``, and the lines without it.

    A second header line of types is dropped.
    """
    fields = lines[0].fields if lines else ()
    words = [f for f in fields if not is_missing(f)]
    if not words or any(is_number(f) for f in words):
        return (), lines
    if all(_TYPES.fullmatch(f) for f in words):
        return (), lines[1:]
    if any(is_number(f) or with_unit(f) for n in lines[1:2] for f in n.fields):
        bare = [re.sub(r"\A[(\[](.*)[)\]]\Z", r"\1", f) for f in fields]
        bracketed = all(b != f for b, f in zip(bare, fields, strict=True) if f)
        if bracketed or all(len(f) <= _LONGEST_UNIT for f in words):
            return tuple("" if is_missing(b) else b for b in bare), lines[1:]
    return (), lines


def _are_numbers(fields: Sequence[str]) -> bool:
    """Returns whether the fields are no header: in a header at most a third are numbers, as in
    sessions,tps,95."""
    return 3 * sum(is_number(f) or with_unit(f) is not None for f in fields) > len(fields)


def _separator(lines: Sequence[str]) -> str:
    """Returns a character that most lines contain, or a pattern for white space."""
    some = lines[:50]
    for sign in "\t;|":
        if 2 * sum(sign in line for line in some) > len(some):
            return sign
    commas = [line for line in some if "," in line and not _are_decimals(line.split())]
    if 2 * len(commas) > len(some):
        return ","
    wide = [re.split(r"\s{2,}|\t", line.strip()) for line in lines[:50]]
    return r"\s{2,}|\t" if len(wide[0]) > 1 and len({len(w) for w in wide}) == 1 else r"\s+"


def _are_decimals(words: Sequence[str]) -> bool:
    """Returns whether white space separates numbers with decimal commas: ``8 75,25``."""
    return len(words) > 1 and all(re.fullmatch(r"[-+]?\d+(,\d+)?", w, re.ASCII) for w in words)


def _split(numbered: Iterable[tuple[int, str]], separator: str, source: str) -> list[Line]:
    split: list[Line] = []
    for n, line in numbered:
        fields = _fields(line, separator)
        wide = len(split[0].fields) if split else len(fields)
        while len(fields) > wide and not fields[-1]:  # trailing separators
            fields = fields[:-1]
        if len(fields) < 2 and not split:
            raise UsageError(
                f"{source}, line {n}: one column, two are needed: sessions and throughput",
                f"{FORM}; a title begins with #",
            )
        if len(fields) > wide:
            cure = 'quote numbers with commas between thousands: 8,"12,345"'
            raise UsageError(
                f"{source}, line {n} has {len(fields)} fields, the first line {wide}",
                cure if separator == "," else f"a table has the same columns in all lines: {FORM}",
            )
        split.append(Line(n, tuple(map(plain, fields)) + ("",) * (wide - len(fields))))
    return split


def _fields(line: str, separator: str) -> tuple[str, ...]:
    if len(separator) > 1:
        return tuple(f.strip("\"'") for f in re.split(separator, line.strip()))
    if separator == "|":
        line = line.strip("| ")
    try:
        record = next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])
    except csv.Error:  # a field of more than 128 KiB
        record = line.split(separator)
    return tuple(f.strip() for f in record)
