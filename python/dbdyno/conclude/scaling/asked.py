"""Answers questions to a ladder and its model: throughput at a load, the load for a response time or a
throughput."""

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
"""Different loads that are enough to fit a curve with a bend."""


def asked(
    fitted: Scaling,
    loads: Sequence[float] = (),
    response_s: Sequence[float] = (),
    throughputs: Sequence[float] = (),
) -> Scaling:
    """Returns ``fitted`` with an answer to each question: throughput at a load, load for a response time,
    load and response time for a throughput. Raises UsageError if no model was fitted."""
    best = fitted.best
    if fitted.ladder.by_rate:
        raise rate_capacity.no_model(fitted.ladder)
    if best is None:
        few = len(ladders.loads(fitted.ladder)) < MANY
        cure = "measure more loads" if few else "measure the same loads again, longer, and with repeats"
        raise UsageError(f"no model was fitted: {fitted.refused[0].rstrip('.')}", cure)
    answers = [
        *(_prediction(fitted, load) for load in loads),
        *(_load_for_response(fitted, best, seconds) for seconds in response_s),
        *(_load_for_rate(fitted, best, rate) for rate in throughputs),
    ]
    if fitted.ladder.disturbed:
        place = ladders.disturbed_place(fitted.ladder)
        answers = [ladders.in_doubt(a, place) for a in answers]
    return replace(fitted, answers=(*answers, *fitted.answers))


def _prediction(fitted: Scaling, load: float) -> Claim:
    load_text = fmt.load(load, fitted.ladder.load_unit)
    measured = ladders.at(fitted.ladder, load)
    if why := _reason_against_model(fitted, load):
        return _without_model(fitted, load, why)
    answer = scaling.predict(fitted, load, fitted.best.model if fitted.best else None)
    values = {"load": load_text, "note": answer.note, "by": _fit_name(fitted)}
    ends = (
        ""
        if answer.low is None or answer.high is None
        else f"{_number(answer.low)} to {_number(answer.high)}"
    )
    values |= {"rate": f"{_number(answer.value)} {answer.unit}{f' ({ends})' if ends else ''}"}
    if answer.low is not None and answer.high is not None and answer.high > ladders.WIDE * answer.low:
        if measured is not None:
            return _measured(fitted, load, measured)
        return claim(
            "prediction",
            values | {"ends": f"{ends} {answer.unit}"},
            case="wide",
            parts=_note_parts(answer.note),
        )
    return claim(
        "prediction",
        values,
        replace(answer, name=f"at {load_text}"),
        case="known",
        parts=_note_parts(answer.note),
    )


def _without_model(fitted: Scaling, load: float, why: str) -> Claim:
    """Returns the value measured at ``load``, or the values on both sides of it."""
    ladder, means = fitted.ladder, Rungs.of(fitted.ladder).means
    if (measured := ladders.at(ladder, load)) is not None:
        return _measured(fitted, load, measured)
    values = {"load": fmt.load(load, ladder.load_unit), "why": why}
    around = [
        max((n for n in means if n < load), default=None),
        min((n for n in means if n > load), default=None),
    ]
    ends = [f"{_rate(fitted, means[n].value)} at {fmt.load_number(n)}" for n in around if n is not None]
    if len(ends) < 2:
        return claim("prediction", values, case="rejected")
    return claim("prediction", values | {"rates": " and ".join(ends)}, case="between")


def _measured(fitted: Scaling, load: float, measured: Estimate) -> Claim:
    rate = f"{_rate(fitted, measured.value)}{fmt.rate_spread(measured)}"
    return claim(
        "prediction",
        {"load": fmt.load(load, fitted.ladder.load_unit), "rate": rate},
        measured,
        case="measured",
    )


def _reason_unknown(fitted: Scaling, load: float) -> str:
    """Returns the reason why the model gives no answer at a load outside the measured range, or "" if it
    does."""
    prediction = _prediction(fitted, load)
    return prediction.text if prediction.case == "wide" else ""


def _reason_against_model(fitted: Scaling, load: float) -> str:
    """Returns the reason why the model says nothing about ``load``, or "" if it does. A model that the user
    named is used although it is vetoed."""
    veto = next((a for a in fitted.answers if a.id == "model-veto"), None)
    best = fitted.best
    if veto is not None and best is not None and best.weight >= max(f.weight for f in fitted.fits):
        return sentence("no-model", {}, case="vetoed")
    if fitted.ladder.broken_from is not None and load > _last_fitted_load(fitted):
        return sentence("forecast", {"last": fmt.load_number(_last_fitted_load(fitted))}, case="broken")
    return ""


