"""A table somebody wrote as text: its lines, separators, header and the way its numbers are written."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dbdyno.model.errors import UsageError
from dbdyno.store.reading import read_limited

MOST_BYTES = 16 << 20
MOST_LINES = 20_000
"""A ladder has tens of rungs: a file beyond this is a log, and a fit of it would take hours."""

FORM = "a header and a line a rung: sessions,throughput (docs/analyze.md)"
_MISSING = frozenset({"", "na", "n/a", "null", "none", "-", "?", "."})
_NOT_FINITE = re.compile(r"[-+]?(nan|inf|infinity)\Z", re.IGNORECASE)
_GROUPS = " '’_\u00a0\u202f\u2009"  # what parts thousands besides a comma or a dot
_RULE = re.compile(r"[-+|:=\s]*[-=]{2}[-+|:=\s]*\Z")  # ----+---- under a header
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
    notes: tuple[str, ...] = ()


def read_text(path: str | Path) -> str:
    """The text of a file, or of standard input for ``-``. Raises UsageError: missing, too large, binary."""
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
            f"{name} is larger than {MOST_BYTES >> 20} MiB: not a ladder", "one line per load and repeat"
        )
    return _decoded(content, name)


def source_name(path: str | Path) -> str:
    return "standard input" if str(path) == "-" else str(path)


def _decoded(content: bytes, name: str) -> str:
    """UTF-8, UTF-16 with its mark, else Windows' code page, which spreadsheets write."""
    try:
        if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
            text = content.decode("utf-16")
        else:
            text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("cp1252", errors="replace")
    if any(c < " " and c not in "\t\n\r\f" for c in text) or "\ufffd" in text:
        raise UsageError(f"{name} is binary, not text", FORM)
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
    first = lines[0]
    header = None if any(is_number(f) for f in first.fields) else first.fields
    rest = lines if header is None else lines[1:]
    sign, notes = (decimal, ()) if decimal else _decimal((f for n in rest for f in n.fields), separator)
    return Sheet(source, header, tuple(rest), above, sign, notes)


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
    whole = rf"(?:\d{{1,3}}(?:[{re.escape(other)}{_GROUPS}]\d{{3}})+|\d+)"
    if not re.fullmatch(
        rf"[-+]?(?:{whole}(?:[{decimal}]\d+)?|[{decimal}]\d+)(?:[eE][-+]?\d+)?", word, re.ASCII
    ):
        # a dot at the end is Fortran's and R's way
        return float(word) if decimal == "." and re.fullmatch(r"[-+]?\d+\.", word, re.ASCII) else None
    plain = re.sub(rf"[{re.escape(other)}{_GROUPS}]", "", word).replace(decimal, ".")
    return float(plain)


def _content(text: str) -> tuple[list[tuple[int, str]], str | None]:
    """Numbered lines without comments, rules and blank ones, and the comment right before them."""
    found: list[tuple[int, str]] = []
    comment = None
    for n, raw in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        line = raw.strip(" \f\u00a0").rstrip()
        if line.startswith("#"):
            comment = line.lstrip("# ") if not found else comment
            continue
        line = re.split(r"\s#", line, maxsplit=1)[0].rstrip()
        if line.strip() and not (_RULE.match(line) or _FOOT.match(line) or line.lower().startswith("sep=")):
            found.append((n, line))
    return found, comment


def _separator(lines: Sequence[str]) -> str:
    """A character, or a pattern for white space."""
    first = lines[0]
    for sign in "\t;|":
        if sign in first:
            return sign
    words = first.split()
    decimals = len(words) > 1 and all(re.fullmatch(r"[-+]?\d+(,\d+)?", w, re.ASCII) for w in words)
    if "," in first and not decimals:
        return ","
    wide = [re.split(r"\s{2,}|\t", line.strip()) for line in lines[:50]]
    return r"\s{2,}|\t" if len(wide[0]) > 1 and len({len(w) for w in wide}) == 1 else r"\s+"


def _split(numbered: Iterable[tuple[int, str]], separator: str, source: str) -> list[Line]:
    made: list[Line] = []
    for n, line in numbered:
        fields = _fields(line, separator)
        wide = len(made[0].fields) if made else len(fields)
        while len(fields) > wide and not fields[-1]:  # a separator at the end of the line
            fields = fields[:-1]
        if len(fields) < 2 and not made:
            raise UsageError(f"{source}, line {n}: one column, two are needed: sessions and throughput", FORM)
        if len(fields) > wide:
            raise UsageError(
                f"{source}, line {n} has {len(fields)} fields, the first line {wide}",
                'quote numbers with commas between thousands: 8,"12,345"',
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


def _decimal(fields: Iterable[str], separator: str) -> tuple[str, tuple[str, ...]]:
    """The decimal sign that all numbers agree with; where both may be, by the separator, and said so."""
    with_comma = [f for f in fields if "," in f and is_number(f)]
    if not with_comma:
        return ".", ()
    as_dot, as_comma = ([number(f, sign) is not None for f in with_comma] for sign in ".,")
    if not all(as_dot):
        return ",", ()
    if not all(as_comma) or any("." in f for f in with_comma):
        return ".", ()
    sign = "," if separator == ";" else "."
    shown = with_comma[0]
    value = number(shown, sign)
    other = "." if sign == "," else ","
    return sign, (f"{shown} was read as {value:g}; if that is wrong: --decimal '{other}'",)
