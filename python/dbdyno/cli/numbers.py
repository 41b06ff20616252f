"""Files of numbers: one a line, or a column of CSV with a header."""

from __future__ import annotations

import csv
from pathlib import Path

from dbdyno.model.errors import UsageError
from dbdyno.model.suggest import did_you_mean
from dbdyno.store.reading import read_limited

_CURE = "one number per line (# begins a comment), or CSV with a header and --column NAME"


def read_numbers(path: Path, column: str | None) -> list[float]:
    """Raises :class:`UsageError` naming the line that is none."""
    try:
        text = read_limited(path).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        reason = e.strerror if isinstance(e, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read {path}: {reason}", _CURE) from e
    lines = [(n, line.strip()) for n, line in enumerate(text.splitlines(), start=1)]
    lines = [(n, line) for n, line in lines if line and not line.startswith("#")]
    if not lines:
        raise UsageError(f"{path} has no values", _CURE)
    is_table = "," in lines[0][1] or (column is not None and not _is_number(lines[0][1]))
    return [_number(path, n, word) for n, word in (_column(path, lines, column) if is_table else lines)]


def _column(path: Path, lines: list[tuple[int, str]], column: str | None) -> list[tuple[int, str]]:
    """Line number and field of each record."""
    records = [[field.strip() for field in r] for r in csv.reader(line for _, line in lines)]
    names = records[0]
    if column is None:
        raise UsageError(f"{path} is a table", f"choose a column: --column {' | '.join(names)}")
    if column not in names:
        raise UsageError(f"{path} has no column {column!r}", did_you_mean(column, names))
    place = names.index(column)
    short = next((n for (n, _), r in zip(lines, records, strict=True) if len(r) != len(names)), None)
    if short is not None:
        raise UsageError(f"{path}, line {short}: not as many fields as the header has", _CURE)
    return [(n, r[place]) for (n, _), r in zip(lines[1:], records[1:], strict=True)]


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _number(path: Path, line: int, word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise UsageError(f"{path}, line {line}: {word!r} is not a number", _CURE) from None
