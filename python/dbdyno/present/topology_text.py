"""The picture of the topology in text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from dbdyno.model.topology import LogicalCpu, Topology
from dbdyno.present.topology_svg import Box, Cores, boxes

_ASCII = str.maketrans({"─": "-", "│": "|", "×": "x", **dict.fromkeys("┌┬┐├┼┤└┴┘", "+")})


def picture(t: Topology, width: int = 100) -> list[str]:
    """Boxes no wider than ``width``, as long as one core fits in; the last line says how to read them."""
    digits = len(str(max((c.cpu for c in t.cpus), default=0)))
    drawn = [_draw(box, width, digits) for box in boxes(t)]
    return [*_pack(drawn, width), _legend(t)]


def ascii_only(lines: Sequence[str]) -> list[str]:
    """For terminals that have no other letters."""
    return [line.translate(_ASCII) for line in lines]


def _legend(t: Topology) -> str:
    legend = "A cell is a core, its numbers are its threads (CPUs)."
    if any(c.allowed is False for c in t.online):
        legend += " ×: this process may not run there."
    if any(c.allowed is None for c in t.online):
        legend += " Which of them may be used is unknown."
    return legend


def _draw(box: Box, width: int, digits: int) -> list[str]:
    inner = width - 4
    if box.kind == "cache" and (drawn := _titled(box.title, _grid(box.cores, width, digits))):
        return drawn
    inside = _pack([_draw(b, inner, digits) for b in box.boxes], inner)
    return _framed(box.title, [*inside, *_grid(box.cores, inner, digits)])


def _titled(title: str, grid: list[str]) -> list[str]:
    """With the title in its upper border; empty where that is too short."""
    head = f"┌─ {title} " if title else ""
    return [head + grid[0][len(head) :], *grid[1:]] if len(head) < len(grid[0]) else []


def _framed(title: str, lines: Sequence[str]) -> list[str]:
    head = f"─ {title} " if title else ""
    inner = max([len(head) + 1, *(len(line) + 2 for line in lines)])
    return [f"┌{head:─<{inner}}┐", *(f"│ {line:<{inner - 2}} │" for line in lines), f"└{'':─<{inner}}┘"]


def _grid(cores: Cores, width: int, digits: int) -> list[str]:
    """Cells of equal width with common borders; rows as even as they can be."""
    if not cores:
        return []
    cells = ["".join(_cpu(c, digits) for c in core) for core in cores]
    bare = max(map(len, cells))
    rows = _rows(len(cells), bare, width)
    cell = bare + (_rows(len(cells), bare + 1, width) == rows)  # a blank at the end if it costs no row
    columns = -(-len(cells) // rows)
    lines = [_rule("┌┬┐", columns, cell)]
    for first in range(0, len(cells), columns):
        row = cells[first : first + columns]
        row += [""] * (columns - len(row))
        lines += [f"│{'│'.join(f'{c:<{cell}}' for c in row)}│", _rule("├┼┤", columns, cell)]
    return [*lines[:-1], _rule("└┴┘", columns, cell)]


def _rows(cells: int, cell: int, width: int) -> int:
    return -(-cells // max(1, (width - 1) // (cell + 1)))


def _cpu(cpu: LogicalCpu, digits: int) -> str:
    """The number with its mark close to it."""
    return f"{'×' if cpu.online and cpu.allowed is False else ''}{cpu.cpu}".rjust(digits + 1)


def _rule(corners: str, columns: int, cell: int) -> str:
    return corners[0] + corners[1].join(["─" * cell] * columns) + corners[2]


def _pack(blocks: Sequence[list[str]], width: int) -> list[str]:
    """Side by side as long as they fit, then below."""
    lines: list[str] = []
    row: list[list[str]] = []
    for block in blocks:
        if row and sum(len(b[0]) + 1 for b in row) + len(block[0]) > width:
            lines += _beside(row)
            row = []
        row.append(block)
    return [*lines, *(_beside(row) if row else [])]


def _beside(row: Sequence[list[str]]) -> list[str]:
    widths = [len(block[0]) for block in row]
    return [
        " ".join(f"{part:<{w}}" for part, w in zip(parts, widths, strict=True)).rstrip()
        for parts in zip_longest(*row, fillvalue="")
    ]
