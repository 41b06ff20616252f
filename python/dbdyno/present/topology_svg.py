"""The picture of the topology as a file of its own: SVG, for light and dark grounds, no scripts, no fonts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dbdyno.model.topology import Topology
from dbdyno.present.files import write_atomic
from dbdyno.present.markup import Html, el, joined
from dbdyno.present.palette import dark, light
from dbdyno.present.topology import facts
from dbdyno.present.topology_boxes import boxes
from dbdyno.present.topology_shapes import GAP, STATES, Drawn, box, label, moved, packed, state, thread

_ROOM = 1320  # width of a picture of many boxes; that of a small machine is narrower
_LINE = 19
_LETTER = 7.0  # width of one in a line of 12 px
_WRAP = 110  # letters a line
_HIDDEN = ("isolated", "unknown")  # the description has them


def write(t: Topology, path: Path) -> Path:
    """Raises StoreError where that cannot be written."""
    return write_atomic(path, svg(t).encode("utf-8"))


def svg(t: Topology) -> str:
    """The whole document."""
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
    """The facts that no box shows."""
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
    width = 100 + _LETTER * max(len(words) for _, words, _ in lines)
    return Drawn(width, len(lines) * _LINE, joined(texts))


def _legend(t: Topology) -> Drawn:
    """Only of what is in the picture."""
    seen = {state(c) for c in t.cpus}
    entries = [("n", kind, words) for kind, words in STATES.items() if kind in seen]
    parts = [label("A frame around numbers is a core; its numbers are its threads (CPUs).", 0, 15, "fact")]
    for i, (number, kind, words) in enumerate(entries, start=1):
        y = i * (_LINE + 5)
        parts += [moved(thread(number, kind, words), 0, y), label(words, 42, y + 15, "fact")]
    return Drawn(_LETTER * 70, (len(entries) + 1) * (_LINE + 5), joined(parts))


def _style() -> str:
    return (
        "text{font-family:system-ui,sans-serif}.number{font-size:12px;text-anchor:middle}"
        ".label{font-size:12px}.matrix{font-family:monospace;white-space:pre}.number{paint-order:stroke}.name,.socket.label,.node.label{font-weight:600}"
        ".box{stroke-width:1.5}.core{stroke-width:.6}.cpu.unknown{stroke-dasharray:1 2}"
        ".cpu.offline{stroke-dasharray:4 3}.struck{stroke-width:1}"
        f"{_colours(light)}@media (prefers-color-scheme:dark){{{_colours(dark)}}}"
    )


def _colours(of: Callable[[str], str]) -> str:
    """Plain values, no custom properties: not every program that shows SVG knows those."""
    return (
        f".page{{fill:{of('page')}}}text{{fill:{of('text')}}}.name{{fill:{of('muted')}}}"
        f".box{{fill:{of('card')};stroke:{of('muted')}}}.box.cache{{stroke:{of('series-5')}}}"
        f".core{{fill:{of('page')};stroke:{of('muted')}}}"
        f".cpu{{fill:none;stroke:{of('muted')}}}.cpu.allowed{{fill:{of('accent')};stroke:{of('accent')}}}"
        f".number.allowed{{fill:{of('card')}}}.number.cpuset,.number.affinity,.number.offline{{fill:{of('muted')}}}"
        f".cpu.cpuset,.cpu.affinity{{fill:{of('line')}}}.struck{{stroke:{of('muted')}}}"
        f".number.cpuset,.number.affinity{{stroke:{of('line')};stroke-width:3}}"
    )
