"""What one session, one core and the machine deliver, where scaling ends, and the paragraph that says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dbdyno.conclude import number_format as fmt
from dbdyno.conclude.answers import ladders
from dbdyno.conclude.catalogue import claim, sentence
from dbdyno.model.analyses import Estimate, Scaling
from dbdyno.model.claim import GOOD_SCALING, Claim, stops_scaling

_POINTS = "measured points"


def deliveries(scaling: Scaling) -> Iterator[Claim]:
    """one-session, peak, one-core, one-cpu."""
    yield from _one_session(scaling)
    yield from _peak(scaling)
    yield from _parts(scaling)


def bends(scaling: Scaling) -> Iterator[Claim]:
    """knee and second-knee, scales-to, at-cpus, one-more-session."""
    yield from _knees(scaling)
    yield from _scales_to(scaling)
    yield from _at_cpus(scaling)
    yield from _one_more(scaling)


def _one_session(scaling: Scaling) -> Iterator[Claim]:
    ladder = scaling.ladder
    found = ladders.alone(scaling)
    if found is None:
        return
    one, measured = found
    response = ladders.at(ladder, 1.0, "response_s")
    said = {
        "one": _one(scaling),
        "rate": _rate(one, ladder.throughput_unit),
        "unit": fmt.unit_of_work(ladder.throughput_unit),
        "response": None if response is None else response.value,
        "by": _POINTS if measured else _fit_name(scaling),
    }
    parts = [*(["response"] if response is not None else []), *([] if measured else ["fitted"])]
    yield claim("one-session", said, _named(one, "one session", ladder.throughput_unit), parts=parts)


def _peak(scaling: Scaling) -> Iterator[Claim]:
    ladder, best = scaling.ladder, scaling.best
    where = ladders.best_rung(ladder)
    top = ladders.at(ladder, where)
    assert top is not None
    last, reached, unit = ladders.loads(ladder)[-1], ladders.reached(ladder), ladder.throughput_unit
    said = {"rate": _rate(top, unit), "load": fmt.load(where, ladder.load_unit)}
    said["reached"] = fmt.load(reached, ladder.load_unit)
    parts = []
    if best is not None and best.peak is not None:
        said["model"] = best.title
        said["model_load"] = fmt.load(best.peak.value, ladder.load_unit) + fmt.spread(best.peak)
        parts = ["beyond" if best.peak.value > last else "model"]
    case = "early" if reached < where else "grows" if where == last and _grows(scaling) else "plain"
    yield claim("peak", said, _named(top, "peak throughput", unit), case=case, parts=parts)


def _parts(scaling: Scaling) -> Iterator[Claim]:
    """The peak over the cores, and over the CPUs."""
    ladder, machine = scaling.ladder, scaling.ladder.machine
    top = ladders.at(ladder, ladders.best_rung(ladder))
    assert top is not None
    unit = ladder.throughput_unit
    for part, count in (("core", machine.cores), ("cpu", machine.cpus)):
        if count is None or (part == "cpu" and count == machine.cores):
            continue
        each = _over(top, count, f"one {part}", unit)
        yield claim(f"one-{part}", {"rate": _rate(each, unit), "count": fmt.whole(count)}, each)


def _knees(scaling: Scaling) -> Iterator[Claim]:
    """As measured, by the criterion of an auto ladder; further ones by the fit."""
    ladder, fits = scaling.ladder, scaling.best.knees if scaling.best is not None else ()
    measured = ladders.knee(ladder)
    if measured is not None:
        said = _knee_values(scaling, measured) | {"session": ladder.load_unit.removesuffix("s")}
        if fits and scaling.best is not None:
            said["model_load"] = fmt.load(fits[0].value, ladder.load_unit) + fmt.spread(fits[0])
        yield claim("knee", said, measured, parts=["model"] if fits else [])
    for knee, name in zip(fits[1:], ("second-knee", "third-knee"), strict=False):
        yield claim(name, _knee_values(scaling, knee), knee)


def _knee_values(scaling: Scaling, knee: Estimate) -> dict[str, str]:
    load = fmt.load(knee.value, scaling.ladder.load_unit) + fmt.spread(knee)
    model = scaling.best.title if scaling.best is not None else ""
    return {"load": load, "beside": _beside_cpus(scaling, knee), "model": model}


def _beside_cpus(scaling: Scaling, knee: Estimate) -> str:
    machine = scaling.ladder.machine
    low, high = knee.low, knee.high
    for what, count in (("cores", machine.cores), ("CPUs", machine.cpus)):
        if count is not None and low is not None and high is not None and low <= count <= high:
            return f"; the machine has {fmt.plain(count)} {what}"
    return ""


def _scales_to(scaling: Scaling) -> Iterator[Claim]:
    """The highest measured load before the first whose efficiency is below :data:`GOOD_SCALING`."""
    ladder = scaling.ladder
    measured, shares = ladders.loads(ladder), ladders.efficiencies(ladder)
    if len(measured) < 2:
        return
    bad = stops_scaling(list(shares.values()))
    good = measured[-1 if bad is None else max(0, bad - 1)]
    said = {"load": fmt.load(good, ladder.load_unit), "good": GOOD_SCALING}
    said["lowest"] = fmt.load(measured[0], ladder.load_unit)
    if bad is None:
        value = Estimate("scales to", good, ladder.load_unit, low=good)
        yield claim("scales-to", said | {"here": fmt.percent(shares[good])}, value, case="top")
        return
    here, there = fmt.apart(shares[good], shares[measured[bad]])
    said |= {"here": here, "there": there, "next": fmt.load(measured[bad], ladder.load_unit)}
    value = Estimate("scales to", good, ladder.load_unit, good, measured[bad], "between two rungs")
    yield claim("scales-to", said, value, case="limit")


def _at_cpus(scaling: Scaling) -> Iterator[Claim]:
    """Efficiency at as many sessions as there are CPUs, measured or by the fit within its measured range."""
    ladder, cpus, one = scaling.ladder, scaling.ladder.machine.cpus, ladders.alone(scaling)
    if cpus is None or one is None:
        return
    measured = ladders.loads(ladder)
    if not measured[0] <= cpus <= measured[-1]:
        return
    found, by = ladders.at(ladder, cpus), "measured"
    if found is None:
        found, by = ladders.fitted_at(scaling, cpus), "by the fit"
    if found is None:
        return
    share = _over(found, cpus * one[0].value, "efficiency at CPUs", "")
    said = {"share": fmt.percent(share.value) + fmt.percent_spread(share), "by": by}
    said |= {
        "load": fmt.load(cpus, ladder.load_unit),
        "rests": _POINTS if by == "measured" else _fit_name(scaling),
    }
    yield claim("at-cpus", said, share)


def _one_more(scaling: Scaling) -> Iterator[Claim]:
    """The fit's growth for one more session at the top of what was measured."""
    ladder, one = scaling.ladder, ladders.alone(scaling)
    top = ladders.loads(ladder)[-1]
    before, after = ladders.fitted_at(scaling, top - 1), ladders.fitted_at(scaling, top)
    if one is None or before is None or after is None or top < 2:
        return
    growth, unit = after.value - before.value, ladder.throughput_unit
    share = growth / one[0].value
    said = {
        "session": ladder.load_unit.removesuffix("s"),
        "load": fmt.load(top, ladder.load_unit),
        "rate": fmt.rate(abs(growth), unit),
        "share": abs(share),
        "rests": _fit_name(scaling),
    }
    case = "nothing" if abs(share) < 0.005 else "more" if growth > 0 else "less"
    yield claim("one-more-session", said, Estimate("one more session", growth, unit), case=case)


