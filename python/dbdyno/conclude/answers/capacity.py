"""What one session, one core and the machine deliver; where scaling ends and where the peak lies."""

from __future__ import annotations

from collections.abc import Iterator

from dbdyno.conclude import number_format as fmt
from dbdyno.conclude.answers import rungs
from dbdyno.conclude.claims import claim
from dbdyno.model.claim import GOOD_SCALING, Claim
from dbdyno.model.scaling import Estimate, Scaling

_POINTS = "measured points"
_NAMES = ("first", "second", "third")


def deliveries(scaling: Scaling) -> Iterator[Claim]:
    """one-session, peak, one-machine, one-core."""
    yield from _one_session(scaling)
    yield from _peak(scaling)
    yield from _machine(scaling)


def bends(scaling: Scaling) -> Iterator[Claim]:
    """knee and second-knee, scales-to, at-cpus, one-more-session."""
    yield from _knees(scaling)
    yield from _scales_to(scaling)
    yield from _at_cpus(scaling)
    yield from _one_more(scaling)


def _one_session(scaling: Scaling) -> Iterator[Claim]:
    ladder = scaling.ladder
    found = rungs.alone(scaling)
    if found is None:
        return
    one, measured = found
    text = f"{_one(scaling)} delivers {fmt.rate(one.value, ladder.throughput_unit)}{fmt.rate_spread(one)}"
    response = rungs.at(ladder, 1.0, "response_s")
    if response is not None:
        text += f"; one unit of work ({_unit_of_work(scaling)}) takes {fmt.seconds(response.value)}"
    if not measured:
        text += ", by the model: it was not measured alone"
    evidence = _POINTS if measured else _fit_name(scaling)
    yield claim("one-session", f"{text}.", _named(one, "one session", ladder.throughput_unit), evidence)


def _peak(scaling: Scaling) -> Iterator[Claim]:
    ladder, best = scaling.ladder, scaling.best
    where = rungs.best_rung(ladder)
    top = rungs.at(ladder, where)
    assert top is not None
    last = rungs.loads(ladder)[-1]
    unit = ladder.throughput_unit
    text = f"Peak throughput {fmt.rate(top.value, unit)}{fmt.rate_spread(top)} at "
    text += f"{fmt.load(where, ladder.load_unit)}"
    reached = rungs.reached(ladder)
    if reached < where:
        text += f", within 1 % of that from {fmt.load(reached, ladder.load_unit)} on"
    elif where == last and _grows(scaling):
        text += ", the highest rung: it may still grow"
    if best is not None and best.peak is not None:
        beyond = ", outside what was measured" if best.peak.value > last else ""
        text += f"; {best.title} puts it at {fmt.load(best.peak.value, ladder.load_unit)}"
        text += f"{fmt.spread(best.peak)}{beyond}"
    yield claim("peak", f"{text}.", _named(top, "peak throughput", unit), _POINTS)


def _machine(scaling: Scaling) -> Iterator[Claim]:
    ladder, machine = scaling.ladder, scaling.ladder.machine
    top = rungs.at(ladder, rungs.best_rung(ladder))
    assert top is not None
    unit = ladder.throughput_unit
    name = f" ({machine.model})" if machine.model else ""
    cpus = "" if machine.cpus is None else f" with {fmt.plain(machine.cpus)} CPUs"
    text = f"One machine{name}{cpus} delivers {fmt.rate(top.value, unit)}{fmt.rate_spread(top)}"
    yield claim("one-machine", f"{text} at the most.", _named(top, "one machine", unit), _POINTS)
    for part, count in (("core", machine.cores), ("CPU", machine.cpus)):
        if count is None or (part == "CPU" and count == machine.cores):
            continue
        each = _over(top, count, f"one {part}", unit)
        text = f"One {part} delivers {fmt.rate(each.value, unit)}{fmt.rate_spread(each)}: the peak over "
        text += f"{fmt.plain(count)} {part}s"
        yield claim(f"one-{part.lower()}", f"{text}.", each, _POINTS)


def _knees(scaling: Scaling) -> Iterator[Claim]:
    best, ladder = scaling.best, scaling.ladder
    if best is None:
        return
    for i, (knee, name) in enumerate(zip(best.knees, _NAMES, strict=False)):
        which = "Growth bends" if len(best.knees) == 1 else f"The {name} knee lies"
        text = f"{which} at {fmt.load(knee.value, ladder.load_unit)}{fmt.spread(knee)}"
        text += _beside_cpus(scaling, knee)
        text += f", by {best.title}"
        yield claim("knee" if i == 0 else f"{name}-knee", f"{text}.", knee, _fit_name(scaling))


def _beside_cpus(scaling: Scaling, knee: Estimate) -> str:
    machine = scaling.ladder.machine
    low, high = knee.low, knee.high
    for what, count in (("cores", machine.cores), ("CPUs", machine.cpus)):
        if count is not None and low is not None and high is not None and low <= count <= high:
            return f"; the machine has {fmt.plain(count)} {what}"
    return ""


