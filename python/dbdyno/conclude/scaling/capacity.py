"""What one session, one core and the machine deliver, and up to which load throughput scales."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.checking import check
from dbdyno.conclude.ladder import ladders
from dbdyno.conclude.ladder.rungs import HIDES, Reach, Rungs
from dbdyno.conclude.run import paced, phases
from dbdyno.conclude.run.case import Case, Row
from dbdyno.conclude.run.reason import session_time
from dbdyno.conclude.scaling import smt
from dbdyno.model.results.analyses import Estimate, Fitted, Ladder, Scaling
from dbdyno.model.results.claim import Claim
from dbdyno.model.schema.derived import GOOD_SCALING
from dbdyno.model.schema.tables import fewest_calls
from dbdyno.model.text.nouns import noun
from dbdyno.model.units import format_given

_POINTS = "measured points"
_LEVEL = 0.1
"""Throughput is level where it surely changes by less than this share."""
_WIDE = 10.0
"""A gain with an interval up to more than so many times says nothing."""


@check("nothing-measured", "peak", "scales-to", of="whole")
def headline(case: Case) -> Iterator[Claim]:
    """For each ladder of a run its peak, up to which load it scales, and where its session time goes; one
    claim where nothing was measured."""
    if case.plan.experiment.phases:
        yield from phases.headline(case)
        return
    ladders_of = [] if case.observed else list(case.rungs())
    if not ladders_of and not case.observed:
        yield claim("nothing-measured", {}, case="none")
    for name, rows in ladders_of:
        ladder = case.ladders.get((rows[0]["workload"], rows[0]["variant"])) if rows else None
        if not rows:
            yield _at_least(case, name)
        elif paced.is_paced(case):
            yield from paced.capacity(case, name, rows)
        elif ladder is None or ladder.points.is_empty():
            yield claim("nothing-measured", {}, case="no-rate", subject=name)
        else:
            yield peak(ladder, rows=rows, subject=name)
            yield from scales_to(ladder, subject=name)
            yield session_time(rows[-1], subject=name)


def _at_least(case: Case, name: str) -> Claim:
    """Nothing usable: what the client limited is what the server can do at least."""
    limited = [r for r in case.limited(name) if r["calls_per_s"]]
    if not limited:
        return claim("nothing-measured", {}, case="unusable", subject=name)
    top = max(limited, key=lambda r: float(r["calls_per_s"]))
    said = {"rate": fmt.rate(top["calls_per_s"], "calls/s"), "load": fmt.load(top["sessions"])}
    return claim("nothing-measured", said, top["calls_per_s"], case="client", subject=name)


def deliveries(scaling: Scaling, rows: Sequence[Row] = ()) -> Iterator[Claim]:
    """one-session, peak, one-core, one-cpu. ``rows``: of the run's table ``rungs``."""
    yield from _one_session(scaling)
    yield peak(scaling.ladder, scaling.best, rows)
    yield from _parts(scaling)


def bends(scaling: Scaling) -> Iterator[Claim]:
    """knee and second-knee, scales-to, superlinear, throughput-drop, at-cpus, one-more-session."""
    rungs = Rungs.of(scaling.ladder)
    yield from _knees(scaling)
    yield from scales_to(scaling.ladder)
    yield from _superlinear(scaling.ladder, rungs)
    yield from _drop(scaling.ladder, rungs)
    yield from _at_cpus(scaling)
    yield from _one_more(scaling.ladder, rungs)


def _one_session(scaling: Scaling) -> Iterator[Claim]:
    ladder = scaling.ladder
    found, lowest = ladders.alone(scaling), ladders.loads(ladder)[0]
    if found is None:
        if lowest > 1:
            yield _at_most(ladder, lowest)
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
    said["lowest"] = format_given(lowest)
    shown = {"response": response is not None, "fitted": not measured, "below": not measured and lowest > 1}
    parts = [part for part, holds in shown.items() if holds]
    yield claim(
        "one-session",
        said,
        replace(one, name="one session", unit=ladder.throughput_unit),
        case="known",
        parts=parts,
    )


def _at_most(ladder: Ladder, lowest: float) -> Claim:
    """What the lowest load bears: no more than its throughput, no less than an equal part of it."""
    x, unit = ladders.throughput(ladder, lowest), ladder.throughput_unit
    said = {"one": fmt.one_of(ladder.load_unit), "lowest": fmt.load(lowest, ladder.load_unit)}
    said |= {"least": fmt.rate(x / lowest, unit), "most": fmt.rate(x, unit), "by": _POINTS}
    return claim("one-session", said, case="unknown")