def _load_for_response(fitted: Scaling, model: Fitted, seconds: float) -> Claim:
    """Returns the load at which the mean response time reaches ``seconds``, by the model if measurements
    agree."""
    from dbdyno.stats.scaling import inverse

    ladder, think = fitted.ladder, fitted.ladder.think_s or 0.0
    values: dict[str, Any] = {"target": format_ns(seconds * 1e9), "time": ladder.time_name}
    times = _response_times(ladder)
    try:
        load, reason = inverse.load_for_response(model, seconds, think, _last_fitted_load(fitted)), ""
    except inverse.OutOfReach as e:
        load, reason = math.nan, e.message
    if (passed := _measured_passage(fitted, "response-target", times, seconds, load, values)) is not None:
        return passed
    inside = ladders.loads(ladder)[0] <= load <= ladders.loads(ladder)[-1]
    if not min(times.values()) <= seconds <= max(times.values()) and (
        inside or seconds < min(times.values())
    ):
        ends = f"{format_ns(min(times.values()) * 1e9)} to {format_ns(max(times.values()) * 1e9)}"
        return claim("response-target", values | {"ends": ends}, case="outside")
    if why := _reason_against_model(fitted, load if math.isfinite(load) else math.inf):
        return claim("response-target", values | {"why": why}, case="rejected")
    if reason:
        return claim("response-target", values | {"why": reason}, case="never")
    note = _range_note(fitted, load)
    if note and (why := _reason_unknown(fitted, load)):
        return claim("response-target", values | {"why": why}, case="rejected")
    values |= {
        "load": fmt.load(load, ladder.load_unit),
        "rate": _rate(fitted, load / (seconds + think)),
        "note": note,
        "by": _fit_name(fitted),
    }
    value = Estimate(f"at {values['target']}", load, ladder.load_unit, note=note)
    return claim("response-target", values, value, case="met", parts=_note_parts(note))


def _response_times(ladder: Ladder) -> dict[float, float]:
    """Returns mean response times by load in seconds, by Little's law if they were not measured."""
    means = Rungs.of(ladder).means
    times = {n: ladders.response_s(ladder, n) for n in means}
    think = ladder.think_s or 0.0
    return {n: n / x.value - think if (t := times[n]) is None else t for n, x in means.items()}


def _load_for_rate(fitted: Scaling, model: Fitted, rate: float) -> Claim:
    """Returns the load at which throughput reaches ``rate``, by the model if measurements agree."""
    from dbdyno.stats.scaling import inverse

    ladder, means = fitted.ladder, Rungs.of(fitted.ladder).means
    values: dict[str, Any] = {"target": _rate(fitted, rate)}
    try:
        load, reason = inverse.load_for_throughput(model, rate), ""
    except inverse.OutOfReach as e:
        load, reason = math.nan, e.message
    rates = {n: m.value for n, m in means.items()}
    if (passed := _measured_passage(fitted, "throughput-target", rates, rate, load, values)) is not None:
        return passed
    first = ladders.loads(ladder)[0]
    if rate < rates[first]:
        values |= {"lowest": fmt.load(first, ladder.load_unit), "rate": _rate(fitted, rates[first])}
        return claim("throughput-target", values, case="already")
    if why := _reason_against_model(fitted, load if math.isfinite(load) else math.inf):
        return claim("throughput-target", values | {"why": why}, case="rejected")
    if reason:
        return claim("throughput-target", values | {"why": reason}, case="never")
    note = _range_note(fitted, load)
    if note and (why := _reason_unknown(fitted, load)):
        return claim("throughput-target", values | {"why": why}, case="rejected")
    values |= {
        "load": fmt.load(load, ladder.load_unit),
        "time": ladder.time_name,
        "response": format_ns(max(load / rate - (ladder.think_s or 0.0), 0.0) * 1e9),
        "note": note,
        "by": _fit_name(fitted),
    }
    value = Estimate(values["target"], load, ladder.load_unit, note=note)
    return claim("throughput-target", values, value, case="met", parts=_note_parts(note))


def _measured_passage(
    fitted: Scaling,
    name: str,
    measured: Mapping[float, float],
    target: float,
    load: float,
    values: dict[str, Any],
) -> Claim | None:
    """Returns the claim of the neighbouring loads between which measurements pass ``target``. None if they
    never do, or if the model's ``load`` lies between two such loads and the model may be used."""
    unit, steps = fitted.ladder.load_unit, list(pairwise(measured.items()))
    passing = [(a, b) for (a, x), (b, y) in steps if x != y and (x - target) * (y - target) <= 0]
    equal_load = next((n for n, x in measured.items() if x == target), None)
    if any(a <= load <= b for a, b in passing) and not _reason_against_model(fitted, load):
        return None
    if equal_load is not None:
        return claim(name, values | {"load": fmt.load(equal_load, unit)}, case="measured")
    if not passing:
        return None
    low, high = passing[0]
    return claim(name, values | {"low": fmt.load_number(low), "high": fmt.load(high, unit)}, case="passed")


def _rate(fitted: Scaling, value: float) -> str:
    return f"{_number(value)} {fitted.ladder.throughput_unit}"


def _note_parts(note: str) -> list[str]:
    return ["note"] if note else []


def _fit_name(fitted: Scaling) -> str:
    return f"fit: {fitted.best.title}" if fitted.best else ""


def _last_fitted_load(fitted: Scaling) -> float:
    """Returns the highest load that models are fitted to."""
    until = fitted.ladder.broken_from
    return max(n for n in ladders.loads(fitted.ladder) if until is None or n < until)


def _range_note(fitted: Scaling, load: float) -> str:
    from dbdyno.conclude.scaling.remarks import reach  # loads numpy

    return reach(ladders.loads(fitted.ladder)[0], _last_fitted_load(fitted), load)


def _number(value: float) -> str:
    return format_rate(value, 4)
