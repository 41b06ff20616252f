"""Checks whether load was steady over time and even over sessions, also over those started together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.checking import check
from dbdyno.conclude.ladder import ladders
from dbdyno.conclude.run import phases
from dbdyno.conclude.run.case import Case, Row, at, ids, of_cell
from dbdyno.model.results.analyses import Ladder
from dbdyno.model.results.claim import Claim, Estimate
from dbdyno.model.results.session_time import hidden
from dbdyno.model.units import NS_PER_S
from dbdyno.stats import steps as stretches
from dbdyno.stats.significance import FALSE_ALARMS, Change, unequal, welch

DRIFT = 0.05
"""Relative change between halves from which on it is reported, if it is not chance."""
UNEVEN, VERY_UNEVEN = 1.2, 2.0
"""Ratio of the fastest to the slowest session of a rung."""
PHASE_VARIANCE = 1 / 6
"""Variance of the number of calls that a session ends in a span: two rounding errors of 1/12 each, from its
ends."""
BLOCKS = 10
"""Parts of an observation's window whose means are compared."""
LEAST_LOADS = 5
"""Loads that a ladder needs before a step is searched for."""

Series = Sequence[tuple[float, float]]  # (middle of the span in s since t0, rate)


class Stepped(NamedTuple):
    """A change of level within a window; times in s since its begin, each with its interval."""

    at: float
    at_low: float
    at_high: float
    until: float | None  # None if it lasts to the end
    until_low: float | None
    until_high: float | None
    first: float
    second: float
    p: float


@check("level-step")
def steps(case: Case) -> Iterator[Claim]:
    """Yields changes of level within a window: of calls per second, or of active sessions in an
    observation."""
    limit, candidates = _step_limit(case), []
    for c in phases.even(case):
        step = _stepped(case, c)
        if step is not None and _is_step(step, limit):
            change = step.second / step.first - 1
            more = {"change": change, "size": abs(change), "limit": limit, "rho": stretches.RHO}
            candidates.append((step._asdict() | more, c))
    most = max((f for f, _ in candidates), key=lambda f: f["size"], default=None)
    parts = ["back"] if most is not None and most["until"] is not None else []
    severity = "note" if case.observed else None
    options: Row = {"case": case.kind, "severity": severity, "parts": parts}
    yield from case.worst("level-step", candidates, "change", by="size", **options)


def _step_limit(case: Case) -> float:
    """Returns the p value for one window such that all windows together have the false-alarm rate
    :data:`~dbdyno.stats.steps.LEVEL`."""
    return max(stretches.LEVEL / max(1, len(case.usable)), stretches.LEAST_P)


def _is_step(step: Stepped | None, limit: float) -> bool:
    return step is not None and step.p < limit and abs(step.second / step.first - 1) >= DRIFT


@of_cell
def _stepped(case: Case, cell: Row) -> Stepped | None:
    series = sorted(_at_work(case, cell) if case.observed else _progress(case, cell))
    if len(series) < stretches.LEAST:
        return None
    times, span = [t for t, _ in series], cell["wall_s"] / len(series)
    change = stretches.change(
        [v for _, v in series], 0.0 if case.observed else 2 * cell["sessions"] * PHASE_VARIANCE / span**2
    )
    if change is None or change.before <= 0:
        return None

    def moment(place: int) -> float:
        """Between the value at ``place`` and the one before it."""
        return (times[max(place - 1, 0)] + times[min(place, len(times) - 1)]) / 2

    lasts = change.end == len(series)
    low, high = (times[max(change.start95[0] - 1, 0)], times[min(change.start95[1], len(times) - 1)])
    ends = (times[max(change.end95[0] - 1, 0)], times[min(change.end95[1], len(times) - 1)])
    return Stepped(
        moment(change.start),
        low,
        high,
        None if lasts else moment(change.end),
        None if lasts else ends[0],
        None if lasts else ends[1],
        change.before,
        change.inside,
        change.p,
    )


@check("drift")
def drift(case: Case) -> Iterator[Claim]:
    """Yields changes from the first half of a window to the second: of calls per second, or of active
    sessions in an observation. Windows with a step are left out."""
    steady = [c for c in phases.even(case) if not _is_step(_stepped(case, c), _step_limit(case))]
    tested = [(change, c) for c in steady if (change := _change(case, c)) is not None]
    # Bonferroni: a steady run has a false alarm this seldom over all its measurements.
    limit = FALSE_ALARMS / max(1, len(tested))
    table = "table samples" if case.observed else "table progress"
    candidates = [
        (
            f._asdict()
            | {"change": f.relative, "size": abs(f.relative), "table": table}
            | {"limit": limit, "alarms": FALSE_ALARMS},
            c,
        )
        for f, c in tested
        if f.p < limit and abs(f.relative) >= DRIFT
    ]
    severity = "note" if case.observed else None
    yield from case.worst("drift", candidates, "change", by="size", case=case.kind, severity=severity)


