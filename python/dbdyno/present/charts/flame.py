"""Stacks as a tree: for the page's flame graph, as a drawing (SVG), as folded text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from dbdyno.model.results.cpu_profile import frame_of
from dbdyno.model.results.ledger_rows import groups
from dbdyno.model.results.results import Results
from dbdyno.model.text.visible import one_line
from dbdyno.model.units import significant
from dbdyno.present.document import palette
from dbdyno.present.document.document import Flame
from dbdyno.present.document.page import escaped
from dbdyno.present.figures.selection import Pick

LEAST = 2e-4
"""Share of the whole below which a frame is left out of pictures: less than a third of a pixel."""
ROOT = "all"


@dataclass
class Node:
    """A frame under its callers. ``value``: seconds per second with callees; ``other``: of a comparison."""

    text: str
    value: float = 0.0
    other: float = 0.0
    children: dict[str, Node] = field(default_factory=dict)

    def size(self) -> float:
        """What its width stands for: of two the larger, so that what vanished is seen, too."""
        return max(self.value, self.other)


def stacks(
    results: Results,
    pick: Pick,
    only: Mapping[str, str] | None = None,
    apart: Sequence[str] = (),
    tables: tuple[str, str] = ("cpu_profile", "cpu_stacks"),
) -> pl.DataFrame:
    """``scope``, ``who``, ``stack``, ``mode``, ``aas``, ``samples``; of several cells their mean.

    ``only``: the wait event and the statement whose samples are taken; ``apart``: these are columns, too;
    ``tables``: the profile's and its stacks'.
    """
    profile, folded = tables
    windows = results.tables["windows"]
    if pick.cell is not None and pick.repeats == 1:
        walls = {pick.cell: 1.0}
    else:
        there = set(results.tables[profile]["cell"])
        found = [
            cells
            for head, cells in groups(windows)
            if (pick.rung, pick.together) == (_rung(head), head["cell"])
        ]
        walls = {w["cell"]: w["wall_s"] for cells in found for w in cells if w["cell"] in there}
    parts = pl.LazyFrame({"cell": list(walls), "part": [w / sum(walls.values()) for w in walls.values()]})
    by = ["scope", "who", "stack", "mode", *apart]
    same = [pl.col(n) == v for n, v in (only or {}).items()]

    def mean(rows: pl.LazyFrame) -> pl.LazyFrame:
        joined = rows.filter(*same).join(parts, on="cell")
        return joined.group_by(by).agg((pl.col("aas") * pl.col("part")).sum(), pl.col("samples").sum())

    return results.ask(folded, mean).sort(
        "scope", "who", "aas", "stack", descending=[True, False, True, False]
    )


def _rung(head: Mapping[str, Any]) -> tuple[str, str, int]:
    return head["workload"], head["variant"], head["sessions"]


def tree(rows: pl.DataFrame, other: pl.DataFrame | None = None) -> Node:
    """Rows of the sessions; where there are none, of all. ``other``: what they are compared with."""
    root = Node(ROOT)
    for n, frame in enumerate((rows, other)):
        if frame is None:
            continue
        mine = frame.filter(pl.col("scope") == "rung")
        for stack, aas in (mine if mine.height else frame).select("stack", "aas").iter_rows():
            _add(root, stack.split(";"), aas, "other" if n else "value")
    return root


def _add(root: Node, frames: Iterable[str], aas: float, what: str) -> None:
    setattr(root, what, getattr(root, what) + aas)
    node = root
    for text in frames:
        node = node.children.setdefault(text, Node(text))
        setattr(node, what, getattr(node, what) + aas)


def block(
    id: str, title: str, caption: str, root: Node, unit: tuple[float, str], compared: bool = False
) -> Flame:
    """``unit``: what a second per second is in it, and its name."""
    names: dict[str, int] = {}
    least = LEAST * root.size()

    def raw(node: Node) -> list[Any]:
        number = names.setdefault(node.text, len(names))
        kept = sorted((c for c in node.children.values() if c.size() >= least), key=lambda c: c.text)
        inner = [raw(c) for c in kept]
        size = max(node.size(), sum(c[1] for c in inner))
        delta = node.value - node.other if compared else 0.0
        return [number, _rounded(size), _rounded(delta), inner]

    made = raw(root)
    return Flame(id, title, caption, list(names), made, colours(root), unit[0], unit[1], compared)


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def colours(root: Node) -> dict[str, str]:
    """Module -> name of its colour: the kernel's is one, the others' go round by their time."""
    own: dict[str, float] = {}

    def walk(node: Node) -> None:
        module = frame_of(node.text).module
        own[module] = own.get(module, 0.0) + node.value - sum(c.value for c in node.children.values())
        for child in node.children.values():
            walk(child)

    walk(root)
    user = sorted((m for m in own if not m.startswith("kernel")), key=lambda m: -own[m])
    kernel = {m: "run-system" for m in own if m.startswith("kernel")}
    return kernel | {m: palette.SERIES[n % len(palette.SERIES)] for n, m in enumerate(user)}


# A drawing that needs no code.

_WIDE, _HIGH, _CHAR = 1200.0, 18.0, 6.6


def svg(shown: Flame) -> str:
    """An icicle of the whole; each frame's title has its figures. Raises nothing: any text is escaped."""
    rows: list[str] = []
    whole = shown.root[1] or 1.0
    depth = _drawn(shown, shown.root, 0.0, 0, whole, rows)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE:g} {_HIGH * (depth + 2):g}" '
        'font-family="DejaVu Sans,Verdana,sans-serif" font-size="11">'
    )
    title = f'<title>{escaped(shown.title)}</title><text x="4" y="13">{escaped(shown.title)}</text>'
    return "\n".join([head, title, *rows, "</svg>", ""])


