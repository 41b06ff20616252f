"""Where the time went."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from dbdyno.analyze.findings.case import Case, Row, ids, percent, sentence, sessions, where
from dbdyno.model.finding import Finding
from dbdyno.model.units import significant

CPU_WAIT = 0.05
"""Sessions wait for CPU if this share of their time is spent in the run queue."""
HIDDEN = 0.01
"""Run-queue time behind a wait's label is told from this share of the sessions' time on."""
HELPERS = 0.05
"""The server's own processes are told if they take this share of the CPU time of the server."""
UNACCOUNTED_NOTE, UNACCOUNTED_WARNING = 0.01, 0.05


def cpu_wait(case: Case) -> Iterator[Finding]:
    for name, rungs in case.ladders():
        waiting = [r for r in rungs if r["runq_aas"] is not None and r["runq_aas"] > CPU_WAIT * r["sessions"]]
        if not waiting:
            if rungs and all(r["runq_aas"] is not None for r in rungs):
                yield Finding(
                    id="no-cpu-wait",
                    severity="good",
                    claim=sentence(
                        f"{name}no rung waits for CPU ({percent(CPU_WAIT)} of session time or more)."
                    ),
                    evidence="os tasks: run queue of the sessions' tasks",
                )
            continue
        first, top = waiting[0], waiting[-1]
        text = f"from {sessions(first['sessions'])} on, sessions wait for CPU: {_of(first)}"
        text += "." if first is top else f"; at {sessions(top['sessions'])} {_of(top)}."
        yield Finding(
            id="cpu-wait",
            severity="note",
            claim=sentence(name + text),
            value=float(first["sessions"]),
            unit="sessions",
            evidence="os tasks: schedstat run-queue time of the sessions' tasks (CPU WAIT)",
            cure="more CPUs or fewer sessions; throttled time is in it",
        )


def throttled(case: Case) -> Iterator[Finding]:
    """A quota that struck: CPU WAIT with the bracket of what of it was throttling."""
    levels = case.tables["cut_levels"].filter((pl.col("origin") == "cgroup") & (pl.col("scope") == "server"))
    for cell in case.usable():
        mine = levels.filter(pl.col("cell") == cell["cell"])
        struck = mine.filter(pl.col("key") == "nr_throttled")["delta"].max()
        periods = mine.filter(pl.col("key") == "nr_periods")["delta"].max()
        if not isinstance(struck, float) or struck <= 0:
            continue
        bracket = case.accounts(cell["cell"]).filter(pl.col("account") == "runq.throttled_bracket")
        low, high = (bracket[c].max() for c in ("low", "high"))
        text = f"a CPU quota throttled the server at {where(cell, case)} in {struck:.0f} of {periods or 0:.0f} periods"
        if isinstance(low, float) and isinstance(high, float):
            text += f": CPU WAIT {significant(high)} s/s, of which throttled at least {significant(low)}"
        yield Finding(
            id="throttled",
            severity="warning",
            claim=sentence(text + "."),
            value=low if isinstance(low, float) else None,
            unit="s/s",
            low=low if isinstance(low, float) else None,
            high=high if isinstance(high, float) else None,
            evidence="cgroup: cpu.stat of the server's group, and the run queue of its tasks",
            cure="raise the quota, or climb to fewer sessions",
            cells=(cell["cell"],),
        )


def hidden_run_queue(case: Case) -> Iterator[Finding]:
    """For each wait the rung where most runnable time bore its label."""
    worst: dict[str, tuple[float, Row, Row]] = {}
    for cell in case.usable():
        memos = case.accounts(cell["cell"], "memo").filter(pl.col("account") == "label.runnable")
        for row in memos.to_dicts():
            share = row["aas"] / cell["sessions"]
            if row["low"] > HIDDEN * cell["sessions"] and share > worst.get(row["detail"], (0.0,))[0]:
                worst[row["detail"]] = (share, cell, row)
    for detail, (_, cell, row) in sorted(worst.items(), key=lambda item: -item[1][0]):
        yield Finding(
            id="hidden-run-queue",
            severity="note",
            claim=f"At {where(cell, case)}, {significant(row['aas'])} s/s of the time labelled {detail} was no wait: "
            "the task was runnable (in the run queue, mostly).",
            value=row["aas"],
            unit="s/s",
            low=row["low"],
            high=row["high"],
            evidence="activity samples, each with the task's state: label of a wait, state R",
            cells=(cell["cell"],),
        )


def helpers(case: Case) -> Iterator[Finding]:
    """The rung where the server's own processes took the largest part of its CPU time."""
    found = []
    for _, rungs in case.ladders():
        for r in rungs:
            if r["helpers_aas"] and r["run_aas"] is not None:
                found.append((r["helpers_aas"] / (r["helpers_aas"] + r["run_aas"]), r))
    share, rung = max(found, key=lambda f: float(f[0]), default=(0.0, {}))
    if share >= HELPERS:
        yield Finding(
            id="helpers",
            severity="note",
            claim=f"The server's own processes took {significant(rung['helpers_aas'])} CPUs at "
            f"{sessions(rung['sessions'])}, {percent(share)} of the server's CPU time: not in the sessions' accounts.",
            value=rung["helpers_aas"],
            unit="cores",
            evidence="os tasks: the ledger's scope helper",
        )


def unaccounted(case: Case) -> Iterator[Finding]:
    """What the accounts leave over, beyond the samples' own error."""
    shares: list[tuple[float, float, float, Row]] = []
    for cell in case.usable():
        rows = case.accounts(cell["cell"]).filter(pl.col("account") == "unaccounted")
        wall = case.accounts(cell["cell"], "memo").filter(pl.col("account") == "wall")["aas"].sum()
        known = rows.filter(pl.col("low").is_not_null() & pl.col("high").is_not_null())
        if known.is_empty() or not wall:
            continue
        aas, low, high = (float(known[c][0]) / wall for c in ("aas", "low", "high"))
        shares.append((aas, low, high, cell))
    beyond = [s for s in shares if s[1] > 0 or s[2] < 0]
    for limit, severity in ((UNACCOUNTED_WARNING, "warning"), (UNACCOUNTED_NOTE, "note")):
        large = [s for s in beyond if abs(s[0]) > limit]
        if large:
            aas, low, high, cell = max(large, key=lambda s: abs(s[0]))
            yield Finding(
                id="unaccounted",
                severity=severity,  # type: ignore[arg-type]
                claim=f"{percent(aas)} of the sessions' time is unaccounted for at {where(cell, case)}, the worst of "
                f"{len(large)} cells beyond {percent(limit)} (95 % interval {percent(low)} to {percent(high)}).",
                value=aas,
                unit="of session time",
                low=low,
                high=high,
                evidence="ledger: W less run, run queue, sleep and client",
                cure="longer windows or more samples (--sample-hz); steal and unreadable tasks are in it",
                cells=ids([s[3] for s in large]),
            )
            return
    if shares:
        largest = max(shares, key=lambda s: abs(s[0]))
        yield Finding(
            id="ledger-closes",
            severity="good",
            claim=f"The ledger closes within the samples' error in all {len(shares)} cells; the largest remainder is "
            f"{percent(largest[0])} of session time.",
            value=largest[0],
            unit="of session time",
            low=largest[1],
            high=largest[2],
            evidence="ledger: W less run, run queue, sleep and client",
        )


def _of(rung: Row) -> str:
    return f"{significant(rung['runq_aas'])} of {rung['sessions']}"
