"""A comparison in words: the answer at the rungs that matter, what to bear in mind, and why: what each
account of session time contributes to the difference, per call or work unit.

A session's time is in the ledger whole, so the accounts' seconds per unit add up to sessions / rate, and
their differences to the whole difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.compare import paced
from dbdyno.conclude.compare.effects import CellFigures, known, moments_of_pairs, moments_of_samples
from dbdyno.conclude.compare.stopping_rule import rule
from dbdyno.conclude.compare.table import ALPHA, Match
from dbdyno.model.plan.plan import LimitSpec
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.comparison import (
    Account,
    Comparison,
    Contrast,
    Line,
    MetricTable,
    Why,
    ratio_text,
    value_text,
    verdict_text,
)
from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import ByCell
from dbdyno.stats.estimates import students_quantile
from dbdyno.stats.significance import outliers
from dbdyno.stats.two_groups import Moments

_FEW = 5  # repeats that a first try should have


def summary(made: Comparison, results: Results, matches: Sequence[Match]) -> Iterator[Claim]:
    """The rank at the lowest and at the highest rung of each ladder: below a limit and above it."""
    table = made.metrics[0]
    ends = paced.ends(matches)
    limit = _limit(results) if made.kind == "variants" else None
    for workload, series in dict.fromkeys((line.workload, line.series) for line in table.lines):
        if ends and (workload, series) not in ends:
            continue
        lines = [line for line in table.lines if (line.workload, line.series) == (workload, series)]
        rungs = sorted({line.sessions for line in lines})
        for sessions in dict.fromkeys((rungs[-1], rungs[0])):
            load = fmt.load(sessions)
            said = {"load": f"{series}, {load}" if series else load, "limit": limit}
            said["ranking"] = _ranked(table, lines, sessions, made.margin)
            case = "plain" if limit is None else "above" if sessions > limit else "within"
            yield claim("rank", said, case=case)


def _ranked(table: MetricTable, lines: Sequence[Line], sessions: int, margin: float) -> str:
    claims = {
        c.variant: c
        for c in table.claims
        if not c.neighbours and c.sessions == sessions and c.series == lines[0].series
    }
    parts = []
    for line in (x for x in lines if x.sessions == sessions):
        figure = f"{line.variant} {value_text(table.unit, line.mean)}"
        found = claims.get(line.variant)
        parts.append(figure if found is None else f"{figure}, {_effect(found, margin)}")
    return "; ".join(parts)


def _effect(found: Contrast, margin: float) -> str:
    e = found.effect
    verdict = verdict_text(found.verdict, margin, found.because)
    if e.ratio is None:
        return verdict
    low, high = ((None if end is None else ratio_text(e, end)) for end in (e.low, e.high))
    ends = f" ({low} to {high})" if low is not None and high is not None else ""
    return f"{ratio_text(e, e.ratio)} times {found.baseline}{ends}, {verdict}"


def _limit(results: Results) -> float | None:
    """CPUs or sessions that the tightest limit of any variant grants."""
    found = [g for v in results.plan.variants if (g := granted(v.limits)) is not None]
    return min(found, default=None)


def granted(limits: LimitSpec) -> float | None:
    """CPUs or sessions at once; ``None``: not limited. A list is as the plan resolved it: ``0-5,8``."""
    counts = [limits.quota, limits.pool]
    if limits.cpus is not None:
        ends = [part.split("-") for part in limits.cpus.split(",")]
        counts.append(
            sum(int(e[-1]) - int(e[0]) + 1 for e in ends if all(x.strip().isdigit() for x in e)) or None
        )
    return min((float(c) for c in counts if c is not None), default=None)


def notes(
    made: Comparison, left_out: Sequence[tuple[str, str]], runs: Sequence[Results], matches: Sequence[Match]
) -> Iterator[Claim]:
    contrasts = [c for table in made.metrics for c in table.claims]
    family = max((len(t.claims) for t in made.metrics), default=0)
    holm = f"; p adjusted (Holm) for the {family} claims of each table" if family > 1 else ""
    yield claim("comparison-method", {"family": family, "holm": holm}, case=made.kind)
    if made.kind == "runs" or runs[0].plan.order == "ladder":
        yield claim("no-alternation", {}, case=made.kind)
    yield from _calls(matches, made.metrics[0].title)
    yield from _repeats(contrasts)
    yield from _outliers(made.metrics[0], matches)
    yield from _unknown(made)
    if any(c.effect.floored for c in contrasts):
        yield claim("widened-intervals", {})
    for run in runs:
        if run.plan.experiment.until is not None:
            yield rule(run.plan.experiment.until)
        if run.info.status != "complete":
            reason = run.info.reason or "no reason recorded"
            yield claim("run-status", {"run": run.info.id, "status": run.info.status, "reason": reason})
    for cell, reason in left_out:
        yield claim("left-out", {"measurement": cell, "reason": reason}, cells=(cell,))


def _calls(matches: Sequence[Match], compared: str) -> Iterator[Claim]:
    """Calls of different size."""
    for m in matches:
        if others := [label for label in m.groups if not m.same_call(label)]:
            sizes = ", ".join(f"{label} {m.sizes[label]:,}" for label in (m.baseline, *others))
            yield claim("calls-differ", {"sizes": sizes, "compared": compared})
            return


def _unknown(made: Comparison) -> Iterator[Claim]:
    """Quantities that are known of some only."""
    everyone = list(dict.fromkeys(line.variant for line in made.metrics[0].lines))
    set_by_rate = paced.THROUGHPUT if made.metrics[0].metric in paced.RANKING else ()
    for table in (t for t in made.metrics[1:] if t.metric not in set_by_rate):
        lines = {(x.workload, x.series, x.sessions, x.variant) for x in table.lines}
        every = ((x.workload, x.series, x.sessions, x.variant) for x in made.metrics[0].lines)
        lacking = {key[-1] for key in every if key not in lines}
        if lacking:
            names = ", ".join(v for v in everyone if v in lacking)
            yield claim("unknown-quantity", {"quantity": table.title, "variants": names})


def _outliers(table: MetricTable, matches: Sequence[Match]) -> Iterator[Claim]:
    """Repeats that do not fit the others, as of samples: of pairs by their ratio, for drift cancels there."""
    for match in matches:
        base = known(match.groups[match.baseline], table.metric)
        for label, cells in match.groups.items():
            values = known(cells, table.metric)
            if match.paired:
                common = values.keys() & base.keys() if label != match.baseline else ()
                values = {r: values[r] / base[r] for r in sorted(common) if base[r] > 0}
            repeats, figures = list(values), list(values.values())
            if not (odd := outliers(figures)):
                continue
            rest = [v for i, v in enumerate(figures) if i not in odd]
            moved = math.fsum(figures) / len(figures) / (math.fsum(rest) / len(rest)) - 1
            what = f"{label} to {match.baseline}" if match.paired else f"{match.series} {label}".strip()
            shown = [
                fmt.plain(figures[i]) if match.paired else value_text(table.unit, figures[i]) for i in odd
            ]
            said = {
                "repeats": ", ".join(str(repeats[i]) for i in odd),
                "values": ", ".join(shown),
                "sample": f"{what} at {fmt.load(match.sessions)}",
                "effect": f"{'raises' if moved > 0 else 'lowers'} it by {fmt.percent(abs(moved))}",
            }
            case = "ratio" if match.paired else "mean"
            yield claim("repeat-outlier", said, case=case, cells=[cells[repeats[i]].cell for i in odd])


def _repeats(contrasts: Sequence[Contrast]) -> Iterator[Claim]:
    least = min((min(c.effect.n_baseline, c.effect.n_variant) for c in contrasts), default=0)
    if least < 2:
        yield claim("few-repeats", {"wanted": _FEW}, case="one")
        return
    floors = [p for c in contrasts if (p := c.effect.least_p) is not None and p >= ALPHA]
    if floors:
        yield claim("few-repeats", {"repeats": least, "least": max(floors)}, case="permutation")


# -- why --

BRACKET, MEASURED = "runq.throttled_bracket", "runq.throttled"
INSIDE = frozenset({BRACKET, MEASURED, "block_io"})
"""They lie inside other accounts: shown, never added."""

_Name = tuple[str, str | None]
_Seconds = Mapping[_Name, float]


def whys(
    matches: Sequence[Match], ledgers: Mapping[str, pl.DataFrame], rate: str, unit: str
) -> Iterator[Why]:
    """Each variant against its baseline at each rung. ``ledgers``: by run, the table ``ledger``; by
    :attr:`Match.of` each label's run. ``rate``: what the time is divided by."""
    parts = {name: ByCell({"ledger": ledger}) for name, ledger in ledgers.items()}
    for match in matches:
        made = {
            label: _per_unit(parts[match.of.get(label, "")], cells, rate)
            for label, cells in match.groups.items()
        }
        for label in (v for v in match.groups if v != match.baseline):
            found = _why(match, label, made[match.baseline], made[label], unit)
            if found is not None:
                yield found


