"""Concludes about threads and cores: SMT yield, CPU per unit of work, and the number of cores in use. Pure.

The operating system charges a core of m threads to its tasks by the thread: with all threads busy, m
thread-seconds pass in one core-second. The *yield* is the throughput of such a core relative to one busy
thread: between 1 and m. CPU per unit of work, as the operating system charges it, then rises by m / yield (2
/ yield with two threads), though nothing but the sharing has become slower.
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
"""Share of m from which on a yield means that the threads do not share a core."""


def inflation(core_yield: float, threads_per_core: int = 2) -> float:
    """Returns the factor by which the CPU seconds charged to a unit of work rise when all siblings are busy:
    m / yield. Raises :class:`UsageError` for a yield that is not above 0."""
    if core_yield <= 0:
        raise UsageError(
            f"a yield of {core_yield:g} is not above 0", "throughput of a full core over one thread's"
        )
    return threads_per_core / core_yield


# -- claims --

CPU_BOUND = (CPU, RUN, RUNQ, "unknown", "no bend")


def threads(scaling: Scaling, results: Measured | None, kind: str) -> Iterator[Claim]:
    """Yields smt-yield, cpu-per-work, cpu-inflation, equivalent-cores. ``kind`` is the result of
    :func:`reason`."""
    yield_claim = _yield(scaling, kind)
    yield yield_claim
    yield from _cpu_per_work(scaling)
    if yield_claim.value is not None:
        yield from _inflation_claims(scaling, yield_claim.value)
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
        core_yield = measured or (fitted if fit is not None and _holds(fit, machine.cores or 0) else None)
        case = "no-fit" if core_yield is None else None
        if core_yield is not None and core_yield.value >= _WHOLE * (machine.threads_per_core or 1):
            case = "at-cpus"
        elif core_yield is not None:
            return _yield_claim(
                core_yield, fitted if measured is not None else None, ladder, by_rungs=measured is not None
            )
    knee = fmt.load(bend.value, ladder.load_unit) if bend is not None else ""
    values = {"cores": machine.cores, "cpus": machine.cpus, "reason": kind, "knee": knee}
    return claim("smt-yield", values, case=case or "")


def _unknown(ladder: Ladder, kind: str) -> str | None:
    """Returns the case of the entry that explains why the yield cannot be known from this ladder; None if it
    can."""
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
    """Returns the fit with bends at the cores and the CPUs. None if the machine has no SMT or is unknown, or
    there are too few loads."""
    machine = ladder.machine
    cores, m = machine.cores, machine.threads_per_core
    if cores is None or m is None or m < 2 or (machine.cpus is not None and machine.cpus <= cores):
        return None
    points = ladder.points.filter(pl.col("throughput") > 0)
    loads, rates = points["load"].to_list(), points["throughput"].to_list()
    return tied(loads, rates, cores, m, machine.cpus or cores * m)


def knee_at_cores(ladder: Ladder) -> Estimate | None:
    """Returns the number of cores as the knee if growth with bends at the cores and at the CPUs describes the
    ladder and the fit does not exclude the cores as its first bend. None otherwise, or if growth does not
    bend there."""
    fit, cores = _tied(ladder), ladder.machine.cores
    if fit is None or cores is None or not _holds(fit, cores) or fit.core_yield >= _WHOLE * _threads(ladder):
        return None
    return Estimate("knee", cores, ladder.load_unit, method=TIED)


def _threads(ladder: Ladder) -> int:
    return ladder.machine.threads_per_core or 1


def _holds(fit: Tied, cores: float) -> bool:
    """Returns whether the fit describes the ladder and its first bend may be that of the cores."""
    return fit.error <= _ROUGH and fit.knee95 is not None and fit.knee95[0] <= cores <= fit.knee95[1]


_ROUGH = 0.2
"""Relative error from which on a fit describes nothing."""


def _fitted(fit: Tied | None) -> Estimate | None:
    if fit is None:
        return None
    low, high = fit.yield95 or (None, None)
    return Estimate("SMT yield", fit.core_yield, _OF_ONE, low, high, TIED)


def _measured(ladder: Ladder, fit: Tied | None) -> Estimate | None:
    """Returns throughput with a session per CPU over that with one per core; None if a load is missing. The
    interval comes from repeats, or with fewer than three climbs from the scatter about the fit, if known."""
    machine = ladder.machine
    cores, m = machine.cores or 0, _threads(ladder)
    if machine.cpus not in (None, cores * m):
        return None
    at = {
        n: dict(ladder.points.filter(load=float(n)).select("repeat", "throughput").rows())
        for n in (cores, cores * m)
    }
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
    error = noise * math.sqrt(2 / len(pairs))  # of a ratio of two means of this relative noise
    low, high = positive_interval(e.ratio, error * e.ratio, fit.degrees) or (None, None)
    return Estimate("SMT yield", e.ratio, _OF_ONE, low, high, f"scatter about a {TIED}", error * e.ratio)


def _yield_claim(core_yield: Estimate, fitted: Estimate | None, ladder: Ladder, *, by_rungs: bool) -> Claim:
    """Returns the claim of a yield. ``fitted`` is the fit's yield if ``core_yield`` was measured."""
    cores, m = ladder.machine.cores or 0, _threads(ladder)
    low, high = cores, ladder.machine.cpus or cores * m
    values = _yield_values(core_yield, m) | {
        "low": fmt.load(low, ladder.load_unit),
        "high": fmt.load(high, ladder.load_unit),
        "one": ladder.load_unit.removesuffix("s"),
    }
    parts = ["less"] if core_yield.value < 1 and (core_yield.high is None or core_yield.high < 1) else []
    if by_rungs and (efficiency := Rungs.of(ladder).efficiencies[cores]) < GOOD_SCALING:
        values["efficiency"] = efficiency
        parts.append("slowed")
    parts += ["no-interval"] if core_yield.low is None else []
    if fitted is not None:
        values["fitted"] = fmt.plain(fitted.value) + fmt.spread(fitted)
        parts += ["differs"] if _apart(core_yield, fitted) else []
    return claim("smt-yield", values, core_yield, case="measured" if by_rungs else "known", parts=parts)


