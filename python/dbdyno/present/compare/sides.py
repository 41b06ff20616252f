"""Shows the compared runs beside their comparison: their names, their warnings, and their ladders in one
chart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dbdyno.model.plan.kinds import LADDER, kind_of
from dbdyno.model.results.claim import DISTURBED
from dbdyno.model.results.comparison import Comparison
from dbdyno.model.results.results import Results
from dbdyno.model.results.run_names import run_names
from dbdyno.model.text.nouns import capital, fill, noun
from dbdyno.model.text.visible import one_line
from dbdyno.model.units import NS_PER_S, counted, format_ns
from dbdyno.present.charts.chart import (
    LETTERS,
    ROUNDED,
    Spec,
    channel,
    chart,
    coloured,
    encoded,
    layer,
    line_and_points,
    load_axis,
    series_keys,
    tips,
)
from dbdyno.present.document.document import Chart, Paragraph, Statement, Statements
from dbdyno.present.figures import compare_rows as rows
from dbdyno.present.figures import figures, headline

_MOST = 3
"""Most warnings of a run that are shown, the gravest first."""
_DOUBT = "The figures may be wrong because of that."


def title(comparison: Comparison, runs: Sequence[Results]) -> str:
    names = run_names(runs) or [f"run {id}" for id in comparison.runs]
    if comparison.kind == "runs":
        return f"{names[1]} (B) against {names[0]} (A)"
    variants = rows.labels(comparison)
    return f"{counted(len(variants), 'variant')} of {names[0]}, baseline {comparison.baseline}"


def identities(runs: Sequence[Results]) -> list[Paragraph]:
    """Returns a line per run: what was measured, on what, how often, when, and the id."""
    return [Paragraph(_identity(*labelled), "muted") for labelled in zip(_letters(runs), runs, strict=True)]


def _letters(runs: Sequence[Results]) -> tuple[str, ...]:
    return rows.RUNS if len(runs) > 1 else ("",)[: len(runs)]


def _named(letter: str, results: Results) -> str:
    """Returns the letter of one of two runs with the run's name if it has one."""
    return f"{letter} ({one_line(results.info.name)})" if letter and results.info.name else letter


def _identity(letter: str, results: Results) -> str:
    info = results.info
    name = f"{one_line(info.name)}, " if info.name and letter else ""
    parts = [
        f"{name}{headline.title(results)}",
        _repeats(results),
        f"{info.started.astimezone():%-d %b %Y %H:%M %Z}",
    ]
    if info.ended is not None:
        parts.append(format_ns((info.ended - info.started).total_seconds() * NS_PER_S))
    return f"{f'{letter}: ' if letter else ''}{'; '.join(parts)} (run {info.id})."


def _repeats(results: Results) -> str:
    """Returns how often the run measured its loads: ``5 repeats``; ``cut short: 1 of 5 repeats``."""
    measured = results.tables["windows"]
    if results.info.status == "complete":
        return counted(measured["repeat"].n_unique() or results.plan.experiment.repeats, "repeat")
    loads = Counter((c.workload, c.variant, c.sessions, c.rate_per_s) for c in results.plan.cells)
    windows = Counter(measured.select("workload", "variant", "sessions", "rate_per_s").rows())
    planned = max(loads.values(), default=results.plan.experiment.repeats)
    times = sorted({windows[load] for load in loads}) or [0]
    ends = f"{times[0]} to {times[-1]}" if times[0] < times[-1] else f"{times[0]}"
    return f"{results.info.status}: {ends} of {counted(planned, 'repeat')}"


def doubts(runs: Sequence[Results]) -> list[Paragraph]:
    """Returns what makes the figures of a run doubtful, in a line below the answer."""
    texts = []
    for letter, results in zip(_letters(runs), runs, strict=True):
        before = f"{letter}: " if letter else ""
        texts += [f"{before}{c.short or c.text}" for c in headline.doubts(results)]
    return [Paragraph(f"Measurement quality: {'; '.join(texts)}. {_DOUBT}", "warning")] if texts else []


