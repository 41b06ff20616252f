"""Shapes of the topology's SVG: threads in cores in boxes in boxes, each with its size, laid out in rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dbdyno.model.topology import LogicalCpu
from dbdyno.present.figures import UNKNOWN
from dbdyno.present.markup import Html, el, joined
from dbdyno.present.topology_boxes import Box

GAP = 8
_PAD = 10  # within a box
_TITLE = 20  # height of a box's title
_LETTER = 7.2  # width of one at 13 px
_THREAD_WIDTH, _THREAD_HEIGHT = 32, 20
_THREADS_A_ROW = 4
_CORE_PAD = 3
STATES = {
    "allowed": "this process may run here",
    "cpuset": "outside the cpuset of its control group",
    "affinity": "outside its affinity mask",
    "unknown": "unknown whether it may run here",
    "offline": "offline",
}


class Drawn(NamedTuple):
    """Markup with its upper left corner at 0, 0; sizes in pixels."""

    width: float
    height: float
    body: Html


def box(b: Box, room: float) -> Drawn:
    """A frame with a title around what ``b`` holds, about as wide as ``room`` at most."""
    inner = room - 2 * _PAD
    shapes = [box(inside, inner) for inside in b.boxes] + [core(threads) for threads in b.cores]
    content = packed(shapes, inner)
    title = _TITLE if b.title else 0
    width = max(content.width, len(b.title) * _LETTER) + 2 * _PAD
    height = content.height + title + (2 * _PAD if shapes else _PAD)
    parts = [el("rect", class_=f"box {b.kind}", width=_px(width), height=_px(height), rx=4)]
    if b.title:
        parts.append(label(b.title, _PAD, _TITLE - 3, b.kind))
    parts.append(moved(content, _PAD, title + _PAD - (2 if b.title else 0)))
    return Drawn(width, height, joined(parts))


def core(threads: Sequence[LogicalCpu]) -> Drawn:
    """A core with its threads side by side."""
    columns = min(len(threads), _THREADS_A_ROW)
    rows = -(-len(threads) // columns)
    width = columns * _THREAD_WIDTH + (columns + 1) * _CORE_PAD
    height = rows * _THREAD_HEIGHT + (rows + 1) * _CORE_PAD
    parts = [el("rect", class_="core", width=width, height=height, rx=3)]
    for i, cpu in enumerate(threads):
        x = _CORE_PAD + i % columns * (_THREAD_WIDTH + _CORE_PAD)
        y = _CORE_PAD + i // columns * (_THREAD_HEIGHT + _CORE_PAD)
        parts.append(moved(thread(str(cpu.cpu), state(cpu), told(cpu)), x, y))
    return Drawn(width, height, joined(parts))


def thread(number: str, kind: str, title: str) -> Drawn:
    """One logical CPU; its state shows in shape, too: filled, struck out, dashed."""
    width, height = _THREAD_WIDTH, _THREAD_HEIGHT
    parts = [el("title", title), el("rect", class_=f"cpu {kind}", width=width, height=height, rx=2)]
    if kind in ("cpuset", "affinity"):
        slope = (height, 0) if kind == "cpuset" else (0, height)
        parts.append(el("line", class_="struck", x1=0, y1=slope[0], x2=width, y2=slope[1]))
    parts.append(el("text", number, class_=f"number {kind}", x=width / 2, y=height / 2 + 4))
    return Drawn(width, height, el("g", *parts))


def state(cpu: LogicalCpu) -> str:
    if cpu.why_not is not None:
        return cpu.why_not
    return "unknown" if cpu.allowed is None else "allowed"


def told(cpu: LogicalCpu) -> str:
    """For the pointer that rests on it."""
    places = {"socket": cpu.socket, "node": cpu.node, "core": cpu.core, "thread": cpu.thread}
    where = ", ".join(f"{k} {UNKNOWN if v is None else v}" for k, v in places.items())
    return f"CPU {cpu.cpu}: {f'{where}; ' if cpu.online else ''}{STATES[state(cpu)]}"


def packed(shapes: Sequence[Drawn], room: float) -> Drawn:
    """Side by side as long as they fit, then below; rows of like shapes as even as they can be."""
    rows = _rows(shapes, room)
    if len(rows) > 1:  # no lonely one at the end: as narrow as the same number of rows allows
        each = -(-len(shapes) // len(rows))
        even = [list(shapes[i : i + each]) for i in range(0, len(shapes), each)]
        rows = even if max(map(_length, even)) <= room else rows
    width, y, parts = 0.0, 0.0, []
    for row in rows:
        x = 0.0
        for shape in row:
            parts.append(moved(shape, x, y))
            x += shape.width + GAP
        width, y = max(width, x - GAP), y + max(s.height for s in row) + GAP
    return Drawn(width, max(0.0, y - GAP), joined(parts))


def _rows(shapes: Sequence[Drawn], room: float) -> list[list[Drawn]]:
    rows: list[list[Drawn]] = []
    x = 0.0
    for shape in shapes:
        if not rows or x + shape.width > room:
            rows.append([])
            x = 0.0
        rows[-1].append(shape)
        x += shape.width + GAP
    return rows


def _length(row: Sequence[Drawn]) -> float:
    return sum(s.width for s in row) + GAP * (len(row) - 1)


def moved(shape: Drawn, x: float, y: float) -> Html:
    return el("g", shape.body, transform=f"translate({_px(x)} {_px(y)})")


def label(words: str, x: float, y: float, kind: str) -> Html:
    return el("text", words, class_=f"label {kind}", x=_px(x), y=_px(y))


def _px(value: float) -> str:
    return f"{value:g}"
