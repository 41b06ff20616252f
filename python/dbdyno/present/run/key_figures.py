"""Selects the key figures at the top of a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dbdyno.model.plan.kinds import COMMANDS, OBSERVATION, PACED, PHASES, kind_of
from dbdyno.model.results.results import Results
from dbdyno.model.results.session_time import whole
from dbdyno.model.text.nouns import at_once, capital, noun
from dbdyno.model.units import NS_PER_S, counted, format_average, format_ns, format_rate
from dbdyno.present.charts import charts_paced
from dbdyno.present.commands import commands
from dbdyno.present.document.document import UNKNOWN, Cell, KeyFigure, known, word
from dbdyno.present.figures import efficiency, figures, headline, tails
from dbdyno.present.figures.targets import Targets, row_id
from dbdyno.present.run import phases
from dbdyno.present.run.rungs import one_load


def key_figures(results: Results, targets: Targets) -> list[KeyFigure]:
    """Returns the key figures of a run."""
    return kind_of(results.plan).choice(_BY_KIND, _peak)(results, targets)


def _peak(results: Results, targets: Targets) -> list[KeyFigure]:
    """Returns the figures of the headline: of the only series, or of the one with the highest throughput."""
    answers = [a for s in figures.series_of(results) if (a := headline.answer(results, s)) and a.peak]
    if not answers:
        return []
    best = max(answers, key=lambda a: float((a.peak or {})[a.rate_column]))
    peak, top = best.peak or {}, best.top
    whose = f" ({best.series.label})" if len(answers) > 1 else ""
    rate, load = peak[best.rate_column], at_once(f"{top['sessions']:,}")
    peak_of, at_peak = ("Peak throughput", " at the peak")
    if one_load(results):  # nothing was compared with another load
        peak_of, at_peak = "Throughput", ""
    if figures.disturbed_loads(results, best.series):  # as in the claim
        peak_of = f"{peak_of}, at least"
    number = figures.series_of(results).index(best.series)
    row = targets.named(row_id(number, peak["sessions"], peak.get("rate_per_s")))
    throughput_target, response_target = (
        targets.named("throughput", best.series.label),
        targets.named("response", best.series.label),
    )
    stack_target, p95 = (
        targets.named("stack-aas", best.series.label),
        known(peak["response_p95_ns"], format_ns),
    )
    at_rung = f"{noun('at')} {at_once(str(peak['sessions']))}"
    note, at = tails.note(p95, 0.95, noun("response_time")), noun("at")
    return [
        KeyFigure(f"{peak_of}{whose}", known(rate, format_rate, best.unit), at_rung, throughput_target),
        KeyFigure(
            f"{capital(noun('at_once'))}{at_peak}{whose}",
            known(peak["sessions"], str),
            _efficiency(results, best),
            row,
        ),
        KeyFigure(
            f"95 % of {noun('calls')} {at_rung}{whose} within",
            p95,
            note,
            response_target,
        ),
        KeyFigure(f"CPU WAIT {at} {load}{whose}", *_part(top, "runq_aas"), stack_target),
        KeyFigure(f"On a CPU {at} {load}{whose}", *_part(top, "run_aas"), stack_target),
    ]


def _efficiency(results: Results, best: headline.LadderFigures) -> str:
    """Returns the efficiency at the peak, the load it refers to unless that is 1, and a doubt; empty for a
    ladder of one load."""
    lowest = efficiency.reference(results, best.series)
    if lowest is None or best.peak is None:
        return ""
    shown = efficiency.of_ladder(results, best.series)(best.peak)
    against = f" against {at_once(str(lowest))}" if lowest > 1 else ""
    return f"efficiency {shown.cell.text} %{against}" + (f": {shown.why}" if shown.why else "")


def _part(row: dict[str, Any], column: str) -> tuple[Cell, str]:
    value = row[column]
    if value is None:
        return Cell(UNKNOWN), "unknown: see below the table"
    time = whole(row) or 1.0
    share = Cell(f"{figures.percent(value, time)} %", value / time)
    return share, f"{format_average(value)} s per second, of {noun('session_time')}"


def _observed(results: Results, targets: Targets) -> list[KeyFigure]:
    """Returns what the server did, and how busy it was on average; empty if no window was measured."""
    means = headline.overview(results)
    if means is None:
        return []
    top = means.top[0] if means.top and means.top[0]["share"] is not None else None
    share = "" if top is None else f"{figures.percent(top['share'], digits=1)} % of {noun('db_time')}"
    figure = [(noun("db_cpu"), means.db_cpu), ("CPU WAIT", means.cpu_wait)]
    length, over_time = format_ns(means.wall_s * NS_PER_S), targets.named("timeline")
    most = Cell(UNKNOWN) if top is None else word(top["name"])
    rates = (("transactions", means.transactions), ("statements", means.statements))
    within = f" in {means.why}" if means.db_time is not None and means.why.endswith(" windows") else ""
    return [
        *(_rate(f"{capital(name)}/s", r, length, targets.named(f"rate-{name}")) for name, r in rates),
        KeyFigure(
            "Active sessions",
            known(means.db_time, format_average, "s/s"),
            f"{noun('db_time')}, on average{within}; {counted(means.sessions, 'session')} seen",
            over_time,
        ),
        *(KeyFigure(n, known(v, format_average, "s/s"), f"on average{within}", over_time) for n, v in figure),
        KeyFigure("Most time", most, share, targets.named("top")),
    ]


def _rate(name: str, rate: headline.Rate, length: str, target: str) -> KeyFigure:
    if rate.per_s is None or rate.total is None:
        return KeyFigure(name, Cell("unknown"), rate.why)
    note = f"{round(rate.total):,} in {rate.why or length}"
    return KeyFigure(name, known(rate.per_s, format_rate), note, target)


_BY_KIND: Mapping[str, Callable[[Results, Targets], list[KeyFigure]]] = {
    OBSERVATION: _observed,
    COMMANDS: lambda results, _: commands.key_figures(results),
    PHASES: phases.key_figures,
    PACED: charts_paced.key_figures,
}
"""Kinds of runs whose key figures are not those of a peak."""
