"""Threads against cores: SMT yield, CPU per unit of work, and how many cores were in use. Pure.

A core of m threads is charged to its tasks by the thread: with all of them busy m thread-seconds pass in one
core-second. The *yield* is what such a core delivers, with one busy thread as 1: between 1 and m. CPU per
unit of work, as the operating system charges it, then rises by m / yield (2 / yield with two threads), though
nothing has become slower but the sharing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import polars as pl

from dbdyno.conclude import ladders
from dbdyno.conclude import number_format as fmt
from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.compare.effects import effect_of_pairs
from dbdyno.conclude.ladders import Measured, cells_of
from dbdyno.conclude.reason import CPU, RUN, RUNQ
from dbdyno.model.analyses import Estimate, Fitted, Ladder, Machine, Scaling
from dbdyno.model.claim import GOOD_SCALING, Claim
from dbdyno.model.errors import UsageError

NEAR = 0.15
"""A knee this near to the number of cores, relative to it, is taken for the cores' (half a core at least)."""


def yield_of_slopes(ratio: float, threads_per_core: int) -> float:
    """Yield of a core with all threads busy: 1 + (m - 1) r, growth beyond the cores being r times that below.

    With X(N) = x N up to K cores and x r for each further thread, X(m K) / X(K) = 1 + (m - 1) r.
    """
    return 1 + (threads_per_core - 1) * ratio


def inflation(core_yield: float, threads_per_core: int = 2) -> float:
    """How many times the CPU seconds a unit of work is charged when all siblings are busy: m / yield.

    Raises :class:`UsageError` for a yield that is not above 0.
    """
    if core_yield <= 0:
        raise UsageError(
            f"a yield of {core_yield:g} is not above 0", "throughput of a full core over one thread's"
        )
    return threads_per_core / core_yield


def near_cores(knee: float, low: float | None, high: float | None, cores: float) -> bool:
    """Whether a knee may be that of the cores: by its interval, or nearer than :data:`NEAR`."""
    inside = low is not None and high is not None and low <= cores <= high
    return inside or abs(knee - cores) <= max(0.5, NEAR * cores)


# -- claims --

SEEN = 0.05
"""Weight that a fit with knees must have at least for its slopes to be believed."""
CPU_BOUND = (CPU, RUN, RUNQ, "unknown", "no bend")


def threads(scaling: Scaling, results: Measured | None, kind: str) -> Iterator[Claim]:
    """smt-yield, cpu-per-work, cpu-inflation, equivalent-cores. ``kind``: what :func:`reason` found."""
    found = _yield(scaling, kind)
    yield found
    yield from _per_work(scaling)
    if found.value is not None:
        yield from _inflated(scaling, found.value)
    yield from _cores(scaling, results)


# -- yield ----------------------------------------------------------------------------------------


def _yield(scaling: Scaling, kind: str) -> Claim:
    machine, unit = scaling.ladder.machine, scaling.ladder.load_unit
    fits = _kneed(scaling)
    case = _unknown(scaling, kind)
    if case is None:
        near = [f for f in fits if _near(f, machine.cores)]
        misplaced = _misplaced(fits, machine)
        measured = None if misplaced == "at-cpus" else _measured(scaling.ladder)
        if measured is not None and (measured.low is not None or not near):
            return _of_rungs(measured, near, scaling.ladder)
        if misplaced is None:
            return _of_fits(near, machine, scaling)
        case = misplaced
    knee = fmt.load(fits[0].knees[0].value, unit) if fits else ""
    said = {"cores": machine.cores, "cpus": machine.cpus, "reason": kind, "knee": knee}
    return claim("smt-yield", said, case=case)


def _misplaced(fits: list[Fitted], machine: Machine) -> str | None:
    """Where the best fit has its knee, or that it has none: a case of the entry. ``None``: at the cores."""
    if not fits:
        return "no-fit"
    if _near(fits[0], machine.cores):
        return None
    return "at-cpus" if _near(fits[0], machine.cpus) else "elsewhere"


def _near(fit: Fitted, count: float | None) -> bool:
    knee = fit.knees[0]
    return count is not None and near_cores(knee.value, knee.low, knee.high, count)


def _unknown(scaling: Scaling, kind: str) -> str | None:
    """Which of the entry's cases says why nothing is known, whatever the fits; ``None``: none does."""
    machine, measured = scaling.ladder.machine, ladders.loads(scaling.ladder)
    if machine.threads_per_core == 1:
        return "none"
    if machine.threads_per_core is None or machine.cores is None:
        return "no-threads"
    if machine.cpus is not None and machine.cpus <= machine.cores:
        return "all-cores"
    if measured[-1] <= machine.cores:
        return "short"
    return None if kind.partition(":")[0] in CPU_BOUND else "other-reason"


