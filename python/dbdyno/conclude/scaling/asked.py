"""Questions to a ladder and its model: throughput at a load, the load for a response time or a throughput."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from dbdyno.conclude import scaling
from dbdyno.conclude.catalogue import claim, sentence
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.ladder import ladders
from dbdyno.conclude.ladder.rungs import Rungs
from dbdyno.conclude.scaling import rate_capacity
from dbdyno.model.errors import UsageError
from dbdyno.model.results.analyses import Estimate, Fitted, Ladder, Scaling
from dbdyno.model.results.claim import Claim
from dbdyno.model.units import format_ns, format_rate

MANY = 6
"""Different loads from which on a curve with a bend can be fitted."""


def asked(
    made: Scaling,
    loads: Sequence[float] = (),
    response_s: Sequence[float] = (),
    throughputs: Sequence[float] = (),
) -> Scaling:
    """``made`` with an answer for each question to the model: throughput at a load, load for a response
    time, load and response time for a throughput. Raises UsageError where nothing was fitted."""
    best = made.best
    if made.ladder.by_rate:
        raise rate_capacity.no_model(made.ladder)
    if best is None:
        few = len(ladders.loads(made.ladder)) < MANY
        cure = "measure more loads" if few else "measure the same loads again, longer, and with repeats"
        raise UsageError(f"no model was fitted: {made.refused[0].rstrip('.')}", cure)
    found = [
        *(_prediction(made, load) for load in loads),
        *(_within(made, best, seconds) for seconds in response_s),
        *(_for_rate(made, best, rate) for rate in throughputs),
    ]
    return replace(made, answers=(*found, *made.answers))


def _prediction(made: Scaling, load: float) -> Claim:
    shown = fmt.load(load, made.ladder.load_unit)
    measured = ladders.at(made.ladder, load)
    if why := _no_model(made, load):
        return _without_model(made, load, why)
    answer = scaling.predict(made, load, made.best.model if made.best else None)
    values = {"load": shown, "note": answer.note, "by": _by(made)}
    ends = (
        ""
        if answer.low is None or answer.high is None
        else f"{_number(answer.low)} to {_number(answer.high)}"
    )
    values |= {"rate": f"{_number(answer.value)} {answer.unit}{f' ({ends})' if ends else ''}"}
    if answer.low is not None and answer.high is not None and answer.high > ladders.WIDE * answer.low:
        if measured is not None:
            return _measured(made, load, measured)
        return claim(
            "prediction",
            values | {"ends": f"{ends} {answer.unit}"},
            case="wide",
            parts=_noted(answer.note),
        )
    return claim(
        "prediction",
        values,
        replace(answer, name=f"at {shown}"),
        case="known",
        parts=_noted(answer.note),
    )


def _without_model(made: Scaling, load: float, why: str) -> Claim:
    """What was measured at ``load``, or on both sides of it."""
    ladder, means = made.ladder, Rungs.of(made.ladder).means
    if (measured := ladders.at(ladder, load)) is not None:
        return _measured(made, load, measured)
    values = {"load": fmt.load(load, ladder.load_unit), "why": why}
    around = [
        max((n for n in means if n < load), default=None),
        min((n for n in means if n > load), default=None),
    ]
    ends = [f"{_rate(made, means[n].value)} at {fmt.load_number(n)}" for n in around if n is not None]
    if len(ends) < 2:
        return claim("prediction", values, case="rejected")
    return claim("prediction", values | {"rates": " and ".join(ends)}, case="between")


def _measured(made: Scaling, load: float, found: Estimate) -> Claim:
    rate = f"{_rate(made, found.value)}{fmt.rate_spread(found)}"
    return claim(
        "prediction", {"load": fmt.load(load, made.ladder.load_unit), "rate": rate}, found, case="measured"
    )


def _unknown(made: Scaling, load: float) -> str:
    """Why what the model says of a load that it puts outside the measured range is no answer."""
    there = _prediction(made, load)
    return there.text if there.case == "wide" else ""


def _no_model(made: Scaling, load: float) -> str:
    """Why nothing at ``load`` follows from the model; empty: it does. A model that was asked for speaks for
    itself."""
    veto = next((a for a in made.answers if a.id == "model-veto"), None)
    best = made.best
    if veto is not None and best is not None and best.weight >= max(f.weight for f in made.fits):
        return sentence("no-model", {}, case="vetoed")
    if made.ladder.broken_from is not None and load > _last(made):
        return sentence("forecast", {"last": fmt.load_number(_last(made))}, case="broken")
    return ""


def _within(made: Scaling, best: Fitted, seconds: float) -> Claim:
    """Where the mean response time reaches ``seconds``: by the model, if what was measured agrees."""
    from dbdyno.stats.scaling import inverse

    ladder, think = made.ladder, made.ladder.think_s or 0.0
    values: dict[str, Any] = {"target": format_ns(seconds * 1e9), "time": ladder.time_name}
    times = _response_times(ladder)
    try:
        load, reason = inverse.load_for_response(best, seconds, think, _last(made)), ""
    except inverse.OutOfReach as e:
        load, reason = math.nan, e.message
    if (passed := _passed(made, "response-target", times, seconds, load, values)) is not None:
        return passed
    inside = ladders.loads(ladder)[0] <= load <= ladders.loads(ladder)[-1]
    if not min(times.values()) <= seconds <= max(times.values()) and (
        inside or seconds < min(times.values())
    ):
        ends = f"{format_ns(min(times.values()) * 1e9)} to {format_ns(max(times.values()) * 1e9)}"
        return claim("response-target", values | {"ends": ends}, case="outside")
    if why := _no_model(made, load if math.isfinite(load) else math.inf):
        return claim("response-target", values | {"why": why}, case="rejected")
    if reason:
        return claim("response-target", values | {"why": reason}, case="never")
    note = _beyond(made, load)
    if note and (why := _unknown(made, load)):
        return claim("response-target", values | {"why": why}, case="rejected")
    values |= {
        "load": fmt.load(load, ladder.load_unit),
        "rate": _rate(made, load / (seconds + think)),
        "note": note,
        "by": _by(made),
    }
    value = Estimate(f"at {values['target']}", load, ladder.load_unit, note=note)
    return claim("response-target", values, value, case="met", parts=_noted(note))


def _response_times(ladder: Ladder) -> dict[float, float]:
    """Means by load, in seconds; by Little's law where they were not measured."""
    means = Rungs.of(ladder).means
    times = {n: ladders.at(ladder, n, "response_s") for n in means}
    think = ladder.think_s or 0.0
    return {n: m.value if (m := times[n]) is not None else n / x.value - think for n, x in means.items()}


