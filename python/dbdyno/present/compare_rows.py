"""The tables of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from dbdyno.model.comparison import (
    Account,
    Comparison,
    Contrast,
    Effect,
    Line,
    MetricTable,
    Why,
    value_text,
    verdict_text,
)
from dbdyno.model.units import counted
from dbdyno.present.accounts import BRACKET, NAMES, THROTTLED
from dbdyno.present.document import UNKNOWN, Cell, Column, Row, Table, Tone, known, table, word

_EFFECT = (
    Column("ratio", number=True),
    Column("95 % interval", rank=1),
    Column("p (Holm)", number=True, rank=4),
    Column("p (perm.)", number=True, rank=5),
    Column("n", number=True),
    Column("verdict"),
)
_RANK = (
    Column("", number=True, rank=6),
    Column("variant"),
    Column("mean", number=True, rank=2),
    Column("±95 %", number=True, rank=3),
    *_EFFECT,
)
_RUNGS = (
    Column("ladder"),
    Column("sessions", number=True),
    Column("A", number=True, rank=3),
    Column("B", number=True, rank=3),
    *_EFFECT,
)
_NEXT = (Column("variant"), Column("against"), *_EFFECT)
_MINOR = 0.02
"""Accounts below this share of all change are left out where space is short."""
_TONES: dict[str, Tone] = {"better": "good", "worse": "invalid", "undecided": "warning"}
_NAMES = NAMES | {
    BRACKET: "throttled, within CPU WAIT, at most",
    THROTTLED: "throttled, within CPU WAIT",
    "block_io": "block I/O, within sleep",
}
_NOTHING = word("")


class Place(NamedTuple):
    """A rung of a ladder."""

    workload: str
    series: str
    sessions: int

    def words(self, many_workloads: bool) -> str:
        parts = [self.workload] if many_workloads else []
        parts += [self.series] if self.series else []
        return ", ".join([*parts, counted(self.sessions, "session")])


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


def ranks(table: MetricTable, place: Place, margin: float, title: str) -> Table:
    """A row for each variant, the best first."""
    return Table(title, _RANK, list(rank_rows(table, place, margin)))


def others(tables: Sequence[MetricTable], place: Place, margin: float) -> Table:
    """The same of several quantities, one below the other."""
    rows = [
        row._replace(cells=[word("" if n else table.title), *row.cells[1:]])
        for table in tables
        for n, row in enumerate(rank_rows(table, place, margin))
    ]
    return Table("", [Column("quantity"), *_RANK[1:]], rows)


def rank_rows(table: MetricTable, place: Place, margin: float) -> Iterator[Row]:
    claims = {c.variant: c for c in _claims(table, place) if not c.neighbours}
    for line in _lines(table, place):
        half = None if line.low is None or line.high is None else (line.high - line.low) / 2
        relative = None if half is None or not line.mean else half / line.mean
        own = [
            Cell(str(line.rank), line.rank),
            word(line.variant),
            figure(table.unit, line.mean),
            known(relative, lambda v: f"{100 * v:.1f} %"),
        ]
        claim = claims.get(line.variant)
        if claim is None:
            repeats_of = Cell(str(line.repeats), line.repeats)
            yield Row([*own, word("baseline"), *[_NOTHING] * 3, repeats_of, _NOTHING])
        else:
            yield Row([*own, *_effect(claim, margin)], _TONES.get(claim.verdict, ""))


def rungs(table: MetricTable, margin: float, title: str) -> Table:
    """Two runs: a row for each number of sessions."""
    means = {(x.workload, x.series, x.sessions, x.variant): x.mean for x in table.lines}
    rows = []
    for c in table.claims:
        place = Place(c.workload, c.series, c.sessions)
        sides = (figure(table.unit, means[(*place, v)]) for v in (c.baseline, c.variant))
        cells = [word(" ".join(filter(None, place[:2]))), Cell(str(c.sessions), c.sessions), *sides]
        rows.append(Row([*cells, *_effect(c, margin)], _TONES.get(c.verdict, "")))
    return Table(title, _RUNGS, rows)


def neighbours(table: MetricTable, place: Place, margin: float) -> Table | None:
    """Neighbours in the rank, neither of them the baseline."""
    claims = [c for c in _claims(table, place) if c.neighbours]
    rows = [
        Row([word(c.variant), word(c.baseline), *_effect(c, margin)], _TONES.get(c.verdict, ""))
        for c in claims
    ]
    return Table("Neighbours in the rank", _NEXT, rows) if rows else None


def figure(unit: str, value: float) -> Cell:
    """Without the unit where the quantity's title says it: ``6.21 M``, ``1.23 ms``."""
    return Cell(value_text("ns" if unit == "ns" else "", value), value, unit)


