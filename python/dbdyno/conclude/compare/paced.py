"""Paced load in a comparison: response times rank it. Throughput was set: it is compared where a rate was
not kept. Which rates each side kept is a claim of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.catalogue.number_format import rate_of_load
from dbdyno.conclude.compare.effects import RANKING as _THROUGHPUT
from dbdyno.conclude.compare.effects import CellFigures, Cells, Metric
from dbdyno.conclude.run.paced import LEFT_OVER
from dbdyno.model.results.claim import Claim

if TYPE_CHECKING:
    from dbdyno.conclude.compare.table import Match

Group = Mapping[int, CellFigures]
THROUGHPUT = _THROUGHPUT
RANKING = ("response_p95_ns", "response_mean_ns")
"""What ranks at a rate: the first of these that is known everywhere."""


def series_of(rate_per_s: float | None, *before: str) -> str:
    """``base, 500/s``."""
    return ", ".join([*before, *([] if rate_per_s is None else [rate_of_load(rate_per_s)])])


def kept(group: Group, sessions: int) -> bool:
    """Whether nearly all calls that became due were begun in these measurements together, but for as many as
    the sessions soon take up."""
    due = left = 0.0
    for cell in group.values():
        waiting = cell.rates.get("backlog_end") or 0.0
        left += (waiting if waiting > sessions else 0.0) + (cell.rates.get("dropped") or 0.0)
        due += cell.rates.get("arrivals") or 0.0
    return left <= LEFT_OVER * due


def of_metric(metric: Metric, matches: Sequence[Match]) -> list[Match]:
    """Where the quantity is an outcome: not throughput at a rate that all kept."""
    if metric.name not in THROUGHPUT:
        return list(matches)
    return [m for m in matches if m.rate_per_s is None or not _all_kept(m)]


def _all_kept(match: Match) -> bool:
    return all(kept(group, match.sessions) for group in match.groups.values())


def ends(matches: Sequence[Match]) -> set[tuple[str, str]]:
    """Workload and series of the lowest and the highest rate of each ladder of rates."""

    def ladder(m: Match) -> tuple[str, str, int]:
        return m.workload, m.series.removesuffix(series_of(m.rate_per_s)), m.sessions

    paced = sorted((m for m in matches if m.rate_per_s is not None), key=lambda m: (ladder(m), m.rate_per_s))
    found = set()
    for _, group in groupby(paced, key=ladder):
        rungs = list(group)
        found |= {(m.workload, m.series) for m in (rungs[0], rungs[-1])}
    return found


def capacities(sides: Mapping[str, tuple[Cells, str]]) -> Iterator[Claim]:
    """The highest rate that each side kept, of all that it was measured at. ``sides``: cells and variant."""
    said, best = [], []
    for label, (cells, variant) in sides.items():
        rates = _rates(cells, variant)
        over = min((rate for rate, was_kept in rates.items() if not was_kept), default=None)
        met = max((rate for rate in rates if over is None or rate < over), default=None)
        if not rates:
            return
        best.append(met)
        said.append(f"{label} {_capacity(met, over)}")
    if len(said) > 1:
        yield claim("paced-capacities", {"sides": "; ".join(said)}, best[-1])


def _capacity(met: float | None, over: float | None) -> str:
    failed = "" if over is None else rate_of_load(over)
    if met is None:
        return f"not even {failed}"
    return (
        f"{rate_of_load(met)} ({failed} is not)" if failed else f"{rate_of_load(met)}, the highest measured"
    )


def _rates(cells: Cells, variant: str) -> dict[float, bool]:
    """Whether each rate was kept; over several numbers of sessions by any."""
    found: dict[float, bool] = {}
    for key, group in cells.of.items():
        if key.variant == variant and key.rate_per_s is not None:
            was_kept = kept(group, key.sessions)
            found[key.rate_per_s] = found.get(key.rate_per_s, False) or was_kept
    return found
