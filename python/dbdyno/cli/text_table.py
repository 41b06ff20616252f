"""Rows as plain text: in aligned columns, or a record below the other where the terminal is too narrow."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence

from dbdyno.model.visible import one_line

_BETWEEN = "  "
_LEAST_WRAPPED = 12


def width() -> int | None:
    """Columns of the terminal; ``None`` where standard output is none: then nothing is wrapped."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or "COLUMNS" in os.environ else None


def aligned(
    heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], columns: int | None = None
) -> list[str]:
    """A line for the heads, then one for each row; in ``columns`` columns the last cell is wrapped."""
    table = [[one_line(cell) for cell in row] for row in (heads, *rows)]
    wide = [max(len(row[i]) for row in table) for i in range(len(heads))]
    room = None if columns is None else columns - sum(w + len(_BETWEEN) for w in wide[:-1])
    wraps = room is not None and _LEAST_WRAPPED <= room < wide[-1]
    lines = []
    for row in table:
        *cells, last = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, wide, right, strict=True))
        before = _BETWEEN.join([*cells, ""])
        parts = textwrap.wrap(last.strip(), room or 1) if wraps else [last]
        lines += [(before if n == 0 else " " * len(before)) + part for n, part in enumerate(parts or [""])]
    return [line.rstrip() for line in lines]


def records(heads: Sequence[str], rows: Sequence[Sequence[str]], columns: int) -> Iterator[str]:
    """A block of lines for each row: a name and its value on each."""
    names = [one_line(head) for head in heads]
    wide = max(map(len, names), default=0)
    for number, row in enumerate(rows, start=1):
        yield f"-- {number} of {len(rows)}"
        for name, cell in zip(names, row, strict=True):
            room = max(_LEAST_WRAPPED, columns - wide - len(_BETWEEN))
            first, *more = textwrap.wrap(one_line(cell), room) or [""]
            yield f"{name:{wide}}{_BETWEEN}{first}".rstrip()
            yield from (" " * wide + _BETWEEN + part for part in more)
