"""Concludes what one session, one core and the machine deliver, and up to which load throughput scales."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.checking import check
from dbdyno.conclude.ladder import ladders
from dbdyno.conclude.ladder.rungs import HIDES, Reach, Rungs
from dbdyno.conclude.run import paced, phases, quality
from dbdyno.conclude.run.case import Case, Row
from dbdyno.conclude.run.reason import session_time
from dbdyno.conclude.scaling import smt
from dbdyno.model.results.analyses import Estimate, Fitted, Ladder, Scaling
from dbdyno.model.results.claim import Claim, disturbed_cells
from dbdyno.model.schema.derived import GOOD_SCALING
from dbdyno.model.schema.quantiles import fewest_calls
from dbdyno.model.text.nouns import noun
from dbdyno.model.units import format_given

_POINTS = "measured points"
_LEVEL = 0.1
"""Share below which a sure change of throughput is called level."""
_WIDE = 10.0
"""A gain's interval whose upper end reaches this is too wide to be of use, and is not printed."""


@check("nothing-measured", "peak", "scales-to", of="whole")
def headline(case: Case) -> Iterator[Claim]:
    """Yields for each ladder of a run its peak, the load up to which it scales, and the parts of its session
    time; a single claim if nothing was measured."""
    if case.plan.experiment.phases:
        yield from phases.headline(case)
        return
    ladders_of = [] if case.observed else list(case.rungs())
    disturbances = list(quality.disturbed(case))
    if not ladders_of and not case.observed:
        yield claim("nothing-measured", {}, case="none")
    for name, rows in ladders_of:
        ladder = case.ladders.get((rows[0]["workload"], rows[0]["variant"])) if rows else None
        if ladder is not None:
            ladder = ladders.with_disturbed(ladder, case.tables["windows"], disturbances)
        if not rows:
            yield _at_least(case, name)
        elif paced.is_paced(case):
            own = {c["cell"] for c in case.usable if all(c[k] == rows[0][k] for k in ("workload", "variant"))}
            doubtful = not own.isdisjoint(disturbed_cells(disturbances))
            for claimed in paced.capacity(case, name, rows):
                yield ladders.in_doubt(claimed, "") if doubtful else claimed
        elif ladder is None or ladder.points.is_empty():
            yield claim("nothing-measured", {}, case="no-rate", subject=name)
        else:
            yield peak(ladder, rows=rows, subject=name)
            yield from scales_to(ladder, subject=name)
            yield session_time(rows[-1], subject=name)


def _at_least(case: Case, name: str) -> Claim:
    """Returns the claim for a ladder without a usable rung: a throughput limited by the client is a lower
    limit of the server's."""
    limited = [r for r in case.limited(name) if r["calls_per_s"]]
    if not limited:
        return claim("nothing-measured", {}, case="unusable", subject=name)
    top = max(limited, key=lambda r: float(r["calls_per_s"]))
    values = {"rate": fmt.rate(top["calls_per_s"], "calls/s"), "load": fmt.load(top["sessions"])}
    return claim("nothing-measured", values, top["calls_per_s"], case="client", subject=name)


def deliveries(scaling: Scaling, rows: Sequence[Row] = ()) -> Iterator[Claim]:
    """Yields one-session, peak, one-core, one-cpu. ``rows`` are those of the run's table ``rungs``."""
    yield from _one_session(scaling)
    yield peak(scaling.ladder, scaling.best, rows)
    if len(ladders.loads(scaling.ladder)) > 1:
        yield from _peak_per_part(scaling)


def bends(scaling: Scaling) -> Iterator[Claim]:
    """Yields knee and second-knee, scales-to, superlinear, throughput-drop, at-cpus, one-more-session."""
    rungs = Rungs.of(scaling.ladder)
    yield from _knees(scaling)
    yield from scales_to(scaling.ladder)
    yield from _superlinear(scaling.ladder, rungs)
    yield from _drop(scaling.ladder, rungs)
    yield from _at_cpus(scaling)
    yield from _one_more_session(scaling.ladder, rungs)


def _one_session(scaling: Scaling) -> Iterator[Claim]:
    ladder = scaling.ladder
    one_session, lowest = ladders.alone(scaling), ladders.loads(ladder)[0]
    if one_session is None:
        if lowest > 1:
            yield _at_most(ladder, lowest)
        return
    one, measured = one_session
    response = ladders.response_s(ladder, 1.0)
    values = {
        "one": f"One {fmt.one_of(scaling.ladder.load_unit)}",
        "rate": _rate(one, ladder.throughput_unit),
        "unit": fmt.unit_of_work(ladder.throughput_unit),
        "response": response,
        "by": _POINTS if measured else _fit_name(scaling),
    }
    values["lowest"] = format_given(lowest)
    part_holds = {
        "response": response is not None,
        "fitted": not measured,
        "below": not measured and lowest > 1,
    }
    parts = [part for part, holds in part_holds.items() if holds]
    yield claim(
        "one-session",
        values,
        replace(one, name="one session", unit=ladder.throughput_unit),
        case="known",
        parts=parts,
    )