@of_cell
def _change(case: Case, cell: Row) -> Change | None:
    series = _at_work(case, cell) if case.observed else _progress(case, cell)
    half = cell["wall_s"] / 2
    first, second = ([v for t, v in series if (t < half) == early] for early in (True, False))
    # Counts of whole calls vary by rounding although the rate is constant: a floor for the variance.
    least = 0.0 if case.observed else PHASE_VARIANCE * cell["sessions"] / half**2
    return welch(first, second, least)


def _progress(case: Case, cell: Row) -> Series:
    """Returns calls per second between the times at which the driver reported its progress."""
    reports = case.table("cell_progress", cell["cell"]).sort("at_ns")
    reports = reports.filter(pl.col("at_ns").is_between(cell["t0_ns"], cell["t1_ns"]))
    span = pl.col("at_ns").diff()
    middle = (pl.col("at_ns") - span / 2 - cell["t0_ns"]) / NS_PER_S
    rates = reports.select(middle=middle, rate=pl.col("calls").diff() / span * NS_PER_S).drop_nulls()
    return [(float(t), float(v)) for t, v in rates.rows()]


def _at_work(case: Case, cell: Row) -> Series:
    """Returns the mean number of sessions not asleep at their client, in :data:`BLOCKS` parts of the window.
    Neighbouring samples see the same calls and are correlated; means of long parts hardly are. Empty where
    states of sessions are hidden from this role, as it is then not known who is at work."""
    if hidden(case.accounts(cell["cell"])):
        return []
    served = case.table("served", cell["cell"])
    via = served["via"].mode().sort()
    if not len(via):
        return []
    length = (cell["t1_ns"] - cell["t0_ns"]) / BLOCKS
    block = ((pl.col("at_ns") - cell["t0_ns"]) / length).floor()
    means = served.filter(via=via[0]).group_by(block=block, maintain_order=True).agg(pl.col("n").mean())
    return [((b + 0.5) * length / NS_PER_S, float(n)) for b, n in means.rows()]


def along(ladder: Ladder) -> Iterator[Claim]:
    """Yields the loads between which throughput steps to another level, if it does."""
    points = ladder.points.filter(pl.col("throughput") > 0)
    if points["load"].n_unique() < LEAST_LOADS:
        return
    from dbdyno.stats.cliff import cliff

    step = cliff(points["load"].to_list(), points["throughput"].to_list())
    if step is None:
        return
    unit, falls = ladder.throughput_unit, step.relative < 0
    ends = sorted(abs(end) for end in (step.relative_low, step.relative_high))
    values = {
        "share": fmt.percent(abs(step.relative)),
        "share_low": fmt.percent(ends[0]),
        "share_high": fmt.percent(ends[1]),
        "p": step.p,
        "low": fmt.load(step.low, ladder.load_unit),
        "high": fmt.load(step.high, ladder.load_unit),
        "before": fmt.rate(ladders.throughput(ladder, step.low), unit),
        "after": fmt.rate(ladders.throughput(ladder, step.high), unit),
    }
    value = Estimate(
        "step", step.relative, "of throughput", step.relative_low, step.relative_high, "profile of shapes"
    )
    yield claim(
        "throughput-step",
        values,
        value,
        case="falls" if falls else "rises",
        parts=["single"] if step.loads_beyond == 1 else [],
        severity="warning" if falls else "note",
    )


@check("uneven-sessions")
def uneven_sessions(case: Case) -> Iterator[Claim]:
    """Yields the rung with the largest ratio of its fastest to its slowest session, if that is not chance.
    Paced rungs are left out, because calls go to whichever session is free."""
    tested = [(*spread, c) for c in case.usable if c["rate_per_s"] is None for spread in _spread(case, c)]
    limit = FALSE_ALARMS / max(1, len(tested))
    candidates = [
        ({"low": low, "high": high, "ratio": high / low, "limit": limit}, c)
        for low, high, p, c in tested
        if high > UNEVEN * low and p < limit
    ]
    yield from case.worst("uneven-sessions", candidates, "ratio", grave=VERY_UNEVEN)


@of_cell
def _spread(case: Case, cell: Row) -> list[tuple[float, float, float]]:
    """Returns the rates of the slowest and the fastest session, and the p value of their differences."""
    span = pl.col("last_end_ns") - pl.col("first_start_ns")
    sessions = case.table("cell_sessions", cell["cell"]).filter(
        (pl.col("calls") > 1) & (pl.col("end_reason") != "lost") & (span > 0)
    )
    if sessions.height < 2:
        return []
    n, mean = pl.col("calls"), pl.col("in_call_ns") / pl.col("calls")
    variance = (pl.col("sum_sq_ns2") / n - mean * mean).clip(0) / (mean * mean)
    rates = sessions.select(rate=n * NS_PER_S / span, relative=(variance / (n - 1)).clip(1e-8))
    values = [float(v) for v in rates["rate"]]
    variances = [float(v) for v in rates.select(pl.col("relative") * pl.col("rate") ** 2).to_series()]
    return [(min(values), max(values), unequal(values, variances))]