def _for_rate(made: Scaling, best: Fitted, rate: float) -> Claim:
    """Where throughput reaches ``rate``: by the model, if what was measured agrees."""
    from dbdyno.stats.scaling import inverse

    ladder, means = made.ladder, Rungs.of(made.ladder).means
    values: dict[str, Any] = {"target": _rate(made, rate)}
    try:
        load, reason = inverse.load_for_throughput(best, rate), ""
    except inverse.OutOfReach as e:
        load, reason = math.nan, e.message
    rates = {n: m.value for n, m in means.items()}
    if (passed := _passed(made, "throughput-target", rates, rate, load, values)) is not None:
        return passed
    first = ladders.loads(ladder)[0]
    if rate < rates[first]:
        values |= {"lowest": fmt.load(first, ladder.load_unit), "rate": _rate(made, rates[first])}
        return claim("throughput-target", values, case="already")
    if why := _no_model(made, load if math.isfinite(load) else math.inf):
        return claim("throughput-target", values | {"why": why}, case="rejected")
    if reason:
        return claim("throughput-target", values | {"why": reason}, case="never")
    note = _beyond(made, load)
    if note and (why := _unknown(made, load)):
        return claim("throughput-target", values | {"why": why}, case="rejected")
    values |= {
        "load": fmt.load(load, ladder.load_unit),
        "time": ladder.time_name,
        "response": format_ns(max(load / rate - (ladder.think_s or 0.0), 0.0) * 1e9),
        "note": note,
        "by": _by(made),
    }
    value = Estimate(values["target"], load, ladder.load_unit, note=note)
    return claim("throughput-target", values, value, case="met", parts=_noted(note))


def _passed(
    made: Scaling,
    name: str,
    measured: Mapping[float, float],
    target: float,
    load: float,
    values: dict[str, Any],
) -> Claim | None:
    """Between which two neighbouring loads measurements pass ``target``; ``None``: they do not, or ``load``,
    the model's, lies between two such and may be believed."""
    unit, steps = made.ladder.load_unit, list(pairwise(measured.items()))
    passing = [(a, b) for (a, x), (b, y) in steps if x != y and (x - target) * (y - target) <= 0]
    met = next((n for n, x in measured.items() if x == target), None)
    if any(a <= load <= b for a, b in passing) and not _no_model(made, load):
        return None
    if met is not None:
        return claim(name, values | {"load": fmt.load(met, unit)}, case="measured")
    if not passing:
        return None
    low, high = passing[0]
    return claim(name, values | {"low": fmt.load_number(low), "high": fmt.load(high, unit)}, case="passed")


def _rate(made: Scaling, value: float) -> str:
    return f"{_number(value)} {made.ladder.throughput_unit}"


def _noted(note: str) -> list[str]:
    return ["note"] if note else []


def _by(made: Scaling) -> str:
    return f"fit: {made.best.title}" if made.best else ""


def _last(made: Scaling) -> float:
    """The highest load that models are fitted to."""
    until = made.ladder.broken_from
    return max(n for n in ladders.loads(made.ladder) if until is None or n < until)


def _beyond(made: Scaling, load: float) -> str:
    from dbdyno.conclude.scaling.remarks import reach  # loads scipy

    return reach(ladders.loads(made.ladder)[0], _last(made), load)


def _number(value: float) -> str:
    return format_rate(value, 4)
