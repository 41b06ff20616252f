"""What two machines are to each other: the claims of the catalogue."""

from __future__ import annotations

from collections.abc import Iterator

from dbdyno.conclude.catalogue import claim
from dbdyno.model.claim import Claim
from dbdyno.model.machines import Machines, Speed
from dbdyno.model.scaling import Estimate


def claims(made: Machines) -> Iterator[Claim]:
    """The argument: alone, where they cross, at most, and what a core and a thread of each gives."""
    _, b = made.names
    yield from _argument(made)
    yield from _ratio(made.one_session, b, f"With {made.one_session.what}")
    yield from _crossing(made)
    last = made.at_loads[-1]
    if last.load > 1:
        yield from _ratio(last.throughput, b, f"With {last.load:g} {made.a.load_unit}")
    yield from _ratio(made.peak, b, "At its peak")
    for speed in (made.per_core, made.per_thread):
        yield from _ratio(speed, b, f"Per {speed.what.removeprefix('peak per ')}, at its peak,")


def _argument(made: Machines) -> Iterator[Claim]:
    """Where one session and many say the opposite."""
    one, many = made.one_session.ratio, made.at_loads[-1].throughput.ratio
    if one is None or many is None or (one.value - 1) * (many.value - 1) >= 0:
        return
    load = f"{made.at_loads[-1].load:g} {made.a.load_unit}"
    said = {"name": made.names[1], "one": one.value, "many": many.value, "load": load}
    yield claim("alone-and-many", said, case="slower" if one.value < 1 else "faster")


def _ratio(speed: Speed, name: str, place: str) -> Iterator[Claim]:
    ratio = speed.ratio
    if ratio is None:
        return
    known = ratio.low is not None and ratio.high is not None
    interval = f" ({ratio.low:.3g} to {ratio.high:.3g})" if known else ""
    said = {"place": place, "name": name, "ratio": ratio.value, "interval": interval}
    yield claim("machine-ratio", said, ratio, case="equal" if _may_be_one(ratio) else "more")


def _may_be_one(ratio: Estimate) -> bool:
    return ratio.low is not None and ratio.high is not None and ratio.low <= 1 <= ratio.high


def _crossing(made: Machines) -> Iterator[Claim]:
    a, b = made.names
    low, high, unit = made.at_loads[0].load, made.at_loads[-1].load, made.a.load_unit
    said = {"low": f"{low:g} {unit}", "span": f"{low:g} to {high:g} {unit}"}
    ratios = [x.throughput.ratio for x in made.at_loads if x.throughput.ratio is not None]
    if made.crossings:
        yield from (_at(made, e) for e in made.crossings)
    elif len(ratios) < 2:
        yield claim("crossover", said, case="one-load")
    elif all(_may_be_one(r) for r in ratios):
        yield claim("crossover", said, case="equal")
    elif all(r.value > 1 for r in ratios) or all(r.value < 1 for r in ratios):
        yield claim("crossover", said | {"ahead": b if ratios[0].value > 1 else a}, case="none")
    else:
        yield claim("crossover", said, case="noise")


def _at(made: Machines, e: Estimate) -> Claim:
    """``B overtakes A at 24.3 sessions (20.1 to 30.0)``."""
    a, b = made.names
    ratios = ((x.load, x.throughput.ratio) for x in reversed(made.at_loads))
    before = next((r.value for n, r in ratios if n < e.value and r is not None and r.value != 1), 1.0)
    first, second = (b, a) if before < 1 else (a, b)
    low = "below the range" if e.low is None else f"{e.low:.3g}"
    high = "beyond the range" if e.high is None else f"{e.high:.3g}"
    interval = f" ({low} to {high})" if e.method else ""
    said = {"first": first, "second": second, "load": e.value, "unit": made.a.load_unit, "interval": interval}
    return claim("crossover", said, e, case="at")