def _yield_values(core_yield: Estimate, m: int) -> dict[str, Any]:
    return {
        "ratio": fmt.plain(core_yield.value) + fmt.spread(core_yield),
        "threads": m,
        "all": "Both" if m == 2 else f"All {m}",
        "every": "both" if m == 2 else f"all {m}",
        "adds": "adds" if core_yield.value >= 1 else "takes away",
        "share": fmt.percent(abs(core_yield.value - 1) / (m - 1)),
    }


def _apart(a: Estimate, b: Estimate) -> bool:
    """Returns whether both intervals are known and do not overlap."""
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return False
    return a.low > b.high or b.low > a.high


_COUNTED = {"cpus": "cpus", "processors": "cpus", "cores": "cores"}


def agree(ladder: Ladder) -> None:
    """Raises :class:`UsageError` if loads that are CPUs or cores are more than the machine has."""
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
    """Returns smt-yield and cpu-inflation with its derivation for ``1.31`` or ``800:1048`` (throughput
    with one busy thread per core, and with all). ``threads_per_core`` defaults to 2. Raises
    :class:`UsageError`."""
    m = 2 if threads_per_core is None else threads_per_core
    core_yield = _parse_yield(text)
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
    estimate = Estimate("SMT yield", core_yield, _OF_ONE)
    values = _yield_values(estimate, m) | {"evidence": text}
    less = ["less"] if core_yield < 1 else []
    times = Estimate("CPU inflation", inflation(core_yield, m), "times")
    effect = "independent" if core_yield > 0.995 * m else "hidden" if core_yield > 1 else "useless"
    values |= {
        "times": fmt.plain(times.value),
        "yield": fmt.plain(core_yield),
        "each": core_yield / m,
        "busy": 1 / m,
        "delivers": 1 / core_yield,
        "left": core_yield - 1,
        "looks": m - 1.0,
    }
    return (
        claim("smt-yield", values, estimate, case="given", parts=less),
        claim("cpu-inflation", values, times, parts=["derivation", effect]),
    )


def _parse_yield(text: str) -> float:
    """Returns the yield in the text. Raises :class:`UsageError` if there is none."""
    try:
        values = [float(part) for part in text.split(":")]
    except ValueError:
        raise UsageError(f"--smt-yield {text}: not a number", _FORMS) from None
    if len(values) > 2 or not all(0 < v < math.inf for v in values):
        raise UsageError(f"--smt-yield {text}: rates and a yield are above 0", _FORMS)
    return values[0] if len(values) == 1 else values[1] / values[0]


# -- CPU per unit of work -------------------------------------------------------------------------


def _cpu_per_work(scaling: Scaling) -> Iterator[Claim]:
    """Yields CPU per unit of work at the lowest rung and at the one with the highest throughput."""
    ladder = scaling.ladder
    low, high = ladders.loads(ladder)[0], ladders.best_rung(ladder)
    first = ladders.at(ladder, low, "cpu", over="throughput")
    last = ladders.at(ladder, high, "cpu", over="throughput")
    if first is None:
        return
    values = {
        "unit": fmt.unit_of_work(ladder.throughput_unit),
        "low": fmt.load(low, ladder.load_unit),
        "low_s": first.value,
        "kernel": _in_kernel(ladder, low),
        "source": ladders.source(ladder, "run"),
    }
    more = last is not None and high != low and first.value > 0
    if last is not None and more:
        values |= {
            "high": fmt.load(high, ladder.load_unit),
            "high_s": last.value,
            "times": last.value / first.value,
        }
    value = Estimate(
        "CPU per unit of work", first.value, "s", first.low, first.high, first.method, first.std_err
    )
    yield claim("cpu-per-work", values, value, case="two" if more else "one")


