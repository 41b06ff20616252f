"""Builds the tables of a comparison, and its plot of intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from dbdyno.model.results.comparison import (
    AMOUNTS,
    Account,
    Comparison,
    Contrast,
    Effect,
    Line,
    MetricTable,
    OperationCost,
    OperationCosts,
    Why,
    ratio_text,
    value_text,
    verdict_text,
)
from dbdyno.model.schema.data_sources.costs import BY_ID
from dbdyno.model.text.nouns import at_once, noun
from dbdyno.model.units import counted, format_amount, format_p, format_percent, format_rate
from dbdyno.present.document.document import (
    UNKNOWN,
    Cell,
    Column,
    Row,
    Table,
    Tone,
    known,
    numeric,
    optional,
    table,
    word,
)
from dbdyno.present.document.page import Html, el, join
from dbdyno.present.document.palette import var
from dbdyno.present.figures.accounts import BRACKET, NAMES, THROTTLED
from dbdyno.present.figures.figures import grouped, plus_minus

EFFECT = (
    Column("verdict", wraps=True),
    numeric("ratio"),
    Column("95 % interval", rank=2),
    numeric("n", 3)._replace(note="repeats"),
    numeric("more repeats", 3)._replace(note="about how many more repeats of each would decide"),
    numeric("p (Holm)", 5),
    numeric("p (perm.)", 6),
)
_RANK = (numeric("", 7), Column("variant"), *EFFECT[:4], numeric("mean", 3), numeric("±95 %", 4), *EFFECT[4:])
_NEXT = (Column("variant"), Column("against"), *EFFECT)
ALPHA = 0.05
_MINOR = 0.02
"""Accounts below this share of the total change are left out where space is short."""
_LEAST = 5e-5
"""Accounts up to this share of session time on both sides are left out: it would be shown as 0.0 %."""
_CANCELLING = 3.0
"""From this ratio of the changes' absolute sum to their sum on, shares of the sum would exceed 100 %."""
TONES: dict[str, Tone] = {"better": "good", "worse": "invalid", "undecided": "warning"}
_NAMES = NAMES | {
    BRACKET: "throttled, within CPU WAIT, at most",
    THROTTLED: "throttled, within CPU WAIT",
    "block_io": "block I/O, within sleep",
}
_NOTHING = word("")
_FEW = word(UNKNOWN, "too few repeats for a permutation test to decide")
RUNS = ("A", "B")
"""Labels of two runs that are compared."""
_LONGEST_HEAD = 24
"""Most characters of a variant's name as the heading of a column."""
_AtRung = TypeVar("_AtRung", Line, Contrast, Why, OperationCosts)


class Place(NamedTuple):
    """A rung of a ladder."""

    workload: str
    series: str
    sessions: int

    def label(self, many_workloads: bool) -> str:
        """Returns the rung in words; ``many_workloads`` adds the workload."""
        parts = [self.workload] if many_workloads else []
        parts += [self.series] if self.series else []
        return ", ".join([*parts, at_once(str(self.sessions))])


def places(table: MetricTable) -> list[Place]:
    """Returns every rung of the table in its order."""
    return list(dict.fromkeys(Place(x.workload, x.series, x.sessions) for x in table.lines))


def tops(table: MetricTable) -> list[Place]:
    """Returns the highest rung of each ladder."""
    highest: dict[tuple[str, str], Place] = {}
    for place in sorted(places(table), key=lambda p: p.sessions):
        highest[place.workload, place.series] = place
    return list(highest.values())


def labels(comparison: Comparison) -> list[str]:
    """Returns the labels that are compared, the baseline first."""
    lines = [x.variant for t in comparison.metrics for x in t.lines]
    return list(dict.fromkeys([comparison.baseline, *lines]))


def pair(comparison: Comparison) -> tuple[str, str] | None:
    """Returns the two labels if there are two, with names that columns can have; None otherwise."""
    both = labels(comparison)
    if len(both) != 2 or max(map(len, both)) > _LONGEST_HEAD:
        return None
    return both[0], both[1]


def ranks(table: MetricTable, place: Place, margin: float, title: str) -> Table:
    """Returns a table with one row per variant, the best first."""
    return Table(title, _RANK, list(rank_rows(table, place, margin))).without_unknown()


