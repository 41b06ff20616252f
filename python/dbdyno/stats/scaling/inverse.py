"""Converts figures of a closed system into each other: load, throughput, response time, for any model, fitted
or not.

Units: load in any unit, throughput in 1/s, times in s. Response time follows from Little's law as the
cycle without the think time: R = N / X - Z (Little, Operations Research 9 (1961) 383; Denning and Buzen
(1978), response time law). If the curve has a peak, a throughput has two loads, and the one below the peak
is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dbdyno.model.errors import UsageError
from dbdyno.model.results.analyses import Fitted
from dbdyno.model.units import NS_PER_S, format_ns, format_rate
from dbdyno.stats.laws import find_root
from dbdyno.stats.scaling.models import MODELS, carried_on

Law = Fitted | tuple[str, Sequence[float]]
"""A fitted model, or a model's name with the values of its parameters."""
MOST = 1e12
"""Largest load of the search."""


class OutOfReach(UsageError):
    """No load has that figure."""


def throughput(law: Law, load: float, last: float | None = None) -> float:
    """Returns X(N). ``last``: the highest measured load, beyond which a line does not fall to 0."""
    name, p = _name_and_values(law)
    _above_zero(load, "a load")
    curve = MODELS[name].curve if last is None else carried_on(MODELS[name], last)
    return float(curve(np.array([load]), np.array(p))[0])


def response_s(law: Law, load: float, think_s: float = 0.0) -> float:
    """Returns R(N) = N / X(N) - Z. Raises :class:`OutOfReach` if X(N) is not above 0."""
    per_s = throughput(law, load)
    if per_s <= 0:
        raise OutOfReach(
            f"the model gives no throughput at a load of {load:g}",
            "ask for a load nearer to the measured ones",
        )
    return load / per_s - think_s


def peak(law: Law) -> tuple[float, float] | None:
    """Returns load and size of the largest throughput; None for a model without one, or with a plateau."""
    name, p = _name_and_values(law)
    model, values = MODELS[name], np.array(p)
    if model.peak is None or model.top is None or not np.isfinite(model.peak.of(values)):
        return None
    return float(model.peak.of(values)), float(model.top.of(values))


def load_for_throughput(law: Law, wanted: float) -> float:
    """Returns N with X(N) = ``wanted``, not above the peak; the least one on a plateau. Raises
    :class:`OutOfReach`."""
    _above_zero(wanted, "a throughput")
    top = peak(law)
    until = MOST if top is None else top[0]
    return _root(
        lambda n: throughput(law, n) - wanted, 0.0, f"a throughput of {format_rate(wanted, 4)}", until
    )


def load_for_response(law: Law, seconds: float, think_s: float = 0.0, last: float | None = None) -> float:
    """Returns N with R(N) = ``seconds``. Raises :class:`OutOfReach`."""
    _above_zero(seconds + think_s, "a time")
    name, p = _name_and_values(law)
    if name == "linear" or (name == "usl" and not any(p[1:])):
        raise OutOfReach("on a straight line the time is the same at every load", "ask for a throughput")
    what = f"a time of {format_ns(seconds * NS_PER_S)}"
    return _root(
        lambda n: n / throughput(law, n, last) - (seconds + think_s), _load_without_waits(name, p), what
    )


def _root(short: Callable[[float], float], low: float, what: str, until: float = MOST) -> float:
    """Returns the first load above ``low`` at which ``short`` rises through 0."""
    step, a = max(low, 1.0) * 0.5, max(low, 1e-9)
    if short(a) > 0:
        raise OutOfReach(f"no load has {what}", "ask for a figure nearer to the measured ones")
    while a < until:
        b = min(a + step, until)
        if short(b) >= 0:
            return find_root(short, a, b, 1e-13 * max(b, 1.0))
        a, step = b, step * 1.5
    raise OutOfReach(f"no load has {what}", "ask for a figure nearer to the measured ones")


def _load_without_waits(name: str, p: Sequence[float]) -> float:
    """Returns the load up to which no call waits for another, and above which response time rises."""
    if name == "repairman":
        return float(np.floor(p[1]))
    return float(p[1]) if name in ("plateau", "one-knee", "two-knees") else 0.0


def _above_zero(value: float, what: str) -> None:
    if not np.isfinite(value) or value <= 0:
        raise UsageError(f"{value:g} is not {what}", "give a number above 0")


def _name_and_values(law: Law) -> tuple[str, tuple[float, ...]]:
    if isinstance(law, Fitted):
        return law.model, tuple(p.value for p in law.parameters)
    name, values = law
    if name not in MODELS:
        raise UsageError(f"no model {name!r}", f"there are: {', '.join(MODELS)}")
    return name, tuple(values)
