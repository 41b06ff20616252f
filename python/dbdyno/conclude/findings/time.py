"""Where the time went, and what the server's labels hide of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.criteria import CPU_WAIT, begins, waiting
from dbdyno.conclude.findings.background import is_pooled
from dbdyno.conclude.findings.context import SESSION_LEDGER, Case, Row, at, ids
from dbdyno.conclude.findings.facts import of_cell
from dbdyno.model.claim import Claim, Estimate
from dbdyno.model.ledger_rows import account_rows, queue_labels
from dbdyno.model.session_time import NO_EVENT, hidden, too_brief

UNACCOUNTED_NOTE, UNACCOUNTED_WARNING = 0.01, 0.05


def cpu_wait(case: Case) -> Iterator[Claim]:
    if case.observed:
        yield from _observed_cpu_wait(case)
        return
    for name, rungs in case.ladders():
        shares = [(float(r["sessions"]), s) for r in rungs if (s := _waiting(case, r)) is not None]
        found = begins(shares)
        if found is None:
            if shares and len(shares) == len(rungs):
                yield claim("no-cpu-wait", {"most": max(s.value for _, s in shares)}, subject=name)
            continue
        (first, share), (top, most) = shares[found], shares[-1]
        said = {"first": int(first), "share": share.value, "top": int(top), "top_share": most.value}
        value = Estimate("cpu-wait", first, "sessions", shares[found - 1][0] if found else None, first)
        yield claim("cpu-wait", said, value, case="onset" if first == top else "climbing", subject=name)


def _waiting(case: Case, rung: Row) -> Estimate | None:
    """Share of session time in the run queue at a load; with one repeat its interval is the ledger's own."""
    same = ("workload", "variant", "sessions")
    mine = [c["cell"] for c in case.usable() if all(c[k] == rung[k] for k in same)]
    rows = [case.accounts(cell).filter(pl.col("account") == "runq") for cell in mine]
    return waiting([r for r in rows if r.height and not r["aas"].null_count()], rung["sessions"])


def _observed_cpu_wait(case: Case) -> Iterator[Claim]:
    """The window of an existing workload where the largest part of the served time was CPU WAIT."""
    shares = [
        (case.aas(c["cell"], "runq") / served, c) for c in case.usable() if (served := case.served(c["cell"]))
    ]
    waiting = [(share, c) for share, c in shares if share > CPU_WAIT]
    if waiting:
        share, cell = max(waiting, key=lambda f: f[0])
        queued = case.aas(cell["cell"], "runq")
        yield claim(
            "cpu-wait",
            {
                "measurements": case.many(len(waiting)),
                "queued": queued,
                "place": at(cell, case),
                "share": share,
            },
            Estimate("cpu-wait", share, "of served time"),
            case="observed",
            cells=ids([c for _, c in waiting]),
        )


def throttled(case: Case) -> Iterator[Claim]:
    """A quota that struck, at the rung where it did so most: CPU WAIT, and how much of it was throttling."""
    struck = [(n, periods, c) for c in case.usable() for n, periods in [_struck(case, c["cell"])] if n > 0]
    if not struck:
        return
    n, periods, cell = max(struck, key=lambda s: (s[0] / max(1.0, s[1]), s[2]["sessions"]))
    ledger = case.table("ledger", cell["cell"])
    bracket = account_rows(ledger, "runq.throttled_bracket").drop_nulls("low")
    low, high = (float(bracket[c][0]) if bracket.height else None for c in ("low", "high"))
    parts = []
    exact = account_rows(ledger, "runq.throttled")["aas"].drop_nulls()
    if len(exact):
        low = high = float(exact.sum())
        parts = ["exact"]
    elif low is not None and high is not None:
        parts = ["bracket"]
    yield claim(
        "throttled",
        {
            "measurements": case.many(len(struck)),
            "place": at(cell, case),
            "throttled": n,
            "periods": periods,
            "low": low,
            "high": high,
        },
        low,
        parts=parts,
        low=low,
        high=high,
        cells=ids([c for _, _, c in struck]),
    )


@of_cell
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
    yield claim(
        "unaccounted" if large else "ledger-closes",
        {
            "share": worst.share,
            "place": at(worst.cell, case),
            "low": worst.low,
            "high": worst.high,
            "measurements": case.many(len(large or left)),
        },
        worst.share,
        case="" if large else "loose" if grave else "closes",
        severity=("warning" if large else "note") if grave else None,
        low=worst.low,
        high=worst.high,
        cells=ids([r.cell for r in large]),
    )


@of_cell
def _partial(case: Case, cell: str) -> bool:
    """What is hidden from our role, or too brief, lies in the remainder: it shows no fault of the ledger."""
    return hidden(case.accounts(cell)) or too_brief(case.table("ledger", cell))