def _in_kernel(ladder: Ladder, load: float) -> str:
    system = ladders.at(ladder, load, "cpu_system", over="cpu")
    return "" if system is None else f" ({fmt.percent(system.value)} of it in the kernel)"


def _inflation_claims(scaling: Scaling, core_yield: Estimate) -> Iterator[Claim]:
    """Yields m / yield beside the measured inflation."""
    ladder, m = scaling.ladder, scaling.ladder.machine.threads_per_core
    if m is None or core_yield.value <= 0:
        return
    ends = [inflation(v, m) if v is not None and v > 0 else None for v in (core_yield.high, core_yield.low)]
    value = Estimate(
        "CPU inflation", inflation(core_yield.value, m), "times", ends[0], ends[1], core_yield.method
    )
    values: dict[str, Any] = {"times": fmt.plain(value.value) + fmt.spread(value), "threads": m}
    low, top = ladders.loads(ladder)[0], ladders.loads(ladder)[-1]
    first, last = (ladders.at(ladder, n, "cpu", over="throughput") for n in (low, top))
    full = ladder.machine.cpus is not None and top >= ladder.machine.cpus
    parts = []
    if full and first is not None and last is not None and first.value > 0:
        values |= {"load": fmt.load(top, ladder.load_unit), "measured": last.value / first.value}
        parts = ["measured"]
    yield claim("cpu-inflation", values, value, parts=parts)


# -- cores in use ---------------------------------------------------------------------------------


def _cores(scaling: Scaling, results: Measured | None) -> Iterator[Claim]:
    """Yields the cores in use at the rung with the highest throughput: measured CPU by CPU, else bounded by
    the CPU time that sessions used."""
    ladder = scaling.ladder
    where = ladders.best_rung(ladder)
    place = f"At {fmt.load(where, ladder.load_unit)}"
    # without the server's machine the table has the CPUs of this one
    if results is not None and ladder.workload is not None and ladder.machine.cpus is not None:
        seen = [p["cores"] for w, p in cells_of(results, ladder) if w["sessions"] == where and "cores" in p]
        known = pl.concat(seen).drop_nulls("threads") if seen else pl.DataFrame()
        if known.height:
            yield equivalent(known, place, None if ladder.machine.quota else ladder.machine.cpus)
            return
    used = ladders.at(ladder, where, "cpu")
    if used is not None:
        yield _bounded(used.value, ladder, place)


def equivalent(known: pl.DataFrame, place: str, cpus: float | None) -> Claim:
    """Returns the claim of CPUs and cores in use from rows of the table ``cores``, one per cell or window.

    ``cpus`` is the number of CPUs of the machine; None if unknown.
    """
    mean = {c: fmt.estimate(c, known[c].to_list()) for c in ("threads", "cores", "low", "high")}
    busy = mean["threads"]
    assert busy is not None
    cores, low, high = mean["cores"], mean["low"], mean["high"]
    source = str(known["source"][0])
    of_cpus = "" if cpus is None else f" of {fmt.plain(cpus)}"
    values = {"place": place, "threads": busy.value, "of_cpus": of_cpus, "source": source}
    if cores is None or low is None or high is None:
        return claim("equivalent-cores", values | {"why": known["status"][0]}, case="unknown")
    value = Estimate("cores in use", cores.value, "cores", low.value, high.value, source)
    if fmt.plain(cores.value) == fmt.plain(busy.value):  # each on a core of its own
        return claim("equivalent-cores", values, value, case="same")
    count = fmt.load(cores.value, "cores") + fmt.spread(value)
    return claim("equivalent-cores", values | {"cores": count}, value, case="known")


def _bounded(used: float, ladder: Ladder, place: str) -> Claim:
    """Returns bounds if only the sessions' own CPU time is known: with m threads per core it occupied at
    least used / m cores."""
    machine = ladder.machine
    values = {"place": place, "threads": used, "source": ladders.source(ladder, "run")}
    m = machine.threads_per_core
    if m is None or machine.cores is None:
        bare = {"why": "the topology is unknown", "of_cpus": ""}
        return claim("equivalent-cores", values | bare, case="unknown")
    if m == 1:
        value = Estimate("cores in use", used, "cores", used, used, "no SMT")
        return claim("equivalent-cores", values, value, case="no-smt")
    low, high = used / m, min(machine.cores, used)
    if low >= 0.99 * high:
        value = Estimate("cores in use", high, "cores", low, high, "all threads busy")
        return claim("equivalent-cores", values | {"cores": fmt.whole(high)}, value, case="all")
    return claim("equivalent-cores", values | {"low": low, "high": high}, case="between")
