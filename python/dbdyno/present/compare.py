"""A comparison on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from dbdyno.model.comparison import Comparison, MetricTable, SampleComparison, Summary, verdict_text
from dbdyno.present import compare_rows as rows
from dbdyno.present.figures import UNKNOWN

_SHARE = 0.02
"""Accounts below this share of all change are left to JSON and HTML."""
_STYLES = {"better": "green", "worse": "red", "undecided": "yellow"}


def comparison(made: Comparison) -> RenderableType:
    """The answer, the rank at every rung; at the highest, all quantities and the reasons; the fine print."""
    first = made.metrics[0]
    many = len({p.workload for p in rows.places(first)}) > 1
    parts: list[RenderableType] = [Text(rows.title(made), style="bold")]
    parts += [Text(s) for s in made.summary]
    if made.kind == "runs":
        parts += [Text(""), Text(first.title, style="bold"), *_by_rung(made, first)]
    for place in rows.places(first) if made.kind == "variants" else ():
        parts += [Text(""), Text(f"{first.title}, {place.words(many)}", style="bold")]
        parts += _ranked(made, first, place)
    for place in rows.tops(first):
        parts += _others(made, place, many)
        parts += _whys(made, place, many)
    return Group(*parts, *_differences(made), *_notes(made.notes))


def heart(made: Comparison, run: str) -> Iterator[RenderableType]:
    """Beneath a run: the rank by the first quantity at every rung, and where the rest is."""
    first = made.metrics[0]
    many = len({p.workload for p in rows.places(first)}) > 1
    yield from (Text(s) for s in made.summary)
    for place in rows.places(first):
        yield Text(f"{first.title}, {place.words(many)}", style="bold")
        named = rows.heads(rows.RANK_HEADS, by=rows.by(made), baseline=made.baseline)
        yield from columns(named, rows.RANK_NUMERIC, rows.rank_rows(first, place, made.margin))
    yield Text(f"All quantities, and why: dbdyno compare {run}", style="dim")


def _ranked(made: Comparison, table: MetricTable, place: rows.Place) -> Iterator[RenderableType]:
    named = rows.heads(rows.RANK_HEADS, by=rows.by(made), baseline=made.baseline)
    yield from columns(named, rows.RANK_NUMERIC, rows.rank_rows(table, place, made.margin))
    following = rows.next_rows(table, place, made.margin)
    if following:
        yield from columns(rows.NEXT_HEADS, rows.NEXT_NUMERIC, following)
    yield from (Text(n, style="dim") for n in rows.claim_notes(table, place))


def _by_rung(made: Comparison, table: MetricTable) -> Iterator[RenderableType]:
    yield from columns(rows.RUNG_HEADS, rows.RUNG_NUMERIC, rows.rung_rows(table, made.margin))
    yield from (Text(n, style="dim") for n in rows.claim_notes(table))


def _others(made: Comparison, place: rows.Place, many: bool) -> Iterator[RenderableType]:
    """Every other quantity at one rung, ranked."""
    found = [
        ("" if n else table.title, *row[1:])
        for table in made.metrics[1:]
        for n, row in enumerate(rows.rank_rows(table, place, made.margin))
    ]
    if found:
        named = rows.heads(rows.RANK_HEADS, by=rows.by(made), baseline=made.baseline)
        yield Text("")
        yield Text(f"Other quantities, {place.words(many)}", style="bold")
        yield from columns(["quantity", *named[1:]], (False, *rows.RANK_NUMERIC[1:]), found)


def _whys(made: Comparison, place: rows.Place, many: bool) -> Iterator[RenderableType]:
    found = rows.whys_at(made, place)
    if found:
        yield Text("")
        yield Text(
            f"Why, {place.words(many)}: session time by account, the largest change first", style="bold"
        )
    for why in found:
        yield Text(rows.why_title(why), style="underline")
        named = rows.heads(rows.WHY_HEADS, baseline=why.baseline, variant=why.variant)
        yield from columns(named, rows.WHY_NUMERIC, rows.why_rows(why, _SHARE))


def _differences(made: Comparison) -> Iterator[RenderableType]:
    if made.differences:
        yield Text("")
        yield Text("What is not the same", style="bold")
        named = ["", made.baseline, "B" if made.kind == "runs" else "the other"]
        told = [(d.what, _short(d.baseline), _short(d.variant)) for d in made.differences]
        yield from columns(named, (False, False, False), told)


def _short(text: str, most: int = 48) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _notes(notes: Iterable[str]) -> Iterator[RenderableType]:
    yield Text("")
    yield from (Text(n, style="dim") for n in notes)


def columns(
    heads: Sequence[str], numeric: Sequence[bool], lines: Sequence[Sequence[str]]
) -> Iterator[RenderableType]:
    """Lines of aligned columns, nothing after the last word. A verdict gives its line a colour."""
    widths = [max(len(x) for x in column) for column in zip(heads, *lines, strict=True)]
    for n, line in enumerate([heads, *lines]):
        cells = [
            t.rjust(w) if number else t.ljust(w) for t, w, number in zip(line, widths, numeric, strict=True)
        ]
        style = "dim" if n == 0 else _STYLES.get(line[-1].split(" (")[0], "")
        yield Text("  ".join(cells).rstrip(), style=style, no_wrap=True, overflow="ignore")


def samples(made: SampleComparison) -> RenderableType:
    """benchstat's row, then the ratio of means, both p, and the verdict."""
    e = made.effect
    named = ["", "median", "mean", "n"]
    sides = [(made.baseline, made.of_baseline), (made.variant, made.of_variant)]
    told = [(name, f"{number(s.median)} ± {spread(s)}", number(s.mean), str(s.n)) for name, s in sides]
    ratio = UNKNOWN if e.ratio is None else f"{e.ratio:.6f}"
    ends = "" if e.low is None or e.high is None else f", 95 % interval {e.low:.6f} .. {e.high:.6f}"
    degrees = f" (Fieller, {e.degrees} degrees of freedom)" if ends else ""
    p = UNKNOWN if e.p_permutation is None else f"{e.p_permutation:.5g} ({e.permutation})"
    lines = [
        f"benchstat: {benchstat(made)}",
        f"ratio of means: {ratio}{ends}{degrees}",
        f"p of the rank sum: {p}" + (f"; of Student's t: {rows.p_text(e.p)}" if e.p is not None else ""),
        f"verdict: {_verdict(made)}",
    ]
    return Group(*columns(named, (False, True, True, True), told), *(Text(x) for x in lines))


