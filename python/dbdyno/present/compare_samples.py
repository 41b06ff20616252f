"""Two files of numbers compared: benchstat's row, then the ratio of means."""

from __future__ import annotations

from dbdyno.model.comparison import SampleComparison, Summary, verdict_text
from dbdyno.present.compare_rows import p_text
from dbdyno.present.document import UNKNOWN, Cell, Column, Document, Paragraph, Row, Table, word


def document(made: SampleComparison) -> Document:
    """benchstat's row, then the ratio of means, both p, and the verdict."""
    e = made.effect
    columns = (Column(""), *(Column(h, number=True) for h in ("median", "mean", "n")))
    sides = ((made.baseline, made.of_baseline), (made.variant, made.of_variant))
    rows = [
        Row(
            [
                word(name),
                word(f"{number(s.median)} ± {spread(s)}"),
                Cell(number(s.mean), s.mean),
                Cell(str(s.n), s.n),
            ]
        )
        for name, s in sides
    ]
    ratio = UNKNOWN if e.ratio is None else f"{e.ratio:.6f}"
    ends = "" if e.low is None or e.high is None else f", 95 % interval {e.low:.6f} .. {e.high:.6f}"
    degrees = f" (Student's t, {e.degrees} degrees of freedom)" if ends else ""
    p = UNKNOWN if e.p_permutation is None else f"{e.p_permutation:.5g} ({e.permutation})"
    lines = (
        f"benchstat: {benchstat(made)}",
        f"ratio of means: {ratio}{ends}{degrees}",
        f"p, rank sum: {p}" + (f"; Student's t: {p_text(e.p)}" if e.p is not None else ""),
        f"verdict: {_verdict(made)}",
    )
    title = f"{made.variant} against {made.baseline}"
    return Document(title, [Table("", columns, rows), *(Paragraph(x) for x in lines)])


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
