"""A table written as text: its lines, separators, header, and the way its numbers are written."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dbdyno.model.errors import UsageError, did_you_mean
from dbdyno.store.files import read_limited

MOST_BYTES = 16 << 20
MOST_LINES = 20_000
"""A ladder has tens of rungs: a file beyond this is a log, and a fit of it would take hours."""

FORM = "a header and a line a rung: sessions,throughput (docs/analyze.md)"
_MISSING = frozenset({"", "na", "n/a", "null", "none", "-", "?", "."})
_NOT_FINITE = re.compile(r"[-+]?(nan|inf|infinity)\Z", re.IGNORECASE)
_GROUPS = " '’_\u00a0\u202f\u2009"  # what parts thousands besides a comma or a dot
_EITHER = re.compile(r"[-+]?[1-9]\d{0,2}([.,])\d{3}\Z", re.ASCII)  # 1,234: thousands, or a decimal sign?
UNKNOWN = "?"
"""Decimal sign of a table in which no number shows it."""
_MAGIC = {
    b"PK\x03\x04": "an Excel workbook or a ZIP archive", b"\xd0\xcf\x11\xe0": "an Excel workbook",
    b"\x1f\x8b": "compressed (gzip)", b"PAR1": "a Parquet file", b"%PDF": "a PDF",
}  # fmt: skip
_RULE = re.compile(r"(?=[-+|:=\s]++\Z).*?[-=]{2}", re.DOTALL)  # ----+---- under a header
_FOOT = re.compile(r"\(\d+ rows?\)\Z")


class Line(NamedTuple):
    number: int  # in the file, from 1
    fields: tuple[str, ...]


@dataclass(frozen=True)
class Sheet:
    """``header`` None: the first line holds numbers; ``comment``: the last one before the first line."""

    source: str
    header: tuple[str, ...] | None
    lines: tuple[Line, ...]
    comment: tuple[str, ...] | None
    decimal: str
    """``.``, ``,`` or :data:`UNKNOWN`."""
    notes: tuple[str, ...] = ()

    def place(self, name: str, option: str) -> int:
        """Index of a column by its heading (case does not matter), or by its number from 1."""
        wide = len(self.lines[0].fields) if self.lines else 0
        header = self.header or tuple(str(i + 1) for i in range(wide))
        folded = [h.strip().casefold() for h in header]
        if name.strip().casefold() in folded:
            return folded.index(name.strip().casefold())
        if name.isascii() and name.isdigit() and len(name) < 10 and 1 <= int(name) <= len(header):
            return int(name) - 1
        raise UsageError(f"{self.source} has no column {name!r} ({option})", did_you_mean(name, header))

    def number(self, line: Line, index: int, sign: str = "") -> float:
        """A field as a number, nan and inf included, without a ``sign`` behind it. Raises UsageError naming
        the line: it is none, or one that can be read in two ways."""
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
        if self.decimal == UNKNOWN and (match := _EITHER.match(text)):
            decimal, other = match[1], "." if match[1] == "," else ","
            small, large = number(text, decimal), number(text, other)
            raise UsageError(
                f"{self.where(line, index)}: {text} is either {large:,.0f} or {small:g}",
                f"--decimal '{other}' reads {large:.0f}, --decimal '{decimal}' reads {small:g}",
            )
        return value

    def where(self, line: Line, index: int) -> str:
        """``ladder.csv, line 3, tps``."""
        heading = (self.header[index] if self.header else "") or f"column {index + 1}"
        return f"{self.source}, line {line.number}, {heading}"


def read_text(path: str | Path, form: str = FORM) -> str:
    """The text of a file, or of standard input for ``-``. Raises UsageError: missing, too large, binary.
    ``form``: what the text should be."""
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
    """UTF-8, UTF-16 with its mark, else Windows' code page, which spreadsheets write."""
    try:
        if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
            text = content.decode("utf-16")
        else:
            text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("cp1252", errors="replace")
    kind = next((k for magic, k in _MAGIC.items() if content.startswith(magic)), None)
    if text.lstrip()[:1] == "{" or re.match(r"\s*\[\s*[\[{]", text):
        kind = "JSON"
    if kind or any(c < " " and c not in "\t\n\r\f" for c in text) or "\ufffd" in text:
        kind = kind or "binary"
        raise UsageError(f"{name} is {kind}, not a table of text", f"save it as CSV: {form}")
    return text


def sheet(text: str, source: str, decimal: str | None = None) -> Sheet:
    """Lines as fields. Raises UsageError: empty, too long, one column, lines of different lengths."""
    numbered, comment = _content(text)
    if not numbered:
        raise UsageError(f"{source} is empty: no line with numbers", FORM)
    if len(numbered) > MOST_LINES:
        raise UsageError(
            f"{source} has {len(numbered):,} lines: a log, not a ladder (at most {MOST_LINES:,})",
            "sum it up: one line per load and repeat",
        )
    separator = _separator([line for _, line in numbered])
    lines = _split(numbered, separator, source)
    above = _fields(comment, separator) if comment else None
    header = None if _are_numbers(lines[0].fields) else lines[0].fields
    rest = tuple(lines if header is None else (n for n in lines if n.fields != header))
    sign, notes = (decimal, ()) if decimal else _decimal(rest, separator)
    return Sheet(source, header, rest, above, sign, notes)


