"""Machine against machine on a terminal, as HTML and as JSON: one table and one chart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from dbdyno.model.machines import Machines, Speed
from dbdyno.model.scaling import Estimate, Machine
from dbdyno.model.units import format_ns, format_rate
from dbdyno.present.compare import columns
from dbdyno.present.figures import UNKNOWN
from dbdyno.present.machines_plot import plot
from dbdyno.present.markup import Html, el, table

FORMAT = 1
"""Raised when a key changes its meaning or goes; new keys do not raise it."""
NUMERIC = (False, True, True, True, False, True, False)
Row = tuple[str, ...]


def machines_text(made: Iterable[Machines]) -> RenderableType:
    """The answer, the table, what to bear in mind; one after another."""
    return Group(*(part for m in made for part in _text(m)))


def _text(made: Machines) -> Iterator[RenderableType]:
    yield Text(title(made), style="bold")
    yield from (Text(f"{name}: {about(m)}") for name, m in _sides(made))
    yield from (Text(c) for c in made.claims)
    yield Text("")
    yield from columns(heads(made), NUMERIC, rows(made))
    yield Text("")
    yield from (Text(n, style="dim") for n in notes(made))


def machines_html(made: Machines) -> Html:
    """A section: words, chart, table."""
    words = [el("p", c, class_="lead") for c in made.claims]
    facts = [el("p", f"{name}: {about(m)}", class_="muted") for name, m in _sides(made)]
    told = table(f"{title(made)}, {made.a.throughput_unit}", heads(made), rows(made), NUMERIC)
    return el("div", *words, *facts, plot(made), told, *(el("p", n, class_="muted") for n in notes(made)))


def machines_json(made: Iterable[Machines]) -> list[dict[str, Any]]:
    """One document a pair of ladders; unknown is ``None``."""
    return [_document(m) for m in made]


def title(made: Machines) -> str:
    what = f"{made.a.name}, " if made.a.name == made.b.name else ""
    return f"Machine against machine: {what}{made.names[1]} over {made.names[0]}"


def _sides(made: Machines) -> tuple[tuple[str, Machine], ...]:
    return (made.names[0], made.a.machine), (made.names[1], made.b.machine)


def about(machine: Machine) -> str:
    """``4 cores, 8 threads, a model``."""
    found = [
        f"{n:g} {what}{'' if n == 1 else 's'}"
        for n, what in ((machine.cores, "core"), (machine.cpus, "thread"))
        if n
    ]
    return ", ".join([*found, *([machine.model] if machine.model else [])]) or "a machine not known"


def heads(made: Machines) -> Row:
    a, b = made.names
    return ("", a, b, f"{b}/{a}", "95 % interval", "response", "")


def rows(made: Machines) -> list[Row]:
    """One session, every load, the crossing, the peaks."""
    found = [] if made.at_loads[0].load == 1 else [_speed(made.one_session)]
    for at in made.at_loads:
        response = UNKNOWN if at.response.ratio is None else f"{at.response.ratio.value:.3g}"
        found.append(_speed(at.throughput, response, "" if at.how == "measured" else at.how))
    unit = made.a.load_unit
    for e in made.crossings:
        found.append((f"crossing, {unit}", "", "", f"{e.value:.3g}", _ends(e), "", e.note))
    if not made.crossings:
        found.append((f"crossing, {unit}", "", "", "none", "", "", "within the common range"))
    at_peak = " and ".join(f"{n:g}" for n in made.peak_loads)
    found.append(_speed(made.peak, "", f"at {at_peak} {unit}"))
    return [*found, _speed(made.per_core), _speed(made.per_thread)]


def _speed(speed: Speed, response: str = "", note: str = "") -> Row:
    if speed.ratio is None or speed.a is None or speed.b is None:
        return (speed.what, UNKNOWN, UNKNOWN, UNKNOWN, "", response, speed.reason)
    sides = (_value(e) for e in (speed.a, speed.b))
    return (speed.what, *sides, f"{speed.ratio.value:.3g}", _ends(speed.ratio), response, note)


def _value(e: Estimate) -> str:
    return format_ns(e.value * 1e9) if e.unit == "s" else format_rate(e.value)


def _ends(e: Estimate) -> str:
    """A crossing may be bounded on one side only."""
    if not e.method:
        return UNKNOWN
    ends = (UNKNOWN if v is None else f"{v:.3g}" for v in (e.low, e.high))
    return " .. ".join(ends)


def notes(made: Machines) -> Sequence[str]:
    said = "Between rungs the logarithm of throughput runs straight over that of the load."
    over = "Response: B's mean response time over A's." if made.names == ("A", "B") else (
        f"Response: mean response time of {made.names[1]} over that of {made.names[0]}."
    )  # fmt: skip
    return (*([said] if any(x.how == "interpolated" for x in made.at_loads) else []), over, *made.notes)


def _document(made: Machines) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "names": list(made.names),
        "ladders": [made.a.name, made.b.name],
        "machines": [vars(ladder.machine) for ladder in (made.a, made.b)],
        "throughput_unit": made.a.throughput_unit,
        "load_unit": made.a.load_unit,
        "one_session": _speed_document(made.one_session),
        "at_loads": [
            {
                "load": x.load,
                "how": x.how,
                "throughput": _speed_document(x.throughput),
                "response": _speed_document(x.response),
            }
            for x in made.at_loads
        ],
        "crossings": [vars(e) for e in made.crossings],
        "peak": {**_speed_document(made.peak), "loads": list(made.peak_loads)},
        "per_core": _speed_document(made.per_core),
        "per_thread": _speed_document(made.per_thread),
        "claims": list(made.claims),
        "notes": list(made.notes),
    }


def _speed_document(speed: Speed) -> dict[str, Any]:
    estimates = {"a": speed.a, "b": speed.b, "ratio": speed.ratio}
    told = {k: None if e is None else dict(vars(e)) for k, e in estimates.items()}
    return {"what": speed.what, "unit": speed.unit, **told, "reason": speed.reason or None}
