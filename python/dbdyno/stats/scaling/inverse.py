"""From one figure of a closed system to another: load, throughput, response time; of any model, fitted or
not.

Units: load in any unit, throughput in 1/s, times in s. Response time is what Little's law leaves of a cycle
without the think time: R = N / X - Z (Little, Operations Research 9 (1961) 383; Denning and Buzen (1978),
response time law). A throughput has two loads where the curve peaks: ``side`` says which one is meant, below
or above.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from scipy import optimize

from dbdyno.model.analyses import Fitted
from dbdyno.model.errors import UsageError
from dbdyno.stats.scaling.models import MODELS

Side = Literal["below", "above"]
Law = Fitted | tuple[str, Sequence[float]]
"""A fitted model, or a model's name with the values of its parameters."""
MOST = 1e12
"""Largest load that is sought."""


class OutOfReach(UsageError):
    """No load has that figure."""


def throughput(law: Law, load: float) -> float:
    """X(N)."""
    name, p = _of(law)
    _above_zero(load, "a load")
    return float(MODELS[name].curve(np.array([load]), np.array(p))[0])


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


def load_for_throughput(law: Law, wanted: float, side: Side = "below") -> float:
    """N with X(N) = ``wanted``; the least there is where throughput stays the same. Raises
    :class:`OutOfReach`."""
    _above_zero(wanted, "a throughput")
    name, p = _of(law)
    if name == "usl":
        return _usl_load(wanted, p, side)
    top = peak(law)
    if side == "above":
        if top is None:
            raise OutOfReach(
                f"{MODELS[name].title} has no peak, so no load above it", "ask for the load below"
            )
        return _root(lambda n: throughput(law, n) - wanted, top[0], False, f"a throughput of {wanted:g}")
    until = MOST if top is None else top[0]
    return _root(lambda n: throughput(law, n) - wanted, 0.0, True, f"a throughput of {wanted:g}", until)


def load_for_response(law: Law, seconds: float, think_s: float = 0.0) -> float:
    """N with R(N) = ``seconds``. Raises :class:`OutOfReach`."""
    _above_zero(seconds + think_s, "a time")
    name, p = _of(law)
    cycle = seconds + think_s
    if name == "usl":
        return _usl_load_of_cycle(cycle, p)
    if name == "linear":
        raise OutOfReach(
            "on a straight line the response time is the same at every load", "ask for a throughput"
        )
    start = _alone(name, p)
    return _root(lambda n: n / throughput(law, n) - cycle, start, True, f"a response time of {seconds:g} s")


def _usl_load_of_cycle(cycle: float, p: Sequence[float]) -> float:
    """kappa N^2 + (sigma - kappa) N + 1 - sigma - rate (R + Z) = 0, from N / X of the law."""
    rate, sigma, kappa = p
    a, b, c = kappa, sigma - kappa, 1 - sigma - rate * cycle
    inside = b * b - 4 * a * c
    if a == 0 and b == 0:
        raise OutOfReach(
            "without waiting the response time is the same at every load", "ask for a throughput"
        )
    if inside < 0:
        raise OutOfReach(f"no load has a response time as short as {cycle:g} s", "ask for a longer one")
    root = float(np.sqrt(inside))
    found = (-2 * c / (b + root) if b + root != 0 else np.inf) if b >= 0 else (root - b) / (2 * a)
    if not np.isfinite(found) or found <= 0:
        raise OutOfReach(
            f"no load has a response time as short as {cycle:g} s",
            f"the shortest is {(1 - sigma) / rate:g} s",
        )
    return float(found)


def _usl_load(wanted: float, p: Sequence[float], side: Side) -> float:
    """X kappa N^2 + (X (sigma - kappa) - rate) N + X (1 - sigma) = 0: two loads, one on each side of the
    peak."""
    rate, sigma, kappa = p
    a, b, c = wanted * kappa, wanted * (sigma - kappa) - rate, wanted * (1 - sigma)
    inside = b * b - 4 * a * c
    if inside < 0 or b >= 0:
        raise OutOfReach(f"a throughput of {wanted:g} is beyond what the law reaches", "ask for less")
    q = (float(np.sqrt(inside)) - b) / 2  # above 0: no cancellation
    if side == "below":
        return c / q if c > 0 else _no_load(wanted)
    if a == 0:
        raise OutOfReach("without kappa there is no peak, so no load above it", "ask for the load below")
    return q / a


def _no_load(wanted: float) -> float:
    raise OutOfReach(f"a throughput of {wanted:g} has no load: the law is flat", "ask for a response time")


def _root(short: Callable[[float], float], low: float, rises: bool, what: str, until: float = MOST) -> float:
    """Where ``short`` crosses 0 above ``low``; the first place where it does."""
    sign = 1.0 if rises else -1.0
    step, a = max(low, 1.0) * 0.5, max(low, 1e-9)
    if sign * short(a) > 0:
        raise OutOfReach(f"no load has {what}", "ask for a figure nearer to the measured ones")
    while a < until:
        b = min(a + step, until)
        if sign * short(b) >= 0:
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