def others(tables: Sequence[MetricTable], place: Place, comparison: Comparison) -> Table:
    """Returns several quantities at one load: a row each for a pair, else the variants of each in the order
    of the first quantity."""
    if (both := pair(comparison)) is not None:
        rows = [
            Row([word(t.title), *_pair_cells(t, c, both, comparison.margin)], _tone(c))
            for t in tables
            for c in at(place, t.claims)
        ]
        return Table("", [Column("quantity"), *_pair_columns(both)], rows).without_unknown()
    order = [x.variant for x in at(place, comparison.metrics[0].lines)]
    rows = []
    for t in tables:
        own = [x.variant for x in at(place, t.lines)]
        by_variant = dict(zip(own, rank_rows(t, place, comparison.margin), strict=True))
        in_order = sorted(by_variant, key=lambda v: order.index(v) if v in order else len(order))
        rows += [
            by_variant[v]._replace(cells=[word("" if n else t.title), *by_variant[v].cells[1:]])
            for n, v in enumerate(in_order)
        ]
    return Table("", [Column("quantity"), *_RANK[1:]], rows).without_unknown()


def rank_rows(table: MetricTable, place: Place, margin: float) -> Iterator[Row]:
    claims = {c.variant: c for c in at(place, table.claims) if not c.neighbours}
    for line in at(place, table.lines):
        ends = None
        if line.low is not None and line.high is not None and line.mean:
            ends = line.low / line.mean, line.high / line.mean
        claim = claims.get(line.variant)
        effect = _baseline(line.repeats) if claim is None else effect_cells(claim, margin)
        yield Row(
            [
                Cell(str(line.rank), line.rank),
                word(line.variant),
                *effect[:4],
                figure(table.unit, line.mean),
                plus_minus(ends),
                *effect[4:],
            ],
            "" if claim is None else _tone(claim),
        )


def rungs(table: MetricTable, comparison: Comparison, both: tuple[str, str], title: str) -> Table:
    """Returns a comparison of two runs or variants, one row per load."""
    several = len({(p.workload, p.series) for p in places(table)}) > 1
    rows = []
    for c in table.claims:
        ladder = [word(", ".join(filter(None, (c.workload, c.series))))] if several else []
        where = [*ladder, Cell(str(c.sessions), c.sessions)]
        rows.append(Row([*where, *_pair_cells(table, c, both, comparison.margin)], _tone(c)))
    heads = [*([Column("ladder")] if several else []), numeric(noun("at_once")), *_pair_columns(both)]
    return Table(title, heads, rows, along_axis=True).without_unknown()


def _pair_columns(both: tuple[str, str]) -> list[Column]:
    """Returns the columns of the figures of both sides and of their comparison."""
    verdict, ratio, *rest = EFFECT
    if both == RUNS:
        ratio = ratio._replace(head="B/A")
    return [numeric(both[0], 1), numeric(both[1], 1), ratio, rest[0], verdict, *rest[1:]]


def _pair_cells(table: MetricTable, claim: Contrast, both: tuple[str, str], margin: float) -> list[Cell]:
    means = {x.variant: x.mean for x in at(_place(claim), table.lines)}
    verdict, ratio, *rest = effect_cells(claim, margin)
    return [*(figure(table.unit, means[label]) for label in both), ratio, rest[0], verdict, *rest[1:]]


def _place(claim: Contrast) -> Place:
    return Place(claim.workload, claim.series, claim.sessions)


def _tone(claim: Contrast) -> Tone:
    return TONES.get(claim.verdict, "")


def neighbours(table: MetricTable, place: Place, margin: float) -> Table | None:
    """Returns comparisons of neighbours in the rank, neither of them the baseline; None without any."""
    claims = [c for c in at(place, table.claims) if c.neighbours]
    rows = [Row([word(c.variant), word(c.baseline), *effect_cells(c, margin)], _tone(c)) for c in claims]
    return Table("Neighbours in the rank", _NEXT, rows).without_unknown() if rows else None


def figure(unit: str, value: float) -> Cell:
    """Returns a figure without its unit, which the title of the quantity states: ``6.21 M``, ``1.23 ms``."""
    return Cell(format_amount(value, unit) if unit in AMOUNTS else format_rate(value), value, unit)


def effect(claim: Contrast | None, comparison: Comparison, variant: str, repeats: int) -> list[Cell]:
    """Returns the cells of :data:`EFFECT` for a variant at a rung; ``claim`` is None if it was not
    compared."""
    if claim is not None:
        return effect_cells(claim, comparison.margin)
    own = _baseline(repeats)
    return own if variant == comparison.baseline else [word("not compared"), *own[1:]]


def _baseline(repeats: int) -> list[Cell]:
    return [word("baseline"), *[_NOTHING] * 2, Cell(str(repeats), repeats), *[_NOTHING] * 3]