def _at_most(ladder: Ladder, lowest: float) -> Claim:
    """Returns the bounds of one session's throughput from the lowest load: at most its throughput, at least
    an equal part of it."""
    x, unit = ladders.throughput(ladder, lowest), ladder.throughput_unit
    values = {"one": fmt.one_of(ladder.load_unit), "lowest": fmt.load(lowest, ladder.load_unit)}
    values |= {"least": fmt.rate(x / lowest, unit), "most": fmt.rate(x, unit), "by": _POINTS}
    return claim("one-session", values, case="unknown")


def peak(ladder: Ladder, best: Fitted | None = None, rows: Sequence[Row] = (), subject: str = "") -> Claim:
    """Returns the claim of the largest mean throughput and the loads that are not below it beyond chance.
    ``rows`` are those of the run's table ``rungs``, with calls and response times."""
    rungs, unit = Rungs.of(ladder), ladder.throughput_unit
    where, lowest, last = rungs.best, rungs.loads[0], rungs.loads[-1]
    top = ladders.at(ladder, where)
    assert top is not None
    row = next((r for r in rows if r["sessions"] == where), {})
    calls, p95 = row.get("calls_per_s"), row.get("response_p95_ns")
    values: dict[str, Any] = {"load": fmt.load(where, ladder.load_unit), "sessions": where}
    # "at least" beside an interval that begins below it would be a contradiction
    values["rate"] = fmt.rate(top.value, unit) if ladder.disturbed else _rate(top, unit)
    values |= {"first": fmt.load(lowest, ladder.load_unit), "times": top.value / rungs.x(lowest), "p95": p95}
    values |= {"alike": fmt.loads(rungs.peak[0], rungs.peak[-1], ladder.load_unit)}
    values |= {"reached": fmt.load(rungs.peak[0], ladder.load_unit)}
    values |= {"calls": top.value if calls is None else calls, "method": rungs.method}
    called = noun("calls")
    values["called"] = called
    if calls is not None and unit != f"{called}/s":
        values["rate"] += f", {fmt.rate(calls, f'{called}/s')},"
    alike = len(rungs.peak) > 1
    values |= {"count": row.get("calls"), "fewest": fewest_calls(0.95)}
    few = p95 is None and 0 < (row.get("calls") or 0) < values["fewest"]
    parts = {"grows": where == last and not alike, "alike": alike, "p95": p95 is not None, "few": few}
    shown = [part for part, holds in parts.items() if holds]
    if best is not None and best.peak is not None:
        values["model"] = best.title
        values["model_load"] = fmt.load(best.peak.value, ladder.load_unit) + fmt.load_spread(best.peak)
        at = best.peak.value
        shown.append("beyond" if at > last else "below" if at <= lowest else "model")
    value, case = replace(top, name="peak throughput", unit=unit), "times" if where > lowest else "first"
    if ladder.disturbed:
        values["disturbed"] = ladders.disturbed_place(ladder)
        case = "disturbed" if len(rungs.loads) > 1 else "only-disturbed"
        shown = [part for part in shown if part in ("p95", "few") and where not in ladder.disturbed]
    elif len(rungs.loads) == 1:
        case, shown = "only", [f"{part}-only" for part in shown if part in ("p95", "few")]
    elif rungs.is_constant:
        case, shown = "constant", [part for part in shown if part != "alike"]
    return claim("peak", values, value, case=case, parts=shown, subject=subject)


def _peak_per_part(scaling: Scaling) -> Iterator[Claim]:
    """Yields the peak divided by the cores and by the CPUs."""
    ladder, machine = scaling.ladder, scaling.ladder.machine
    top = ladders.at(ladder, ladders.best_rung(ladder))
    assert top is not None
    unit = ladder.throughput_unit
    for part, count in (("core", machine.cores), ("cpu", machine.cpus)):
        if count is None or (
            machine.quota if part == "core" else count == machine.cores and not machine.quota
        ):
            continue
        each = top.over(count, f"one {part}", unit)
        values = {"rate": _rate(each, unit), "count": fmt.whole(count)}
        by_quota = " by its quota" if machine.quota else ""
        yield claim(f"one-{part}", values | {"by_quota": by_quota}, each)