def _are_numbers(fields: Sequence[str]) -> bool:
    """Not a header: of that at most a third are numbers, as in sessions,tps,95."""
    return 3 * sum(is_number(f) for f in fields) > len(fields)


def is_missing(text: str) -> bool:
    return text.strip().lower() in _MISSING


def is_number(text: str) -> bool:
    return any(number(text, sign) is not None for sign in ".,")


def number(text: str, decimal: str) -> float | None:
    """``1 234,5`` with a decimal comma -> 1234.5; ``nan`` and ``inf`` as such; None: it is no number."""
    word = text.strip()
    if _NOT_FINITE.match(word):
        return float(word.lower().replace("infinity", "inf"))
    other = "," if decimal == "." else "."
    whole = rf"(?:[1-9]\d{{0,2}}(?:[{re.escape(other)}{_GROUPS}]\d{{3}})+|\d+)"
    if not re.fullmatch(
        rf"[-+]?(?:{whole}(?:[{decimal}]\d+)?|[{decimal}]\d+)(?:[eE][-+]?\d+)?", word, re.ASCII
    ):
        # a dot at the end is Fortran's and R's way
        return float(word) if decimal == "." and re.fullmatch(r"[-+]?\d+\.", word, re.ASCII) else None
    plain = re.sub(rf"[{re.escape(other)}{_GROUPS}]", "", word).replace(decimal, ".")
    return float(plain)


def lines_of(text: str) -> list[tuple[int, str]]:
    """With their numbers, from 1."""
    return list(enumerate(re.split(r"\r\n|\r|\n", text), start=1))


def _content(text: str) -> tuple[list[tuple[int, str]], str | None]:
    """Numbered lines without comments, rules and blank ones, and the comment right before them."""
    found: list[tuple[int, str]] = []
    comment = None
    for n, raw in lines_of(text):
        line = raw.strip(" \f\u00a0").rstrip()
        if line.startswith("#"):
            comment = line.lstrip("# ") if not found else comment
            continue
        line = re.split(r"\s#", line, maxsplit=1)[0].rstrip()
        if line.strip() and not (_RULE.match(line) or _FOOT.match(line) or line.lower().startswith("sep=")):
            found.append((n, line))
    return found, comment


def _separator(lines: Sequence[str]) -> str:
    """A character that most lines have, or a pattern for white space."""
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
    """``8 75,25``: white space parts the columns."""
    return len(words) > 1 and all(re.fullmatch(r"[-+]?\d+(,\d+)?", w, re.ASCII) for w in words)


def _split(numbered: Iterable[tuple[int, str]], separator: str, source: str) -> list[Line]:
    made: list[Line] = []
    for n, line in numbered:
        fields = _fields(line, separator)
        wide = len(made[0].fields) if made else len(fields)
        while len(fields) > wide and not fields[-1]:  # a separator at the end of the line
            fields = fields[:-1]
        if len(fields) < 2 and not made:
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
        made.append(Line(n, fields + ("",) * (wide - len(fields))))
    return made


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


def _decimal(lines: Sequence[Line], separator: str) -> tuple[str, tuple[str, ...]]:
    """The decimal sign that the numbers show: one of 0,5 or 12.34 or 1.234,5 or 1,234,567 is enough. Where
    none does it is a dot, :data:`UNKNOWN` if a number like 1,234 may be either. In columns parted by commas,
    all of whose numbers have three digits after a dot, it is that dot, and said so."""
    columns = list(zip(*(n.fields for n in lines), strict=True))
    written = [f.strip() for c in columns for f in c if ("," in f or "." in f) and is_number(f)]
    either = [f for f in written if _EITHER.match(f)]
    shown = {_shown(f) for f in written if not _EITHER.match(f)}
    if shown or not either:
        return ("," if "," in shown else "."), ()
    of_either = [c for c in columns if any(_EITHER.match(f.strip()) for f in c)]
    same = all(_EITHER.match(f.strip()) for c in of_either for f in c if is_number(f))
    if separator == "," and same and not any("," in f for f in either):
        return ".", (f"{either[0]} was read as {float(either[0]):g}; if that is wrong: --decimal ','",)
    return UNKNOWN, ()


def _shown(text: str) -> str:
    """The decimal sign of a number that has a comma or a dot, and cannot be read in two ways."""
    last = "," if text.rfind(",") > text.rfind(".") else "."
    other = "." if last == "," else ","
    return other if text.count(last) > 1 else last
