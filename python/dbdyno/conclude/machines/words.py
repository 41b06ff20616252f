"""What two machines are to each other, in words."""

from __future__ import annotations

from collections.abc import Iterator

from dbdyno.model.machines import Machines, Speed
from dbdyno.model.scaling import Estimate


def claims(made: Machines) -> tuple[str, ...]:
    """The argument: alone, where they cross, at most, and what a core and a thread of each gives."""
    return tuple(_claims(made))


def _claims(made: Machines) -> Iterator[str]:
    _, b = made.names
    yield from _argument(made)
    yield from _sentence(made.one_session, b, f"With {made.one_session.what}")
    yield _crossing(made)
    last = made.at_loads[-1]
    if last.load > 1:
        yield from _sentence(last.throughput, b, f"With {last.load:g} {made.a.load_unit}")
    yield from _sentence(made.peak, b, "At its peak")
    for speed in (made.per_core, made.per_thread):
        yield from _sentence(speed, b, f"Per {speed.what.removeprefix('peak per ')}, at its peak,")


def _argument(made: Machines) -> Iterator[str]:
    """``T2000: slower alone (0.5 times), 2 times at 200 sessions.``: where one and many say the opposite."""
    one, many = made.one_session.ratio, made.at_loads[-1].throughput.ratio
    if one is None or many is None or (one.value - 1) * (many.value - 1) >= 0:
        return
    alone = "slower" if one.value < 1 else "faster"
    last = f"{made.at_loads[-1].load:g} {made.a.load_unit}"
    yield f"{made.names[1]}: {alone} alone ({one.value:.3g} times), {many.value:.3g} times at {last}."


def _sentence(speed: Speed, name: str, where: str) -> Iterator[str]:
    if speed.ratio is not None:
        yield f"{where} {name} delivers {times(speed.ratio)}."


def times(ratio: Estimate) -> str:
    """``2.01 times as much [1.95 .. 2.07]``; ``no other than ...`` where the interval holds 1."""
    interval = "" if ratio.low is None or ratio.high is None else f" [{ratio.low:.3g} .. {ratio.high:.3g}]"
    if ratio.low is not None and ratio.high is not None and ratio.low <= 1 <= ratio.high:
        return f"about as much: {ratio.value:.3g} times{interval}, not significantly different from 1"
    return f"{ratio.value:.3g} times as much{interval}"


def _crossing(made: Machines) -> str:
    a, b = made.names
    low, high = made.at_loads[0], made.at_loads[-1]
    span = f"{low.load:g} to {high.load:g} {made.a.load_unit}"
    if made.crossings:
        return "; ".join(_at(made, e) for e in made.crossings) + "."
    ratios = [x.throughput.ratio for x in made.at_loads if x.throughput.ratio is not None]
    if len(ratios) < 2:
        return f"Both were measured around {low.load:g} {made.a.load_unit} only: no crossover is visible."
    if all(r.low is not None and r.high is not None and r.low <= 1 <= r.high for r in ratios):
        return f"No significant difference from {span}."
    if all(r.value > 1 for r in ratios) or all(r.value < 1 for r in ratios):
        return f"No crossover from {span}: {b if ratios[0].value > 1 else a} is ahead throughout."
    return f"No crossover beyond noise from {span}."


def _at(made: Machines, e: Estimate) -> str:
    """``B overtakes A at 24.3 sessions [20.1 .. 30.0]``."""
    a, b = made.names
    before = next(
        (x.throughput.ratio.value for x in reversed(made.at_loads)
         if x.load < e.value and x.throughput.ratio is not None and x.throughput.ratio.value != 1),
        1.0,
    )  # fmt: skip
    first, second = (b, a) if before < 1 else (a, b)
    interval = ""
    if e.method:
        ends = ["below the range" if e.low is None else f"{e.low:.3g}",
                "beyond the range" if e.high is None else f"{e.high:.3g}"]  # fmt: skip
        interval = f" [{ends[0]} .. {ends[1]}]"
    return f"{first} overtakes {second} at {e.value:.3g} {made.a.load_unit}{interval}"
