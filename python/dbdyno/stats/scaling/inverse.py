"""From one figure of a closed system to another: load, throughput, response time; of any model, fitted or
not.

Units: load in any unit, throughput in 1/s, times in s. Response time is what Little's law leaves of a cycle
without the think time: R = N / X - Z (Little, Operations Research 9 (1961) 383; Denning and Buzen (1978),
response time law). Where the curve peaks a throughput has two loads: the one below the peak is meant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dbdyno.model.errors import UsageError
from dbdyno.model.results.analyses import Fitted
from dbdyno.model.units import NS_PER_S, format_ns, format_rate
from dbdyno.stats.scaling.models import MODELS, carried_on

Law = Fitted | tuple[str, Sequence[float]]
"""A fitted model, or a model's name with the values of its parameters."""
MOST = 1e12
"""Largest load that is sought."""


class OutOfReach(UsageError):
    """No load has that figure."""


def throughput(law: Law, load: float, last: float | None = None) -> float:
    """X(N). ``last``: the highest load that was measured, beyond which no line falls to 0."""
    name, p = _of(law)
    _above_zero(load, "a load")
    curve = MODELS[name].curve if last is None else carried_on(MODELS[name], last)
    return float(curve(np.array([load]), np.array(p))[0])


def response_s(law: Law, load: float, think_s: float = 0.0) -> float:
    """R(N) = N / X(N) - Z."""
    made = throughput(law, load)
    if made <= 0:
        raise OutOfReach(
            f"the model gives no throughput at a load of {load:g}",
            "ask for a load nearer to the measured ones",
        )
    return load / made - think_s


def peak(law: Law) -> tuple[float, float] | None:
    """Load and size of the largest throughput; None: it has none, or it is a plateau."""
    name, p = _of(law)
    model, values = MODELS[name], np.array(p)
    if model.peak is None or model.top is None or not np.isfinite(model.peak.of(values)):
        return None
    return float(model.peak.of(values)), float(model.top.of(values))


def load_for_throughput(law: Law, wanted: float) -> float:
    """N with X(N) = ``wanted``, not above the peak; the least there is where throughput stays the same.

    Raises :class:`OutOfReach`.
    """
    _above_zero(wanted, "a throughput")
    top = peak(law)
    until = MOST if top is None else top[0]
    return _root(
        lambda n: throughput(law, n) - wanted, 0.0, f"a throughput of {format_rate(wanted, 4)}", until
    )


def load_for_response(law: Law, seconds: float, think_s: float = 0.0, last: float | None = None) -> float:
    """N with R(N) = ``seconds``. Raises :class:`OutOfReach`."""
    _above_zero(seconds + think_s, "a time")
    name, p = _of(law)
    if name == "linear" or (name == "usl" and not any(p[1:])):
        raise OutOfReach("on a straight line the time is the same at every load", "ask for a throughput")
    what = f"a time of {format_ns(seconds * NS_PER_S)}"
    return _root(lambda n: n / throughput(law, n, last) - (seconds + think_s), _alone(name, p), what)


def _root(short: Callable[[float], float], low: float, what: str, until: float = MOST) -> float:
    """Where ``short`` rises through 0 above ``low``; the first place where it does."""
    step, a = max(low, 1.0) * 0.5, max(low, 1e-9)
    if short(a) > 0:
        raise OutOfReach(f"no load has {what}", "ask for a figure nearer to the measured ones")
    while a < until:
        b = min(a + step, until)
        if short(b) >= 0:
            from scipy import optimize  # slow to load, and needed only here

            return float(optimize.brentq(short, a, b, xtol=1e-13 * max(b, 1.0), rtol=8.9e-16))
        a, step = b, step * 1.5
    raise OutOfReach(f"no load has {what}", "ask for a figure nearer to the measured ones")


def _alone(name: str, p: Sequence[float]) -> float:
    """The load up to which nobody waits for anybody: from there on response time rises."""
    if name == "repairman":
        return float(np.floor(p[1]))
    return float(p[1]) if name in ("plateau", "one-knee", "two-knees") else 0.0


def _above_zero(value: float, what: str) -> None:
    if not np.isfinite(value) or value <= 0:
        raise UsageError(f"{value:g} is not {what}", "give a number above 0")


def _of(law: Law) -> tuple[str, tuple[float, ...]]:
    if isinstance(law, Fitted):
        return law.model, tuple(p.value for p in law.parameters)
    name, values = law
    if name not in MODELS:
        raise UsageError(f"no model {name!r}", f"there are: {', '.join(MODELS)}")
    return name, tuple(values)