def warnings(runs: Sequence[Results]) -> Statements | None:
    """Returns the warnings of each run without those of :func:`doubts` and the one that lists the loads at
    which the same others were busy; None if there are none."""
    items = []
    for letter, results in zip(_letters(runs), runs, strict=True):
        above = headline.doubts(results)
        listed = [c for c in results.findings if c not in above and not (above and c.id == DISTURBED)]
        grave = [c for c in listed if c.severity in ("invalid", "warning")]
        grave.sort(key=lambda c: c.severity != "invalid")
        before = f"{_named(letter, results)}: " if letter else ""
        for c in grave[:_MOST]:
            items.append(Statement(f"{before}{c.text}", c.severity, "", c.severity, c.id, c.advice))
        if len(grave) > _MOST:
            more = counted(len(grave) - _MOST, "more warning")
            items.append(Statement(f"{before}{more}: dbdyno show {results.info.id} --claims"))
    return Statements(items, brief=True) if items else None


def ladders(comparison: Comparison, runs: Sequence[Results]) -> list[Chart]:
    """Returns the throughput of all ladders against the number of sessions; empty if it was not measured at
    two loads."""
    metric = comparison.metrics[0].metric
    if metric not in ("work_per_s", "calls_per_s") or not all(
        kind_of(r.plan).among((LADDER,)) and not figures.is_paced(r) for r in runs
    ):
        return []
    compared = set(rows.labels(comparison))
    points: list[Spec] = []
    for letter, results in zip(_letters(runs), runs, strict=True):
        series = figures.series_of(results)
        for s in series:
            if letter or s.variant in compared:
                parts = [_named(letter, results), s.label if not letter or len(series) > 1 else ""]
                points += _points(results, s, metric, ", ".join(filter(None, parts)))
    labels = list(dict.fromkeys(p["series"] for p in points))
    return [_ladders(comparison, points, labels)] if len({p["sessions"] for p in points}) > 1 else []


def _points(results: Results, series: figures.Series, metric: str, label: str) -> list[Spec]:
    known = [r for r in figures.ladder(results, series).to_dicts() if r[metric] is not None]
    points = []
    for r in known:
        rate, ends = float(r[metric]), figures.ends(r)
        points.append(
            {
                "series": label,
                "sessions": r["sessions"],
                "rate": rate,
                "low": None if ends is None else rate * ends[0],
                "high": None if ends is None else rate * ends[1],
                "repeats": r["repeats"],
            }
        )
    return points


def _ladders(comparison: Comparison, points: list[Spec], labels: list[str]) -> Chart:
    table = comparison.metrics[0]
    highest = max(p["rate"] for p in points)
    # Two repeats may have an infinite interval, which would flatten everything else on the axis.
    cap = 1.18 * max(min(1.5 * highest, p["high"] or p["rate"]) for p in points)
    repeated = [{**p, "high": min(cap, p["high"])} for p in points if p["low"] is not None]
    x, colour = load_axis(), coloured("series", labels)
    y = channel("rate:Q", title=table.unit, axis=LETTERS, scale={"domain": [0, cap], "nice": False})
    ends = [("low:Q", ROUNDED, "95 % from"), ("high:Q", ROUNDED, "95 % to")] if repeated else []
    tooltip = tips("series:N", "sessions:Q", ("rate:Q", ROUNDED, table.unit), *ends, "repeats:Q")
    bars = encoded(
        layer(repeated, "rule", strokeWidth=2, opacity=0.6),
        x=x,
        color=colour,
        y=channel("low:Q"),
        y2={"field": "high"},
    )
    caption = "Bars are 95 % intervals over repeats." if repeated else "One repeat each: no intervals."
    if repeated and len(repeated) < len(points):
        caption = "Bars are 95 % intervals over repeats; points without a bar have one repeat."
    return chart(
        "ladders",
        f"{capital(fill(table.title))} by number of {noun('at_once')}",
        caption,
        [bars, *line_and_points(points, 60, tooltip, x=x, y=y, color=colour)],
        f"{table.title} against {noun('at_once')}, a line for each of {', '.join(labels)}",
        points,
        legend=series_keys(labels),
        wide=True,
    )
