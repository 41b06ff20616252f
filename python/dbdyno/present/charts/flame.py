"""Builds a tree of stacks, and writes it as a flame graph of the page, as SVG or as folded text."""

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
"""Share of the whole below which pictures leave a frame out: less than a third of a pixel."""
ROOT = "all"


@dataclass
class Node:
    """A frame below its callers.

    ``value`` is seconds per second including callees, ``other`` the same of the run that it is compared
    with.
    """

    text: str
    value: float = 0.0
    other: float = 0.0
    children: dict[str, Node] = field(default_factory=dict)

    def size(self) -> float:
        """Returns the value that its width shows: the larger one of a comparison, so that vanished frames
        are seen."""
        return max(self.value, self.other)


def stacks(
    results: Results,
    pick: Pick,
    only: Mapping[str, str] | None = None,
    apart: Sequence[str] = (),
    tables: tuple[str, str] = ("cpu_profile", "cpu_stacks"),
) -> pl.DataFrame:
    """Returns ``scope``, ``who``, ``stack``, ``mode``, ``aas`` and ``samples``, averaged over several
    cells.

    ``only`` restricts the samples to a wait event and a statement, ``apart`` adds these columns to the
    groups. ``tables`` are the names of the tables of the profile and its stacks.
    """
    profile, folded = tables
    windows = results.tables["windows"]
    if pick.cell is not None and pick.repeats == 1:
        walls = {pick.cell: 1.0}
    else:
        profiled = set(results.tables[profile]["cell"])
        picked = [
            cells
            for head, cells in groups(windows)
            if (pick.rung, pick.together) == (_rung(head), head["cell"])
        ]
        walls = {w["cell"]: w["wall_s"] for cells in picked for w in cells if w["cell"] in profiled}
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
    """Returns the tree of stacks of the sessions, or of all processes if no session has one.

    ``other`` has the stacks that they are compared with.
    """
    root = Node(ROOT)
    for n, frame in enumerate((rows, other)):
        if frame is None:
            continue
        of_sessions = frame.filter(pl.col("scope") == "rung")
        for stack, aas in (of_sessions if of_sessions.height else frame).select("stack", "aas").iter_rows():
            _add(root, stack.split(";"), aas, "other" if n else "value")
    return root


def _add(root: Node, frames: Iterable[str], aas: float, attribute: str) -> None:
    """Adds ``aas`` to an attribute (``value`` or ``other``) of each frame of a stack."""
    setattr(root, attribute, getattr(root, attribute) + aas)
    node = root
    for text in frames:
        node = node.children.setdefault(text, Node(text))
        setattr(node, attribute, getattr(node, attribute) + aas)


def block(
    id: str, title: str, caption: str, root: Node, unit: tuple[float, str], compared: bool = False
) -> Flame:
    """Returns the flame graph for a page. ``unit`` is the factor of a second per second, and its name."""
    names: dict[str, int] = {}
    least = LEAST * root.size()

    def packed(node: Node) -> list[Any]:
        number = names.setdefault(node.text, len(names))
        kept = sorted((c for c in node.children.values() if c.size() >= least), key=lambda c: c.text)
        inner = [packed(c) for c in kept]
        size = max(node.size(), sum(c[1] for c in inner))
        delta = node.value - node.other if compared else 0.0
        return [number, _rounded(size), _rounded(delta), inner]

    packed_root = packed(root)
    return Flame(id, title, caption, list(names), packed_root, colours(root), unit[0], unit[1], compared)


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def colours(root: Node) -> dict[str, str]:
    """Returns the name of a colour per module: one for the kernel, the others in turn by their own time."""
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


# A drawing that needs no script. Pixels: width of the drawing, height of a row, width of a character.
_WIDE, _HIGH, _CHAR = 1200.0, 18.0, 6.6


def svg(shown: Flame) -> str:
    """Returns an icicle of the whole graph as SVG. The title of each frame has its figures; all text is
    escaped."""
    rows: list[str] = []
    whole = shown.root[1] or 1.0
    depth = _draw_frame(shown, shown.root, 0.0, 0, whole, rows)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE:g} {_HIGH * (depth + 2):g}" '
        'font-family="DejaVu Sans,Verdana,sans-serif" font-size="11">'
    )
    title = f'<title>{escaped(shown.title)}</title><text x="4" y="13">{escaped(shown.title)}</text>'
    return "\n".join([head, title, *rows, "</svg>", ""])


def _draw_frame(shown: Flame, raw: Sequence[Any], x: float, depth: int, whole: float, rows: list[str]) -> int:
    """Appends a frame and its callees to ``rows``, and returns the depth of the deepest frame that is
    drawn."""
    width = _WIDE * raw[1] / whole
    if width < 0.3:
        return depth - 1
    text = shown.names[raw[0]]
    frame = frame_of(text)
    label = frame.function if "`" in text else text
    title = f"{label} ({frame.module}): {_figures(shown, raw, whole)}"
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
        deepest = max(deepest, _draw_frame(shown, child, x, depth + 1, whole, rows))
        x += _WIDE * child[1] / whole
    return deepest


def _opacity(shown: Flame, raw: Sequence[Any], whole: float) -> float:
    """Returns the opacity of a frame; in a comparison it grows with the difference."""
    return min(0.8, 0.06 + 2 * abs(raw[2]) / whole) if shown.compared else 0.55


def _fill(shown: Flame, raw: Sequence[Any], module: str) -> str:
    if not shown.compared:
        return palette.light(shown.colours.get(module, "client"))
    return "#f4f4f4" if not raw[2] else palette.light("runq" if raw[2] > 0 else "run")


def _figures(shown: Flame, raw: Sequence[Any], whole: float) -> str:
    figures = f"{100 * raw[1] / whole:.2f} %, {significant(raw[1] * shown.scale)} {shown.unit}"
    return f"{figures}; difference {raw[2] * shown.scale:+.3g} {shown.unit}" if shown.compared else figures


def folded(rows: pl.DataFrame) -> str:
    """Returns a line per stack with its microseconds per second, as flamegraph.pl reads it.

    The first frame names the sessions or process; frames of the kernel end in ``_[k]``.
    """
    lines = []
    for who, stack, aas in rows.select("who", "stack", "aas").iter_rows():
        frames = [frame_of(f) for f in stack.split(";")]
        texts = [f"{f.function}_[k]" if f.module.startswith("kernel") else f.function for f in frames]
        if count := round(aas * 1e6):
            lines.append(f"{';'.join(map(one_line, [whose(who), *texts]))} {count}\n")
    return "".join(lines)


def whose(who: str) -> str:
    """Returns ``sessions`` for the sum of all sessions, else the kind of server process."""
    return "sessions" if who == "rung" else who
