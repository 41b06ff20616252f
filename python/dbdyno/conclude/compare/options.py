"""What may be asked of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dbdyno.conclude.compare.cells import everywhere
from dbdyno.conclude.compare.metrics import BY_NAME, METRICS, RANKING, Metric
from dbdyno.conclude.compare.table import Match, metric_table
from dbdyno.conclude.compare.verdict import ALPHA, ALPHA_STOPPED, MARGIN
from dbdyno.model.comparison import MetricTable
from dbdyno.model.errors import UsageError
from dbdyno.model.results import Results
from dbdyno.model.suggest import did_you_mean


@dataclass(frozen=True)
class Options:
    margin: float = MARGIN
    """A difference up to this share does not matter."""
    baseline: str | None = None
    """The variant that others are compared with; ``None``: the recipe's, else the first."""
    metric: str | None = None
    """The quantity that ranks, then the only one. ``None``: work a second, else calls a second."""
    rung: int | None = None
    """At so many sessions alone."""


def alpha_of(*runs: Results) -> float:
    """Below it a p tells a difference: stricter where a run stopped because its intervals were tight."""
    return ALPHA_STOPPED if any(r.plan.experiment.until is not None for r in runs) else ALPHA


def tables_of(matches: Sequence[Match], options: Options, work: str, alpha: float) -> tuple[MetricTable, ...]:
    """The ranking quantity first, which is known everywhere; then others that can be compared somewhere."""
    chosen = _chosen(matches, options)
    return tuple(metric_table(m, matches, options.margin, work, alpha) for m in chosen)


def _chosen(matches: Sequence[Match], options: Options) -> list[Metric]:
    known = [m for m in METRICS if any(_comparable(x, m.name) for x in matches)]
    if options.metric is not None:
        return [_named(options.metric, known)]
    groups = [g for x in matches for g in x.groups.values()]
    first = next((BY_NAME[n] for n in RANKING if everywhere(groups, n)), None)
    if first is None:
        raise UsageError("no cell of the comparison has a rate", "look at the runs: dbdyno show RUN")
    return [first, *(m for m in known if m is not first)]


def _comparable(match: Match, metric: str) -> bool:
    """Known of the baseline and of one more."""
    there = [label for label, cells in match.groups.items() if everywhere([cells], metric)]
    return match.baseline in there and len(there) > 1


def _named(name: str, known: Sequence[Metric]) -> Metric:
    if name not in BY_NAME:
        raise UsageError(f"no quantity {name!r}", did_you_mean(name, BY_NAME))
    if BY_NAME[name] not in known:
        raise UsageError(
            f"{name} is not known of what is compared",
            f"known are {', '.join(m.name for m in known)}",
        )
    return BY_NAME[name]


def only_rung(matches: Sequence[Match], rung: int | None) -> list[Match]:
    """Those at so many sessions; raises :class:`UsageError` naming the rungs that there are."""
    if rung is None:
        return list(matches)
    found = [m for m in matches if m.sessions == rung]
    if not found:
        there = ", ".join(str(n) for n in sorted({m.sessions for m in matches}))
        raise UsageError(f"nothing can be compared at {rung} sessions", f"there are {there}")
    return found