def _per_unit(parts: ByCell, cells: Mapping[int, CellFigures], rate: str) -> dict[int, _Seconds]:
    """By repeat, seconds of session time per unit in each account; cells without a ledger are left out."""
    found: dict[int, _Seconds] = {}
    for repeat, cell in cells.items():
        per_s = cell.rates.get(rate)
        rows = _accounts(parts.table("ledger", cell.cell))
        if per_s and rows.height:
            summed = rows.group_by("account", "detail", maintain_order=True).agg(pl.col("aas").sum())
            found[repeat] = {(a, d): s / per_s for a, d, s in summed.rows()}
    return found


def _accounts(ledger: pl.DataFrame) -> pl.DataFrame:
    """Known accounts of the rung, without parts of others; throttling measured, else its bound."""
    whole = pl.col("parent").is_null() | pl.col("account").is_in(INSIDE)
    rows = ledger.filter((pl.col("scope") == "rung") & whole)
    if (rows["account"] == MEASURED).any():
        rows = rows.filter(pl.col("account") != BRACKET)
    bound = pl.when(pl.col("account") == BRACKET).then("high")
    return rows.with_columns(aas=pl.coalesce("aas", bound)).filter(pl.col("aas").is_not_null())


def _why(
    match: Match, label: str, baseline: Mapping[int, _Seconds], variant: Mapping[int, _Seconds], unit: str
) -> Why | None:
    if match.paired:
        common = baseline.keys() & variant.keys()
        baseline, variant = ({r: side[r] for r in sorted(common)} for side in (baseline, variant))
    if not baseline or not variant:
        return None
    names = dict.fromkeys(n for side in (baseline, variant) for cell in side.values() for n in cell)
    whole = _mean_whole(variant) - _mean_whole(baseline)
    accounts = [_account(match, n, baseline, variant, whole) for n in names]
    accounts.sort(key=lambda a: (a.inside, -abs(a.difference_s)))
    return Why(
        workload=match.workload,
        sessions=match.sessions,
        series=match.series,
        baseline=match.baseline,
        variant=label,
        unit=unit,
        repeats=min(len(baseline), len(variant)),
        baseline_s=_mean_whole(baseline),
        variant_s=_mean_whole(variant),
        difference_s=whole,
        accounts=tuple(accounts),
    )