def _rate(found: Estimate, unit: str) -> str:
    return fmt.rate(found.value, unit) + fmt.rate_spread(found)


def _grows(scaling: Scaling) -> bool:
    """Whether the top rung delivers noticeably more than the one below it."""
    measured = ladders.loads(scaling.ladder)
    if len(measured) < 2:
        return True
    below, top = (ladders.throughput(scaling.ladder, n) for n in measured[-2:])
    return top > 1.02 * below


def _one(scaling: Scaling) -> str:
    return f"One {scaling.ladder.load_unit.removesuffix('s')}"


def _fit_name(scaling: Scaling) -> str:
    return f"fit: {scaling.best.title}" if scaling.best else _POINTS


def _named(found: Estimate, name: str, unit: str) -> Estimate:
    return Estimate(name, found.value, unit, found.low, found.high, found.method, found.std_err, found.note)


def _over(found: Estimate, by: float, name: str, unit: str) -> Estimate:
    """``found`` / ``by``, which is taken for exact."""
    low, high, error = (None if v is None else v / by for v in (found.low, found.high, found.std_err))
    return Estimate(name, found.value / by, unit, low, high, found.method, error)


# -- the paragraph --

SURE = 0.95
"""Weight from which on one model is said to be the right one of those that were tried."""


def paragraph(scaling: Scaling) -> str:
    """Four to six sentences: what it delivers, to where it scales, why it ends there, what one more session
    brings, how sure that is. Of a :class:`Scaling` that has its answers; says what is unknown, too."""
    if scaling.ladder.points.is_empty():
        return " ".join(a.text for a in scaling.answers)
    answers = {a.id: a.text for a in reversed(scaling.answers)}
    known = [answers[name] for name in ("scales-to", "reason", "one-more-session") if name in answers]
    return " ".join([_delivers(scaling), *known, _basis(scaling)])


def _delivers(scaling: Scaling) -> str:
    ladder = scaling.ladder
    top, unit = ladders.reached(ladder), ladder.throughput_unit
    peak, one = ladders.throughput(ladder, top), ladders.alone(scaling)
    said: dict[str, Any] = {
        "name": ladder.name,
        "load": fmt.load(top, ladder.load_unit),
        "rate": fmt.rate(peak, unit),
    }
    if one is None or one[0].value <= 0 or top <= 1:
        return sentence("delivers", said, case="alone")
    said |= {"times": peak / one[0].value, "one": fmt.rate(one[0].value, unit)}
    return sentence("delivers", said, case="times")


def _basis(scaling: Scaling) -> str:
    ladder, best = scaling.ladder, scaling.best
    repeats = min(ladder.points.group_by("load").len()["len"].to_list())
    said: dict[str, Any] = {"levels": len(ladders.loads(ladder))}
    said["repeats"] = f" with {repeats} repeats each" if repeats > 1 else ""
    if best is None:
        said["why"] = scaling.refused[0].rstrip(".") if scaling.refused else "too little was measured"
        return sentence("basis", said, case="none")
    said |= {"model": best.title, "weight": best.weight}
    if best.weight >= SURE or len(scaling.fits) < 2:
        return sentence("basis", said, case="sure")
    other = scaling.fits[1]
    return sentence("basis", said | {"other": other.title, "other_weight": other.weight}, case="unsure")
