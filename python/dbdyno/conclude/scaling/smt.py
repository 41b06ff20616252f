"""Threads against cores: SMT yield, CPU per unit of work, and how many cores were in use. Pure.

A core of m threads is charged to its tasks by the thread: with all of them busy m thread-seconds pass in one
core-second. The *yield* is what such a core delivers, with one busy thread as 1: between 1 and m. CPU per
unit of work, as the operating system charges it, then rises by m / yield (2 / yield with two threads), though
nothing has become slower but the sharing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.ladder import ladders
from dbdyno.conclude.ladder.ladders import Measured, cells_of
from dbdyno.conclude.ladder.rungs import Rungs
from dbdyno.conclude.run.reason import CPU, RUN, RUNQ
from dbdyno.model.errors import UsageError
from dbdyno.model.results.analyses import Estimate, Ladder, Scaling
from dbdyno.model.results.claim import Claim
from dbdyno.model.schema.derived import GOOD_SCALING
from dbdyno.model.units import format_number
from dbdyno.stats.estimates import positive_interval
from dbdyno.stats.tied import Tied, tied

_WHOLE = 0.95
"""From this part of the threads on a yield says that they do not share a core."""


def inflation(core_yield: float, threads_per_core: int = 2) -> float:
    """How many times the CPU seconds a unit of work is charged when all siblings are busy: m / yield.

    Raises :class:`UsageError` for a yield that is not above 0.
    """
    if core_yield <= 0:
        raise UsageError(
            f"a yield of {core_yield:g} is not above 0", "throughput of a full core over one thread's"
        )
    return threads_per_core / core_yield


# -- claims --

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

_OF_ONE = "of one thread's core"
TIED = "fit with bends at the cores and the CPUs"


def _yield(scaling: Scaling, kind: str) -> Claim:
    ladder, machine = scaling.ladder, scaling.ladder.machine
    bend, case = ladders.knee(ladder), _unknown(ladder, kind)
    if case is None and bend is not None and bend.high is not None and bend.high < (machine.cores or 0):
        case = "elsewhere"
    if case is None:
        fit = _tied(ladder)
        measured, fitted = _measured(ladder, fit), _fitted(fit)
        found = measured or (fitted if fit is not None and _holds(fit, machine.cores or 0) else None)
        case = "no-fit" if found is None else None
        if found is not None and found.value >= _WHOLE * (machine.threads_per_core or 1):
            case = "at-cpus"
        elif found is not None:
            return _known(
                found, fitted if measured is not None else None, ladder, by_rungs=measured is not None
            )
    knee = fmt.load(bend.value, ladder.load_unit) if bend is not None else ""
    said = {"cores": machine.cores, "cpus": machine.cpus, "reason": kind, "knee": knee}
    return claim("smt-yield", said, case=case or "")


def _unknown(ladder: Ladder, kind: str) -> str | None:
    """Which of the entry's cases says why nothing is known, whatever was measured; ``None``: none does."""
    machine, measured = ladder.machine, ladders.loads(ladder)
    if machine.threads_per_core == 1:
        return "none"
    if machine.threads_per_core is None or machine.cores is None:
        return "no-threads"
    if machine.cpus is not None and machine.cpus <= machine.cores:
        return "all-cores"
    if measured[-1] <= machine.cores:
        return "short"
    return None if kind.partition(":")[0] in CPU_BOUND else "other-reason"


def _tied(ladder: Ladder) -> Tied | None:
    """``None``: the machine has no SMT, or is unknown; or there are too few loads."""
    machine = ladder.machine
    cores, m = machine.cores, machine.threads_per_core
    if cores is None or m is None or m < 2 or (machine.cpus is not None and machine.cpus <= cores):
        return None
    points = ladder.points.filter(pl.col("throughput") > 0)
    loads, rates = points["load"].to_list(), points["throughput"].to_list()
    return tied(loads, rates, cores, m, machine.cpus or cores * m)