def _knees(scaling: Scaling) -> Iterator[Claim]:
    """Yields the measured knee, by the criterion of an auto ladder, and further knees from the fit."""
    ladder, fits = scaling.ladder, scaling.best.knees if scaling.best is not None else ()
    measured = ladders.knee(ladder)
    if measured is not None:
        values = _knee_values(scaling, measured) | {"session": fmt.one_of(ladder.load_unit)}
        if (tied := smt.knee_at_cores(ladder)) is not None:
            fits, values["model"] = (tied,), f"with bends at {fmt.plain(tied.value)} and at the CPUs"
        if fits:
            values["model_load"] = fmt.load(fits[0].value, ladder.load_unit) + fmt.load_spread(fits[0])
        yield claim("knee", values, measured, parts=["model"] if fits else [])
    for knee, name in zip(fits[1:], ("second-knee", "third-knee"), strict=False):
        yield claim(name, _knee_values(scaling, knee), knee)


def _knee_values(scaling: Scaling, knee: Estimate) -> dict[str, str]:
    load = fmt.load(knee.value, scaling.ladder.load_unit) + fmt.load_spread(knee)
    model = scaling.best.title if scaling.best is not None else ""
    return {"load": load, "beside": _near_count(scaling, knee), "model": model}


def _near_count(scaling: Scaling, knee: Estimate) -> str:
    machine = scaling.ladder.machine
    low, high = knee.low, knee.high
    counts = (("cores", machine.cores), ("CPUs", machine.cpus))
    for what, count in counts[machine.quota :]:
        if count is not None and low is not None and high is not None and low <= count <= high:
            whose = "the server may use" if machine.quota else "the machine has"
            return f"; {whose} {fmt.plain(count)} {what}"
    return ""


def scales_to(ladder: Ladder, subject: str = "") -> Iterator[Claim]:
    """Yields the highest measured load before efficiency falls below :data:`GOOD_SCALING`, with its interval
    from noise (:meth:`~dbdyno.conclude.ladder.rungs.Rungs.reach`)."""
    rungs, unit = Rungs.of(ladder), ladder.load_unit
    reach = rungs.reach()
    if reach is None:
        return
    shares, top = rungs.efficiencies, rungs.loads[-1]
    until = top if reach.next is None else max(reach.next, reach.high or 0.0)
    if any(load <= until for load in ladder.disturbed):
        values = {"disturbed": ladders.disturbed_place(ladder), "good": GOOD_SCALING}
        values |= {"lowest": fmt.load(rungs.first, unit), "method": rungs.method}
        yield claim("scales-to", values, case="disturbed", subject=subject)
        return
    value = Estimate("scales to", reach.value, unit, reach.low, reach.high, rungs.method)
    # The highest load is not compared with itself where throughput per session grows up to it.
    base = rungs.loads[0] if rungs.first == top else rungs.first
    values = {
        "load": fmt.load(reach.value, unit),
        "good": GOOD_SCALING,
        "here": fmt.percent(rungs.each(reach.value) / rungs.each(base)),
    }
    values |= {"lowest": fmt.load(base, unit), "top": fmt.load_number(top), "top_share": shares[top]}
    values |= {"low": fmt.load_number(reach.low), "method": rungs.method}
    values |= {"against": "" if base == 1 else f", against {fmt.load(base, unit)}"}
    if reach.next is None:
        parts = [] if reach.low == top else ["unsure"]
        values |= {"low": fmt.load(reach.low, unit)}
        yield claim("scales-to", values, value, case="top", parts=parts, severity="good", subject=subject)
        return
    values["here"], values["there"] = fmt.apart(shares[reach.value], shares[reach.next])
    values |= {"next": fmt.load_number(reach.next)}
    values |= {"high": "" if reach.high is None else fmt.load(reach.high, unit)}
    values |= {"rests_on": "" if reach.rests_on is None else fmt.load(reach.rests_on, unit)}
    case, end = (
        _reach_case(reach, rungs),
        ["falls" if reach.next < top and top not in ladder.disturbed else "ends"],
    )
    parts = [*([] if case in ("open", "unsure") else end), *([] if reach.rests_on is None else ["single"])]
    yield claim("scales-to", values, value, case=case, parts=parts, subject=subject)


def _reach_case(reach: Reach, rungs: Rungs) -> str:
    """Returns the case of the sentence: "none" (no scaling beyond the first load), "early" (perhaps none),
    "limit" (known to one rung), "between" (known to several rungs), "open" or "unsure" (it may scale to the
    highest load)."""
    if reach.high is None:
        hidden = reach.value == rungs.first or rungs.noise.share > HIDES
        return "unsure" if hidden else "open"
    if reach.low < reach.value or reach.high != reach.next:
        return "early" if reach.value == rungs.first else "between"
    return "none" if reach.value == rungs.first else "limit"