def _mean_whole(cells: Mapping[int, _Seconds]) -> float:
    """Mean sum of all accounts that are added."""
    return math.fsum(s for cell in cells.values() for (a, _), s in cell.items() if a not in INSIDE) / len(
        cells
    )


def _account(
    match: Match, name: _Name, baseline: Mapping[int, _Seconds], variant: Mapping[int, _Seconds], whole: float
) -> Account:
    """An event that a cell's ledger does not name took no time there."""
    xs, ys = ([cell.get(name, 0.0) for cell in side.values()] for side in (baseline, variant))
    x, y = math.fsum(xs) / len(xs), math.fsum(ys) / len(ys)
    half = _half(xs, ys, match.paired)
    inside = name[0] in INSIDE
    return Account(
        account=name[0],
        detail=name[1],
        inside=inside,
        baseline_s=x,
        variant_s=y,
        difference_s=y - x,
        low_s=None if half is None else y - x - half,
        high_s=None if half is None else y - x + half,
        share=None if inside or not whole else (y - x) / whole,
    )


def _half(xs: Sequence[float], ys: Sequence[float], paired: bool) -> float | None:
    """Half of the difference's 95 % interval (Student's t)."""
    if min(len(xs), len(ys)) < 2:
        return None
    pairs = list(zip(xs, ys, strict=True)) if paired else []
    m: Moments = moments_of_pairs(pairs) if paired else moments_of_samples(xs, ys, 1.0)
    return students_quantile(m.degrees) * math.sqrt(m.variance(1.0))
