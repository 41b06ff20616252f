"""Where the time went."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from dbdyno.conclude.claims import claim
from dbdyno.conclude.findings.context import Case, Row, at, ids, percent, sentence, sessions
from dbdyno.conclude.findings.pooling import is_pooled
from dbdyno.model.claim import Claim
from dbdyno.model.session_time import hidden, too_brief
from dbdyno.model.units import significant

CPU_WAIT = 0.05
"""Sessions wait for CPU if this share of their time is spent in the run queue."""
UNACCOUNTED_NOTE, UNACCOUNTED_WARNING = 0.01, 0.05


def cpu_wait(case: Case) -> Iterator[Claim]:
    if case.observed:
        yield from _observed_cpu_wait(case)
        return
    for name, rungs in case.ladders():
        waiting = [r for r in rungs if r["runq_aas"] is not None and r["runq_aas"] > CPU_WAIT * r["sessions"]]
        if not waiting:
            if rungs and all(r["runq_aas"] is not None for r in rungs):
                yield claim(
                    id="no-cpu-wait",
                    severity="good",
                    text=sentence(
                        f"{name}no rung waits for CPU ({percent(CPU_WAIT)} of session time or more)."
                    ),
                    evidence="os tasks: run queue of the sessions' tasks",
                )
            continue
        first, top = waiting[0], waiting[-1]
        text = f"from {sessions(first['sessions'])} on, sessions wait for CPU: {_of(first)}"
        text += "." if first is top else f"; at {sessions(top['sessions'])} {_of(top)}."
        yield claim(
            id="cpu-wait",
            severity="note",
            text=sentence(name + text),
            value=float(first["sessions"]),
            unit="sessions",
            evidence="os tasks: schedstat run-queue time of the sessions' tasks (CPU WAIT)",
            advice="more CPUs or fewer sessions; throttled time is in it",
        )


def _observed_cpu_wait(case: Case) -> Iterator[Claim]:
    """The window of somebody else's load where the largest part of the served time was CPU WAIT."""
    shares = [
        (case.aas(c["cell"], "runq") / served, c) for c in case.usable() if (served := case.served(c["cell"]))
    ]
    waiting = [(share, c) for share, c in shares if share > CPU_WAIT]
    if waiting:
        share, cell = max(waiting, key=lambda f: f[0])
        queued = case.aas(cell["cell"], "runq")
        yield claim(
            id="cpu-wait",
            severity="note",
            text=f"Sessions waited for CPU in {case.many(len(waiting))}: {significant(queued)} s/s "
            f"{at(cell, case)}, {percent(share)} of their served time.",
            value=share,
            unit="of served time",
            evidence="os tasks: schedstat run-queue time of the sessions' tasks (CPU WAIT)",
            advice="more CPUs or less load; throttled time is in it",
            cells=ids([c for _, c in waiting]),
        )


def throttled(case: Case) -> Iterator[Claim]:
    """A quota that struck, at the rung where it did so most: CPU WAIT, and how much of it was throttling."""
    struck = [(n, periods, c) for c in case.usable() for n, periods in [_struck(case, c["cell"])] if n > 0]
    if not struck:
        return
    n, periods, cell = max(struck, key=lambda s: (s[0] / max(1.0, s[1]), s[2]["sessions"]))
    bracket = (
        case.accounts(cell["cell"]).filter(pl.col("account") == "runq.throttled_bracket").drop_nulls("low")
    )
    low, high = (float(bracket[c][0]) if bracket.height else None for c in ("low", "high"))
    text = f"A CPU quota throttled the server in {case.many(len(struck))}, {at(cell, case)} "
    text += f"in {n:.0f} of {periods:.0f} periods"
    exact = case.accounts(cell["cell"]).filter(pl.col("account") == "runq.throttled")["aas"].drop_nulls()
    if len(exact):
        low = high = float(exact.sum())
        text += f": {significant(low)} s/s of CPU WAIT were throttled, as the scheduler trace measured"
    elif low is not None and high is not None:
        text += f": CPU WAIT {significant(high)} s/s, of which throttled at least {significant(low)}"
    yield claim(
        id="throttled",
        severity="warning",
        text=text + ".",
        value=low,
        unit="s/s",
        low=low,
        high=high,
        evidence="cgroup: cpu.stat of the server's group, and the run queue of its tasks",
        advice="raise the quota, or climb to fewer sessions",
        cells=ids([c for _, _, c in struck]),
    )


def _struck(case: Case, cell: str) -> tuple[float, float]:
    """Periods throttled, and periods: of the group that was throttled most often."""
    mine = case.levels(cell, "cgroup").filter((pl.col("scope") == "server") & pl.col("delta").is_not_null())
    throttled, periods = (
        [float(v) for v in mine.filter(pl.col("key") == key)["delta"]]
        for key in ("nr_throttled", "nr_periods")
    )
    return max(throttled, default=0.0), max(periods, default=0.0)


class _Remainder(NamedTuple):
    """Unaccounted time as a share of the sessions' time, with its 95 % interval."""

    share: float
    low: float
    high: float
    cell: Row

    @property
    def beyond(self) -> bool:
        """Further from 0 than 1.5 times its interval (3 standard errors): many cells are looked at."""
        return abs(self.share) > 1.5 * (self.share - self.low if self.share > 0 else self.high - self.share)


def unaccounted(case: Case) -> Iterator[Claim]:
    """What the accounts leave over, beyond the samples' own error; behind a pooler it is told apart."""
    direct = [cell for cell in case.usable() if not is_pooled(case, cell["cell"])]
    direct = [cell for cell in direct if not _partial(case, cell["cell"])]
    left = [r for cell in direct if (r := _remainder(case, cell)) is not None]
    large = [r for r in left if r.beyond and abs(r.share) > UNACCOUNTED_NOTE]
    if not left:
        return
    worst = max(large or left, key=lambda r: abs(r.share))
    grave = abs(worst.share) > UNACCOUNTED_WARNING
    text = f"{percent(worst.share)} of the sessions' time is unaccounted for {at(worst.cell, case)}"
    yield claim(
        id="unaccounted" if large else "ledger-closes",
        severity=("warning" if grave else "note") if large else ("note" if grave else "good"),
        text=f"{text} ({percent(worst.low)} to {percent(worst.high)}), the worst of {case.many(len(large))}."
        if large
        else f"The ledger closes within the samples' error in all {case.many(len(left))}; at most {text}.",
        value=worst.share,
        unit="of session time",
        low=worst.low,
        high=worst.high,
        evidence="ledger: W less run, run queue, sleep and client",
        advice="longer windows or more samples; steal and unreadable tasks are in it"
        if large or grave
        else "",
        cells=ids([r.cell for r in large]),
    )


def _partial(case: Case, cell: str) -> bool:
    """What is hidden from our role, or too brief, lies in the remainder: it shows no fault of the ledger."""
    return hidden(case.accounts(cell)) or too_brief(case.table("ledger", cell))


def _remainder(case: Case, cell: Row) -> _Remainder | None:
    rows = case.accounts(cell["cell"]).filter(pl.col("account") == "unaccounted").drop_nulls("low")
    wall = float(case.accounts(cell["cell"], "memo").filter(pl.col("account") == "wall")["aas"].sum())
    if rows.is_empty() or not wall:
        return None
    share, low, high = (float(rows[c][0]) / wall for c in ("aas", "low", "high"))
    return _Remainder(share, low, high, cell)


def _of(rung: Row) -> str:
    return f"{significant(rung['runq_aas'])} of {rung['sessions']}"
