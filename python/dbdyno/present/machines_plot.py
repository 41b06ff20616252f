"""Throughput of both machines over load, with the crossing and its interval: plain SVG, logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import polars as pl

from dbdyno.model.machines import Machines
from dbdyno.model.scaling import Estimate, Ladder
from dbdyno.model.units import format_rate
from dbdyno.present.markup import Html, el
from dbdyno.present.palette import var

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 820, 340, 70, 150, 18, 44
_COLOURS = ("series-1", "series-2")


class _Axes:
    """From load and throughput to places on the drawing."""

    def __init__(self, loads: Sequence[float], rates: Sequence[float]) -> None:
        self.loads = _padded(min(loads), max(loads), 1.0)
        self.rates = _padded(min(rates), max(rates), 1.12)

    def x(self, load: float) -> float:
        return round(_LEFT + _share(load, self.loads) * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(self, rate: float) -> float:
        return round(_HEIGHT - _BOTTOM - _share(rate, self.rates) * (_HEIGHT - _TOP - _BOTTOM), 1)


def _padded(low: float, high: float, by: float) -> tuple[float, float]:
    low, high = low / by, high * by
    return (low, high) if high > low else (low / 2, high * 2)


def _share(value: float, ends: tuple[float, float]) -> float:
    low, high = ends
    return (math.log(min(max(value, low), high)) - math.log(low)) / (math.log(high) - math.log(low))


def plot(made: Machines) -> Html:
    """A line each through the means of its own rungs; the crossing as a rule, its interval as a band."""
    lines = [_means(made.a), _means(made.b)]
    axes = _Axes([x for line in lines for x, _ in line], [y for line in lines for _, y in line])
    label = f"Throughput in {made.a.throughput_unit} over {made.a.load_unit}, both machines, logarithmic"
    parts = [
        *_crossings(made.crossings, axes),
        *_ground(made, axes, sorted({x for line in lines for x, _ in line})),
    ]
    for name, colour, line in zip(made.names, _COLOURS, lines, strict=True):
        parts += _line(name, colour, line, axes)
    return el(
        "svg",
        *parts,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_label=label,
        class_="machines",
        style=f"width:100%;max-width:{_WIDTH}px;height:auto;display:block;margin:12px 0;font-size:12px",
    )


def _means(ladder: Ladder) -> list[tuple[float, float]]:
    """Load and geometric mean of each rung."""
    known = ladder.points.filter(pl.col("throughput") > 0)
    means = known.group_by("load").agg(pl.col("throughput").log().mean().exp()).sort("load")
    return [(float(x), float(y)) for x, y in means.rows()]


def _ground(made: Machines, axes: _Axes, loads: Sequence[float]) -> Iterator[Html]:
    """Ticks at the rungs and at powers of ten, names of the axes."""
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    last = -math.inf
    for load in loads:
        if (x := axes.x(load)) - last >= 28:
            last = x
            yield _text(f"{load:g}", x, bottom + 18, "middle")
    yield _text(made.a.load_unit, (_LEFT + right) / 2, _HEIGHT - 6, "middle")
    for rate in _ticks(*axes.rates):
        y = axes.y(rate)
        yield el("line", x1=_LEFT, x2=right, y1=y, y2=y, stroke=var("line"))
        yield _text(format_rate(rate), _LEFT - 6, y + 4, "end")
    yield _text(made.a.throughput_unit, _LEFT, 11, "start")


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each power of ten."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [k * 10.0**n for n in powers for k in (1, 2, 5) if low <= k * 10.0**n <= high]


def _line(name: str, colour: str, line: Sequence[tuple[float, float]], axes: _Axes) -> Iterator[Html]:
    places = [(axes.x(x), axes.y(y)) for x, y in line]
    drawn = " ".join(f"{x},{y}" for x, y in places)
    yield el("polyline", points=drawn, fill="none", stroke=var(colour), stroke_width=2)
    for (x, y), (load, rate) in zip(places, line, strict=True):
        tip = el("title", f"{name}, {load:g}: {format_rate(rate)}")
        yield el("circle", tip, cx=x, cy=y, r=3.5, fill=var(colour))
    x, y = places[-1]
    yield el("text", _cut(name), x=x + 8, y=y + 4, style=f"fill:{var(colour)};font-weight:600")


def _crossings(found: Sequence[Estimate], axes: _Axes) -> Iterator[Html]:
    top, bottom = _TOP, _HEIGHT - _BOTTOM
    for e in found:
        if e.method:
            left, right = (
                axes.x(end if v is None else v) for v, end in zip((e.low, e.high), axes.loads, strict=True)
            )
            band = {"x": left, "width": round(right - left, 1), "y": top, "height": bottom - top}
            yield el("rect", **band, style=f"fill:{var('line')};opacity:.6")
        x = axes.x(e.value)
        yield el(
            "line",
            x1=x,
            x2=x,
            y1=top,
            y2=bottom,
            stroke=var("muted"),
            stroke_width=1.5,
            stroke_dasharray="4 3",
        )
        yield _text(f"crossing {e.value:.3g}", x + 4, bottom - 8, "start")


def _text(text: str, x: float, y: float, anchor: str) -> Html:
    return el("text", text, x=x, y=y, text_anchor=anchor, style=f"fill:{var('muted')}")


def _cut(text: str, most: int = 18) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