def _superlinear(ladder: Ladder, rungs: Rungs) -> Iterator[Claim]:
    """Yields a claim if efficiency is above 100 % by more than noise."""
    if rungs.above_one is None:
        return
    load, times = rungs.above_one
    values = {"load": fmt.load(load, ladder.load_unit), "first": fmt.load(rungs.loads[0], ladder.load_unit)}
    values |= {"times": fmt.plain(times.value) + fmt.spread(times), "one": fmt.one_of(ladder.load_unit)}
    yield claim("superlinear", values | {"reference": fmt.load(rungs.first, ladder.load_unit)}, times)


def _drop(ladder: Ladder, rungs: Rungs) -> Iterator[Claim]:
    """Yields a claim if throughput breaks down from one load to the next."""
    drop = rungs.drop()
    if drop is None:
        return
    first, last, change = drop
    unit, single = ladder.throughput_unit, last == rungs.loads[-1] and rungs.means[last].n == 1
    values = {"first": fmt.load_number(first), "last": fmt.load(last, ladder.load_unit)}
    values |= {"before": fmt.rate(rungs.x(first), unit), "after": fmt.rate(rungs.x(last), unit)}
    values |= {"share": fmt.percent(-change.value)}
    yield claim("throughput-drop", values, change, parts=["single"] if single else [])


def _at_cpus(scaling: Scaling) -> Iterator[Claim]:
    """Yields efficiency at as many sessions as there are CPUs, measured or by the fit within its measured
    range."""
    ladder, cpus, one = scaling.ladder, scaling.ladder.machine.cpus, ladders.alone(scaling)
    if cpus is None or one is None or cpus % 1:  # no load is one session per CPU
        return
    measured = ladders.loads(ladder)
    if not measured[0] <= cpus <= measured[-1]:
        return
    at_cpus, by = ladders.at(ladder, cpus), "measured"
    if at_cpus is None:
        at_cpus, by = ladders.fitted_at(scaling, cpus), "by the fit"
    if at_cpus is None:
        return
    share = at_cpus.over(cpus * one[0].value, "efficiency at CPUs", "")
    values = {"share": fmt.percent(share.value) + fmt.percent_spread(share), "by": by}
    values |= {
        "load": fmt.load(cpus, ladder.load_unit),
        "rests": _POINTS if by == "measured" else _fit_name(scaling),
    }
    yield claim("at-cpus", values, share)


def _one_more_session(ladder: Ladder, rungs: Rungs) -> Iterator[Claim]:
    """Yields the gain of the last rungs, from well below the highest load (or from the peak if throughput
    falls) up to it."""
    gain_from = rungs.gain()
    if gain_from is None:
        return
    first, gain = gain_from
    last, unit = rungs.loads[-1], ladder.throughput_unit
    per = rungs.x(first) / (last - first)
    low, high = (None if v is None else v * per for v in (gain.low, gain.high))
    each = Estimate("one more session", gain.value * per, unit, low, high, rungs.method)
    case = "more" if (low or 0) > 0 else "less" if (high or 0) < 0 else "nothing"
    ends = (gain.low or 0.0, gain.high or 0.0)
    drop = rungs.drop()
    if case in ("more", "less") and {first, last} <= set(rungs.peak):
        case = "unsure"  # the claim of the peak states that these loads do not differ beyond noise
    elif case == "less" and drop is not None:
        pass  # a drop is beyond noise by its own, stricter criterion, and its claim names its evidence
    elif case in ("more", "less") and not rungs.goes_on(first, rises=case == "more"):
        case = "once"
    if case == "nothing" and max(map(abs, ends)) > _LEVEL:
        case = "unsure"
    shown = (
        map(fmt.signed, ends)
        if case in ("nothing", "unsure", "once")
        else map(fmt.percent, sorted(map(abs, ends)))
    )
    low_share, high_share = shown
    values = {"first": fmt.load_number(first), "last": fmt.load(last, ladder.load_unit)}
    wide = (gain.high or 0.0) > _WIDE or (case == "unsure" and ends[0] * ends[1] > 0)
    values |= {
        "share": fmt.percent(abs(gain.value)),
        "spread": "" if wide else f" ({low_share} to {high_share})",
    }
    values |= {"one": fmt.one_of(ladder.load_unit), "rate": fmt.rate(each.value, unit)}
    values |= {"most": "more" if gain.value > 0 else "less"}
    values |= {"part": fmt.percent(each.value / rungs.each(rungs.first)), "method": rungs.method}
    values |= {"reference": "alone" if rungs.first == 1 else fmt.at_load(rungs.first, ladder.load_unit)}
    yield claim("one-more-session", values, each, case=case)


def _rate(rate: Estimate, unit: str) -> str:
    return fmt.rate(rate.value, unit) + fmt.rate_spread(rate)


def _fit_name(scaling: Scaling) -> str:
    return f"fit: {scaling.best.title}" if scaling.best else _POINTS
