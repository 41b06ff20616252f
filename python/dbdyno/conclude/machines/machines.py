"""Compares two machines by two ladders of the same work, at equal load and at their peaks. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import polars as pl

from dbdyno.conclude.catalogue import claim, sentence
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.compare.table import MARGIN
from dbdyno.conclude.machines.machine_ratio import Band, Rungs, crossings, estimate, ratio, rungs_of, union
from dbdyno.model.errors import UsageError
from dbdyno.model.results.analyses import AtLoad, Estimate, How, Ladder, Machines, Speed
from dbdyno.model.results.claim import Claim


def claims(comparison: Machines) -> Iterator[Claim]:
    """Yields the claims of a comparison: one session, the crossing, the highest load, the peak, and the speed
    per core and per thread."""
    names = comparison.names
    yield from _argument(comparison)
    yield from _ratio(comparison.one_session, names, f"With {comparison.one_session.what}")
    yield from _crossing(comparison)
    last = comparison.at_loads[-1]
    if last.load > 1:
        yield from _ratio(last.throughput, names, f"With {fmt.load(last.load, comparison.a.load_unit)}")
    yield from _ratio(comparison.peak, names, "At its peak")
    for speed in (comparison.per_core, comparison.per_thread, comparison.per_cpu_second):
        yield from _ratio(speed, names, f"Per {speed.what.removeprefix('peak per ')}, at its peak,")


def _argument(compared: Machines) -> Iterator[Claim]:
    """Yields a claim if one session and many sessions show opposite results, beyond noise."""
    one, many = compared.one_session.ratio, compared.at_loads[-1].throughput.ratio
    if one is None or many is None or _may_be_one(one) or _may_be_one(many):
        return
    if (one.value - 1) * (many.value - 1) >= 0:
        return
    load = fmt.load(compared.at_loads[-1].load, compared.a.load_unit)
    values = {
        "name": compared.names[1],
        "other": compared.names[0],
        "one": one.value,
        "many": many.value,
        "load": load,
    }
    yield claim("alone-and-many", values, case="slower" if one.value < 1 else "faster")


def _ratio(speed: Speed, names: tuple[str, str], place: str) -> Iterator[Claim]:
    ratio = speed.ratio
    if ratio is None:
        return
    known = ratio.low is not None and ratio.high is not None
    interval = fmt.spread(ratio) if known else ""
    values = {"place": place, "name": names[1], "other": names[0], "ratio": ratio.value, "interval": interval}
    case = "undecided" if not _is_one(ratio) else "equal"
    if not _may_be_one(ratio):
        case = "more" if known else "once"
    if case == "undecided":
        values["ends"] = fmt.changes(ratio)
    yield claim("machine-ratio", values | {"margin": MARGIN}, ratio, case=case)


def _may_be_one(ratio: Estimate) -> bool:
    return ratio.low is not None and ratio.high is not None and ratio.low <= 1 <= ratio.high


def _is_one(ratio: Estimate) -> bool:
    """Returns whether the interval lies within the margin of what is called equal."""
    return (ratio.low or 0.0) >= 1 - MARGIN and (ratio.high or math.inf) <= 1 + MARGIN


def _crossing(comparison: Machines) -> Iterator[Claim]:
    a, b = comparison.names
    low, high, unit = comparison.at_loads[0].load, comparison.at_loads[-1].load, comparison.a.load_unit
    values = {"low": fmt.load(low, unit), "span": fmt.loads(low, high, unit), "first": a, "second": b}
    ratios = [x.throughput.ratio for x in comparison.at_loads if x.throughput.ratio is not None]
    if comparison.crossings:
        yield from (_crossing_claim(comparison, e) for e in comparison.crossings)
    elif len(ratios) < 2:
        yield claim("crossover", values, case="one-load")
    elif all(_may_be_one(r) for r in ratios):
        yield claim("crossover", values, case="equal")
    elif all(r.value > 1 for r in ratios) or all(r.value < 1 for r in ratios):
        ahead, behind = (b, a) if ratios[0].value > 1 else (a, b)
        yield claim("crossover", values | {"ahead": ahead, "behind": behind}, case="none")
    else:
        yield claim("crossover", values, case="noise")


def _crossing_claim(comparison: Machines, e: Estimate) -> Claim:
    """Returns the claim of a crossing: ``B overtakes A at 24.3 sessions (20.1 to 30.0)``."""
    a, b = comparison.names
    ratios = ((x.load, x.throughput.ratio) for x in reversed(comparison.at_loads))
    before = next((r.value for n, r in ratios if n < e.value and r is not None and r.value != 1), 1.0)
    first, second = (b, a) if before < 1 else (a, b)
    low = "below the range" if e.low is None else fmt.plain(e.low)
    high = "beyond the range" if e.high is None else fmt.plain(e.high)
    interval = f" ({low} to {high})" if e.method else ""
    values = {
        "first": first,
        "second": second,
        "load": e.value,
        "unit": comparison.a.load_unit,
        "interval": interval,
    }
    return claim("crossover", values, e, case="at")


# -- the comparison --

FEWEST = 3
"""Loads that a ladder needs before the place of its peak is trusted."""
_COUNTS = 0.02  # rise of the logarithm to the last rung from which on throughput is still rising, about 2 %
_CURE = "two ladders of the same work, in the same units, whose ranges of load overlap"


def machines(a: Ladder, b: Ladder, names: tuple[str, str] = ("A", "B"), band: Band | None = None) -> Machines:
    """Returns B over A: one session, equal load, crossings, peak, peak per core and per thread. Intervals are
    95 %, from repeats if a ladder has any, else from ``band`` (default: the band of the scaling model that
    fits best). Raises :class:`UsageError` if units differ or no load is common to both ranges."""
    _check(a, b, names)
    of_model = _model_band if band is None else band
    left, right = (_throughput(ladder, name, of_model) for ladder, name in zip((a, b), names, strict=True))
    loads = union(left.loads, right.loads) if _overlap(left, right) else []
    if not loads:
        raise UsageError(f"no load in common: {_range(left, a)} against {_range(right, b)}", _CURE)
    at_loads = tuple(_at_loads(a, b, left, right, loads))
    peak, peak_loads = _peak(left, right, a.throughput_unit)
    comparison = Machines(
        a=a,
        b=b,
        names=names,
        one_session=_one_session_speed(left, right, a),
        at_loads=at_loads,
        crossings=crossings(left, right, loads),
        peak=peak,
        peak_loads=peak_loads,
        per_core=_per(peak, "core", a.machine.cores, b.machine.cores, names),
        per_thread=_per(peak, "thread", a.machine.cpus, b.machine.cpus, names),
        per_cpu_second=_per_cpu_second(a, b, peak, peak_loads, names),
        claims=(),
        notes=tuple(_notes(left, right, peak_loads, names, a, b)),
    )
    return replace(comparison, claims=tuple(claims(comparison)))


def _check(a: Ladder, b: Ladder, names: tuple[str, str]) -> None:
    for what, x, y in (
        ("throughput", a.throughput_unit, b.throughput_unit),
        ("load", a.load_unit, b.load_unit),
    ):
        if x != y:
            raise UsageError(f"{what} in {x} ({names[0]}) and in {y} ({names[1]})", _CURE)


def _throughput(ladder: Ladder, name: str, band: Band) -> Rungs:
    rungs = rungs_of(ladder, "throughput", band)
    if rungs is None:
        raise UsageError(f"{name} has no throughput above 0", _CURE)
    return rungs


def _model_band(ladder: Ladder) -> pl.DataFrame | None:
    from dbdyno.conclude.scaling import scale

    return scale(ladder).curve


def _overlap(a: Rungs, b: Rungs) -> bool:
    return bool(max(a.loads[0], b.loads[0]) <= min(a.loads[-1], b.loads[-1]))


def _range(r: Rungs, ladder: Ladder) -> str:
    return fmt.loads(r.loads[0], r.loads[-1], ladder.load_unit)


def _at_loads(a: Ladder, b: Ladder, left: Rungs, right: Rungs, loads: Sequence[float]) -> Iterator[AtLoad]:
    responses = rungs_of(a, "response_s"), rungs_of(b, "response_s")
    for n in loads:
        yield AtLoad(
            n,
            throughput=_speed(_units(n, a), a.throughput_unit, left, right, n),
            response=_response(*responses, n, a.time_name),
            how=_how(left, right, n),
        )


def _how(a: Rungs, b: Rungs, load: float) -> How:
    if a.fitted or b.fitted:
        return "fitted"
    return "measured" if a.measured(load) and b.measured(load) else "interpolated"


def _units(load: float, ladder: Ladder) -> str:
    return f"one {fmt.one_of(ladder.load_unit)}" if load == 1 else fmt.load(load, ladder.load_unit)


def _speed(what: str, unit: str, a: Rungs, b: Rungs, load: float) -> Speed:
    ours, theirs = (estimate(r, load, what, unit) for r in (a, b))
    return Speed(what, unit, ours, theirs, ratio(a, b, load))


def _response(a: Rungs | None, b: Rungs | None, load: float, what: str) -> Speed:
    if a is None or b is None:
        return Speed(what, "s", reason=_unknown("response"))
    if not all(r.loads[0] <= load <= r.loads[-1] for r in (a, b)):
        return Speed(what, "s", reason=_unknown("range"))
    return _speed(what, "s", a, b, load)


def _one_session_speed(left: Rungs, right: Rungs, ladder: Ladder) -> Speed:
    one = ladder.load_unit.removesuffix("s")
    what = _units(1, ladder)
    if left.loads[0] == right.loads[0] == 1:
        return _speed(what, ladder.throughput_unit, left, right, 1.0)
    return Speed(
        what,
        ladder.throughput_unit,
        reason=_unknown("one-session", session=one),
    )


def _peak(a: Rungs, b: Rungs, unit: str) -> tuple[Speed, tuple[float, float]]:
    # The lowest load of equal peaks: max() of (throughput, -load).
    at_a, at_b = (-max((r.at(float(n))[0], -float(n)) for n in r.loads)[1] for r in (a, b))
    ours, theirs = estimate(a, at_a, "peak", unit), estimate(b, at_b, "peak", unit)
    return Speed("peak", unit, ours, theirs, ratio(a, b, at_a, at_b)), (at_a, at_b)


def _per(peak: Speed, what: str, a: float | None, b: float | None, names: tuple[str, str]) -> Speed:
    title, unit = f"peak per {what}", f"{peak.unit} per {what}"
    unknown = [name for name, n in zip(names, (a, b), strict=True) if not n]
    if not a or not b or not peak.a or not peak.b or not peak.ratio:
        return Speed(title, unit, reason=_unknown("count", what=what, names=" and ".join(unknown)))
    ours, theirs = peak.a.over(a, title, unit), peak.b.over(b, title, unit)
    return Speed(title, unit, ours, theirs, peak.ratio.over(b / a, title, ""))


def _per_cpu_second(
    a: Ladder, b: Ladder, peak: Speed, loads: tuple[float, float], names: tuple[str, str]
) -> Speed:
    """Returns work per second of the sessions' CPU time at each side's peak. The interval is that of the
    peak, because CPU time is counted and not sampled."""
    title, unit = "peak per CPU second", peak.unit.replace("/s", "/CPU s")
    used = [_cpu(side, load) for side, load in zip((a, b), loads, strict=True)]
    unknown = [name for name, cpu in zip(names, used, strict=True) if not cpu]
    if unknown or not peak.a or not peak.b or not peak.ratio:
        return Speed(title, unit, reason=_unknown("cpu", names=" and ".join(unknown)))
    (x, y) = (float(cpu or 1.0) for cpu in used)
    ours, theirs = peak.a.over(x, title, unit), peak.b.over(y, title, unit)
    return Speed(title, unit, ours, theirs, peak.ratio.over(y / x, title, ""))


def _cpu(ladder: Ladder, load: float) -> float | None:
    """Returns CPUs used at a load, the mean of the repeats that have the figure; None without any."""
    known = ladder.points.filter(pl.col("load") == load)["cpu"].drop_nulls()
    return None if known.is_empty() else float(known.mean())  # type: ignore[arg-type]


def _unknown(case: str, **values: str) -> str:
    return sentence("machine-unknown", values, case=case)


def _rises(r: Rungs) -> bool:
    """Returns whether throughput rises from the last rung but one to the last by more than
    :data:`_COUNTS`."""
    if len(r.loads) < 2:
        return False
    last, before = (r.at(float(r.loads[n]))[0] for n in (-1, -2))
    return last - before > _COUNTS


def _notes(
    left: Rungs, right: Rungs, peaks: tuple[float, float], names: tuple[str, str], a: Ladder, b: Ladder
) -> Iterator[Claim]:
    for r, peak, name, ladder in zip((left, right), peaks, names, (a, b), strict=True):
        values = {"name": name, "load": fmt.load(peak, ladder.load_unit), "count": len(r.loads)}
        cases = {
            "rising": peak == r.loads[-1] and _rises(r),
            "no-interval": not r.basis,
            "model": r.basis == "model band",
            "few": len(r.loads) < FEWEST,
        }
        yield from (claim("machine-figures", values, case=case) for case, holds in cases.items() if holds)
        for note in ladder.notes:
            yield claim("machine-figures", {"name": name, "note": note}, case="ladder")


# -- which ladder of one run belongs to which of the other --


def pairs(a: Sequence[Ladder], b: Sequence[Ladder]) -> tuple[tuple[Ladder, Ladder], ...]:
    """Returns the pairs of ladders with the same name, or the only ladder of each side. Raises
    :class:`UsageError` if there is no pair."""
    others = {ladder.name: ladder for ladder in b}
    same_name = tuple((ladder, others[ladder.name]) for ladder in a if ladder.name in others)
    if same_name:
        return same_name
    if len(a) == len(b) == 1:
        return ((a[0], b[0]),)
    if not a or not b:
        raise UsageError(
            "a run has no ladder of sessions: paced runs have rates, observations have windows",
            "measure numbers of sessions without a rate on both; dbdyno compare RUN RUN compares rates",
        )
    raise UsageError(
        f"no ladder in common: {_names(a)} against {_names(b)}",
        "measure the same workload and variant on both machines",
    )


def _names(ladders: Sequence[Ladder]) -> str:
    return ", ".join(ladder.name for ladder in ladders)
