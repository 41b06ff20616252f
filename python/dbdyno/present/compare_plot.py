"""The interval plot: each ratio as a dot with its 95 % interval, the margin as a band around 1. Plain SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from dbdyno.model.comparison import Comparison, Contrast, MetricTable
from dbdyno.model.units import counted
from dbdyno.present import compare_rows as rows
from dbdyno.present.page import Html, el
from dbdyno.present.palette import var

_WIDTH, _LEFT, _RIGHT, _ROW, _TOP = 820, 250, 200, 24, 26
_COLOURS = {"better": "good", "worse": "invalid", "no difference": "accent", "undecided": "muted"}
_TICKS = 6


def plot(table: MetricTable, made: Comparison) -> Html | None:
    """A row for each claim against the baseline; ``None`` where no ratio is known."""
    claims = [c for c in table.claims if not c.neighbours and c.effect.ratio is not None]
    if not claims:
        return None
    low, high = _range(claims, made.margin)
    height = _TOP + _ROW * len(claims) + 30
    direction = "higher is better" if table.higher_is_better else "lower is better"
    label = f"{table.title} as a ratio to {made.baseline}, with 95 % intervals; {direction}"
    return el(
        "svg",
        *_ground(low, high, made, height, direction),
        *(part for n, c in enumerate(claims) for part in _row(n, c, low, high, made)),
        class_="intervals",
        viewBox=f"0 0 {_WIDTH} {height}",
        role="img",
        aria_label=label,
    )


def _range(claims: Sequence[Contrast], margin: float) -> tuple[float, float]:
    """All intervals, 1 and the margin; an end that lies far out is cut."""
    ratios = [c.effect.ratio or 1.0 for c in claims]
    ends = [e for c in claims for e in (c.effect.low, c.effect.high) if e is not None]
    low = max(min([*ratios, *ends, 1 - margin]), min([*ratios, 1.0]) / 3)
    high = min(max([*ratios, *ends, 1 + margin]), max([*ratios, 1.0]) * 3)
    pad = 0.05 * (high - low)
    return low - pad, high + pad


def _x(value: float, low: float, high: float) -> float:
    share = (min(max(value, low), high) - low) / (high - low)
    return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)


def _ticks(low: float, high: float) -> list[float]:
    """About six round numbers."""
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * k for k in (1, 2, 5, 10) if power * k >= rough)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [float(f"{n * step:.6g}") for n in range(first, last + 1)]


def _ground(low: float, high: float, made: Comparison, height: int, direction: str) -> Iterator[Html]:
    """The margin's band, the line at 1, ticks."""
    bottom = height - 26
    left, right = _x(1 - made.margin, low, high), _x(1 + made.margin, low, high)
    band = f"fill:{var('line')};opacity:.6"
    yield el("rect", x=left, y=_TOP - 8, width=round(right - left, 1), height=bottom - _TOP + 8, style=band)
    one = _x(1, low, high)
    yield el("line", x1=one, x2=one, y1=_TOP - 8, y2=bottom, stroke=var("text"), stroke_width=1)
    for value in _ticks(low, high):
        yield el(
            "text", f"{value:g}", x=_x(value, low, high), y=height - 8, text_anchor="middle", class_="muted"
        )
    yield el("text", f"ratio to {made.baseline}; {direction}", x=_LEFT, y=12, class_="muted")


def _row(n: int, claim: Contrast, low: float, high: float, made: Comparison) -> Iterator[Html]:
    y = _TOP + n * _ROW + 10
    e = claim.effect
    colour = var(_COLOURS[claim.verdict])
    who = claim.variant if made.kind == "variants" else claim.series or claim.workload
    yield el(
        "text", f"{_cut(who)}, {counted(claim.sessions, 'session')}", x=_LEFT - 10, y=y + 4, text_anchor="end"
    )
    if e.low is not None and e.high is not None:
        dash = "4 3" if e.basis == "within the window only" else None
        ends = {"x1": _x(e.low, low, high), "x2": _x(e.high, low, high)}
        yield el("line", **ends, y1=y, y2=y, stroke=colour, stroke_width=2.5, stroke_dasharray=dash)
    hollow = claim.verdict == "undecided"
    fill = var("card") if hollow else colour
    middle = _x(e.ratio or 1.0, low, high)
    tip = f"{e.ratio or 1:.3f} [{rows.interval(e)}]"
    yield el("circle", el("title", tip), cx=middle, cy=y, r=4.5, fill=fill, stroke=colour, stroke_width=2)
    yield el(
        "text", rows.verdict(claim, made.margin), x=_WIDTH - _RIGHT + 10, y=y + 4, style=f"fill:{colour}"
    )


def _cut(text: str, most: int = 24) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