def _verdict(made: SampleComparison) -> str:
    verdict = verdict_text(made.verdict, made.margin, made.further_repeats)
    direction = "higher" if made.higher_is_better else "lower"
    told = verdict if made.verdict not in ("better", "worse") else f"{verdict} ({direction} is better)"
    return f"{told}: {made.note}" if made.note else told


def benchstat(made: SampleComparison) -> str:
    """``1718 ± 1%  1422.5 ± 1%  -17.20% (p=0.000 n=10)``; ``~`` where p is 0.05 or more."""
    a, b, e = made.of_baseline, made.of_variant, made.effect
    n = f"n={a.n}" if a.n == b.n else f"n={a.n}+{b.n}"
    if e.p_permutation is None:
        change, p = "~", "p=1.000" if a.median == b.median else "p=?"
    else:
        change = (
            "~"
            if e.p_permutation >= 0.05 or made.median_change is None
            else f"{100 * made.median_change:+.2f}%"
        )
        p = f"p={e.p_permutation:.3f}"
    left, right = (f"{number(s.median)} ± {spread(s).replace(' ', '')}" for s in (a, b))
    return f"{left}  {right}  {change} ({p} {n})"


def spread(s: Summary) -> str:
    """The farther end of the median's interval, in whole per cent; ``∞``: too few values for one."""
    if s.low is None or s.high is None:
        return "∞"
    if s.median == 0:
        return "0 %" if s.low == s.high == 0 else UNKNOWN
    if min(s.low * s.median, s.high * s.median) <= 0:
        return UNKNOWN
    return f"{100 * max(abs(s.high / s.median - 1), abs(1 - s.low / s.median)):.0f} %"


def number(value: float) -> str:
    """All digits of a number that a person wrote, no more than seven of any other."""
    return f"{value:.7g}"
