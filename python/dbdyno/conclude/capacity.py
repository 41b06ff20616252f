"""What one session, one core and the machine deliver, and up to which load throughput scales."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from dbdyno.conclude import ladders, smt
from dbdyno.conclude import number_format as fmt
from dbdyno.conclude.case import Case, Row
from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.reason import session_time
from dbdyno.model.analyses import Estimate, Fitted, Ladder, Scaling
from dbdyno.model.claim import GOOD_SCALING, Claim, stops_scaling

_POINTS = "measured points"
PLATEAU = 0.97
"""A rung belongs to the plateau below the peak from this share of the peak's throughput on."""


def headline(case: Case) -> Iterator[Claim]:
    """For each ladder of a run its peak, up to which load it scales, and where its session time goes; one
    claim where nothing was measured."""
    ladders_of = [] if case.observed else list(case.rungs())
    if not ladders_of and not case.observed:
        yield claim("nothing-measured", {}, case="none")
    for name, rows in ladders_of:
        ladder = case.ladders.get((rows[0]["workload"], rows[0]["variant"])) if rows else None
        if not rows:
            yield _at_least(case, name)
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
    """knee and second-knee, scales-to, at-cpus, one-more-session."""
    yield from _knees(scaling)
    yield from scales_to(scaling.ladder)
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
    yield claim(
        "one-session", said, replace(one, name="one session", unit=ladder.throughput_unit), parts=parts
    )


def peak(ladder: Ladder, best: Fitted | None = None, rows: Sequence[Row] = (), subject: str = "") -> Claim:
    """The largest mean throughput. ``rows``: of the run's table ``rungs``, with calls and response times."""
    measured, where = ladders.loads(ladder), ladders.best_rung(ladder)
    top, one = ladders.at(ladder, where), ladders.throughput(ladder, measured[0])
    assert top is not None
    last, reached, unit = measured[-1], ladders.reached(ladder, PLATEAU), ladder.throughput_unit
    row = next((r for r in rows if r["sessions"] == where), {})
    calls, p95 = row.get("calls_per_s"), row.get("response_p95_ns")
    said: dict[str, Any] = {"load": fmt.load(where, ladder.load_unit), "sessions": where}
    said["rate"] = _rate(top, unit)
    said |= {"first": fmt.load(measured[0], ladder.load_unit), "times": top.value / one, "p95": p95}
    said |= {"reached": fmt.load(reached, ladder.load_unit), "calls": top.value if calls is None else calls}
    said["share"] = ladders.throughput(ladder, reached) / top.value
    if calls is not None and unit != "calls/s":
        said["rate"] += f", {fmt.rate(calls, 'calls/s')},"
    parts = {"grows": where == last and _grows(ladder), "plateau": reached < where, "p95": p95 is not None}
    shown = [part for part, holds in parts.items() if holds]
    if best is not None and best.peak is not None:
        said["model"] = best.title
        said["model_load"] = fmt.load(best.peak.value, ladder.load_unit) + fmt.spread(best.peak)
        shown.append("beyond" if best.peak.value > last else "model")
    value, case = replace(top, name="peak throughput", unit=unit), "times" if where > measured[0] else "first"
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
        said = _knee_values(scaling, measured) | {"session": ladder.load_unit.removesuffix("s")}
        if (tied := smt.knee_at_cores(ladder)) is not None:
            fits, said["model"] = (tied,), f"with bends at {fmt.plain(tied.value)} and at the CPUs"
        if fits:
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


def scales_to(ladder: Ladder, subject: str = "") -> Iterator[Claim]:
    """The highest measured load before the first whose efficiency is below :data:`GOOD_SCALING`."""
    measured, shares = ladders.loads(ladder), ladders.efficiencies(ladder)
    if len(measured) < 2:
        return
    bad = stops_scaling(list(shares.values()))
    good, top = measured[-1 if bad is None else max(0, bad - 1)], measured[-1]
    said = {"load": fmt.load(good, ladder.load_unit), "good": GOOD_SCALING}
    said |= {"lowest": fmt.load(measured[0], ladder.load_unit), "here": fmt.percent(shares[good])}
    said |= {"top": fmt.load(top, ladder.load_unit), "top_share": shares[top]}
    if bad is None:
        value = Estimate("scales to", good, ladder.load_unit, low=good)
        yield claim("scales-to", said, value, case="top", severity="good", subject=subject)
        return
    said["here"], said["there"] = fmt.apart(shares[good], shares[measured[bad]])
    said["next"] = fmt.load(measured[bad], ladder.load_unit)
    kind = "falls" if measured[bad] < top else "limit"
    value = Estimate("scales to", good, ladder.load_unit, good, measured[bad], "between two rungs")
    yield claim("scales-to", said, value, case=kind, subject=subject)


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


def _grows(ladder: Ladder) -> bool:
    """Whether the top rung delivers noticeably more than the one below it."""
    measured = ladders.loads(ladder)
    if len(measured) < 2:
        return False
    below, top = (ladders.throughput(ladder, n) for n in measured[-2:])
    return top > 1.02 * below


def _one(scaling: Scaling) -> str:
    return f"One {scaling.ladder.load_unit.removesuffix('s')}"


def _fit_name(scaling: Scaling) -> str:
    return f"fit: {scaling.best.title}" if scaling.best else _POINTS