def peak(ladder: Ladder, best: Fitted | None = None, rows: Sequence[Row] = (), subject: str = "") -> Claim:
    """The largest mean throughput, and the loads that are not below it beyond chance. ``rows``: of the run's
    table ``rungs``, with calls and response times."""
    rungs, unit = Rungs.of(ladder), ladder.throughput_unit
    where, lowest, last = rungs.best, rungs.loads[0], rungs.loads[-1]
    top = ladders.at(ladder, where)
    assert top is not None
    row = next((r for r in rows if r["sessions"] == where), {})
    calls, p95 = row.get("calls_per_s"), row.get("response_p95_ns")
    said: dict[str, Any] = {"load": fmt.load(where, ladder.load_unit), "sessions": where}
    said["rate"] = _rate(top, unit)
    said |= {"first": fmt.load(lowest, ladder.load_unit), "times": top.value / rungs.x(lowest), "p95": p95}
    said |= {"alike": fmt.loads(rungs.peak[0], rungs.peak[-1], ladder.load_unit)}
    said |= {"reached": fmt.load(rungs.peak[0], ladder.load_unit)}
    said |= {"calls": top.value if calls is None else calls, "method": rungs.method}
    called = noun("calls")
    said["called"] = called
    if calls is not None and unit != f"{called}/s":
        said["rate"] += f", {fmt.rate(calls, f'{called}/s')},"
    alike = len(rungs.peak) > 1
    said |= {"count": row.get("calls"), "fewest": fewest_calls(0.95)}
    few = p95 is None and 0 < (row.get("calls") or 0) < said["fewest"]
    parts = {"grows": where == last and not alike, "alike": alike, "p95": p95 is not None, "few": few}
    shown = [part for part, holds in parts.items() if holds]
    if best is not None and best.peak is not None:
        said["model"] = best.title
        said["model_load"] = fmt.load(best.peak.value, ladder.load_unit) + fmt.load_spread(best.peak)
        at = best.peak.value
        shown.append("beyond" if at > last else "below" if at <= lowest else "model")
    value, case = replace(top, name="peak throughput", unit=unit), "times" if where > lowest else "first"
    if rungs.is_constant:
        case, shown = "constant", [part for part in shown if part != "alike"]
    return claim("peak", said, value, case=case, parts=shown, subject=subject)


def _parts(scaling: Scaling) -> Iterator[Claim]:
    """The peak over the cores, and over the CPUs."""
    ladder, machine = scaling.ladder, scaling.ladder.machine
    top = ladders.at(ladder, ladders.best_rung(ladder))
    assert top is not None
    unit = ladder.throughput_unit
    for part, count in (("core", machine.cores), ("cpu", machine.cpus)):
        if count is None or (part == "cpu" and count == machine.cores):
            continue
        each = top.over(count, f"one {part}", unit)
        yield claim(f"one-{part}", {"rate": _rate(each, unit), "count": fmt.whole(count)}, each)


def _knees(scaling: Scaling) -> Iterator[Claim]:
    """As measured, by the criterion of an auto ladder; further ones by the fit."""
    ladder, fits = scaling.ladder, scaling.best.knees if scaling.best is not None else ()
    measured = ladders.knee(ladder)
    if measured is not None:
        said = _knee_values(scaling, measured) | {"session": fmt.one_of(ladder.load_unit)}
        if (tied := smt.knee_at_cores(ladder)) is not None:
            fits, said["model"] = (tied,), f"with bends at {fmt.plain(tied.value)} and at the CPUs"
        if fits:
            said["model_load"] = fmt.load(fits[0].value, ladder.load_unit) + fmt.load_spread(fits[0])
        yield claim("knee", said, measured, parts=["model"] if fits else [])
    for knee, name in zip(fits[1:], ("second-knee", "third-knee"), strict=False):
        yield claim(name, _knee_values(scaling, knee), knee)


def _knee_values(scaling: Scaling, knee: Estimate) -> dict[str, str]:
    load = fmt.load(knee.value, scaling.ladder.load_unit) + fmt.load_spread(knee)
    model = scaling.best.title if scaling.best is not None else ""
    return {"load": load, "beside": _beside_cpus(scaling, knee), "model": model}


def _beside_cpus(scaling: Scaling, knee: Estimate) -> str:
    machine = scaling.ladder.machine
    low, high = knee.low, knee.high
    for what, count in (("cores", machine.cores), ("CPUs", machine.cpus)):
        if count is not None and low is not None and high is not None and low <= count <= high:
            return f"; the machine has {fmt.plain(count)} {what}"
    return ""


def scales_to(ladder: Ladder, subject: str = "") -> Iterator[Claim]:
    """The highest measured load before efficiency is below :data:`GOOD_SCALING`, with its interval from noise
    (:meth:`~dbdyno.conclude.ladder.rungs.Rungs.reach`)."""
    rungs, unit = Rungs.of(ladder), ladder.load_unit
    found = rungs.reach()
    if found is None:
        return
    shares, top = rungs.efficiencies, rungs.loads[-1]
    value = Estimate("scales to", found.value, unit, found.low, found.high, rungs.method)
    said = {
        "load": fmt.load(found.value, unit),
        "good": GOOD_SCALING,
        "here": fmt.percent(shares[found.value]),
    }
    said |= {"lowest": fmt.load(rungs.first, unit), "top": fmt.load_number(top), "top_share": shares[top]}
    said |= {"low": fmt.load_number(found.low), "method": rungs.method}
    said |= {"against": "" if rungs.first == 1 else f", against {fmt.load(rungs.first, unit)}"}
    if found.next is None:
        parts = [] if found.low == top else ["unsure"]
        said |= {"low": fmt.load(found.low, unit)}
        yield claim("scales-to", said, value, case="top", parts=parts, severity="good", subject=subject)
        return
    said["here"], said["there"] = fmt.apart(shares[found.value], shares[found.next])
    said |= {"next": fmt.load_number(found.next)}
    said |= {"high": "" if found.high is None else fmt.load(found.high, unit)}
    said |= {"rests_on": "" if found.rests_on is None else fmt.load(found.rests_on, unit)}
    case, end = _reach_case(found, rungs), ["falls" if found.next < top else "ends"]
    parts = [*([] if case in ("open", "unsure") else end), *([] if found.rests_on is None else ["single"])]
    yield claim("scales-to", said, value, case=case, parts=parts, subject=subject)


