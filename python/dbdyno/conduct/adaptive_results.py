"""What an auto ladder looked for, from the tables of its cells: for the climb, and for the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.model.bycell import ByCell
from dbdyno.model.claim import Claim
from dbdyno.model.client_limit import is_limit
from dbdyno.model.estimate import Estimate
from dbdyno.model.histogram import quantile_ns
from dbdyno.model.plan import Goal, Plan
from dbdyno.plan import Done, Findings, Seen, next_rung, so_far

_QUANTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}
_RATES = {"mean": "response_mean_ns", "max": "response_max_ns", "throughput": "calls_per_s"}


def seen_in(tables: Mapping[str, pl.DataFrame], goal: Goal | None) -> dict[str, list[Seen]]:
    """By variant the cells in ``windows``, ``rates`` and ``histogram``, in the order of running."""
    parts = ByCell({name: tables[name] for name in ("rates", "histogram")})
    seen: dict[str, list[Seen]] = {}
    for window in tables["windows"].sort("cell").iter_rows(named=True):
        rates = parts.table("rates", window["cell"]).filter(pl.col("scope") == "rung")
        figures: dict[str, float | None] = dict(rates.select("name", "value").rows())
        histogram = parts.table("histogram", window["cell"])
        seen.setdefault(window["variant"], []).append(_seen(window, figures, histogram, goal))
    return seen


def _seen(
    window: Mapping[str, Any], figures: Mapping[str, float | None], histogram: pl.DataFrame, goal: Goal | None
) -> Seen:
    calls, errors = figures.get("calls") or 0.0, figures.get("errors") or 0.0
    fault = None
    if window["status"] == "invalid":
        fault = window["reason"] or "invalid"
    elif is_limit(figures):
        fault = "it was limited by the client"
    elif not calls:
        fault = "every call ended in an error" if errors else "no call ended in the window"
    return Seen(
        sessions=window["sessions"],
        throughput=figures.get("calls_per_s"),
        figure=None if goal is None else _figure(goal.metric, figures, histogram),
        failed=errors / (calls + errors) if calls + errors else 0.0,
        fault=fault,
    )


def _figure(metric: str, figures: Mapping[str, float | None], histogram: pl.DataFrame) -> float | None:
    """ns, or calls per second. A quantile is its bucket's upper end, but not above the longest call."""
    if metric in _RATES:
        return figures.get(_RATES[metric])
    value, longest = quantile_ns(histogram, _QUANTILES[metric]), figures.get("response_max_ns")
    return value if value is None or longest is None else min(value, longest)


def sought(plan: Plan, tables: Mapping[str, pl.DataFrame]) -> Iterator[Claim]:
    """One finding a variant of an auto ladder; none of another."""
    if plan.adaptive is None:
        return
    found = seen_in(tables, plan.adaptive.goal)
    for variant, seen in found.items():
        findings = Findings(plan.adaptive, tuple(seen))
        step = next_rung(findings)
        yield _finding(plan, variant if len(plan.variants) > 1 else "", findings, step)


def _finding(plan: Plan, variant: str, findings: Findings, step: Any) -> Claim:
    id = "target" if findings.rule.goal is not None else "auto-ladder"
    done = step if isinstance(step, Done) else so_far(findings)
    rest = "" if isinstance(step, Done) else f"; not finished: {step.sessions} would have come next"
    at = None if done.at is None else Estimate(id, done.at, "sessions", done.low, done.high)
    return claim(
        id,
        {"found": done.words + rest, "rests": done.evidence},
        at,
        severity="good" if done.found and not rest else "note",
        advice=done.cure,
        cells=[c.id for c in plan.cells if variant in ("", c.variant) and c.sessions == done.at],
        subject=variant,
    )
