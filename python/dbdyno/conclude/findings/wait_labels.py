"""What the server's labels hide: run-queue time under waits, CPU of idle sessions, "active" as CPU."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.findings.context import SESSION_LEDGER, Case, Row, at, ids
from dbdyno.conclude.findings.facts import of_cell
from dbdyno.model.claim import Claim
from dbdyno.model.ledger_rows import queue_labels
from dbdyno.model.session_time import NO_EVENT

HIDDEN = 0.01
"""Run-queue time behind a wait's label is told from this share of the sessions' time on."""
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
