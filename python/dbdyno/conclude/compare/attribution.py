"""Why: what each account of session time contributes to the difference, per call or work unit.

A session's time is in the ledger whole, so the accounts' seconds per unit add up to sessions / rate, and
their differences to the whole difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from dbdyno.conclude.compare.effects import CellFigures, moments_of_pairs, moments_of_samples
from dbdyno.conclude.compare.table import Match
from dbdyno.model.comparison import Account, Why
from dbdyno.model.tables import ByCell
from dbdyno.stats.estimates import students_quantile
from dbdyno.stats.two_groups import Moments

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
    """Of all accounts that are added."""
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
    m: Moments = moments_of_pairs(pairs) if paired else moments_of_samples(xs, ys)
    return students_quantile(m.degrees) * math.sqrt(m.variance(1.0))
