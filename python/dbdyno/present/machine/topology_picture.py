"""Draws the topology as boxes: in text, and as an SVG file for light and dark backgrounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from dbdyno.model.engine.topology import LogicalCpu, Topology
from dbdyno.present.document.document import UNKNOWN
from dbdyno.present.document.files import write_atomic
from dbdyno.present.document.page import Html, el, join
from dbdyno.present.document.palette import dark, light
from dbdyno.present.machine.topology import Box, Cores, boxes, facts

_ASCII = str.maketrans({"─": "-", "│": "|", "×": "x", **dict.fromkeys("┌┬┐├┼┤└┴┘", "+")})


def picture(t: Topology, width: int = 100) -> list[str]:
    """Returns boxes no wider than ``width`` if a core fits into it, and a legend in the last line."""
    digits = len(str(max((c.cpu for c in t.cpus), default=0)))
    drawn = [_draw(box, width, digits) for box in boxes(t)]
    return [*_pack(drawn, width), _text_legend(t)]


def ascii_only(lines: Sequence[str]) -> list[str]:
    """Replaces box-drawing characters for terminals that lack them."""
    return [line.translate(_ASCII) for line in lines]


def _text_legend(t: Topology) -> str:
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
    """Puts the title into the upper border; empty if that is too short."""
    head = f"┌─ {title} " if title else ""
    return [head + grid[0][len(head) :], *grid[1:]] if len(head) < len(grid[0]) else []


def _framed(title: str, lines: Sequence[str]) -> list[str]:
    head = f"─ {title} " if title else ""
    inner = max([len(head) + 1, *(len(line) + 2 for line in lines)])
    return [f"┌{head:─<{inner}}┐", *(f"│ {line:<{inner - 2}} │" for line in lines), f"└{'':─<{inner}}┘"]


def _grid(cores: Cores, width: int, digits: int) -> list[str]:
    """Draws cells of equal width with common borders, in rows of similar length."""
    if not cores:
        return []
    cells = ["".join(_cpu(c, digits) for c in core) for core in cores]
    bare = max(map(len, cells))
    rows = _rows_of(len(cells), bare, width)
    cell = bare + (_rows_of(len(cells), bare + 1, width) == rows)  # pads cells if that needs no further row
    columns = -(-len(cells) // rows)
    lines = [_rule("┌┬┐", columns, cell)]
    for first in range(0, len(cells), columns):
        row = cells[first : first + columns]
        row += [""] * (columns - len(row))
        lines += [f"│{'│'.join(f'{c:<{cell}}' for c in row)}│", _rule("├┼┤", columns, cell)]
    return [*lines[:-1], _rule("└┴┘", columns, cell)]


def _rows_of(cells: int, cell: int, width: int) -> int:
    return -(-cells // max(1, (width - 1) // (cell + 1)))


def _cpu(cpu: LogicalCpu, digits: int) -> str:
    """Returns the number of a CPU with its mark right before it."""
    return f"{'×' if cpu.online and cpu.allowed is False else ''}{cpu.cpu}".rjust(digits + 1)


def _rule(corners: str, columns: int, cell: int) -> str:
    return corners[0] + corners[1].join(["─" * cell] * columns) + corners[2]


def _pack(blocks: Sequence[list[str]], width: int) -> list[str]:
    """Puts blocks side by side while they fit, then below."""
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


# Shapes of the SVG: threads in cores in nested boxes, each with its size, laid out in rows. Sizes in pixels.

GAP = 8
_PAD = 10  # inside a box
_TITLE = 20  # height of the title of a box
_LETTER = 7.2  # mean width of a letter of 13 px
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
    """Returns a frame with a title around the content of ``b``, at most about ``room`` wide."""
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
    return Drawn(width, height, join(*parts))


def core(threads: Sequence[LogicalCpu]) -> Drawn:
    """Returns a core with its threads side by side."""
    columns = min(len(threads), _THREADS_A_ROW)
    rows = -(-len(threads) // columns)
    width = columns * _THREAD_WIDTH + (columns + 1) * _CORE_PAD
    height = rows * _THREAD_HEIGHT + (rows + 1) * _CORE_PAD
    parts = [el("rect", class_="core", width=width, height=height, rx=3)]
    for i, cpu in enumerate(threads):
        x = _CORE_PAD + i % columns * (_THREAD_WIDTH + _CORE_PAD)
        y = _CORE_PAD + i // columns * (_THREAD_HEIGHT + _CORE_PAD)
        parts.append(moved(thread(str(cpu.cpu), state(cpu), tooltip(cpu)), x, y))
    return Drawn(width, height, join(*parts))


def thread(number: str, kind: str, title: str) -> Drawn:
    """Returns one logical CPU; its state shows in its shape as well as its colour: filled, struck out,
    dashed."""
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


def tooltip(cpu: LogicalCpu) -> str:
    """Returns the text shown on hovering over a CPU."""
    places = {"socket": cpu.socket, "node": cpu.node, "core": cpu.core, "thread": cpu.thread}
    where = ", ".join(f"{k} {UNKNOWN if v is None else v}" for k, v in places.items())
    return f"CPU {cpu.cpu}: {f'{where}; ' if cpu.online else ''}{STATES[state(cpu)]}"


def packed(shapes: Sequence[Drawn], room: float) -> Drawn:
    """Puts shapes side by side while they fit, then below, in rows of similar length."""
    rows = _rows(shapes, room)
    if len(rows) > 1:  # distributes shapes evenly over the same number of rows
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
    return Drawn(width, max(0.0, y - GAP), join(*parts))


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


_ROOM = 1320  # most pixels in width
_LINE = 19
_LETTER_PX = 7.0  # mean width of a letter of 12 px
_WRAP = 110  # most letters in a line
_HIDDEN = ("isolated", "unknown")  # facts that only the element desc has


def write(t: Topology, path: Path) -> Path:
    """Writes the SVG file. Raises StoreError if that fails."""
    return write_atomic(path, svg(t).encode("utf-8"))


def svg(t: Topology) -> str:
    """Returns the SVG document."""
    parts = [_heading(t), packed([box(b, _ROOM) for b in boxes(t)], _ROOM), _legend(t)]
    width = max(p.width for p in parts) + 2 * GAP
    y, body = float(GAP), []
    for part in parts:
        body.append(moved(part, GAP, y))
        y += part.height + GAP
    return el(
        "svg",
        el("title", f"Topology: {t.model or 'CPU of unknown model'}"),
        el("desc", "; ".join(facts(t, 10_000))),
        el("style", Html(_style())),
        el("rect", class_="page", width="100%", height="100%"),
        *body,
        xmlns="http://www.w3.org/2000/svg",
        role="img",
        width=f"{width:g}",
        height=f"{y:g}",
        viewBox=f"0 0 {width:g} {y:g}",
    )


def _heading(t: Topology) -> Drawn:
    """Returns the facts that no box shows."""
    lines, subject = [], ""
    for line in facts(t, _WRAP):
        name, words = line[:14].strip(), line[14:]
        subject = name or subject
        if subject not in _HIDDEN:
            lines.append((name, words, "matrix" if subject == "NUMA" else "fact"))
    texts = []
    for i, (name, words, kind) in enumerate(lines):
        y = (i + 1) * _LINE - 5
        texts += [label(name, 0, y, "name"), label(words, 100, y, kind)]
    width = 100 + _LETTER_PX * max(len(words) for _, words, _ in lines)
    return Drawn(width, len(lines) * _LINE, join(*texts))


def _legend(t: Topology) -> Drawn:
    """Returns the legend of the states that occur in the picture."""
    present = {state(c) for c in t.cpus}
    entries = [("n", kind, words) for kind, words in STATES.items() if kind in present]
    parts = [label("A frame around numbers is a core; its numbers are its threads (CPUs).", 0, 15, "fact")]
    for i, (number, kind, words) in enumerate(entries, start=1):
        y = i * (_LINE + 5)
        parts += [moved(thread(number, kind, words), 0, y), label(words, 42, y + 15, "fact")]
    return Drawn(_LETTER_PX * 70, (len(entries) + 1) * (_LINE + 5), join(*parts))


def _style() -> str:
    return (
        "text{font-family:system-ui,sans-serif}.number{font-size:12px;text-anchor:middle}"
        ".label{font-size:12px}.matrix{font-family:monospace;white-space:pre}.number{paint-order:stroke}.name,.socket.label,.node.label{font-weight:600}"
        ".box{stroke-width:1.5}.core{stroke-width:.6}.cpu.unknown{stroke-dasharray:1 2}"
        ".cpu.offline{stroke-dasharray:4 3}.struck{stroke-width:1}"
        f"{_colours(light)}@media (prefers-color-scheme:dark){{{_colours(dark)}}}"
    )


def _colours(value: Callable[[str], str]) -> str:
    """Returns rules with plain values, because some SVG viewers lack custom properties."""
    return (
        f".page{{fill:{value('page')}}}text{{fill:{value('text')}}}.name{{fill:{value('muted')}}}"
        f".box{{fill:{value('card')};stroke:{value('muted')}}}.box.cache{{stroke:{value('series-5')}}}"
        f".core{{fill:{value('page')};stroke:{value('muted')}}}"
        f".cpu{{fill:none;stroke:{value('muted')}}}.cpu.allowed{{fill:{value('accent')};stroke:{value('accent')}}}"
        f".number.allowed{{fill:{value('card')}}}.number.cpuset,.number.affinity,.number.offline{{fill:{value('muted')}}}"
        f".cpu.cpuset,.cpu.affinity{{fill:{value('line')}}}.struck{{stroke:{value('muted')}}}"
        f".number.cpuset,.number.affinity{{stroke:{value('line')};stroke-width:3}}"
    )
