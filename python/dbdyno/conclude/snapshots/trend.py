"""Concludes from the runs of one history: when a figure changed, or that it did not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.catalogue.criteria import LEAST_RUNS, level_changes, level_outliers
from dbdyno.model.results.claim import Claim, Estimate
from dbdyno.model.results.trend import Point, Step, Trend
from dbdyno.model.units import counted, format_ns

_MOST_NAMED = 5


def concluded(trend: Trend) -> Trend:
    """Returns the trend with its steps, outliers and claims. Flagged points are not used."""
    usable = [n for n, p in enumerate(trend.points) if not p.flagged]
    values = [trend.points[n].value for n in usable]
    if len(values) < LEAST_RUNS:
        verb = "is" if len(values) == 1 else "are"
        return replace(
            trend,
            claims=(claim("trend-few", {"needed": LEAST_RUNS, "verb": verb, **_nouns(trend, len(values))}),),
        )
    changes = level_changes(values)
    steps = [
        Step(
            usable[c.at],
            usable[c.low],
            usable[c.high],
            Estimate("ratio", c.ratio, "ratio", c.ratio_low, c.ratio_high, "Student's t on logarithms"),
            c.p,
        )
        for c in changes
    ]
    outliers = [usable[n] for n in level_outliers(values, [c.at for c in changes])]
    trend = replace(trend, steps=steps, outliers=outliers)
    ends = [0, *(c.at for c in changes), len(values)]
    levels = [float(np.median(values[a:b])) for a, b in pairwise(ends)]
    claims = [_change(trend, n, levels) for n in range(len(steps))] or [_stable(trend, values)]
    return replace(trend, claims=(*claims, *_outlying(trend)))


def _nouns(trend: Trend, n: int) -> dict[str, str]:
    """Returns the nouns for sentences: ``6 runs``, ``runs``, ``run``."""
    return {"n": counted(n, trend.thing), "things": f"{trend.thing}s", "thing": trend.thing}


def shown(trend: Trend, value: float) -> str:
    """Formats a value of the figure with its unit."""
    return format_ns(value) if trend.unit == "ns" else fmt.rate(value, trend.unit)


def _change(trend: Trend, number: int, levels: Sequence[float]) -> Claim:
    step, points = trend.steps[number], trend.points
    ratio, at = step.ratio, points[step.at]
    ends = sorted(abs(end - 1) for end in (ratio.low or ratio.value, ratio.high or ratio.value))
    values = {
        "title": f"{trend.figure.title} of {trend.what}",
        "percent": fmt.percent(abs(ratio.value - 1)),
        "percent_low": fmt.percent(ends[0]),
        "percent_high": fmt.percent(ends[1]),
        "run": at.run,
        "day": f"{at.started:%Y-%m-%d}",
        "p": step.p,
        **_nouns(trend, len(points)),
        "before": shown(trend, levels[number]),
        "after": shown(trend, levels[number + 1]),
        "first": points[step.low].run,
        "last": points[step.high].run,
        "along": along(points[max(0, step.low - 1)], points[step.high]),
    }
    parts = ["one" if step.low == step.high else "some", *(["along"] if values["along"] else [])]
    good = None if trend.figure.higher is None else (ratio.value > 1) is trend.figure.higher
    return claim(
        "trend-change",
        values,
        ratio,
        case="up" if ratio.value > 1 else "down",
        parts=parts,
        severity="note" if good is None else "good" if good else "warning",
        each=at.run,
    )


def along(before: Point, after: Point) -> str:
    """Returns the other differences between two points: ``server 18.4 to 18.6, shared_buffers 128MB to
    1GB``."""
    old, new = before.around or {}, after.around or {}
    names = [name for name in (*old, *(n for n in new if n not in old)) if old.get(name) != new.get(name)]
    changes = [f"{name} {old.get(name, 'unset')} to {new.get(name, 'unset')}" for name in names[:_MOST_NAMED]]
    more = [f"{len(names) - _MOST_NAMED} more settings"] if len(names) > _MOST_NAMED else []
    return ", ".join(changes + more)


def _stable(trend: Trend, figures: Sequence[float]) -> Claim:
    low, middle, high = (float(v) for v in np.quantile(figures, [0.05, 0.5, 0.95]))
    values = {
        "title": f"{trend.figure.title} of {trend.what}",
        **_nouns(trend, len(figures)),
        "middle": shown(trend, middle),
        "spread": f"{shown(trend, low)} to {shown(trend, high)}",
    }
    return claim("trend-stable", values)


def _outlying(trend: Trend) -> list[Claim]:
    if not trend.outliers:
        return []
    named = ", ".join(trend.points[n].run for n in trend.outliers[-_MOST_NAMED:])
    more = len(trend.outliers) - _MOST_NAMED
    return [
        claim(
            "trend-outliers",
            {
                "runs": f"{named} and {more} earlier" if more > 0 else named,
                **_nouns(trend, len(trend.points)),
            },
        )
    ]