def _reach_case(found: Reach, rungs: Rungs) -> str:
    """none: not beyond the first load; limit: known to a rung; between: known to several; open, unsure: it
    may scale to the highest load."""
    if found.high is None:
        hidden = found.value == rungs.first or rungs.noise.share > HIDES
        return "unsure" if hidden else "open"
    if found.low < found.value or found.high != found.next:
        return "between"
    return "none" if found.value == rungs.first else "limit"


def _superlinear(ladder: Ladder, rungs: Rungs) -> Iterator[Claim]:
    """Efficiency above 100 %, by more than noise."""
    if rungs.above_one is None:
        return
    load, times = rungs.above_one
    said = {"load": fmt.load(load, ladder.load_unit), "first": fmt.load(rungs.loads[0], ladder.load_unit)}
    said |= {"times": fmt.plain(times.value) + fmt.spread(times), "one": fmt.one_of(ladder.load_unit)}
    yield claim("superlinear", said | {"reference": fmt.load(rungs.first, ladder.load_unit)}, times)


def _drop(ladder: Ladder, rungs: Rungs) -> Iterator[Claim]:
    """Throughput that breaks down from one load to the next."""
    found = rungs.drop()
    if found is None:
        return
    first, last, change = found
    unit, single = ladder.throughput_unit, last == rungs.loads[-1] and rungs.means[last].n == 1
    said = {"first": fmt.load_number(first), "last": fmt.load(last, ladder.load_unit)}
    said |= {"before": fmt.rate(rungs.x(first), unit), "after": fmt.rate(rungs.x(last), unit)}
    said |= {"share": fmt.percent(-change.value)}
    yield claim("throughput-drop", said, change, parts=["single"] if single else [])


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
    share = found.over(cpus * one[0].value, "efficiency at CPUs", "")
    said = {"share": fmt.percent(share.value) + fmt.percent_spread(share), "by": by}
    said |= {
        "load": fmt.load(cpus, ladder.load_unit),
        "rests": _POINTS if by == "measured" else _fit_name(scaling),
    }
    yield claim("at-cpus", said, share)


def _one_more(ladder: Ladder, rungs: Rungs) -> Iterator[Claim]:
    """What further load brought from well below the highest one up to it; from the peak where it falls."""
    found = rungs.gain()
    if found is None:
        return
    first, gain = found
    last, unit = rungs.loads[-1], ladder.throughput_unit
    per = rungs.x(first) / (last - first)
    low, high = (None if v is None else v * per for v in (gain.low, gain.high))
    each = Estimate("one more session", gain.value * per, unit, low, high, rungs.method)
    case = "more" if (low or 0) > 0 else "less" if (high or 0) < 0 else "nothing"
    ends = (gain.low or 0.0, gain.high or 0.0)
    drop = rungs.drop()
    if case in ("more", "less") and {first, last} <= set(rungs.peak):
        case = "unsure"  # the peak's sentence says that they do not differ beyond noise
    elif case == "less" and drop is not None:
        pass  # a drop is more than noise can do, and its sentence says what it rests on
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
    said = {"first": fmt.load_number(first), "last": fmt.load(last, ladder.load_unit)}
    wide = (gain.high or 0.0) > _WIDE or (case == "unsure" and ends[0] * ends[1] > 0)
    said |= {
        "share": fmt.percent(abs(gain.value)),
        "spread": "" if wide else f" ({low_share} to {high_share})",
    }
    said |= {"one": fmt.one_of(ladder.load_unit), "rate": fmt.rate(each.value, unit)}
    said |= {"most": "more" if gain.value > 0 else "less"}
    said |= {"part": fmt.percent(each.value / rungs.each(rungs.first)), "method": rungs.method}
    said |= {"reference": "alone" if rungs.first == 1 else fmt.at_load(rungs.first, ladder.load_unit)}
    yield claim("one-more-session", said, each, case=case)


def _rate(found: Estimate, unit: str) -> str:
    return fmt.rate(found.value, unit) + fmt.rate_spread(found)


def _one(scaling: Scaling) -> str:
    return f"One {fmt.one_of(scaling.ladder.load_unit)}"


def _fit_name(scaling: Scaling) -> str:
    return f"fit: {scaling.best.title}" if scaling.best else _POINTS