def effect_cells(claim: Contrast, margin: float) -> list[Cell]:
    """Returns the cells of :data:`EFFECT`."""
    e = claim.effect
    return [
        Cell(verdict(claim, margin), claim.verdict),
        Cell(UNKNOWN) if _says_nothing(claim) else known(e.ratio, lambda v: ratio_text(e, v)),
        word(interval(e)),
        word(repeats(e)),
        optional(claim.further_repeats, lambda n: f"{n:,.0f}"),
        Cell(p_text(claim.p_holm), claim.p_holm),
        Cell(p_text(e.p_permutation), e.p_permutation) if _can_decide(e) else _FEW,
    ]


_ANYTHING = 50.0
"""Quotient of an interval's ends from which on an undecided ratio within it is not shown."""


def _says_nothing(claim: Contrast) -> bool:
    low, high = claim.effect.low, claim.effect.high
    return claim.verdict == "undecided" and low is not None and high is not None and high > _ANYTHING * low


def _can_decide(e: Effect) -> bool:
    """Returns whether there are enough repeats for a permutation test that decides."""
    return e.least_p is not None and e.least_p < ALPHA


def verdict(claim: Contrast, margin: float) -> str:
    """Returns the verdict with its reason: ``undecided: 3 repeats are too few``, ``equal within 2 %``."""
    if claim.verdict == "no difference":
        return f"equal within {100 * margin:g} %"
    e = claim.effect
    wide = claim.verdict == "undecided" and e.low is not None and e.high is not None and e.low <= 1 <= e.high
    # Comparisons of older runs are stored without this reason.
    return verdict_text(claim.verdict, margin, claim.because or ("contains 1" if wide else ""))


def claim_notes(table: MetricTable) -> list[str]:
    """Returns explanations of verdicts, each once. If it does not apply to all claims, the variants and
    loads stand before it."""
    noted = [c for c in table.claims if c.note]
    notes = []
    for note, claims in grouped((c.note, c) for c in noted).items():
        who = grouped(
            (f"{c.variant}/{c.baseline}" if c.neighbours else c.series or c.variant, str(c.sessions))
            for c in claims
        )
        where = "; ".join(f"{name} {noun('at')} {at_once(', '.join(loads))}" for name, loads in who.items())
        notes.append(note if len(claims) == len(table.claims) else f"{where}: {note}")
    return notes


def interval(e: Effect) -> str:
    """Returns ``0.817..0.833``, in brackets if it is based on windows alone, or ``exact`` if nothing
    varies."""
    if e.low is None or e.high is None:
        return "exact" if e.exact else UNKNOWN
    ends = f"{ratio_text(e, e.low)}..{ratio_text(e, e.high)}"
    return f"({ends})" if e.basis == "within the window only" else ends


def p_text(p: float | None) -> str:
    return UNKNOWN if p is None else format_p(p)


def repeats(e: Effect) -> str:
    """Returns ``6``, or ``6+5`` if the samples differ in size."""
    return str(e.n_baseline) if e.n_baseline == e.n_variant else f"{e.n_baseline}+{e.n_variant}"


def at(place: Place, items: Iterable[_AtRung]) -> list[_AtRung]:
    """Returns the items of one rung."""
    return [x for x in items if (x.workload, x.series, x.sessions) == place]


def why_table(why: Why) -> Table:
    """Returns a table with one row per account that took time on one of the sides."""
    change = sum(abs(a.difference_s) for a in why.accounts if not a.inside)
    cancels = change > _CANCELLING * abs(why.difference_s)
    columns: tuple[tuple[Column, Callable[[Account], Cell]], ...] = (
        (Column("account"), lambda a: word(account_name(a.account, a.detail))),
        (numeric(why.baseline), lambda a: known(a.baseline_s, _seconds, "s")),
        (numeric(why.variant), lambda a: known(a.variant_s, _seconds, "s")),
        (numeric("difference"), lambda a: known(a.difference_s, _signed, "s")),
        (Column("95 % interval", rank=1), lambda a: word(_signed_ends(a))),
        (
            numeric("share"),
            lambda a: word("") if a.inside or cancels else known(a.share, format_percent),
        ),
    )
    least = _LEAST * max(why.baseline_s, why.variant_s)
    shown = [a for a in why.accounts if max(abs(a.baseline_s), abs(a.variant_s)) > least]
    ours, theirs = _seconds(why.variant_s), _seconds(why.baseline_s)
    need = f"{_seconds(abs(why.difference_s))} {'more' if why.difference_s > 0 else 'less'} per {why.unit}"
    title = f"{why.variant} needs {need} than {why.baseline}: {ours} instead of {theirs}"
    if ours == theirs:
        title = f"{why.variant} and {why.baseline} need about the same per {why.unit}: {ours}"
    shown_table = table(title, columns, shown)
    minor = (not a.inside and abs(a.difference_s) < _MINOR * change for a in shown)
    rows = [r._replace(minor=m) for r, m in zip(shown_table.rows, minor, strict=True)]
    return replace(shown_table, rows=rows).without_unknown()


