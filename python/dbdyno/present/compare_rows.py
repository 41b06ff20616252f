"""Rows of a comparison as texts: the same on the terminal and in HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dbdyno.model.comparison import (
    Account,
    Claim,
    Comparison,
    Effect,
    Line,
    MetricTable,
    Why,
    value_text,
    verdict_text,
)
from dbdyno.present.accounts import BRACKET, NAMES, THROTTLED
from dbdyno.present.figures import UNKNOWN

RANK_HEADS = (
    "",
    "{by}",
    "mean",
    "±95%",
    "of {baseline}",
    "95 % interval",
    "p (Holm)",
    "p (perm.)",
    "n",
    "verdict",
)
RANK_NUMERIC = (True, False, True, True, True, False, True, True, True, False)
RUNG_HEADS = (
    "ladder",
    "sessions",
    "A",
    "B",
    "B of A",
    "95 % interval",
    "p (Holm)",
    "p (perm.)",
    "n",
    "verdict",
)
RUNG_NUMERIC = (False, True, True, True, True, False, True, True, True, False)
NEXT_HEADS = ("ahead", "of", "ratio", "95 % interval", "p (Holm)", "p (perm.)", "n", "verdict")
NEXT_NUMERIC = (False, False, True, False, True, True, True, False)
WHY_HEADS = ("account", "{baseline}", "{variant}", "difference", "95 % interval", "share")
WHY_NUMERIC = (False, True, True, True, False, True)
_NAMES = NAMES | {
    BRACKET: "of CPU WAIT throttled, at most",
    THROTTLED: "of CPU WAIT throttled",
    "block_io": "of sleep: block I/O",
}

Texts = tuple[str, ...]


class Place(NamedTuple):
    """A rung of a ladder."""

    workload: str
    series: str
    sessions: int

    def words(self, many_workloads: bool) -> str:
        parts = [self.workload] if many_workloads else []
        parts += [self.series] if self.series else []
        return ", ".join([*parts, f"{self.sessions} session{'' if self.sessions == 1 else 's'}"])


def places(table: MetricTable) -> list[Place]:
    """Every rung of the table, in its order."""
    return list(dict.fromkeys(Place(x.workload, x.series, x.sessions) for x in table.lines))


def tops(table: MetricTable) -> list[Place]:
    """The highest rung of each ladder."""
    highest: dict[tuple[str, str], Place] = {}
    for place in sorted(places(table), key=lambda p: p.sessions):
        highest[place.workload, place.series] = place
    return list(highest.values())


def title(made: Comparison) -> str:
    if made.kind == "runs":
        return f"A = {made.runs[0]} against B = {made.runs[1]}"
    variants = {x.variant for t in made.metrics for x in t.lines}
    return f"{len(variants)} variants of run {made.runs[0]}, baseline {made.baseline}"


def rank_rows(table: MetricTable, place: Place, margin: float) -> list[Texts]:
    """A line for each variant, the best first."""
    claims = {c.variant: c for c in _claims(table, place) if not c.neighbours}
    return [_rank_row(table, line, claims.get(line.variant), margin) for line in _lines(table, place)]


def _rank_row(table: MetricTable, line: Line, claim: Claim | None, margin: float) -> Texts:
    half = None if line.low is None or line.high is None else (line.high - line.low) / 2
    own = (
        str(line.rank),
        line.variant,
        figure(table.unit, line.mean),
        UNKNOWN if half is None or not line.mean else f"{100 * half / line.mean:.1f}%",
    )
    if claim is None:
        return (*own, "baseline", "", "", "", str(line.repeats), "")
    return (*own, *_effect(claim, margin))


def rung_rows(table: MetricTable, margin: float) -> list[Texts]:
    """Of two runs: a line for each rung."""
    means = {(x.workload, x.series, x.sessions, x.variant): x.mean for x in table.lines}
    made = []
    for c in table.claims:
        place = Place(c.workload, c.series, c.sessions)
        sides = (figure(table.unit, means[(*place, v)]) for v in (c.baseline, c.variant))
        made.append((" ".join(filter(None, place[:2])), str(c.sessions), *sides, *_effect(c, margin)))
    return made


def next_rows(table: MetricTable, place: Place, margin: float) -> list[Texts]:
    """Neighbours in the rank, neither of them the baseline."""
    claims = (c for c in _claims(table, place) if c.neighbours)
    return [(c.variant, c.baseline, *_effect(c, margin)) for c in claims]


def figure(unit: str, value: float) -> str:
    """Without the unit where the quantity's title says it: ``6.21 M``, ``1.23 ms``."""
    return value_text("ns" if unit == "ns" else "", value)