def knee_at_cores(ladder: Ladder) -> Estimate | None:
    """The number of cores, where growth with bends at the cores and at the CPUs describes the ladder, and the
    first bend is that of the cores; its interval is where the fit does not exclude it. ``None``: it is not
    known, or growth does not bend there."""
    fit, cores = _tied(ladder), ladder.machine.cores
    if fit is None or cores is None or not _holds(fit, cores) or fit.core_yield >= _WHOLE * _threads(ladder):
        return None
    return Estimate("knee", cores, ladder.load_unit, method=TIED)


def _threads(ladder: Ladder) -> int:
    return ladder.machine.threads_per_core or 1


def _holds(fit: Tied, cores: float) -> bool:
    """Whether the fit describes the ladder, and its first bend may be that of the cores."""
    return fit.error <= _ROUGH and fit.knee95 is not None and fit.knee95[0] <= cores <= fit.knee95[1]


_ROUGH = 0.2
"""Relative error of a fit that describes nothing."""


def _fitted(fit: Tied | None) -> Estimate | None:
    if fit is None:
        return None
    low, high = fit.yield95 or (None, None)
    return Estimate("SMT yield", fit.core_yield, _OF_ONE, low, high, TIED)


def _measured(ladder: Ladder, fit: Tied | None) -> Estimate | None:
    """Throughput with a session for each CPU over that with one for each core; ``None``: a load is missing.
    The interval is over repeats; of fewer than three climbs by the scatter about the fit, where known."""
    machine = ladder.machine
    cores, m = machine.cores or 0, _threads(ladder)
    if machine.cpus not in (None, cores * m):
        return None
    at = {n: dict(ladder.points.filter(load=float(n)).select("repeat", "throughput").rows())
          for n in (cores, cores * m)}  # fmt: skip
    pairs = [(x, at[cores * m][r]) for r, x in at[cores].items() if x > 0 and at[cores * m].get(r, 0) > 0]
    if not pairs:
        return None
    from dbdyno.conclude.compare.effects import effect_of_pairs  # loads the models of comparisons

    e = effect_of_pairs(pairs)
    assert e.ratio is not None
    noise = None if fit is None else fit.noise
    if len(pairs) > 2 or fit is None or noise is None:
        method = fmt.REPEATS if e.low is not None else ""
        return Estimate("SMT yield", e.ratio, _OF_ONE, e.low, e.high, method, e.std_err)
    error = noise * math.sqrt(2 / len(pairs))
    low, high = positive_interval(e.ratio, error * e.ratio, fit.degrees) or (None, None)
    return Estimate("SMT yield", e.ratio, _OF_ONE, low, high, f"scatter about a {TIED}", error * e.ratio)


def _known(found: Estimate, fitted: Estimate | None, ladder: Ladder, *, by_rungs: bool) -> Claim:
    """``fitted``: what the fit has, beside what was measured."""
    cores, m = ladder.machine.cores or 0, _threads(ladder)
    low, high = cores, ladder.machine.cpus or cores * m
    said = _words(found, m) | {
        "low": fmt.load(low, ladder.load_unit),
        "high": fmt.load(high, ladder.load_unit),
        "one": ladder.load_unit.removesuffix("s"),
    }
    parts = ["less"] if found.value < 1 and (found.high is None or found.high < 1) else []
    if by_rungs and (efficiency := Rungs.of(ladder).efficiencies[cores]) < GOOD_SCALING:
        said["efficiency"] = efficiency
        parts.append("slowed")
    parts += ["no-interval"] if found.low is None else []
    if fitted is not None:
        said["fitted"] = fmt.plain(fitted.value) + fmt.spread(fitted)
        parts += ["differs"] if _apart(found, fitted) else []
    return claim("smt-yield", said, found, case="measured" if by_rungs else "known", parts=parts)


