"""Concludes why growth bends: from the ledger's accounts before and after the bend, else from the CPU
columns. It also gives the parts of session time at the highest load."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from dbdyno.conclude.catalogue import claim, sentence
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.ladder import ladders
from dbdyno.conclude.ladder.ladders import Measured, cells_of, figures_of
from dbdyno.conclude.ladder.rungs import Rungs
from dbdyno.conclude.run.case import Row
from dbdyno.model.results.analyses import Estimate, Ladder, Scaling
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.ledger_rows import account_rows, top_level
from dbdyno.model.results.session_time import STARVED, whole
from dbdyno.model.sources.wait_families import LOCKS, STORAGE, WaitFamilies, families_of

if TYPE_CHECKING:
    pass

CPU, RUN, RUNQ, THROTTLE = "CPU", "run", "CPU WAIT", "throttle"
LOCK, IO, CLIENT, DRIVER, POOL = "lock", "I/O", "client", "driver", "pool"
WAIT, UNACCOUNTED = "wait", "unaccounted"
_BY_ACCOUNT = {"run": RUN, "runq": RUNQ, "client": CLIENT, "pool.queue": POOL, "unaccounted": UNACCOUNTED}
MOSTLY = 0.5


@dataclass(frozen=True)
class Spent:
    """Session time of a usable cell: session-seconds per unit of work by (group, detail)."""

    load: float
    repeat: int
    by: Mapping[tuple[str, str], float]
    throttled: float
    """Lower limit of the throttled part of the run queue."""
    starved: bool
    """Whether the driver itself waited for a CPU."""


@dataclass(frozen=True)
class Growth:
    """The account that grew most from before a bend to after it."""

    group: str
    detail: str
    seconds: float
    """Growth of session time per unit of work."""
    share: Estimate
    """Its part of the growth of all session time per unit of work."""


def spent(results: Measured, ladder: Ladder) -> list[Spent]:
    """Returns session time per usable cell; cells with unknown run or run-queue time are left out."""
    rates = {(r["load"], r["repeat"]): r["throughput"] for r in ladder.points.to_dicts()}
    families, spent_by_cell = families_of(results.tables), []
    for window, parts in cells_of(results, ladder):
        rate = rates.get((float(window["sessions"]), window["repeat"]))
        rows = top_level(parts["ledger"]).filter(pl.col("scope") == "rung")
        if rate and {"run", "runq"} <= set(rows.drop_nulls("aas")["account"]):
            starved = (figures_of(parts["rates"]).get("driver_starved") or 0.0) > STARVED
            low = account_rows(parts["ledger"], "runq.throttled_bracket")["low"].drop_nulls().sum()
            by = _by_group(rows, rate, families)
            spent_by_cell.append(Spent(window["sessions"], window["repeat"], by, float(low) / rate, starved))
    return spent_by_cell


def _by_group(rows: pl.DataFrame, rate: float, families: WaitFamilies) -> dict[tuple[str, str], float]:
    by: dict[tuple[str, str], float] = defaultdict(float)
    for account, detail, aas in rows.select("account", "detail", "aas").drop_nulls("aas").iter_rows():
        if account == "sleep":
            by[_sleep_group(families, detail), detail or "asleep"] += aas / rate
        elif account in _BY_ACCOUNT:
            by[_BY_ACCOUNT[account], ""] += aas / rate
    return by


def _sleep_group(families: WaitFamilies, detail: str | None) -> str:
    family = families.of(detail)
    return LOCK if family in LOCKS else IO if family in STORAGE else WAIT


def grown_most(cells: Iterable[Spent], bend: float) -> Growth | None:
    """Returns the group whose session time per unit of work grows most beyond ``bend``, and its largest
    detail. Run and run queue form one group (CPU): a unit that is charged more CPU time and one that waits
    for a CPU both lack CPUs. None if there are cells on one side only, or session time did not grow."""
    before, after = _sides(list(cells), bend)
    if not before or not after:
        return None
    grown = _growth(before, after)
    total = sum(grown.values())
    if total <= 0:
        return None
    groups: dict[str, float] = defaultdict(float)
    for (group, _), g in grown.items():
        groups[CPU if group in (RUN, RUNQ) else group] += g
    group = max(groups, key=lambda k: groups[k])
    inside = {k: g for k, g in grown.items() if (CPU if k[0] in (RUN, RUNQ) else k[0]) == group}
    (kind, detail), most = max(inside.items(), key=lambda kv: kv[1])
    seconds = groups[CPU] if group == CPU else most
    keys = set(inside) if group == CPU else {(kind, detail)}
    share = _share(before, after, keys) or Estimate("share", seconds / total)
    return Growth(_cause_behind(kind, after), detail, seconds, share)


def _sides(cells: Sequence[Spent], bend: float) -> tuple[list[Spent], list[Spent]]:
    """Returns the cells up to a bend (at least the lowest load) and those beyond it."""
    end = max(bend, min((c.load for c in cells), default=0.0))
    return [c for c in cells if c.load <= end], [c for c in cells if c.load > end]


def _growth(before: list[Spent], after: list[Spent]) -> dict[tuple[str, str], float]:
    keys = {k for c in (*before, *after) for k in c.by}
    return {k: _mean(c.by.get(k, 0.0) for c in after) - _mean(c.by.get(k, 0.0) for c in before) for k in keys}


def _share(before: list[Spent], after: list[Spent], keys: set[tuple[str, str]]) -> Estimate | None:
    """Returns the mean over the repeats with its interval. None if fewer than two repeats have both sides."""
    shares = []
    for repeat in sorted({c.repeat for c in before} & {c.repeat for c in after}):
        grown = _growth([c for c in before if c.repeat == repeat], [c for c in after if c.repeat == repeat])
        if (total := sum(grown.values())) > 0:
            shares.append(sum(g for k, g in grown.items() if k in keys) / total)
    return fmt.estimate("share", shares, share=True) if len(shares) > 1 else None


def _cause_behind(kind: str, after: list[Spent]) -> str:
    """Returns the cause behind a group if other figures of the same cells show it: throttling, or the
    driver."""
    runq = _mean(c.by.get((RUNQ, ""), 0.0) for c in after)
    if kind == RUNQ and runq > 0 and _mean(c.throttled for c in after) > MOSTLY * runq:
        return THROTTLE
    if kind == CLIENT and sum(c.starved for c in after) > MOSTLY * len(after):
        return DRIVER
    return kind


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return sum(known) / len(known)


# -- the claim --

FULL = 0.95
"""Share of the CPUs from which on all count as busy."""
SPARE = 0.80
"""Share of the CPUs below which CPU is not the limit."""

_CASES = {RUNQ: "runq", IO: "io"}
"""Case of the catalogue's entry by account, where the names differ."""

