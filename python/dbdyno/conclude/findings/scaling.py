"""The peak as measured, and where scaling stopped. No model is fitted here."""

from __future__ import annotations

from collections.abc import Iterator

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.findings.context import Case, Row
from dbdyno.model.claim import GOOD_SCALING, Claim, stops_scaling
from dbdyno.model.estimate import Estimate
from dbdyno.model.units import format_rate


def peak(case: Case) -> Iterator[Claim]:
    for name, rungs in case.ladders():
        known = [r for r in rungs if r["calls_per_s"] is not None]
        if not known:
            continue
        top = max(known, key=lambda r: float(r["calls_per_s"]))
        low, high = top["calls_per_s_low"], top["calls_per_s_high"]
        value = Estimate("peak", top["calls_per_s"], "calls/s", low, high)
        said = {"rate": top["calls_per_s"], "work": _work_rate(case, top), "sessions": top["sessions"]}
        yield claim("peak", said, value, case="run", subject=name)


def limit(case: Case) -> Iterator[Claim]:
    """The last rung before the first that scales by less than :data:`GOOD_SCALING`."""
    for name, rungs in case.ladders():
        known = [r for r in rungs if r["scaling"] is not None]
        if len(known) < 2:
            continue
        bad = stops_scaling([r["scaling"] for r in known])
        lowest, top = known[0], known[-1]
        said = {"lowest": lowest["sessions"], "good": GOOD_SCALING}
        said |= {"top": top["sessions"], "top_share": top["scaling"]}
        if bad is None:
            yield claim("scales-to-the-top", said, float(top["sessions"]), subject=name)
            continue
        last, first = known[max(0, bad - 1)], known[bad]
        said |= {"sessions": last["sessions"], "next": first["sessions"], "share": first["scaling"]}
        parts = ["top"] if top is not first else []
        yield claim("scaling-limit", said, float(last["sessions"]), parts=parts, subject=name)


def _work_rate(case: Case, rung: Row) -> str:
    if not rung["work_per_s"]:
        return ""
    return f" ({format_rate(rung['work_per_s'])} {case.work_short(rung['workload'])}/s)"
