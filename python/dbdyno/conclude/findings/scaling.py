"""The peak as measured, and where scaling stopped. No model is fitted here."""

from __future__ import annotations

from collections.abc import Iterator

from dbdyno.conclude.claims import claim
from dbdyno.conclude.findings.context import Case, Row, percent, sentence, sessions
from dbdyno.model.claim import GOOD_SCALING, Claim
from dbdyno.model.units import format_rate


def peak(case: Case) -> Iterator[Claim]:
    for name, rungs in case.ladders():
        known = [r for r in rungs if r["calls_per_s"] is not None]
        if not known:
            continue
        top = max(known, key=lambda r: float(r["calls_per_s"]))
        rate = f"{format_rate(top['calls_per_s'])} calls/s{_work_rate(case, top)}"
        yield claim(
            id="peak",
            severity="note",
            text=sentence(f"{name}peak throughput {rate} at {sessions(top['sessions'])}."),
            value=top["calls_per_s"],
            unit="calls/s",
            low=top["calls_per_s_low"],
            high=top["calls_per_s_high"],
            evidence="driver: table rungs",
        )


def limit(case: Case) -> Iterator[Claim]:
    """The last rung before the first that scales by less than :data:`GOOD_SCALING`."""
    for name, rungs in case.ladders():
        known = [r for r in rungs if r["scaling"] is not None]
        if len(known) < 2:
            continue
        bad = next((i for i, r in enumerate(known) if r["scaling"] < GOOD_SCALING), None)
        top = known[-1]
        if bad is None:
            text = f"throughput scales to the top: {sessions(top['sessions'])} deliver "
            text += f"{percent(top['scaling'])} of perfect scaling."
        else:
            last, first = known[max(0, bad - 1)], known[bad]
            text = f"throughput scales up to {sessions(last['sessions'])} "
            text += f"({percent(last['scaling'])} of perfect); at {sessions(first['sessions'])} "
            text += f"{percent(first['scaling'])}, at the top, {sessions(top['sessions'])}, "
            text += f"{percent(top['scaling'])}."
        yield claim(
            id="scaling-limit" if bad is not None else "scales-to-the-top",
            severity="note" if bad is not None else "good",
            text=sentence(name + text),
            value=float(known[-1 if bad is None else max(0, bad - 1)]["sessions"]),
            unit="sessions",
            evidence=f"table rungs, scaling against the lowest rung ({sessions(known[0]['sessions'])}); "
            f"good is {percent(GOOD_SCALING)} or more",
            advice="" if bad is None else "see where the time goes at that rung",
        )


def _work_rate(case: Case, rung: Row) -> str:
    if not rung["work_per_s"]:
        return ""
    return f" ({format_rate(rung['work_per_s'])} {case.work_short(rung['workload'])}/s)"