def _drawn(shown: Flame, raw: Sequence[Any], x: float, depth: int, whole: float, rows: list[str]) -> int:
    width = _WIDE * raw[1] / whole
    if width < 0.3:
        return depth - 1
    text = shown.names[raw[0]]
    frame = frame_of(text)
    label = frame.function if "`" in text else text
    title = f"{label} ({frame.module}): {_words(shown, raw, whole)}"
    room = int((width - 4) / _CHAR)
    short = label if len(label) <= room else f"{label[: room - 2]}.." if room > 4 else ""
    y = _HIGH * (depth + 1)
    rows.append(
        f'<g><title>{escaped(title)}</title><rect x="{x:.2f}" y="{y:g}" width="{width:.2f}" '
        f'height="{_HIGH - 1:g}" fill="{_fill(shown, raw, frame.module)}" '
        f'fill-opacity="{_opacity(shown, raw, whole):.2f}" stroke="#fff" stroke-width="0.5"/>'
        f'<text x="{x + 2:.2f}" y="{y + 13:g}">{escaped(short)}</text></g>'
    )
    deepest = depth
    for child in raw[3]:
        deepest = max(deepest, _drawn(shown, child, x, depth + 1, whole, rows))
        x += _WIDE * child[1] / whole
    return deepest


def _opacity(shown: Flame, raw: Sequence[Any], whole: float) -> float:
    """Of a comparison: the larger the difference, the stronger."""
    return min(0.8, 0.06 + 2 * abs(raw[2]) / whole) if shown.compared else 0.55


def _fill(shown: Flame, raw: Sequence[Any], module: str) -> str:
    if not shown.compared:
        return palette.light(shown.colours.get(module, "client"))
    return "#f4f4f4" if not raw[2] else palette.light("runq" if raw[2] > 0 else "run")


def _words(shown: Flame, raw: Sequence[Any], whole: float) -> str:
    told = f"{100 * raw[1] / whole:.2f} %, {significant(raw[1] * shown.scale)} {shown.unit}"
    return f"{told}; difference {raw[2] * shown.scale:+.3g} {shown.unit}" if shown.compared else told


def folded(rows: pl.DataFrame) -> str:
    """A line per stack with its microseconds per second; the first frame is whose, ``_[k]`` in the kernel."""
    lines = []
    for who, stack, aas in rows.select("who", "stack", "aas").iter_rows():
        frames = [frame_of(f) for f in stack.split(";")]
        texts = [f"{f.function}_[k]" if f.module.startswith("kernel") else f.function for f in frames]
        if count := round(aas * 1e6):
            lines.append(f"{';'.join(map(one_line, [whose(who), *texts]))} {count}\n")
    return "".join(lines)


def whose(who: str) -> str:
    """The sessions in sum, or a kind of server process."""
    return "sessions" if who == "rung" else who