def _scales_to(scaling: Scaling) -> Iterator[Claim]:
    """The highest measured load at which every session delivers :data:`GOOD_SCALING` of one alone."""
    ladder, found = scaling.ladder, rungs.alone(scaling)
    measured = rungs.loads(ladder)
    if found is None or len(measured) < 2:
        return
    shares = {n: rungs.throughput(ladder, n) / n / found[0].value for n in measured}
    bad = next((i for i, n in enumerate(measured) if shares[n] < GOOD_SCALING), None)
    good = measured[-1 if bad is None else max(0, bad - 1)]
    text = f"Throughput scales to {fmt.load(good, ladder.load_unit)} "
    if bad is None:
        text += f"({fmt.percent(shares[good])} of perfect), the highest rung"
        value = Estimate("scales to", good, ladder.load_unit, low=good)
    else:
        here, there = fmt.apart(shares[good], shares[measured[bad]])
        text += f"({here} of perfect); at {fmt.load(measured[bad], ladder.load_unit)} it is {there}"
        value = Estimate("scales to", good, ladder.load_unit, good, measured[bad], "between two rungs")
    evidence = f"{_POINTS}; perfect is one session's throughput times their number, good {GOOD_SCALING:.0%}"
    yield claim("scales-to", f"{text}.", value, evidence)


def _at_cpus(scaling: Scaling) -> Iterator[Claim]:
    """Efficiency at as many sessions as there are CPUs, measured or by the fit within its measured range."""
    ladder, cpus, one = scaling.ladder, scaling.ladder.machine.cpus, rungs.alone(scaling)
    if cpus is None or one is None:
        return
    measured = rungs.loads(ladder)
    if not measured[0] <= cpus <= measured[-1]:
        return
    found, by = rungs.at(ladder, cpus), "measured"
    if found is None:
        found, by = rungs.fitted_at(scaling, cpus), "by the fit"
    if found is None:
        return
    share = _over(found, cpus * one[0].value, "efficiency at CPUs", "")
    text = f"At {fmt.load(cpus, ladder.load_unit)}, one a CPU, each delivers {fmt.percent(share.value)}"
    text += f"{fmt.percent_spread(share)} of what one alone does ({by})"
    yield claim("at-cpus", f"{text}.", share, _POINTS if by == "measured" else _fit_name(scaling))


def _one_more(scaling: Scaling) -> Iterator[Claim]:
    """The fit's growth for one more session at the top of what was measured."""
    ladder, one = scaling.ladder, rungs.alone(scaling)
    top = rungs.loads(ladder)[-1]
    before, after = rungs.fitted_at(scaling, top - 1), rungs.fitted_at(scaling, top)
    if one is None or before is None or after is None or top < 2:
        return
    growth = after.value - before.value
    unit = ladder.throughput_unit
    share = growth / one[0].value
    session = ladder.load_unit.removesuffix("s")
    if abs(share) < 0.005:
        text = f"At {fmt.load(top, ladder.load_unit)} one more {session} brings nothing"
    else:
        verb = "brings" if growth > 0 else "costs"
        text = f"At {fmt.load(top, ladder.load_unit)} one more {session} {verb} "
        text += f"{fmt.rate(abs(growth), unit)}, {fmt.percent(abs(share))} of what one alone delivers"
    yield claim(
        "one-more-session", f"{text}.", Estimate("one more session", growth, unit), _fit_name(scaling)
    )


def _grows(scaling: Scaling) -> bool:
    """Whether the top rung delivers noticeably more than the one below it."""
    measured = rungs.loads(scaling.ladder)
    if len(measured) < 2:
        return True
    below, top = (rungs.throughput(scaling.ladder, n) for n in measured[-2:])
    return top > 1.02 * below


def _one(scaling: Scaling) -> str:
    return f"One {scaling.ladder.load_unit.removesuffix('s')}"


def _unit_of_work(scaling: Scaling) -> str:
    """``calls/s`` -> ``call``, ``LIO/s`` -> ``LIO``, ``queries/s`` -> ``query``."""
    unit = scaling.ladder.throughput_unit.partition("/")[0] or "unit"
    if unit.endswith("ies"):
        return f"{unit[:-3]}y"
    return unit.removesuffix("s")


def _fit_name(scaling: Scaling) -> str:
    return f"fit: {scaling.best.title}" if scaling.best else _POINTS


def _named(found: Estimate, name: str, unit: str) -> Estimate:
    return Estimate(name, found.value, unit, found.low, found.high, found.method, found.std_err, found.note)


def _over(found: Estimate, by: float, name: str, unit: str) -> Estimate:
    """``found`` / ``by``, which is taken for exact."""
    low, high, error = (None if v is None else v / by for v in (found.low, found.high, found.std_err))
    return Estimate(name, found.value / by, unit, low, high, found.method, error)