def cost_table(change: OperationCosts, comparison: Comparison) -> Table:
    """Returns a table with one row per cost of a call that either side has: both means, their ratio, and the
    verdict."""

    def shown(cost: OperationCost, mean: float) -> Cell:
        return Cell(format_amount(mean, cost.unit), mean, cost.unit)

    verdict, ratio, *rest = EFFECT
    if (change.baseline, change.variant) == RUNS:
        ratio = ratio._replace(head="B/A")
    columns = [
        Column(f"per {change.unit}"),
        numeric(change.baseline),
        numeric(change.variant),
        *(ratio, rest[0], verdict, *rest[1:]),
    ]
    records = []
    for cost in change.figures:
        if not cost.baseline_mean and not cost.variant_mean:
            continue
        effect = effect_cells(cost.contrast, comparison.margin)
        title = BY_ID[cost.figure].title
        cells = [word(f"{title}, background" if cost.background else title)]
        cells += [shown(cost, cost.baseline_mean), shown(cost, cost.variant_mean)]
        cells += [effect[1], effect[2], effect[0], *effect[3:]]
        records.append(Row(cells, TONES.get(cost.contrast.verdict, ""), minor=cost.background))
    title = f"{change.variant} against {change.baseline}; ratio of the means"
    return Table(title, columns, records).without_unknown()


def zero_costs(change: OperationCosts) -> str:
    """Returns which costs are 0 on both sides, in a sentence; "" if none is."""
    none = [c for c in change.figures if not c.baseline_mean and not c.variant_mean]
    own, behind = (", ".join(BY_ID[c.figure].title for c in none if c.background is b) for b in (False, True))
    parts = filter(None, (own, behind and f"in the background {behind}"))
    return f"0 on both sides: {'; '.join(parts)}." if none else ""


def _seconds(seconds: float) -> str:
    return value_text("ns", seconds * 1e9)


def _signed_ends(a: Account) -> str:
    return UNKNOWN if a.low_s is None or a.high_s is None else f"{_signed(a.low_s)}..{_signed(a.high_s)}"


def account_name(account: str, detail: str | None) -> str:
    """Returns the account in words: ``CPU WAIT``, ``asleep in CLASS/EVENT``."""
    if account == "sleep":
        return f"asleep in {detail}" if detail else "asleep, reason unknown"
    name = _NAMES.get(account, account)
    return f"{name}: {detail}" if detail else name


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{_seconds(abs(seconds))}"


# The interval plot as plain SVG: each ratio is a dot with its 95 % interval, the margin a band around 1.


class _Layout(NamedTuple):
    """Places in a plot; ``left`` and ``right`` are beside the axis."""

    name: str
    width: int
    left: int
    right: int
    row: int
    top: int
    axis: int
    """Distance of an interval from the begin of its row."""


_WIDE = _Layout("wide", 820, 220, 230, 24, 26, 10)
_NARROW = _Layout("narrow", 360, 10, 10, 40, 28, 28)
"""On a telephone a name and its verdict stand above their interval."""
_COLOURS = {
    "better": "good",
    "worse": "invalid",
    "no difference": "accent",
    "equal": "accent",
    "undecided": "muted",
}
_TICKS, _LONGEST_NAME = 6, 24


def plot(table: MetricTable, comparison: Comparison) -> Html | None:
    """Returns the plot with one row per claim against the baseline, for wide and for narrow pages; None if no
    ratio is known."""
    claims = [c for c in table.claims if not c.neighbours and c.effect.ratio is not None]
    return (
        join(*(_plot(layout, table, claims, comparison) for layout in (_WIDE, _NARROW))) if claims else None
    )


def _plot(layout: _Layout, table: MetricTable, claims: Sequence[Contrast], comparison: Comparison) -> Html:
    low, high = _range(claims, comparison.margin)
    height = layout.top + layout.row * len(claims) + 30
    direction = "higher is better" if table.higher_is_better else "lower is better"
    label = f"{table.title} as a ratio to {comparison.baseline}, with 95 % intervals; {direction}"
    return el(
        "svg",
        *_ground(layout, low, high, comparison, height, direction),
        *(part for n, c in enumerate(claims) for part in _row(layout, n, c, low, high, comparison)),
        class_=f"intervals {layout.name}",
        viewBox=f"0 0 {layout.width} {height}",
        role="img",
        aria_label=label,
    )


