"""Comparisons as documents: the answer, ranks, reasons and notes; two files of numbers by their ratio."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

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
from dbdyno.model.text.nouns import at_once, noun
from dbdyno.model.units import format_apart
from dbdyno.present.charts.chart import Spec, channel, chart, coloured, encoded, layer, tips
from dbdyno.present.compare import machines as of_machines
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
"""Characters of a setting that are shown."""
_FUNCTIONS = 15
"""Whose CPU time per unit is shown: those of the largest change."""


def document(made: Comparison | None, machines: Sequence[Machines] = ()) -> Document:
    """The comparison, the machines behind it, or both."""
    behind = of_machines.sections(machines)
    if made is None:
        return Document(behind[0].title, behind)
    with speaking_of(kind_named(made.run_kind)):
        return Document(rows.title(made), [*_sections(made), *behind], lead=_answer(made))


def brief(made: Comparison, run: str) -> list[Block]:
    """The heart of it, within the report of a run: the answer, the first quantity, and why."""
    first = made.metrics[0]
    why = [Section(_why_title(), [*_whys(made, rows.places(first))], folded=True)]
    more = Paragraph(f"All quantities, and why: dbdyno compare {run}", "muted")
    return [*_answer(made), *_quantity(made, first), *(why if made.why else []), more]


def _why_title() -> str:
    return f"Why: where the {noun('session_time')} went"


def _answer(made: Comparison) -> list[Paragraph]:
    return [Paragraph(s, lead=True) for s in made.summary]


def _sections(made: Comparison) -> Iterator[Section]:
    first, others = made.metrics[0], made.metrics[1:]
    tops = rows.tops(first)
    yield Section(f"Effect: {first.title}", _quantity(made, first), "effect")
    if others:
        shown = [Section(_where(made, p), [rows.others(others, p, made.margin)]) for p in tops]
        each = [Section(t.title, _quantity(made, t), folded=True) for t in others]
        yield Section("Other quantities", [*shown, *each], "quantities", minor=True)
    if made.why:
        rest = [p for p in rows.places(first) if p not in tops]
        below = [Section(_where(made, p), [*_whys(made, [p])], folded=True) for p in rest]
        yield Section(_why_title(), [*_whys(made, tops), *below], "why", minor=True)
    if made.costs:
        tables = [
            Section(f"{c.series} {at_once(str(c.sessions))}".strip(), cpu_profile.cost_tables(c, _FUNCTIONS))
            for c in made.costs
        ]
        yield Section("CPU time per unit, by function", tables, "costs", minor=True)
    if made.differences:
        yield Section(
            "Differences in environment, settings and plan", [_differences(made)], "differences", minor=True
        )
    yield Section("Notes", remarks(made.notes), "method", minor=True)


def _where(made: Comparison, place: rows.Place) -> str:
    return place.words(len({p.workload for p in rows.places(made.metrics[0])}) > 1)


def _quantity(made: Comparison, t: MetricTable) -> list[Block]:
    """Every number of sessions with its rank and its neighbours; of two runs one table."""
    drawing = rows.plot(t, made)
    blocks: list[Block] = [Paragraph("No ratio is known.", "muted") if drawing is None else Drawing(drawing)]
    if made.kind == "runs":
        blocks.append(rows.rungs(t, made.margin, f"{t.title}; ratio: B to A"))
    for place in rows.places(t) if made.kind == "variants" else ():
        title = f"{t.title}, {_where(made, place)}; ratio to {made.baseline}"
        following = rows.neighbours(t, place, made.margin)
        blocks.append(rows.ranks(t, place, made.margin, title))
        blocks += [Section("", [following], minor=True)] if following else []
    return [*blocks, *remarks(rows.claim_notes(t))]


def _whys(made: Comparison, places: Sequence[rows.Place]) -> Iterator[Block]:
    for place in places:
        tables = [rows.why_table(why) for why in rows.at(place, made.why)]
        if tables:
            yield Section(
                f"{_where(made, place)}: {noun('session_time')} by account, largest change first", tables
            )


def _differences(made: Comparison) -> Table:
    columns = [Column("", wraps=True)]
    columns += [Column(h, wraps=True) for h in (made.baseline, "B" if made.kind == "runs" else "other")]
    told = ((d.what, d.baseline, d.variant) for d in made.differences)
    return Table("", columns, [Row([word(rows.shortened(t, _LONGEST)) for t in line]) for line in told])


# Two files of numbers compared: benchstat's row, then the ratio of means.


def samples(made: SampleComparison, values: tuple[Sequence[float], Sequence[float]]) -> Document:
    """The answer, both samples and their ``values``, both ways to compare them, benchstat's row, and what to
    bear in mind."""
    sides = ((made.baseline, made.of_baseline), (made.variant, made.of_variant))
    columns = (Column(""), *(numeric(h) for h in ("median", "mean", "n")))
    means = format_apart(made.of_baseline.mean, made.of_variant.mean)
    lines = [
        Row([word(name), word(median), Cell(mean, s.mean), Cell(f"{s.n:,}", s.n)])
        for (name, s), median, mean in zip(sides, _medians(made), means, strict=True)
    ]
    answer, *notes = made.conclusions
    lead = [answer, *(c for c in notes if c.id == "means-and-medians")]
    said = made.effect.ratio is not None and not made.effect.exact and made.verdict != "equal"
    more = [made.note] if made.note and said and min(s.n for _, s in sides) > 1 else []
    remarked = remarks([*(c.text for c in notes if c not in lead), *more])
    blocks: list[Block] = [
        Section("", [_spots(made, values), Table("", columns, lines)]),
        Section("", [_ratios(made), Paragraph(f"benchstat: {benchstat(made)}")]),
        *([Section("Notes", remarked)] if remarked else []),
    ]
    title = f"{made.variant} against {made.baseline}"
    return Document(title, blocks, lead=[Paragraph(c.text, lead=True) for c in lead])


_MOST_SPOTS = 1_000
"""Values of a side that are drawn; of more, so many quantiles."""
_MOST_DECADES = 2


def _spots(made: SampleComparison, values: tuple[Sequence[float], Sequence[float]]) -> Chart:
    """Both samples as points along one axis, each with its mean and the mean's interval."""
    sides = ((made.baseline, made.of_baseline, values[0]), (made.variant, made.of_variant, values[1]))
    spots = [spot for name, _, found in sides for spot in _spread_out(name, found)]
    means = [
        {"sample": name, "value": s.mean, "low": s.mean_low, "high": s.mean_high, "aside": 0.0}
        for name, s, _ in sides
    ]
    names = [name for name, *_ in sides]
    least, most = (end(map(end, values)) for end in (min, max))
    log = least > 0 and most > 10**_MOST_DECADES * least
    scale: Spec = {"type": "log"} if log else {"zero": False}
    title = f"value{' (logarithmic)' if log else ''}, {_better(made)} is better"
    place = {
        "x": channel("value:Q", title=title, scale=scale),
        "y": channel("sample:N", title=None, sort=names, axis={"labelLimit": 160}),
        "yOffset": channel("aside:Q", scale={"domain": [-1, 1]}),
        "color": coloured("sample", names),
    }
    told = tips(
        "sample:N", ("value:Q", "", "mean"), ("low:Q", "", "95 % interval from"), ("high:Q", "", "to")
    )
    ends = place | {"x": channel("low:Q", scale=scale), "x2": {"field": "high"}}
    point = layer(spots, "point", filled=True, size=30, opacity=0.45)
    mean = layer(means, "point", shape="diamond", size=160, filled=True, stroke=var("text"), opacity=1)
    known = [m for m in means if m["low"] is not None]
    layers = [
        encoded(point, **place, tooltip=tips("sample:N", "value:Q")),
        encoded(layer(known, "rule", strokeWidth=3), **{k: c for k, c in ends.items() if k != "color"}),
        encoded(mean, **place, tooltip=told),
    ]
    caption = "A point is a value; a diamond is the mean, the line through it its 95 % interval."
    description = f"Values of {made.baseline} and {made.variant} along one axis, with their means."
    return chart("samples", "Both samples", caption, layers, description, [*spots, *means])