# -- sessions started together (driver.rounds): alike or in groups, and whether a core was shared --

LONGER = 1.1
"""Ratio of duration to that of one session alone from which on calls that all share a core are reported."""
ALL_SHARE = 0.9
"""Share of the calls with a known place that must have shared a core."""
PLACE_KNOWN = 0.5
"""Share of all calls whose place must be known."""
SETTLED = 0.05
"""Largest share of calls that move to another CPU for which calls count as staying in place."""
_TABLES = "tables placements, placed"


@check("placement-groups")
def placement_groups(case: Case) -> Iterator[Claim]:
    """Yields for each cause the first rung where it occurs."""
    parted = [r for r in _rows(case) if r["groups"]]
    for cause in ("core", "cpu", None):
        rows = [r for r in parted if r["shared"] == cause]
        if not rows:
            continue
        row = rows[0]
        values = {name: row[name] for name in ("sessions", "ratio", "group_rounds", "rounds")}
        values |= {"slow": row["slow_sessions"], "p": row["p_groups"]}
        values |= {"where": _places(row), "place": at(row, case)}
        id = "placement-groups" if cause is None else f"placement-shared-{cause}"
        ends = {"low": row["ratio_low"], "high": row["ratio_high"]}
        yield claim(id, values, row["ratio"], cells=ids(rows), **ends)


def _places(row: Row) -> str:
    """Compares slow and other calls by whether they shared a core or CPU."""
    fast = row["known"] - row["slow_known"]
    if not row["known"]:
        return "where the calls ran is unknown"
    parts = [
        f"{row[f'slow_{kind}']} of {row['slow_known']} slow calls and {row[f'fast_{kind}']} of {fast} others "
        f"shared a {word}{_chance(row[f'p_{kind}'])}"
        for kind, word in (("core", "core"), ("cpu", "CPU"))
        if row[f"slow_{kind}"] + row[f"fast_{kind}"]
    ]
    return "; ".join(parts) or f"none of {row['known']} calls shared a core or a CPU"


def _chance(p: float | None) -> str:
    return "" if p is None else f" ({fmt.p_value(p)})"


@check("placement-all-share")
def all_share(case: Case) -> Iterator[Claim]:
    """Yields a rung without groups where all calls share a core; it is compared with a session alone."""
    for row in _rows(case):
        alone, share, calls = row["alone_ns"], row["all_core"], row["all_known"]
        if row["groups"] or not alone or calls < PLACE_KNOWN * row["calls"]:
            continue
        ratio = row["median_ns"] / alone
        if share >= ALL_SHARE * calls and ratio >= LONGER:
            values = {"place": at(row, case), "ratio": ratio, "shared": share, "calls": calls}
            yield claim("placement-all-share", values, ratio, cells=(row["cell"],))
            return


@check("placement-alike", of="whole")
def alike(case: Case) -> Iterator[Claim]:
    """Yields the highest rung up to which all sessions are served alike."""
    tested = [r for r in _rows(case) if r["sessions"] > 1 and r["p_groups"] is not None]
    first = min((r["sessions"] for r in tested if r["groups"]), default=math.inf)
    below = [r for r in tested if r["sessions"] < first]
    if below:
        top = max(below, key=lambda r: int(r["sessions"]))
        values = {"sessions": top["sessions"], "ratio": top["max_over_min"]}
        values |= {"rounds": sum(r["rounds"] for r in below), "p": min(r["p_groups"] for r in below)}
        yield claim("placement-alike", values, top["max_over_min"], cells=ids(below))


@check("placement-settled", "placement-moved", of="whole")
def settled(case: Case) -> Iterator[Claim]:
    """Yields whether a call stays on the CPU on which it began: then a bad placement lasts until its end."""
    known = [r for r in _rows(case) if r["moved"] is not None and r["sessions"] > 1]
    if calls := sum(r["calls"] for r in known):
        share = sum(r["moved"] for r in known) / calls
        id = "placement-settled" if share <= SETTLED else "placement-moved"
        values = {"moved": share, "stayed": 1 - share, "calls": calls}
        yield claim(id, values, share, cells=ids(known))


def _rows(case: Case) -> list[Row]:
    """Returns the rows of usable cells, by rung and repeat."""
    placements = case.tables.get("placements")
    if placements is None or placements.is_empty():
        return []
    usable = [c["cell"] for c in case.usable]
    kept = placements.filter(pl.col("cell").is_in(usable))
    return kept.sort("sessions", "repeat", "cell").to_dicts()