def _words(found: Estimate, m: int) -> dict[str, Any]:
    return {
        "ratio": fmt.plain(found.value) + fmt.spread(found),
        "threads": m,
        "all": "Both" if m == 2 else f"All {m}",
        "every": "both" if m == 2 else f"all {m}",
        "adds": "adds" if found.value >= 1 else "takes away",
        "share": fmt.percent(abs(found.value - 1) / (m - 1)),
    }


def _apart(a: Estimate, b: Estimate) -> bool:
    """Whether the intervals of both are known and do not meet."""
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return False
    return a.low > b.high or b.low > a.high


_COUNTED = {"cpus": "cpus", "processors": "cpus", "cores": "cores"}


def agree(ladder: Ladder) -> None:
    """Raises :class:`UsageError` where loads that are CPUs or cores are more than the machine has."""
    count = getattr(ladder.machine, _COUNTED.get(ladder.load_unit.lower(), ""), None)
    if count is not None and ladders.loads(ladder)[-1] > count:
        top = fmt.load(ladders.loads(ladder)[-1], ladder.load_unit)
        raise UsageError(
            f"{ladder.name}: the load goes up to {top}, and the machine has {fmt.plain(count)}",
            "--load-unit sessions if it is not CPUs or cores; else --cpus, --cores of the whole machine",
        )


# -- of a yield alone, without a ladder --

_FORMS = "write the yield, 1.31, or both rates with one thread a core first: 800:1048"


def given(text: str, threads_per_core: int | None = None) -> tuple[Claim, Claim]:
    """smt-yield and cpu-inflation with its derivation, of ``1.31`` or ``800:1048`` (throughput with one busy
    thread a core, and with all). Two threads a core, unless said otherwise. Raises :class:`UsageError`."""
    m = 2 if threads_per_core is None else threads_per_core
    core_yield = _parsed(text)
    if m < 2:
        raise UsageError(
            f"--smt-yield with {m} thread per core: nothing is shared", "--threads-per-core 2 or more"
        )
    if core_yield > m:
        raise UsageError(
            f"--smt-yield {text}: {m} threads of a core cannot do {format_number(core_yield)} times the "
            "work of one",
            f"{m} times is what {m} cores do; --threads-per-core if there are more, "
            "or was the first rate disturbed (cold cache, low clock speed)?",
        )
    found = Estimate("SMT yield", core_yield, _OF_ONE)
    said = _words(found, m) | {"evidence": text}
    less = ["less"] if core_yield < 1 else []
    times = Estimate("CPU inflation", inflation(core_yield, m), "times")
    effect = "independent" if core_yield > 0.995 * m else "hidden" if core_yield > 1 else "useless"
    said |= {
        "times": fmt.plain(times.value), "yield": fmt.plain(core_yield), "each": core_yield / m,
        "busy": 1 / m, "delivers": 1 / core_yield, "left": core_yield - 1, "looks": m - 1.0,
    }  # fmt: skip
    return (
        claim("smt-yield", said, found, case="given", parts=less),
        claim("cpu-inflation", said, times, parts=["derivation", effect]),
    )


def _parsed(text: str) -> float:
    """Raises :class:`UsageError`."""
    try:
        values = [float(part) for part in text.split(":")]
    except ValueError:
        raise UsageError(f"--smt-yield {text}: not a number", _FORMS) from None
    if len(values) > 2 or not all(0 < v < math.inf for v in values):
        raise UsageError(f"--smt-yield {text}: rates and a yield are above 0", _FORMS)
    return values[0] if len(values) == 1 else values[1] / values[0]


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
        "source": ladders.source(ladder, "run"),
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
        yield _bounded(used.value, ladder, place)


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


def _bounded(used: float, ladder: Ladder, place: str) -> Claim:
    """Only the sessions' own CPU time is known: with m threads a core it took from used / m cores up."""
    machine = ladder.machine
    said = {"place": place, "threads": used, "source": ladders.source(ladder, "run")}
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