def _effect(claim: Contrast, margin: float) -> list[Cell]:
    e = claim.effect
    return [
        known(e.ratio, lambda v: f"{v:.3f}"),
        word(interval(e)),
        Cell(p_text(claim.p_holm), claim.p_holm),
        Cell(p_text(e.p_permutation), e.p_permutation),
        word(repeats(e)),
        Cell(verdict(claim, margin), claim.verdict),
    ]


def verdict(claim: Contrast, margin: float) -> str:
    """``better``; ``undecided (+6)``: so many more repeats would decide."""
    if claim.verdict == "undecided" and claim.further_repeats is not None:
        return f"undecided (+{claim.further_repeats:,})"
    return verdict_text(claim.verdict, margin)


def claim_notes(table: MetricTable) -> list[str]:
    """What verdicts mean here, and what is to be said beside them: each once, with those that it is about."""
    found: dict[str, list[str]] = {}
    for c in table.claims:
        if c.note:
            who = f"{c.variant}/{c.baseline}" if c.neighbours else c.series or c.variant
            found.setdefault(c.note, []).append(f"{who} at {c.sessions}")
    notes = [f"{', '.join(who)}: {note}" for note, who in found.items()]
    if any(c.further_repeats is not None for c in table.claims):
        notes.append("undecided (+n): about n more repeats of each would decide.")
    return notes


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


def _claims(table: MetricTable, place: Place) -> Iterator[Contrast]:
    return (c for c in table.claims if (c.workload, c.series, c.sessions) == place)


def whys_at(made: Comparison, place: Place) -> list[Why]:
    return [w for w in made.why if (w.workload, w.series, w.sessions) == place]


def why_title(why: Why) -> str:
    """``quota against cpuset: +12.3 us session time per LIO``."""
    return f"{why.variant} against {why.baseline}: {_signed(why.difference_s)} of session time per {why.unit}"


def why_table(why: Why) -> Table:
    """A row for each account that took time on one of the sides."""
    change = sum(abs(a.difference_s) for a in why.accounts if not a.inside)
    columns: tuple[tuple[Column, Callable[[Account], Cell]], ...] = (
        (Column("account"), lambda a: word(account_name(a.account, a.detail))),
        (Column(why.baseline, number=True), lambda a: known(a.baseline_s, _seconds, "s")),
        (Column(why.variant, number=True), lambda a: known(a.variant_s, _seconds, "s")),
        (Column("difference", number=True), lambda a: known(a.difference_s, _signed, "s")),
        (Column("95 % interval", rank=1), lambda a: word(_signed_ends(a))),
        (
            Column("share", number=True),
            lambda a: word("") if a.inside else known(a.share, lambda v: f"{100 * v:.0f} %"),
        ),
    )
    shown = [a for a in why.accounts if a.baseline_s or a.variant_s]
    made = table(why_title(why), columns, shown)
    minor = (not a.inside and abs(a.difference_s) < _MINOR * change for a in shown)
    return replace(made, rows=[r._replace(minor=m) for r, m in zip(made.rows, minor, strict=True)])


def _seconds(seconds: float) -> str:
    return value_text("ns", seconds * 1e9)


def _signed_ends(a: Account) -> str:
    return UNKNOWN if a.low_s is None or a.high_s is None else f"{_signed(a.low_s)}..{_signed(a.high_s)}"


def account_name(account: str, detail: str | None) -> str:
    """``CPU WAIT``; ``asleep in CLASS/EVENT``."""
    if account == "sleep":
        return f"asleep in {detail}" if detail else "asleep, no sample"
    name = _NAMES.get(account, account)
    return f"{name}: {detail}" if detail else name


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{_seconds(abs(seconds))}"
