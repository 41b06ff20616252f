"""Concludes about paced load: how much of it is delivered, and whether its figures are valid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.checking import check
from dbdyno.conclude.run.case import Case, Row, at
from dbdyno.conclude.run.counting import none_ended
from dbdyno.model.results.claim import Claim
from dbdyno.model.text.nouns import capital

LEFT_OVER = 0.01
"""Share of calls left over or dropped above which a rate is not delivered."""
LATE = 0.05
"""Share of the mean response time that the driver's own delay may take."""


def is_paced(case: Case) -> bool:
    return any(c.pacing is not None for c in case.plan.cells)


def capacity(case: Case, name: str, rows: list[Row]) -> Iterator[Claim]:
    """Yields the rate up to which calls are delivered, and the behaviour above it. ``rows`` are usable rungs
    of a ladder."""
    known = [r for r in rows if r["offered_per_s"]]
    if not known:
        yield claim("nothing-measured", {}, case="no-rate", subject=name)
        return
    counts = len(known) if len({_rate(r) for r in known}) == 1 else 1
    if counts > 1:  # one rate over several numbers of sessions
        known = [next((r for r in known if delivered(r)), known[-1])]
    lowest_missed = next((r for r in known if not delivered(r)), None)
    kept_rungs = [r for r in known if lowest_missed is None or _rate(r) < _rate(lowest_missed)]
    best = max(kept_rungs, key=_rate, default=None)
    values: dict[str, Any] = {"least": LEFT_OVER, "sessions": known[-1]["sessions"]}
    parts: list[str] = []
    if best is not None:
        values |= {
            "rate": _rate(best),
            "p50": best["response_p50_ns"] or 0.0,
            "p99": best["response_p99_ns"],
        }
    if lowest_missed is not None:
        values |= _above(lowest_missed, case)
        drops = (lowest_missed["dropped"] or 0) > lowest_missed["backlog_end"] * lowest_missed["repeats"]
        parts.append("none" if lowest_missed["calls_per_s"] is None else "drops" if drops else "grows")
    elif len(known) > 1:
        parts.append("highest")
    if counts > 1 and best is not None:
        parts.append("fewest")
    one = "delivered" if len(known) == 1 else "up-to"
    value = None if best is None else values["rate"]
    yield claim(
        "paced-capacity", values, value, case="not" if best is None else one, parts=parts, subject=name
    )


def _rate(rung: Row) -> float:
    """Returns calls per second that were to become due."""
    return float(rung["rate_per_s"] or rung["offered_per_s"])


def delivered(rung: Row) -> bool:
    """Returns whether nearly all calls that became due were begun; as many waiting calls as there are
    sessions do not count."""
    waiting, lost = rung["backlog_end"] or 0.0, rung["dropped"] or 0.0
    left = waiting * rung["repeats"] if waiting > rung["sessions"] else 0.0
    whole = left + lost + rung["calls"] + rung["errors"]
    return not whole or left + lost <= LEFT_OVER * whole


def _above(over: Row, case: Case) -> dict[str, Any]:
    cells = [c for c in case.usable if c["rate_per_s"] == over["rate_per_s"]]
    walls = [c["wall_s"] for c in cells] or [1.0]
    delivered = over["calls_per_s"] or 0.0
    wall, left = sum(walls) / len(walls), over["backlog_end"] or 0.0
    return {
        "over": _rate(over),
        "growth": max(0.0, min(over["offered_per_s"] - delivered, left / wall)),
        "dropped": (over["dropped"] or 0.0) / max(1.0, over["offered_per_s"] * sum(walls)),
        "delivered": delivered,
    }


@check("paced-overload")
def overload(case: Case) -> Iterator[Claim]:
    """Yields cells where more calls became due than were begun: response times grow without limit."""
    candidates = []
    for cell in case.usable if not case.plan.experiment.phases else ():
        f = case.figures(cell["cell"])
        due, left = f.get("arrivals") or 0.0, f.get("backlog_end") or 0.0
        if left <= max(LEFT_OVER * due, cell["sessions"]):
            continue
        counted = (f.get("calls") or 0.0) / cell["wall_s"]  # 0 if all of them ended in errors
        values: dict[str, Any] = {"delivered": f.get("calls_per_s") or counted}
        values |= {"offered": f.get("offered_per_s") or 0.0}
        values |= {"backlog": round(left), "age": f.get("backlog_age_max_ns") or 0.0, "least": LEFT_OVER}
        values["kind"] = _ended(case, cell["cell"])
        candidates.append((left / due, values, cell))
    yield from _worst_claim("paced-overload", candidates, case, "backlog")


def _ended(case: Case, cell: str) -> str:
    """Returns whether some of the calls that became due in the window ended in it, or none, or hardly any
    call at all (``long``)."""
    if not none_ended(case, cell):
        return "some"
    sessions = case.table("cell_sessions", cell)
    return "none" if int(sessions["calls_total"].sum()) > sessions.height else "long"


@check("paced-dropped")
def dropped(case: Case) -> Iterator[Claim]:
    """Yields cells with calls that were never begun because of the latency limit."""
    candidates = []
    limits = {c.id: c.pacing.latency_limit_ns for c in case.plan.cells if c.pacing is not None}
    for cell in case.usable:
        f = case.figures(cell["cell"])
        due, lost, limit = f.get("arrivals") or 0.0, f.get("dropped") or 0.0, limits.get(cell["cell"])
        if due and lost and limit is not None:
            values = {"share": lost / due, "dropped": round(lost), "arrivals": round(due), "limit": limit}
            candidates.append((lost / due, values, cell))
    yield from _worst_claim("paced-dropped", candidates, case, "dropped")


@check("paced-driver-late")
def driver_late(case: Case) -> Iterator[Claim]:
    """Yields the delay that the driver itself added to response times."""
    candidates = []
    for cell in case.usable:
        f = case.figures(cell["cell"])
        lag, mean = f.get("driver_lag_mean_ns"), f.get("response_mean_ns")
        if lag is None or not mean or lag <= LATE * mean:
            continue
        values = {"lag": lag, "share": min(1.0, lag / mean), "late": round(f.get("late_driver") or 0)}
        candidates.append((lag / mean, values | {"least": LATE}, cell))
    yield from _worst_claim("paced-driver-late", candidates, case, "lag")


def _worst_claim(
    id: str, candidates: list[tuple[float, dict[str, Any], Row]], case: Case, value: str
) -> Iterator[Claim]:
    """Yields the claim of the worst cell, with all cells that it applies to."""
    if not candidates:
        return
    _, values, cell = max(candidates, key=lambda f: f[0])
    place = at(cell, case)
    values = values | {"place": capital(place)}
    kind, cells = values.pop("kind", ""), tuple(c["cell"] for *_, c in candidates)
    yield claim(id, values, float(values[value]), case=kind, cells=cells)