def _kneed(scaling: Scaling) -> list[Fitted]:
    """The fits that have a knee, best first, without those that the data all but rule out."""
    fits = [f for f in scaling.fits if f.knees and _ratio(f) is not None]
    return [f for f in fits if f.weight >= SEEN or f is scaling.best]


def _ratio(fit: Fitted) -> Estimate | None:
    """Growth beyond the first knee over that below it."""
    if fit.model == "plateau":
        return Estimate("yield", 0.0, "", 0.0, 0.0, "by the model")
    return next((p for p in fit.parameters if p.name == "yield"), None)


def _measured(ladder: Ladder) -> Estimate | None:
    """Throughput with a session for each CPU over that with one for each core; ``None``: a load is missing,
    or throughput does not scale as far as the cores. The interval is over repeats; of one climb there is
    none."""
    machine = ladder.machine
    cores, m = machine.cores or 0, machine.threads_per_core or 1
    if machine.cpus not in (None, cores * m):
        return None
    at = {n: dict(ladder.points.filter(load=float(n)).select("repeat", "throughput").rows())
          for n in (cores, cores * m)}  # fmt: skip
    pairs = [(x, at[cores * m][r]) for r, x in at[cores].items() if x > 0 and at[cores * m].get(r, 0) > 0]
    if not pairs or not _scales(ladder, cores):
        return None
    e = effect_of_pairs(pairs)
    assert e.ratio is not None
    method = fmt.REPEATS if e.low is not None else ""
    return Estimate("SMT yield", e.ratio, _OF_ONE, e.low, e.high, method, e.std_err)


def _scales(ladder: Ladder, cores: float) -> bool:
    first = ladders.loads(ladder)[0]
    efficiency = ladders.throughput(ladder, cores) / cores / (ladders.throughput(ladder, first) / first)
    return efficiency >= GOOD_SCALING


def _of_rungs(found: Estimate, fits: list[Fitted], ladder: Ladder) -> Claim:
    """As measured, and what the best fit with a knee at the cores has."""
    machine = ladder.machine
    m, cores = machine.threads_per_core or 1, machine.cores or 0
    said: dict[str, Any] = {
        "ratio": fmt.plain(found.value) + fmt.spread(found),
        "threads": m,
        "share": fmt.percent((found.value - 1) / (m - 1)),
        "low": fmt.load(cores, ladder.load_unit),
        "high": fmt.load(cores * m, ladder.load_unit),
    }
    if fits:
        fitted = _yield_of(_growth(fits), m)
        said |= {"model": fits[0].title, "fitted": fmt.plain(fitted.value) + fmt.spread(fitted)}
    return claim("smt-yield", said, found, case="measured", parts=["fitted"] if fits else [])


_OF_ONE = "of one thread's core"


def _growth(fits: list[Fitted]) -> Estimate:
    """Of the best of ``fits``; the interval holds those of all of them, as none is ruled out."""
    return _widest([r for f in fits if (r := _ratio(f)) is not None])


def _yield_of(ratio: Estimate, threads_per_core: int) -> Estimate:
    ends = [None if v is None else yield_of_slopes(v, threads_per_core) for v in (ratio.low, ratio.high)]
    value = yield_of_slopes(ratio.value, threads_per_core)
    return Estimate("SMT yield", value, _OF_ONE, ends[0], ends[1], ratio.method)


def _of_fits(fits: list[Fitted], machine: Machine, scaling: Scaling) -> Claim:
    fit, m = fits[0], machine.threads_per_core
    assert m is not None
    ratio = _growth(fits)
    found = _yield_of(ratio, m)
    best = scaling.best
    said = {
        "ratio": fmt.plain(found.value) + fmt.spread(found),
        "threads": m,
        "share": fmt.percent(ratio.value) + fmt.percent_spread(ratio),
        "model": fit.title,
        "knee": fmt.load(fit.knees[0].value, scaling.ladder.load_unit),
        "cores": fmt.whole(machine.cores or 0),
        "best": "" if fit is best or best is None else f"; the best fit is {best.title}",
    }
    return claim("smt-yield", said, found, case="known")


def _widest(ratios: list[Estimate]) -> Estimate:
    """The first, with an interval that holds all of theirs; without one where one has none."""
    lows, highs = ([getattr(r, end) for r in ratios] for end in ("low", "high"))
    known = None not in lows and None not in highs
    return replace(ratios[0], low=min(lows) if known else None, high=max(highs) if known else None)


# -- CPU per unit of work -------------------------------------------------------------------------