Reason = tuple[str, Claim]
"""Kind and claim. The kind is also the name of the claim's value, if it has one: CPU WAIT, run, throttle,
lock: NAME, I/O: NAME, client, driver, pool, wait: NAME, unaccounted; without a ledger CPU or not the CPU; no
bend, unknown."""
UNKNOWN, NOT_CPU = "unknown", "not the CPU"


def reason(scaling: Scaling, run: Measured | None) -> Reason:
    """Returns one claim in any case. Its value is the account's share of the growth of session time per unit
    of work."""
    ladder, bend = scaling.ladder, ladders.bend(scaling.ladder)
    if bend is None:
        top = fmt.load(ladders.loads(ladder)[-1], ladder.load_unit)
        return "no bend", claim("reason", {"top": top}, case="none")
    values = {"growth": _growth_ends(ladder, bend), "unit": fmt.unit_of_work(ladder.throughput_unit)}
    growth = None
    if run is not None and ladder.workload is not None:
        growth = grown_most(spent(run, ladder), bend.value)
    return _by_points(ladder, bend.value, values) if growth is None else _by_ledger(ladder, values, growth)


def _growth_ends(ladder: Ladder, bend: Estimate) -> str:
    """Returns the sentence: ``Growth falls off beyond 8 sessions (4 to 16)``; ``Throughput falls from 1
    session on``."""
    rungs = Rungs.of(ladder)
    case = "constant" if rungs.is_constant else "falls" if rungs.best == rungs.loads[0] else "bends"
    values = {"first": fmt.load(rungs.loads[0], ladder.load_unit)}
    values |= {"bend": fmt.load(bend.value, ladder.load_unit) + fmt.load_spread(bend)}
    return sentence("growth-ends", values, case=case)