def _effect(claim: Claim, margin: float) -> Texts:
    e = claim.effect
    return (
        UNKNOWN if e.ratio is None else f"{e.ratio:.3f}",
        interval(e),
        p_text(claim.p_holm),
        p_text(e.p_permutation),
        repeats(e),
        verdict(claim, margin),
    )


def verdict(claim: Claim, margin: float) -> str:
    """``better``; ``undecided (+6 repeats)``."""
    if claim.verdict == "undecided" and claim.further_repeats is not None:
        return f"undecided (+{claim.further_repeats:,} repeat{'' if claim.further_repeats == 1 else 's'})"
    return verdict_text(claim.verdict, margin)


def claim_notes(table: MetricTable, place: Place | None = None) -> list[str]:
    """What is to be said beside a verdict, each once, with those that it is about."""
    found: dict[str, list[str]] = {}
    for c in table.claims:
        if c.note and place in (None, Place(c.workload, c.series, c.sessions)):
            of = c.variant if place else f"{c.series or c.variant} at {c.sessions}"
            found.setdefault(c.note, []).append(f"{c.variant}/{c.baseline}" if c.neighbours else of)
    return [f"{', '.join(who)}: {note}" for note, who in found.items()]


def interval(e: Effect) -> str:
    """``0.817..0.833``; in brackets where it is of the windows alone."""
    if e.low is None or e.high is None:
        return UNKNOWN
    ends = f"{e.low:.3f}..{e.high:.3f}"
    return f"({ends})" if e.basis == "within the window only" else ends


def p_text(p: float | None) -> str:
    if p is None:
        return UNKNOWN
    return "<1e-9" if p < 1e-9 else f"{p:.2g}"


def repeats(e: Effect) -> str:
    """``6``; of samples that differ in size ``6+5``."""
    return str(e.n_baseline) if e.n_baseline == e.n_variant else f"{e.n_baseline}+{e.n_variant}"


def _lines(table: MetricTable, place: Place) -> Iterator[Line]:
    return (x for x in table.lines if (x.workload, x.series, x.sessions) == place)


def _claims(table: MetricTable, place: Place) -> Iterator[Claim]:
    return (c for c in table.claims if (c.workload, c.series, c.sessions) == place)


def whys_at(made: Comparison, place: Place) -> list[Why]:
    return [w for w in made.why if (w.workload, w.series, w.sessions) == place]


def why_title(why: Why) -> str:
    """``quota against cpuset: +12.3 us session time per LIO``."""
    return f"{why.variant} against {why.baseline}: {_signed(why.difference_s)} of session time per {why.unit}"


def why_rows(why: Why, least_share: float = 0.0) -> list[Texts]:
    """Accounts that hold at least this share of all change, and whatever lies inside another account."""
    change = sum(abs(a.difference_s) for a in why.accounts if not a.inside)
    shown = [a for a in why.accounts if a.inside or abs(a.difference_s) >= least_share * change]
    return [_account(a) for a in shown if a.baseline_s or a.variant_s]


def _account(a: Account) -> Texts:
    ends = UNKNOWN if a.low_s is None or a.high_s is None else f"{_signed(a.low_s)}..{_signed(a.high_s)}"
    return (
        account_name(a.account, a.detail),
        value_text("ns", a.baseline_s * 1e9),
        value_text("ns", a.variant_s * 1e9),
        _signed(a.difference_s),
        ends,
        "" if a.inside else (UNKNOWN if a.share is None else f"{100 * a.share:.0f} %"),
    )


def account_name(account: str, detail: str | None) -> str:
    """``CPU WAIT``; ``asleep in CLASS/EVENT``."""
    if account == "sleep":
        return f"asleep in {detail}" if detail else "asleep, seen by no sample"
    name = _NAMES.get(account, account)
    return f"{name}: {detail}" if detail else name


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{value_text('ns', abs(seconds) * 1e9)}"


def heads(names: Sequence[str], **words: str) -> list[str]:
    return [n.format(**words) for n in names]


def by(made: Comparison) -> str:
    return "run" if made.kind == "runs" else "variant"
