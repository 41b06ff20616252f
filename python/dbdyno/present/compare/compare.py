"""Builds documents of comparisons: the answer, ranks, reasons and notes; or two files of numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from dbdyno.model.plan.kinds import kind_named, speaking_of
from dbdyno.model.results.analyses import Machines
from dbdyno.model.results.comparison import (
    Comparison,
    MetricTable,
    SampleComparison,
    Summary,
    ratio_text,
    verdict_text,
)
from dbdyno.model.results.results import Results
from dbdyno.model.text.nouns import at_once, fill, noun
from dbdyno.model.units import NS_PER_S, format_apart
from dbdyno.present.charts.chart import Spec, channel, chart, coloured, encoded, layer, tips
from dbdyno.present.compare import machines as of_machines
from dbdyno.present.compare import sides
from dbdyno.present.document.document import (
    UNKNOWN,
    Block,
    Cell,
    Chart,
    Column,
    Document,
    Drawing,
    Paragraph,
    Row,
    Section,
    Table,
    numeric,
    remarks,
    word,
)
from dbdyno.present.document.palette import var
from dbdyno.present.figures import compare_rows as rows
from dbdyno.present.run import cpu_profile

_LONGEST = 400
"""Most characters of a setting that are shown."""
_FUNCTIONS = 15
"""Number of functions whose CPU time per unit is shown, those with the largest change."""


def document(
    comparison: Comparison | None, machines: Sequence[Machines] = (), runs: Sequence[Results] = ()
) -> Document:
    """Returns the document of the comparison, of the machines behind it, or of both.

    ``runs`` are the compared ones, the baseline's first. Their names, warnings and ladders are shown.
    """
    behind = of_machines.sections(machines)
    if comparison is None:
        only = len(behind) == 1
        sections = [replace(behind[0], title="Throughput and ratios")] if only else behind
        return Document(behind[0].title, sections)
    with speaking_of(kind_named(comparison.run_kind)):
        lead = [*_answer(comparison), *sides.doubts(runs), *sides.identities(runs)]
        blocks = [*_sections(comparison, runs), *behind]
        return Document(sides.title(comparison, runs), blocks, lead=lead)


def brief(comparison: Comparison, run: str) -> list[Block]:
    """Returns the core for the report of a run: the first quantity and the reasons. The answer precedes
    them for commands only, because the report of any other run begins with it."""
    first = comparison.metrics[0]
    answer = _answer(comparison) if comparison.commands else []
    why = [Section(_why_title(), [*_whys(comparison, rows.places(first))], folded=True)]
    more = Paragraph(f"All quantities, and why: dbdyno compare {run}", "muted")
    return [*answer, *_quantity(comparison, first), *(why if comparison.why else []), more]


def _why_title() -> str:
    return f"Why: where the {noun('session_time')} went"


def _answer(comparison: Comparison) -> list[Paragraph]:
    return [Paragraph(s, lead=True) for s in comparison.summary]


def _sections(comparison: Comparison, runs: Sequence[Results]) -> Iterator[Section]:
    first, others = comparison.metrics[0], comparison.metrics[1:]
    tops = rows.tops(first)
    yield Section(
        f"Effect: {first.title}", [*sides.ladders(comparison, runs), *_quantity(comparison, first)], "effect"
    )
    if warnings := sides.warnings(runs):
        title = "Warnings of both runs" if len(runs) > 1 else "Warnings of the run"
        yield Section(title, [warnings], "warnings", name="Warnings")
    if others:
        shown = [Section(_where(comparison, p), [rows.others(others, p, comparison)]) for p in tops]
        each = [Section(t.title, _quantity(comparison, t), folded=True) for t in others]
        yield Section("Other quantities", [*shown, *each], "quantities", minor=True)
    if comparison.why:
        rest = [p for p in rows.places(first) if p not in tops]
        below = [Section(_where(comparison, p), [*_whys(comparison, [p])], folded=True) for p in rest]
        yield Section(_why_title(), [*_whys(comparison, tops), *below], "why", minor=True)
    if comparison.operation_costs:
        yield Section(
            fill("Costs of {~a_call}"), list(_costs(comparison, tops)), "operation-costs", minor=True
        )
    if comparison.costs:
        tables = [
            Section(f"{c.series} {at_once(str(c.sessions))}".strip(), cpu_profile.cost_tables(c, _FUNCTIONS))
            for c in comparison.costs
        ]
        yield Section("CPU time per unit, by function", tables, "costs", minor=True)
    if comparison.differences:
        yield Section(
            "Differences in environment, settings and plan",
            [_differences(comparison)],
            "differences",
            minor=True,
        )
    yield Section("Notes", remarks(comparison.notes), "method", minor=True)


def _costs(comparison: Comparison, tops: Sequence[rows.Place]) -> Iterator[Block]:
    """Yields what a call costs on both sides, at the highest loads and then, folded, at all others."""
    rest = [p for p in rows.places(comparison.metrics[0]) if p not in tops]
    for place in (*tops, *rest):
        changes = rows.at(place, comparison.operation_costs)
        tables = [rows.cost_table(c, comparison) for c in changes]
        if tables:
            none = remarks(dict.fromkeys(filter(None, map(rows.zero_costs, changes))))
            yield Section(_where(comparison, place), [*tables, *none], folded=place not in tops)


def _where(comparison: Comparison, place: rows.Place) -> str:
    return place.label(len({p.workload for p in rows.places(comparison.metrics[0])}) > 1)


def _quantity(comparison: Comparison, t: MetricTable) -> list[Block]:
    """Returns one table for a pair of runs or variants, else ranks and neighbours for every number of
    sessions."""
    drawing = rows.plot(t, comparison)
    blocks: list[Block] = [Paragraph("No ratio is known.", "muted") if drawing is None else Drawing(drawing)]
    pair = rows.pair(comparison)
    if pair is not None:
        blocks.append(rows.rungs(t, comparison, pair, t.title))
    for place in rows.places(t) if pair is None else ():
        title = f"{t.title}, {_where(comparison, place)}; ratio to {comparison.baseline}"
        following = rows.neighbours(t, place, comparison.margin)
        blocks.append(rows.ranks(t, place, comparison.margin, title))
        blocks += [Section("", [following], minor=True)] if following else []
    return [*blocks, *remarks([*comparison.lost_pairs, *rows.claim_notes(t)])]


def _whys(comparison: Comparison, places: Sequence[rows.Place]) -> Iterator[Block]:
    for place in places:
        whys = rows.at(place, comparison.why)
        tables = [rows.why_table(why) for why in whys]
        averaged = [fill(_AVERAGED)] if any(why.repeats > 1 for why in whys) else []
        if tables:
            yield Section(
                f"{_where(comparison, place)}: {noun('session_time')}, largest change first",
                [*tables, *remarks([*_why_notes(comparison, place), *averaged])],
            )


_BOOKS = (
    "CPU here is the ledger's, of the scheduler trace if there is one; {} is the tasks' own count "
    "(schedstat). They differ by some microseconds a slice."
)
_WORKERS = (
    "Time of parallel workers is added to that of their session: the sum is above the {}, during which they "
    "work at the same time."
)
_AVERAGED = (
    "Times are averaged over the repeats compared; the table of a load has those of all its {~calls} "
    "together."
)
_APART = 0.02
"""Relative difference from which on two figures of the same name need an explanation."""


def _why_notes(comparison: Comparison, place: rows.Place) -> Iterator[str]:
    """Yields why accounts at a rung differ from the quantities of the same calls."""
    means = {
        (t.metric, x.variant): x.mean / NS_PER_S for t in comparison.metrics for x in rows.at(place, t.lines)
    }
    metric = f"cpu_per_{'call' if comparison.metrics[0].metric == _CALLS else 'work'}_ns"
    ran, spent = list[tuple[float, float]](), list[tuple[float, float]]()
    for why in rows.at(place, comparison.why):
        run = [a for a in why.accounts if a.account == "run"]
        for side in ("baseline", "variant"):
            name = getattr(why, side)
            cpu = sum(getattr(a, f"{side}_s") for a in run)
            ran += [(cpu, means[metric, name])] if (metric, name) in means else []
            whole = getattr(why, f"{side}_s")
            spent += [(whole, means[_RESPONSE, name])] if (_RESPONSE, name) in means else []
    if any(abs(cpu / own - 1) > _APART for cpu, own in ran if own):
        yield _BOOKS.format(noun("server_cpu"))
    if comparison.metrics[0].metric == _CALLS and any(w / mean - 1 > _WORKED for w, mean in spent if mean):
        yield _WORKERS.format(noun("response_time"))


_CALLS, _RESPONSE = "calls_per_s", "response_mean_ns"
_WORKED = 0.10
"""Part of the response time from which on session time above it is of parallel workers, and no rounding."""


def _differences(comparison: Comparison) -> Table:
    columns = [Column("", wraps=True)]
    both = rows.pair(comparison) or (comparison.baseline, "other")
    columns += [Column(h, wraps=True) for h in both]
    differences = ((d.what, d.baseline, d.variant) for d in comparison.differences)
    return Table(
        "", columns, [Row([word(rows.shortened(t, _LONGEST)) for t in line]) for line in differences]
    )


# Two files of numbers compared: benchstat's row, then the ratio of means.


def samples(comparison: SampleComparison, values: tuple[Sequence[float], Sequence[float]]) -> Document:
    """Returns the document of two files of numbers.

    It has the answer, both samples with their ``values``, both ways to compare them, benchstat's row, and
    notes.
    """
    summaries = ((comparison.baseline, comparison.of_baseline), (comparison.variant, comparison.of_variant))
    columns = (Column(""), *(numeric(h) for h in ("median", "mean", "n")))
    means = format_apart(comparison.of_baseline.mean, comparison.of_variant.mean)
    lines = [
        Row([word(name), word(median), Cell(mean, s.mean), Cell(f"{s.n:,}", s.n)])
        for (name, s), median, mean in zip(summaries, _medians(comparison), means, strict=True)
    ]
    answer, *notes = comparison.conclusions
    lead = [answer, *(c for c in notes if c.id == "means-and-medians")]
    estimated = (
        comparison.effect.ratio is not None and not comparison.effect.exact and comparison.verdict != "equal"
    )
    more = [comparison.note] if comparison.note and estimated and min(s.n for _, s in summaries) > 1 else []
    remarked = remarks([*(c.text for c in notes if c not in lead), *more])
    blocks: list[Block] = [
        Section("", [_spots(comparison, values), Table("", columns, lines)]),
        Section("", [_ratios(comparison), Paragraph(f"benchstat: {benchstat(comparison)}")]),
        *([Section("Notes", remarked)] if remarked else []),
    ]
    title = f"{comparison.variant} against {comparison.baseline}"
    return Document(title, blocks, lead=[Paragraph(c.text, lead=True) for c in lead])


_MOST_SPOTS = 1_000
"""Most points that are drawn of a sample; a larger one is drawn by this many quantiles."""
_MOST_DECADES = 2


def _spots(comparison: SampleComparison, values: tuple[Sequence[float], Sequence[float]]) -> Chart:
    """Returns a chart of both samples as points along one axis, each with its mean and the interval of the
    mean."""
    samples = (
        (comparison.baseline, comparison.of_baseline, values[0]),
        (comparison.variant, comparison.of_variant, values[1]),
    )
    spots = [spot for name, _, side_values in samples for spot in _spread_out(name, side_values)]
    means = [
        {"sample": name, "value": s.mean, "low": s.mean_low, "high": s.mean_high, "aside": 0.0}
        for name, s, _ in samples
    ]
    names = [name for name, *_ in samples]
    least, most = (end(map(end, values)) for end in (min, max))
    log = least > 0 and most > 10**_MOST_DECADES * least
    scale: Spec = {"type": "log"} if log else {"zero": False}
    title = f"value{' (logarithmic)' if log else ''}, {_better(comparison)} is better"
    place = {
        "x": channel("value:Q", title=title, scale=scale),
        "y": channel("sample:N", title=None, sort=names, axis={"labelLimit": 160}),
        "yOffset": channel("aside:Q", scale={"domain": [-1, 1]}),
        "color": coloured("sample", names),
    }
    mean_tooltip = tips(
        "sample:N", ("value:Q", "", "mean"), ("low:Q", "", "95 % interval from"), ("high:Q", "", "to")
    )
    ends = place | {"x": channel("low:Q", scale=scale), "x2": {"field": "high"}}
    point = layer(spots, "point", filled=True, size=30, opacity=0.45)
    mean = layer(means, "point", shape="diamond", size=160, filled=True, stroke=var("text"), opacity=1)
    known = [m for m in means if m["low"] is not None]
    layers = [
        encoded(point, **place, tooltip=tips("sample:N", "value:Q")),
        encoded(layer(known, "rule", strokeWidth=3), **{k: c for k, c in ends.items() if k != "color"}),
        encoded(mean, **place, tooltip=mean_tooltip),
    ]
    caption = "A point is a value; a diamond is the mean, the line through it its 95 % interval."
    description = (
        f"Values of {comparison.baseline} and {comparison.variant} along one axis, with their means."
    )
    return chart("samples", "Both samples", caption, layers, description, [*spots, *means])


def _better(comparison: SampleComparison) -> str:
    return "higher" if comparison.higher_is_better else "lower"


def _spread_out(name: str, values: Sequence[float]) -> list[Spec]:
    """Returns points in the order of the file, each shifted aside, so that equal values stay visible."""
    shown = values
    if len(values) > _MOST_SPOTS:
        ordered = sorted(values)
        shown = [ordered[n * (len(values) - 1) // (_MOST_SPOTS - 1)] for n in range(_MOST_SPOTS)]
    # Multiples of the golden ratio modulo 1 spread evenly for any number of points (Weyl sequence).
    golden = (math.sqrt(5) - 1) / 2
    return [{"sample": name, "value": v, "aside": n * golden % 1 - 0.5} for n, v in enumerate(shown)]


def _ratios(comparison: SampleComparison) -> Table:
    """Returns the ratio of the samples by means and by ranks."""
    e, r = comparison.effect, comparison.by_ranks
    columns = [
        Column("by"),
        Column("verdict", wraps=True),
        numeric("ratio"),
        Column("95 % interval"),
        numeric("p"),
        Column("test", wraps=True),
    ]
    test = "" if e.exact or e.degrees is None else f"Student's t, {e.degrees:.1f} degrees of freedom"
    lines = [("means", comparison.verdict, comparison.because, e, e.p, "no spread" if e.exact else test)]
    if r is not None and comparison.rank_verdict is not None:
        wide = r.low is not None and r.high is not None and r.low <= 1 <= r.high
        because = "contains 1" if wide and comparison.rank_verdict == "undecided" else ""
        lines.append(
            ("medians", comparison.rank_verdict, because, r, r.p_permutation, f"rank sum, {r.permutation}")
        )
    rows_ = [
        Row(
            [
                word(by),
                Cell(verdict_text(verdict, comparison.margin, because), verdict),
                Cell(UNKNOWN if ratio.ratio is None else ratio_text(ratio, ratio.ratio), ratio.ratio),
                word(rows.interval(ratio)),
                Cell(rows.p_text(p), p),
                word(test),
            ]
        )
        for by, verdict, because, ratio, p, test in lines
    ]
    return Table(f"Ratio of {comparison.variant} to {comparison.baseline}", columns, rows_)


def benchstat(comparison: SampleComparison) -> str:
    """Returns the row as benchstat prints it: ``1718 ± 1% 1422.5 ± 1% -17.20% (p=0.000 n=10)``.

    The change is ``~`` if p is 0.05 or more.
    """
    a, b, e = comparison.of_baseline, comparison.of_variant, comparison.effect
    n = f"n={a.n}" if a.n == b.n else f"n={a.n}+{b.n}"
    p = "p=?" if e.p_permutation is None else f"p={e.p_permutation:.3f}"
    if e.p_permutation is None and a.median == b.median:
        p = "p=1.000"
    change = "?" if comparison.median_change is None else f"{100 * comparison.median_change:+.2f}%"
    if e.p_permutation is None or e.p_permutation >= 0.05:
        change = "~"
    left, right = (f"{s.median:.7g} ± {_spread(s)}".replace(" %", "%") for s in (a, b))  # as benchstat has it
    return f"{left}  {right}  {change} ({p} {n})"


def _medians(comparison: SampleComparison) -> list[str]:
    both = (comparison.of_baseline, comparison.of_variant)
    texts = format_apart(comparison.of_baseline.median, comparison.of_variant.median)
    return [f"{text} ± {_spread(s)}" for text, s in zip(texts, both, strict=True)]


def _spread(s: Summary) -> str:
    """Returns the distance of the farther end of the median's interval in whole per cent.

    ``∞`` if there are too few values for an interval.
    """
    if s.low is None or s.high is None:
        return "∞"
    if s.median == 0:
        return "0 %" if s.low == s.high == 0 else UNKNOWN
    if min(s.low * s.median, s.high * s.median) <= 0:
        return UNKNOWN
    return f"{100 * max(abs(s.high / s.median - 1), abs(1 - s.low / s.median)):.0f} %"
