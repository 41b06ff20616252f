"""The axis of loads, and what is marked on it: knees and peak with their intervals, cores, CPUs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from dbdyno.model.scaling import Estimate, Scaling
from dbdyno.model.units import counted
from dbdyno.present import scaling_rows as rows
from dbdyno.present.chart import HEIGHT, Key, Spec, channel, encoded, layer
from dbdyno.present.palette import var

_WIDE_LADDER = 8
"""From this ratio of the highest load to the middle one on, loads are drawn on a logarithmic axis."""
_LINE = 15  # height of a label


def is_wide(scaling: Scaling) -> bool:
    loads = scaling.ladder.points["load"].unique()
    return float(loads.max() or 1) > _WIDE_LADDER * float(loads.median() or 1)  # type: ignore[arg-type]


def domain(scaling: Scaling, beyond: bool = True) -> tuple[float, float]:
    """Ends of the axis of loads; ``beyond``: as far as the curve goes."""
    loads = [*scaling.ladder.points["load"], *(scaling.curve["load"] if beyond else ())]
    low, high = min(loads), max(loads)
    return (0.9 * max(low, 0.5), 1.1 * high) if is_wide(scaling) else (0.0, high)


def load_axis(scaling: Scaling, beyond: bool = False) -> Spec:
    """Loads to scale; on a logarithmic axis, ticks at powers of two, where they would crowd at its foot."""
    first, last = domain(scaling, beyond)
    title = scaling.ladder.load_unit
    if not is_wide(scaling):
        axis = {"tickMinStep": 1, "format": "d", "labelOverlap": True}
        return channel("load:Q", title=title, axis=axis, scale={"domain": [first, last], "nice": False})
    ticks = [2**k for k in range(math.ceil(math.log2(first)), math.floor(math.log2(last)) + 1)]
    axis = {"values": ticks, "format": ",d", "labelOverlap": "greedy", "labelSeparation": 6}
    scale = {"type": "log", "base": 2, "domain": [first, last], "nice": False}
    return channel("load:Q", title=f"{title} (logarithmic)", axis=axis, scale=scale)


def _named(scaling: Scaling) -> Iterator[tuple[str, Estimate, str]]:
    """Knees and the peak that lie on the chart: name, where, colour."""
    fit = scaling.best
    if fit is None:
        return
    top = float(scaling.curve["load"].max() or 0)  # type: ignore[arg-type]
    many = len(fit.knees) > 1
    for n, knee in enumerate(fit.knees, start=1):
        if 0 < knee.value <= top:
            yield f"knee {n}" if many else "knee", knee, "runq"
    knees = [k.value for k in fit.knees]
    if fit.peak is not None and 0 < fit.peak.value <= top and fit.peak.value not in knees:
        yield "peak", fit.peak, "sleep-1"


def marks(scaling: Scaling) -> Iterator[Spec]:
    """A rule at each with its interval shaded; labels in lines of their own, turned inwards at the edge."""
    first, last = domain(scaling)
    for line, (name, at, paint) in enumerate(_named(scaling)):
        low, high = (min(max(v, first), last) for v in (at.low or first, at.high or last))
        label = f"{name}: {rows.number(at.value, 3)}"
        data = [{"load": at.value, "from": low, "to": high, "name": label}]
        if at.low is not None or at.high is not None:
            shade = layer(data, "rect", opacity=0.16, color=var(paint))
            yield encoded(shade, x=channel("from:Q"), x2={"field": "to"})
        yield encoded(layer(data, "rule", color=var(paint), strokeWidth=2), x=channel("load:Q"))
        inwards = _share(at.value, first, last, is_wide(scaling)) > 0.75
        side: dict[str, Any] = {"align": "right", "dx": -5} if inwards else {"align": "left", "dx": 5}
        for halo in (True, False):
            ink = (
                {"stroke": var("card"), "strokeWidth": 4, "color": var("card")}
                if halo
                else {"color": var(paint)}
            )
            text = layer(data, "text", fontSize=12, fontWeight=600, **side, **ink)
            yield encoded(text, x=channel("load:Q"), y={"value": 8 + _LINE * line}, text=channel("name:N"))


def _share(value: float, low: float, high: float, log: bool) -> float:
    """How far along the axis."""
    if log:
        value, low, high = (math.log(max(v, 1e-9)) for v in (value, low, high))
    return (value - low) / (high - low)


def machine_marks(scaling: Scaling) -> Iterator[Spec]:
    """Where cores and CPUs are all busy, if sessions were."""
    machine = scaling.ladder.machine
    first, last = domain(scaling)
    known = [("core", machine.cores), ("CPU", machine.cpus)]
    if machine.cores == machine.cpus:
        known = known[1:]
    for line, (name, count) in enumerate(known):
        if count is None or not first <= count <= last:
            continue
        data = [{"load": count, "name": counted(count, name)}]
        rule = layer(data, "rule", color=var("muted"), strokeDash=[2, 3], strokeWidth=1.5)
        yield encoded(rule, x=channel("load:Q"))
        inwards = _share(count, first, last, is_wide(scaling)) > 0.85
        side: dict[str, Any] = {"align": "right", "dx": -4} if inwards else {"align": "left", "dx": 4}
        text = layer(data, "text", color=var("muted"), fontSize=11, **side)
        yield encoded(
            text, x=channel("load:Q"), y={"value": HEIGHT - 8 - _LINE * line}, text=channel("name:N")
        )


def keys(scaling: Scaling) -> list[Key]:
    found = {name.split()[0]: paint for name, _, paint in _named(scaling)}
    return [Key(f"{name}, 95 % interval", var(paint), "fill", 0.5) for name, paint in found.items()]


def words(scaling: Scaling) -> str:
    told = [
        f"{name} at {rows.number(at.value, 3)}" + (f" ({rows.interval(at, 3)})" if rows.interval(at) else "")
        for name, at, _ in _named(scaling)
    ]
    return f"; {', '.join(told)}." if told else "."
