"""Compares paced load. Response times rank it, because throughput was set: throughput is compared only where
a rate was not kept. The rates that each side kept are a claim of their own."""

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
"""Metrics that rank at a rate; the first that is known everywhere is used."""


def series_of(rate_per_s: float | None, *before: str) -> str:
    """Returns the name of a series: ``base, 500/s``."""
    return ", ".join([*before, *([] if rate_per_s is None else [rate_of_load(rate_per_s)])])


def kept(group: Group, sessions: int) -> bool:
    """Returns whether nearly all calls that became due in these measurements were begun. As many open calls
    as there are sessions do not count, because the sessions take these up at once."""
    due = left = 0.0
    for cell in group.values():
        waiting = cell.rates.get("backlog_end") or 0.0
        left += (waiting if waiting > sessions else 0.0) + (cell.rates.get("dropped") or 0.0)
        due += cell.rates.get("arrivals") or 0.0
    return left <= LEFT_OVER * due


def of_metric(metric: Metric, matches: Sequence[Match]) -> list[Match]:
    """Returns the matches where the metric is an outcome: not for throughput at a rate that all sides
    kept."""
    if metric.name not in THROUGHPUT:
        return list(matches)
    return [m for m in matches if m.rate_per_s is None or not _all_kept(m)]


def _all_kept(match: Match) -> bool:
    return all(kept(group, match.sessions) for group in match.groups.values())


def ends(matches: Sequence[Match]) -> set[tuple[str, str]]:
    """Returns workload and series of the lowest and the highest rate of each ladder of rates."""

    def ladder(m: Match) -> tuple[str, str, int]:
        return m.workload, m.series.removesuffix(series_of(m.rate_per_s)), m.sessions

    by_rate = sorted(
        (m for m in matches if m.rate_per_s is not None), key=lambda m: (ladder(m), m.rate_per_s)
    )
    series = set()
    for _, group in groupby(by_rate, key=ladder):
        rungs = list(group)
        series |= {(m.workload, m.series) for m in (rungs[0], rungs[-1])}
    return series


def capacities(sides: Mapping[str, tuple[Cells, str]]) -> Iterator[Claim]:
    """Yields the highest rate that each side kept, of all its rates. ``sides`` holds cells and variant by
    label."""
    values, best = [], []
    for label, (cells, variant) in sides.items():
        rates = _rates(cells, variant)
        lowest_missed = min((rate for rate, was_kept in rates.items() if not was_kept), default=None)
        highest = max((rate for rate in rates if lowest_missed is None or rate < lowest_missed), default=None)
        if not rates:
            return
        best.append(highest)
        values.append(f"{label} {_capacity(highest, lowest_missed)}")
    if len(values) > 1:
        yield claim("paced-capacities", {"sides": "; ".join(values)}, best[-1])


def _capacity(highest: float | None, lowest_missed: float | None) -> str:
    failed = "" if lowest_missed is None else rate_of_load(lowest_missed)
    if highest is None:
        return f"not even {failed}"
    return (
        f"{rate_of_load(highest)} ({failed} is not)"
        if failed
        else f"{rate_of_load(highest)}, the highest measured"
    )


def _rates(cells: Cells, variant: str) -> dict[float, bool]:
    """Returns whether each rate was kept, by any number of sessions."""
    kept_rates: dict[float, bool] = {}
    for key, group in cells.of.items():
        if key.variant == variant and key.rate_per_s is not None:
            was_kept = kept(group, key.sessions)
            kept_rates[key.rate_per_s] = kept_rates.get(key.rate_per_s, False) or was_kept
    return kept_rates