def _remainder(case: Case, cell: Row) -> _Remainder | None:
    left = _left(case, cell["cell"])
    return None if left is None else _Remainder(*left, cell)


@of_cell
def _left(case: Case, cell: str) -> tuple[float, float, float] | None:
    """Unaccounted time as a share of the sessions' time, and the ends of its interval."""
    rows = case.accounts(cell).filter(pl.col("account") == "unaccounted").drop_nulls("low")
    wall = case.wall(cell)
    if rows.is_empty() or not wall:
        return None
    share, low, high = (float(rows[c][0]) / wall for c in ("aas", "low", "high"))
    return share, low, high


# -- labels: run-queue time under waits, CPU of idle sessions, "active" as CPU --

HIDDEN = 0.01
"""Run-queue time behind a wait's label is reported from this share of the sessions' time on."""
IDLE, IDLE_SESSION = 0.05, 0.01
"""Seconds per second of all idle sessions; of one, to be counted."""
NAIVE = 0.10
"""The simple figure is off if it differs by this part, beyond its interval."""


def hidden_run_queue(case: Case) -> Iterator[Claim]:
    """For each wait the rung where most run-queue time bore its label."""
    worst: dict[str, tuple[float, Row, Row]] = {}
    for cell in case.usable():
        wall = case.wall(cell["cell"])
        for row in _hidden(case, cell["cell"]):
            share = row["aas"] / wall if wall else 0.0
            if (row["low"] or 0.0) > HIDDEN * wall and share > worst.get(row["detail"], (0.0,))[0]:
                worst[row["detail"]] = (share, cell, row)
    for detail, (_, cell, row) in sorted(worst.items(), key=lambda item: -item[1][0]):
        queued = row["account"] == "runq"
        yield claim(
            "hidden-run-queue",
            {"place": at(cell, case), "seconds": row["aas"], "event": detail, "source": row["source"]},
            row["aas"],
            case="queued" if queued else "runnable",
            low=row["low"],
            high=row["high"],
            cells=(cell["cell"],),
        )


def _hidden(case: Case, cell: str) -> list[Row]:
    """Apportioned to the exact run queue where that was done, else the raw samples."""
    parts = queue_labels(case.table("ledger", cell)).to_dicts()
    return [r for r in parts or case.memo(cell, "label.runnable") if r["detail"] not in (None, NO_EVENT)]


def idle_burn(case: Case) -> Iterator[Claim]:
    """Sessions that the server calls idle, and that use a CPU or wait for one."""
    found: list[tuple[float, float, float, int, Row]] = []
    for cell in case.usable():
        run, runq = (_idle(case.memo(cell["cell"], f"state.{part}")) for part in ("run", "runq"))
        low = sum(r["low"] or 0.0 for rows in (run, runq) for r in rows)
        used, queued = (sum(r["aas"] for r in rows) for rows in (run, runq))
        if low > IDLE:
            found.append((used + queued, used, queued, _idle_sessions(case, cell["cell"]), cell))
    if found:
        _, used, queued, sessions, cell = max(found, key=lambda f: f[0])
        yield claim(
            "idle-busy",
            {"used": used, "queued": queued, "place": at(cell, case), "sessions": sessions},
            used + queued,
            cells=ids([c for *_, c in found]),
        )


def _idle(rows: list[Row]) -> list[Row]:
    return [r for r in rows if str(r["detail"] or "").startswith("idle")]


@of_cell
def _idle_sessions(case: Case, cell: str) -> int:
    memo = case.table(SESSION_LEDGER, cell).filter(
        (pl.col("scope") == "memo")
        & (pl.col("who") == "session")
        & pl.col("account").is_in(["state.run", "state.runq"])
        & pl.col("detail").str.starts_with("idle")
    )
    return memo.group_by("session").agg(pl.col("aas").sum()).filter(pl.col("aas") >= IDLE_SESSION).height


def naive_cpu(case: Case) -> Iterator[Claim]:
    """What "active without wait event" would have said of CPU, where it is furthest off."""
    found: list[tuple[float, Row, float, Row]] = []
    for cell in case.usable():
        if (true := case.known(cell["cell"], "run")) is None:
            continue
        for row in case.memo(cell["cell"], "naive.cpu"):
            said = row["aas"]
            outside = not (row["low"] or 0.0) <= true <= (row["high"] if row["high"] is not None else said)
            if outside and abs(said - true) > max(NAIVE * true, 0.05):
                found.append((abs(said - true), row, true, cell))
    if found:
        _, row, true, cell = max(found, key=lambda f: f[0])
        yield claim(
            "naive-cpu",
            {"naive": row["aas"], "place": at(cell, case), "actual": true},
            row["aas"] - true,
            cells=ids([c for *_, c in found]),
        )