def _by_ledger(ladder: Ladder, values: dict[str, Any], growth: Growth) -> Reason:
    share, name = growth.share, f"{growth.group}: {growth.detail}" if growth.detail else growth.group
    values |= {
        "detail": growth.detail,
        "share": fmt.percent(min(1.0, share.value)) + fmt.percent_spread(share),
    }
    busy = _cpus_busy(ladder) if growth.group in (RUN, RUNQ) else {}
    value = replace(share, name=name, unit="of growth")
    return name, claim(
        "reason",
        values | busy,
        value,
        case=_CASES.get(growth.group, growth.group),
        parts=["busy"] if busy else [],
    )


def _cpus_busy(ladder: Ladder) -> dict[str, float]:
    """Returns the CPUs that ran sessions at the load with the highest throughput, and the CPUs available;
    empty if unknown."""
    used, cpus = ladders.at(ladder, ladders.best_rung(ladder), "cpu"), ladder.machine.cpus
    if used is None or cpus is None:
        return {}
    return {"used": used.value, "cpus": fmt.whole(cpus)}


def _by_points(ladder: Ladder, bend: float, values: dict[str, Any]) -> Reason:
    """Returns the reason without a ledger: CPU seconds still show whether CPU can be the limit."""
    beyond = ladder.points.filter(pl.col("load") > bend)
    used = fmt.estimate("CPUs used", beyond["cpu"].to_list(), "CPUs")
    if used is None:
        case = "no-columns" if ladder.workload is None else "no-figures"
        return UNKNOWN, claim("reason", values, case=case)
    if (grown := _cpu_share(ladder, bend)) is not None:
        kind, case = (CPU, "cpu") if grown > MOSTLY else (NOT_CPU, "not-cpu")
        values |= {"share": fmt.percent(max(0.0, min(1.0, grown)))}
        return kind, claim("reason", values, Estimate(kind, grown), case=case)
    cpus = ladder.machine.cpus
    values |= {"used": used.value}
    if cpus is None:
        return UNKNOWN, claim("reason", values, case="no-cpus")
    share = used.value / cpus
    kind, case = (CPU, "full") if share >= FULL else (UNKNOWN, "unclear")
    if share < SPARE:
        kind, case = NOT_CPU, "spare"
    return kind, claim("reason", values | {"cpus": fmt.whole(cpus)}, Estimate(kind, share), case=case)


def _cpu_share(ladder: Ladder, bend: float) -> float | None:
    """Returns the share of CPU and CPU WAIT in the growth of session time per unit of work; None if
    unknown."""
    cells = []
    for p in ladder.points.drop_nulls(["cpu", "cpu_wait"]).to_dicts():
        rest = (p["tasks"] or p["load"]) - p["cpu"] - p["cpu_wait"]
        parts = {(RUN, ""): p["cpu"], (RUNQ, ""): p["cpu_wait"], (WAIT, ""): rest}
        by = {name: seconds / p["throughput"] for name, seconds in parts.items()}
        cells.append(Spent(p["load"], p["repeat"], by, 0.0, False))
    before, after = _sides(cells, bend)
    grown = _growth(before, after) if before and after else {}
    total = sum(grown.values())
    return (grown[RUN, ""] + grown[RUNQ, ""]) / total if total > 0 else None


# -- where session time goes --

_ACCOUNTS = {
    "run_aas": "CPU",
    "runq_aas": "CPU WAIT",
    "sleep_aas": "waits",
    "client_aas": "client",
    "pool_queue_aas": "pool queue",
    "unaccounted_aas": "unaccounted",
}
_LEAST = 0.005  # smaller shares would be shown as 0 %


def session_time(top: Row, subject: str = "") -> Claim:
    """Returns the two largest accounts of session time at the highest load."""
    shares = {c: top[c] / (whole(top) or 1.0) for c in _ACCOUNTS if top.get(c) is not None}
    complete = shares.keys() >= _ACCOUNTS.keys() - {"pool_queue_aas"}
    if not complete:
        shares.pop("unaccounted_aas", None)  # it holds what is unknown
    large = [c for c in sorted(shares, key=lambda c: -shares[c])[:2] if shares[c] >= _LEAST]
    values = {"sessions": top["sessions"], "wait": top["top_wait"], "shares": shares}
    values["accounts"] = ", ".join(f"{_ACCOUNTS[c]} {fmt.percent(shares[c])}" for c in large)
    if not large:
        return claim("session-time", values, case="unknown", subject=subject)
    parts = ["wait"] if "sleep_aas" in large and top["top_wait"] else []
    parts += [] if complete else ["partly"]
    return claim("session-time", values, case="known", parts=parts, subject=subject)
