"""Concludes about phases of a measurement: whether each kept up with its rate, and how long a backlog
lasted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.run.case import Case, Row
from dbdyno.conclude.run.reason import session_time
from dbdyno.model.plan.adaptive import Goal
from dbdyno.model.results.claim import Claim, Severity
from dbdyno.model.schema.quantiles import QUANTILES, TAILS, fewest_calls

LEAST = 0.01
"""Share of the calls due in a phase from which on a backlog counts, if it is more than the number of
sessions."""
_METRICS = {
    **{one.name: one.response for one in QUANTILES},
    "mean": "response_mean_ns",
    "max": "response_max_ns",
    "throughput": "calls_per_s",
}


def headline(case: Case) -> Iterator[Claim]:
    """Yields the throughput of each phase in order, and the parts of session time if it did not keep up."""
    rows = [r for _, rungs in case.rungs() for r in rungs]
    if not rows:
        yield claim("nothing-measured", {}, case="none")
    for row in rows:
        yield _delivered(case, row)
        if row["backlog_end"] > row["backlog_begin"] + _slack(case, row):
            yield session_time(row, subject=row["variant"])
    yield from _recoveries(case, rows)
    yield from _targets(case, rows)


def _slack(case: Case, row: Row) -> float:
    """Returns the number of calls that may wait at any time without counting as a backlog."""
    wall = max((c["wall_s"] for c in _cells(case, row)), default=0.0)
    return float(max(row["sessions"], LEAST * (row["offered_per_s"] or 0.0) * wall))


def _cells(case: Case, row: Row) -> list[Row]:
    return [c for c in case.usable if c["variant"] == row["variant"]]


def _delivered(case: Case, row: Row) -> Claim:
    begin, end, slack = row["backlog_begin"], row["backlog_end"], _slack(case, row)
    kind = "kept-up" if max(begin, end) <= slack else "grew" if end > begin + slack else "carried"
    values: dict[str, Any] = {"begin": round(begin), "end": round(end)}
    values |= {"offered": row["offered_per_s"] or 0.0, "delivered": row["calls_per_s"] or 0.0}
    values |= {one.name: row.get(one.response) for one in QUANTILES}
    values["p50"] = values["p50"] or 0.0
    values |= {"dropped": round(row["dropped"] or 0)}
    parts = ["dropped"] if row["dropped"] else []
    level: Severity | None = "warning" if kind == "grew" else None
    subject = row["variant"]
    cells = tuple(c["cell"] for c in _cells(case, row))
    return claim("phase", values, end, case=kind, parts=parts, severity=level, subject=subject, cells=cells)


def _recoveries(case: Case, rows: list[Row]) -> Iterator[Claim]:
    """Yields for each backlog when it was gone, and p95 after it against the last phase before it."""
    calm: Row | None = None  # the last phase that kept up
    cause: Row | None = None  # the phase in which the backlog arose
    waited = 0.0  # s since the end of that phase
    for row in rows:
        slack = _slack(case, row)
        if row["backlog_begin"] > slack and cause is not None:
            times = [case.figures(c["cell"]).get("drained_s") for c in _cells(case, row)]
            known = [t for t in times if t is not None]
            gone = sum(known) / len(known) if known else None
            if gone is not None:
                yield _recovery(cause, row, calm, waited + gone)
                cause = None
            elif row is rows[-1]:
                values = {"cause": cause["variant"], "end": round(row["backlog_end"])}
                yield claim("phase-recovery", values, case="not", subject="")
            waited += max((c["wall_s"] for c in _cells(case, row)), default=0.0)
        grew = row["backlog_end"] > row["backlog_begin"] + slack
        if grew and (cause is None or row["backlog_begin"] <= slack):
            cause, waited = row, 0.0
        if max(row["backlog_begin"], row["backlog_end"]) <= slack:
            calm = row


def _recovery(cause: Row, row: Row, calm: Row | None, seconds: float) -> Claim:
    values: dict[str, Any] = {"cause": cause["variant"], "backlog": round(cause["backlog_end"])}
    values |= {"gone": seconds, "phase": row["variant"], "p95": row["response_p95_ns"]}
    parts = []
    if calm is not None and calm["response_p95_ns"]:
        values |= {"calm": calm["variant"], "calm_p95": calm["response_p95_ns"]}
        parts.append("before")
    return claim("phase-recovery", values, seconds, case="gone", parts=parts, subject="")


def _targets(case: Case, rows: list[Row]) -> Iterator[Claim]:
    """Yields whether each phase meets the target."""
    goal = case.plan.goal
    if goal is None:
        return
    for row in rows:
        figure = row.get(_METRICS[goal.metric]) if goal.metric in _METRICS else None
        if figure is None and goal.metric in TAILS and row.get("calls"):
            yield _unknown_tail(goal, row)
        if figure is None:
            continue
        values = {"goal": goal.text, "metric": goal.metric, "figure": figure}
        unit = "rate" if goal.metric == "throughput" else "time"
        met = goal.met(figure)
        yield claim(
            "phase-target",
            values,
            figure,
            case=f"{'met' if met else 'not'}-{unit}",
            severity="good" if met else "warning",
            subject=row["variant"],
        )


def _unknown_tail(goal: Goal, row: Row) -> Claim:
    """Returns the claim about a quantile of too few calls: missed if a lower quantile already misses the
    target, else unknown."""
    values = {"goal": goal.text, "metric": goal.metric, "fewest": fewest_calls(TAILS[goal.metric].q)}
    lower = [one for one in QUANTILES if one.q < TAILS[goal.metric].q]
    for one in lower:
        figure = row.get(one.response)
        if figure is not None and not goal.met(figure):
            values |= {"lower": one.name, "figure": figure}
            return claim("phase-target", values, case="not-lower", severity="warning", subject=row["variant"])
    return claim("phase-target", values, case="unknown", subject=row["variant"])


def even(case: Case) -> list[Row]:
    """Returns usable cells whose throughput should not change: no ramps, and no cells that began with a
    backlog."""
    if not case.plan.experiment.phases:
        return case.usable
    ramps = {c.id for c in case.plan.cells if c.pacing and c.pacing.to_per_s is not None}
    return [
        c
        for c in case.usable
        if c["cell"] not in ramps and (case.figures(c["cell"]).get("backlog_begin") or 0.0) <= c["sessions"]
    ]
