"""Concludes how active the sessions of an existing workload were: the headline of an observation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.ladder.ladders import machine_of
from dbdyno.conclude.run.case import Row
from dbdyno.conclude.run.coverage import GAP_NS
from dbdyno.model.results.analyses import Estimate
from dbdyno.model.results.brief import STATUS
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.ledger_rows import TOGETHER
from dbdyno.model.units import NS_PER_S, counted, format_rate

if TYPE_CHECKING:
    from dbdyno.model.results.results import Results

ACTIVITY = "activity"
IDLE_QUEUE = 0.05
"""Share of DB time from which on the CPU WAIT of sessions that the server shows as idle is reported."""
IDLE = 0.0005
"""Mean active sessions below which the figure would be shown as 0."""
TOP = 3
"""Number of waits that are named as the longest."""
_LEAST = 0.005
"""Share of DB time from which on a wait is worth naming."""
_NO_WAITS = ("DB CPU", "CPU WAIT")
_WHOLE = " on the whole server"
"""Follows counters of the server where only some of its sessions are observed."""


def activity(results: Results) -> Claim:
    """Returns the headline of an observation: means over all windows, in seconds per second."""
    windows = results.tables["windows"].sort("t0_ns")
    if windows.is_empty():
        return claim(ACTIVITY, {}, case="none")
    together = results.tables["profile"].filter(pl.col("cell") == TOGETHER)
    rows = {r["name"]: r for r in together.to_dicts()}
    figures = {name: row["per_s"] for name, row in rows.items()}
    status = rows["DB time"]["status"] if "DB time" in rows else "off"
    findings = {f.id: f for f in results.findings}
    whose = (pl.col("role") == "session") & ~pl.col("worker")
    processes = results.ask(
        "microstates", lambda rows: rows.filter(whose).select("pid", "start_ticks").unique()
    )
    brief = findings["brief-sessions"].value if "brief-sessions" in findings else None
    events = results.tables["top_events"].filter(pl.col("cell") == TOGETHER).sort("rank")
    waits = events.filter(~pl.col("name").is_in(_NO_WAITS) & (pl.col("share") >= _LEAST)).head(TOP)
    largest = waits.select("name", "share").rows()
    gaps = (windows["t0_ns"] - windows["t1_ns"].shift(1)).drop_nulls()
    gaps = gaps.filter(gaps > GAP_NS)
    cpus = machine_of(results, windows["variant"][0])[0].cpus
    db_time = figures.get("DB time")
    cpu, wait = figures.get("DB CPU"), figures.get("CPU WAIT")
    others = None
    if db_time is not None and cpu is not None and wait is not None:
        others = max(0.0, db_time - cpu - wait)
    whole = _WHOLE if results.plan.experiment.observes_some else ""
    values: dict[str, Any] = {
        "db_time": db_time,
        "db_cpu": cpu,
        "cpu_wait": wait,
        "others": others,
        "cpus": f" on {counted(cpus, 'CPU')}" if cpus else "",
        "within": f" in {status}" if db_time is not None and status.endswith(" windows") else "",
        "rates": _rates(rows, gaps=bool(len(gaps)), whole=whole),
        "whole": whole,
        "idle": _idle_queue(results),
        "sessions": processes.height,
        "brief": 0 if brief is None else int(brief.value),
        "hidden": "",
        "top": ", ".join(f"{name} {100 * share:.1f} %" for name, share in largest),
        **_block_reads(rows),
        "gaps": len(gaps),
        "gap": float(gaps.sum()) / NS_PER_S,
    }
    hidden = findings.get("sessions-hidden")
    if db_time is not None and db_time < IDLE and not values["brief"]:
        return claim(ACTIVITY, values, Estimate("DB time", db_time, "s/s"), case="idle")
    case = "known" if db_time is not None else "brief" if status == STATUS else "unknown"
    if case == "unknown" and hidden is not None:
        text = hidden.text.partition(":")[0]
        case, values["hidden"] = "hidden", f"{text[:1].lower()}{text[1:]} ({hidden.advice})"
    value = None if db_time is None else Estimate("DB time", db_time, "s/s")
    return claim(
        ACTIVITY, values, value, case=case, parts=[*_activity_parts(values, known=db_time is not None)]
    )


def _activity_parts(values: Mapping[str, Any], *, known: bool) -> Iterator[str]:
    """Yields the sentences that follow, in their order."""
    if known:
        yield "cpu" if values["db_cpu"] is not None else "no-cpu"
        yield "wait" if values["cpu_wait"] is not None else "no-wait"
        if values["others"] is not None:
            yield "others"
    elif values["db_cpu"] is not None:
        yield "only-cpu"
    if values["sessions"]:
        yield "seen-and-brief" if values["brief"] else "seen"
    else:
        yield "brief" if values["brief"] else "not-seen"
    if known and values["idle"] > IDLE_QUEUE * values["db_time"]:
        yield "idle"
    yield from (name for name in ("blocks", "top", "gaps") if values[name])


def _rates(rows: Mapping[str, Row], *, gaps: bool, whole: str) -> str:
    """Returns the transactions and statements as ``160 transactions (10.6/s). ``, with the reason if one is
    unknown; empty if both are. Between windows, in gaps, there may have been another rate."""
    by_noun = [
        (rows[name], noun)
        for name, noun in (("transactions", "transaction"), ("executions", "statement"))
        if name in rows
    ]
    known = [(row, noun) for row, noun in by_noun if row["per_s"] is not None]
    if not known:
        return ""
    # A status other than ok counts the windows that know the figure.
    within = ["" if row["status"] == "ok" else f" in {row['status']}" for row, _ in known]
    alike = len(set(within)) == 1
    measured = f"{whole}{' while measured' if gaps else ''}"
    texts = [
        f"{counted(round(row['total']), noun)} ({format_rate(row['per_s'])}/s){'' if alike else where}"
        for (row, noun), where in zip(known, within, strict=True)
    ]
    unknown = [
        f"{noun.capitalize()}s: unknown ({row['status']}). " for row, noun in by_noun if row["per_s"] is None
    ]
    return f"{' and '.join(texts)}{measured}{within[0] if alike else ''}. {''.join(unknown)}"


def _idle_queue(results: Results) -> float:
    """Returns the mean seconds per second that sessions waited for a CPU while the server showed them as
    idle, over the windows whose DB time is known."""
    windows = results.tables["windows"].filter(pl.col("status") != "invalid").select("cell", "wall_s")
    db_time = results.tables["profile"].filter(pl.col("name") == "DB time").drop_nulls("total")
    windows = windows.join(db_time, on="cell", how="semi")
    memo = results.tables["ledger"].filter(
        (pl.col("scope") == "memo")
        & (pl.col("who") == "rung")
        & (pl.col("account") == "state.runq")
        & pl.col("detail").str.starts_with("idle")
    )
    seconds = memo.join(windows, on="cell").select((pl.col("aas") * pl.col("wall_s")).sum()).item()
    whole = windows["wall_s"].sum()
    return float(seconds / whole) if whole else 0.0


def _block_reads(rows: Mapping[str, Row]) -> dict[str, str]:
    """Returns the block reads a second, and the share from the cache; empty texts if one is unknown."""
    reads, physical, ratio = (rows.get(n, {}) for n in ("logical reads", "physical reads", "cache hit ratio"))
    if not reads.get("per_s") or physical.get("total") is None or ratio.get("total") is None:
        return {"blocks": "", "cached": ""}
    share = f"{100 * ratio['total']:.2f} %"
    cached = "all" if not physical["total"] else "more than 99.99 %" if share == "100.00 %" else share
    return {"blocks": format_rate(reads["per_s"]), "cached": cached}