def _per_work(scaling: Scaling) -> Iterator[Claim]:
    """At the lowest rung and at the one that delivers most."""
    ladder = scaling.ladder
    low, high = ladders.loads(ladder)[0], ladders.best_rung(ladder)
    first = ladders.at(ladder, low, "cpu", over="throughput")
    last = ladders.at(ladder, high, "cpu", over="throughput")
    if first is None:
        return
    said = {
        "unit": fmt.unit_of_work(ladder.throughput_unit),
        "low": fmt.load(low, ladder.load_unit),
        "low_s": first.value,
        "kernel": _in_kernel(ladder, low),
    }
    more = last is not None and high != low and first.value > 0
    if last is not None and more:
        said |= {
            "high": fmt.load(high, ladder.load_unit),
            "high_s": last.value,
            "times": last.value / first.value,
        }
    value = Estimate(
        "CPU per unit of work", first.value, "s", first.low, first.high, first.method, first.std_err
    )
    yield claim("cpu-per-work", said, value, case="two" if more else "one")


def _in_kernel(ladder: Ladder, load: float) -> str:
    system = ladders.at(ladder, load, "cpu_system", over="cpu")
    return "" if system is None else f" ({fmt.percent(system.value)} of it in the kernel)"


def _inflated(scaling: Scaling, found: Estimate) -> Iterator[Claim]:
    """m / yield, beside what was measured."""
    ladder, m = scaling.ladder, scaling.ladder.machine.threads_per_core
    if m is None or found.value <= 0:
        return
    ends = [inflation(v, m) if v is not None and v > 0 else None for v in (found.high, found.low)]
    value = Estimate("CPU inflation", inflation(found.value, m), "times", ends[0], ends[1], found.method)
    said: dict[str, Any] = {"times": fmt.plain(value.value) + fmt.spread(value), "threads": m}
    low, top = ladders.loads(ladder)[0], ladders.loads(ladder)[-1]
    first, last = (ladders.at(ladder, n, "cpu", over="throughput") for n in (low, top))
    full = ladder.machine.cpus is not None and top >= ladder.machine.cpus
    parts = []
    if full and first is not None and last is not None and first.value > 0:
        said |= {"load": fmt.load(top, ladder.load_unit), "measured": last.value / first.value}
        parts = ["measured"]
    yield claim("cpu-inflation", said, value, parts=parts)


# -- cores in use ---------------------------------------------------------------------------------


def _cores(scaling: Scaling, results: Measured | None) -> Iterator[Claim]:
    """At the rung that delivers most: measured CPU by CPU, else bounded by the CPU that sessions used."""
    ladder = scaling.ladder
    where = ladders.best_rung(ladder)
    place = f"At {fmt.load(where, ladder.load_unit)}"
    if results is not None and ladder.workload is not None:
        seen = [p["cores"] for w, p in cells_of(results, ladder) if w["sessions"] == where and "cores" in p]
        known = pl.concat(seen).drop_nulls("threads") if seen else pl.DataFrame()
        if known.height:
            yield equivalent(known, place)
            return
    used = ladders.at(ladder, where, "cpu")
    if used is not None:
        yield _bounded(used.value, ladder.machine, place)


def equivalent(known: pl.DataFrame, place: str) -> Claim:
    """From rows of the table ``cores``, one for each cell or window."""
    mean = {c: fmt.estimate(c, known[c].to_list()) for c in ("threads", "cores", "low", "high")}
    busy = mean["threads"]
    assert busy is not None
    cores, low, high = mean["cores"], mean["low"], mean["high"]
    source = str(known["source"][0])
    said = {"place": place, "threads": busy.value, "source": source}
    if cores is None or low is None or high is None:
        return claim("equivalent-cores", said | {"why": known["status"][0]}, case="unknown")
    value = Estimate("cores in use", cores.value, "cores", low.value, high.value, source)
    count = fmt.load(cores.value, "cores") + fmt.spread(value)
    return claim("equivalent-cores", said | {"cores": count}, value, case="known")


def _bounded(used: float, machine: Machine, place: str) -> Claim:
    """Only the sessions' own CPU time is known: with m threads a core it took from used / m cores up."""
    said = {"place": place, "threads": used, "source": ""}
    m = machine.threads_per_core
    if m is None or machine.cores is None:
        return claim("equivalent-cores", said | {"why": "the topology is unknown"}, case="unknown")
    if m == 1:
        value = Estimate("cores in use", used, "cores", used, used, "no SMT")
        return claim("equivalent-cores", said, value, case="no-smt")
    low, high = used / m, min(machine.cores, used)
    if low >= 0.99 * high:
        value = Estimate("cores in use", high, "cores", low, high, "all threads busy")
        return claim("equivalent-cores", said | {"cores": fmt.whole(high)}, value, case="all")
    return claim("equivalent-cores", said | {"low": low, "high": high}, case="between")
