"""Reports how small a difference a comparison can see, and what makes equal measurements differ."""

from __future__ import annotations

import math
from collections.abc import Iterator

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.checking import check
from dbdyno.conclude.noise_words import noise_command, size
from dbdyno.conclude.run.case import Case, Row
from dbdyno.model.plan.kinds import NOISE
from dbdyno.model.results.claim import Claim, Estimate
from dbdyno.model.results.comparison import MARGIN
from dbdyno.model.schema.data_sources.noise import DRIFT, RESTARTS
from dbdyno.model.units import NS_PER_S, fine_percent, format_given, in_minutes
from dbdyno.stats import steps
from dbdyno.stats.noise_budget import LEAST_CELLS

_KINDS = (NOISE,)


@check("noise", of="whole", kinds=_KINDS)
def answer(case: Case) -> Iterator[Claim]:
    """Yields the repeats that the wanted difference takes at each load, or why they are not known."""
    see = case.plan.experiment.noise.see if case.plan.experiment.noise is not None else 0.0
    budgets = {row["sessions"]: row for row in case.tables["noise_budget"].to_dicts()}
    if not budgets:
        yield _too_few(case)
    differ = set(case.tables["noise"].filter((pl.col("part") == RESTARTS) & (pl.col("low") > 0))["sessions"])
    wanted = pl.col("difference").is_close(see) & ~pl.col("restarts")
    for row in case.tables["noise_plan"].filter(wanted).to_dicts():
        floor = budgets[row["sessions"]]["floor"] if row["sessions"] in differ else None
        values = {"see": fine_percent(see), "sessions": row["sessions"]}
        if row["repeats"] is None:
            yield claim("noise", values, case="too-many", severity="warning")
            continue
        values |= {
            "repeats": row["repeats"],
            "measure": f"{format_given(row['measure_s'])} s",
            "time": in_minutes(row["time_s"] * NS_PER_S),
            "floor": size(floor or 0.0),
        }
        values["margin"] = fine_percent(MARGIN)
        parts = [*(["floor"] if floor else []), *(["margin"] if see < MARGIN else [])]
        yield claim(
            "noise", values, Estimate("noise", row["repeats"], "repeats"), case="planned", parts=parts
        )


def _too_few(case: Case) -> Claim:
    experiment, usable = case.plan.experiment, len(case.usable)
    sessions = max((c.sessions for c in case.plan.cells), default=1)
    command = noise_command(case.plan, sessions, case.environment)
    if experiment.noise is not None:
        command += f" --measure {experiment.noise.window}"
    if experiment.budget is not None:
        command += f" --time {experiment.budget}"
    values = {
        "measurements": usable,
        "was": "was" if usable == 1 else "were",
        "least": LEAST_CELLS,
        "command": command,
    }
    limited = len(case.valid) - usable
    values |= {"limited": limited, "were": "was" if limited == 1 else "were"}
    parts = ["limited"] if limited else []
    return claim("noise", values, case="few", severity="warning", parts=parts)


@check("noise-restarts", of="whole", kinds=_KINDS)
def restarts(case: Case) -> Iterator[Claim]:
    """Yields how much starts of the server differ, or why that is not known."""
    floors = dict(case.tables["noise_budget"].select("sessions", "floor").rows())
    for row in case.tables["noise"].filter(part=RESTARTS).to_dicts():
        if row["deviation"] is None:
            why = row["status"].removeprefix("not measured: ")
            yield claim("noise-restarts", {"why": why}, case="unknown")
            continue
        ends = {name: fine_percent(row[name]) for name in ("deviation", "low", "high")}
        values = {**ends, "floor": size(floors.get(row["sessions"]) or 0.0)}
        values["spread"] = f" ({ends['low']} to {ends['high']})"
        kind = "some" if row["low"] else "none"
        yield claim("noise-restarts", values, row["deviation"], case=kind, low=row["low"], high=row["high"])


@check("noise-drift", of="whole", kinds=_KINDS)
def drift(case: Case) -> Iterator[Claim]:
    """Yields a step of throughput on the way, else a drift along a straight line, if one is beyond
    chance."""
    rates = [v for c in case.usable if (v := case.figures(c["cell"]).get("calls_per_s"))]
    noise = case.plan.experiment.noise
    # A start has a level of its own: its first measurement would look like a step.
    change = None if noise is None or noise.restarts else steps.change(rates)
    count = {"measurements": len(rates)}
    if change is not None and change.p < steps.LEVEL:
        values = {**count, "change": _signed(change.relative), "after": change.start, "until": change.end}
        kind = "step" if change.end == len(rates) else "back"
        yield claim("noise-drift", values, change.relative, case=kind, severity="warning")
        return
    for row in case.tables["noise"].filter(part=DRIFT).to_dicts():
        if row["low"]:
            first, last = case.usable[0], case.usable[-1]
            yield _line(row, (last["t1_ns"] - first["t0_ns"]), rates)


def _line(row: Row, span_ns: int, rates: list[float]) -> Claim:
    middle = (len(rates) - 1) / 2
    sign = math.copysign(math.sqrt(12), sum((n - middle) * rate for n, rate in enumerate(rates)))
    change, low, high = (math.expm1(sign * row[name]) for name in ("deviation", "low", "high"))
    values = {"change": _signed(change), "low": _signed(low), "high": _signed(high)}
    values["time"] = in_minutes(span_ns)
    low, high = sorted((low, high))
    return claim("noise-drift", values, change, case="line", low=low, high=high)


def _signed(share: float) -> str:
    return f"{'-' if share < 0 else '+'}{fine_percent(abs(share))}"