def _better(made: SampleComparison) -> str:
    return "higher" if made.higher_is_better else "lower"


def _spread_out(name: str, values: Sequence[float]) -> list[Spec]:
    """In the order of the file, each a little aside of the one before, so that equal values are all seen."""
    found = values
    if len(values) > _MOST_SPOTS:
        ordered = sorted(values)
        found = [ordered[n * (len(values) - 1) // (_MOST_SPOTS - 1)] for n in range(_MOST_SPOTS)]
    golden = (math.sqrt(5) - 1) / 2
    return [{"sample": name, "value": v, "aside": n * golden % 1 - 0.5} for n, v in enumerate(found)]


def _ratios(made: SampleComparison) -> Table:
    """By means and by ranks."""
    e, r = made.effect, made.by_ranks
    columns = [
        Column("by"),
        Column("verdict"),
        numeric("ratio"),
        Column("95 % interval"),
        numeric("p"),
        Column("test"),
    ]
    test = "" if e.exact or e.degrees is None else f"Student's t, {e.degrees:.1f} degrees of freedom"
    found = [("means", made.verdict, made.because, e, e.p, "no spread" if e.exact else test)]
    if r is not None and made.rank_verdict is not None:
        found.append(("medians", made.rank_verdict, "", r, r.p_permutation, f"rank sum, {r.permutation}"))
    rows_ = [
        Row(
            [
                word(by),
                Cell(verdict_text(verdict, made.margin, because), verdict),
                Cell(*((UNKNOWN, None) if of.ratio is None else (ratio_text(of, of.ratio), of.ratio))),
                word(rows.interval(of)),
                Cell(rows.p_text(p), p),
                word(test),
            ]
        )
        for by, verdict, because, of, p, test in found
    ]
    return Table(f"Ratio of {made.variant} to {made.baseline}", columns, rows_)


def benchstat(made: SampleComparison) -> str:
    """``1718 ± 1%  1422.5 ± 1%  -17.20% (p=0.000 n=10)``; ``~`` where p is 0.05 or more."""
    a, b, e = made.of_baseline, made.of_variant, made.effect
    n = f"n={a.n}" if a.n == b.n else f"n={a.n}+{b.n}"
    p = "p=?" if e.p_permutation is None else f"p={e.p_permutation:.3f}"
    if e.p_permutation is None and a.median == b.median:
        p = "p=1.000"
    change = "?" if made.median_change is None else f"{100 * made.median_change:+.2f}%"
    if e.p_permutation is None or e.p_permutation >= 0.05:
        change = "~"
    left, right = (f"{s.median:.7g} ± {_spread(s)}".replace(" %", "%") for s in (a, b))  # as benchstat has it
    return f"{left}  {right}  {change} ({p} {n})"


def _medians(made: SampleComparison) -> list[str]:
    sides = (made.of_baseline, made.of_variant)
    texts = format_apart(made.of_baseline.median, made.of_variant.median)
    return [f"{text} ± {_spread(s)}" for text, s in zip(texts, sides, strict=True)]


def _spread(s: Summary) -> str:
    """The farther end of the median's interval, in whole per cent; ``∞``: too few values for one."""
    if s.low is None or s.high is None:
        return "∞"
    if s.median == 0:
        return "0 %" if s.low == s.high == 0 else UNKNOWN
    if min(s.low * s.median, s.high * s.median) <= 0:
        return UNKNOWN
    return f"{100 * max(abs(s.high / s.median - 1), abs(1 - s.low / s.median)):.0f} %"