def _range(claims: Sequence[Contrast], margin: float) -> tuple[float, float]:
    """Returns the range of all intervals, 1 and the margin.

    An end beyond a third of the lowest ratio, or three times the highest, is cut.
    """
    ratios = [c.effect.ratio or 1.0 for c in claims]
    ends = [e for c in claims for e in (c.effect.low, c.effect.high) if e is not None]
    low = max(min([*ratios, *ends, 1 - margin]), min([*ratios, 1.0]) / 3)
    high = min(max([*ratios, *ends, 1 + margin]), max([*ratios, 1.0]) * 3)
    pad = 0.05 * (high - low)
    return low - pad, high + pad


def _x(layout: _Layout, value: float, low: float, high: float) -> float:
    share = (min(max(value, low), high) - low) / (high - low)
    return round(layout.left + share * (layout.width - layout.left - layout.right), 1)


def _ticks(low: float, high: float) -> list[float]:
    """Returns about six round numbers."""
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * k for k in (1, 2, 5, 10) if power * k >= rough)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [float(f"{n * step:.6g}") for n in range(first, last + 1)]


def _ground(
    layout: _Layout, low: float, high: float, comparison: Comparison, height: int, direction: str
) -> Iterator[Html]:
    """Yields the band of the margin, the line at 1, and the ticks."""
    bottom, top = height - 26, layout.top - 8
    left, right = (_x(layout, 1 + side, low, high) for side in (-comparison.margin, comparison.margin))
    band = f"fill:{var('line')};opacity:.6"
    yield el("rect", x=left, y=top, width=round(right - left, 1), height=bottom - top, style=band)
    one = _x(layout, 1, low, high)
    yield el("line", x1=one, x2=one, y1=top, y2=bottom, stroke=var("text"), stroke_width=1)
    for value in _ticks(low, high):
        x = _x(layout, value, low, high)
        yield el("text", f"{value:g}", x=x, y=height - 8, text_anchor="middle", class_="muted")
    yield el("text", f"ratio to {comparison.baseline}; {direction}", x=layout.left, y=12, class_="muted")


def _row(
    layout: _Layout, n: int, claim: Contrast, low: float, high: float, comparison: Comparison
) -> Iterator[Html]:
    y = layout.top + n * layout.row + layout.axis
    e = claim.effect
    colour = var(_COLOURS[claim.verdict])
    who = claim.variant if comparison.kind == "variants" else claim.series or claim.workload
    load = counted(claim.sessions, noun("single"))
    name = f"{shortened_inside(who, _LONGEST_NAME)}, {load}"
    whole = el("title", f"{who}, {load}") if len(who) > _LONGEST_NAME else None
    words, colouring = verdict(claim, comparison.margin), f"fill:{colour}"
    if layout is _WIDE:
        yield el("text", name, whole, x=layout.left - 10, y=y + 4, text_anchor="end")
        yield el("text", words, x=layout.width - layout.right + 10, y=y + 4, style=colouring)
    else:
        short, edge = words.partition(":")[0], layout.width - layout.right
        yield el("text", name, whole, x=layout.left, y=y - 12)
        yield el("text", short, x=edge, y=y - 12, text_anchor="end", style=colouring)
    if e.low is not None and e.high is not None:
        dash = "4 3" if e.basis == "within the window only" else None
        ends = {"x1": _x(layout, e.low, low, high), "x2": _x(layout, e.high, low, high)}
        yield el("line", **ends, y1=y, y2=y, stroke=colour, stroke_width=2.5, stroke_dasharray=dash)
    hollow = claim.verdict == "undecided"
    fill = var("card") if hollow else colour
    middle = _x(layout, e.ratio or 1.0, low, high)
    tip = f"{ratio_text(e, e.ratio or 1.0)} [{interval(e)}]"
    yield el("circle", el("title", tip), cx=middle, cy=y, r=4.5, fill=fill, stroke=colour, stroke_width=2)


def shortened_inside(text: str, most: int) -> str:
    """Cuts the middle of a text: names of variants often differ at their ends."""
    end = most // 2
    return text if len(text) <= most else f"{text[: most - 1 - end]}…{text[-end:]}"


def shortened(text: str, most: int) -> str:
    """Cuts a text to at most ``most`` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
