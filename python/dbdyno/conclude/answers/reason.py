"""Why growth bends: by the ledger's accounts before and after it, else by the CPU columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from dbdyno.conclude import number_format as fmt
from dbdyno.conclude.answers import ladders
from dbdyno.conclude.answers.ladders import cells_of, figures_of_cell
from dbdyno.conclude.catalogue import claim
from dbdyno.model.analyses import Estimate, Ladder, Scaling
from dbdyno.model.claim import Claim
from dbdyno.model.ledger_rows import account_rows, top_level
from dbdyno.model.results import Results
from dbdyno.model.session_time import STARVED
from dbdyno.model.wait_families import LOCKS, STORAGE, WaitFamilies, families_of

CPU, RUN, RUNQ, THROTTLE = "CPU", "run", "CPU WAIT", "throttle"
LOCK, IO, CLIENT, DRIVER, POOL, WAIT, UNACCOUNTED = (
    "lock",
    "I/O",
    "client",
    "driver",
    "pool",
    "wait",
    "unaccounted",
)
_BY_ACCOUNT = {"run": RUN, "runq": RUNQ, "client": CLIENT, "pool.queue": POOL, "unaccounted": UNACCOUNTED}
MOSTLY = 0.5


@dataclass(frozen=True)
class Spent:
    """What a usable cell spent: session-seconds per unit of work by (group, detail)."""

    load: float
    repeat: int
    by: Mapping[tuple[str, str], float]
    throttled: float
    """At least so many of those in the run queue."""
    starved: bool
    """The driver itself had to wait for a CPU."""

    @property
    def total(self) -> float:
        return sum(self.by.values())


@dataclass(frozen=True)
class Growth:
    """What grew most from before a bend to after it."""

    group: str
    detail: str
    seconds: float
    """Session time per unit of work, so many more."""
    share: Estimate
    """Of the growth of all session time per unit of work."""


def spent(results: Results, ladder: Ladder) -> list[Spent]:
    """Per usable cell; without those of which run or run queue is not known."""
    rates = {(r["load"], r["repeat"]): r["throughput"] for r in ladder.points.to_dicts()}
    families, found = families_of(results.tables), []
    for window, parts in cells_of(results, ladder):
        rate = rates.get((float(window["sessions"]), window["repeat"]))
        rows = top_level(parts["ledger"]).filter(pl.col("scope") == "rung")
        if rate and {"run", "runq"} <= set(rows.drop_nulls("aas")["account"]):
            starved = (figures_of_cell(parts).get("driver_starved") or 0.0) > STARVED
            low = account_rows(parts["ledger"], "runq.throttled_bracket")["low"].drop_nulls().sum()
            by = _by_group(rows, rate, families)
            found.append(Spent(window["sessions"], window["repeat"], by, float(low) / rate, starved))
    return found


def _by_group(rows: pl.DataFrame, rate: float, families: WaitFamilies) -> dict[tuple[str, str], float]:
    by: dict[tuple[str, str], float] = defaultdict(float)
    for account, detail, aas in rows.select("account", "detail", "aas").drop_nulls("aas").iter_rows():
        if account == "sleep":
            by[_of_sleep(families, detail), detail or "asleep"] += aas / rate
        elif account in _BY_ACCOUNT:
            by[_BY_ACCOUNT[account], ""] += aas / rate
    return by


def _of_sleep(families: WaitFamilies, detail: str | None) -> str:
    family = families.of(detail)
    return LOCK if family in LOCKS else IO if family in STORAGE else WAIT


def grown_most(cells: Iterable[Spent], bend: float) -> Growth | None:
    """The group whose session time per unit of work grows most beyond ``bend``, and in it the largest detail.

    Run and run queue are one group (CPU): a unit that is charged more CPU and one that waits for a CPU are
    both short of CPUs. ``None``: there are cells on one side only, or session time did not grow.
    """
    sides = list(cells)
    lowest = min((c.load for c in sides), default=0.0)
    before = [c for c in sides if c.load <= max(bend, lowest)]
    after = [c for c in sides if c.load > max(bend, lowest)]
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
    return Growth(_named(kind, after), detail, seconds, share)


def _growth(before: list[Spent], after: list[Spent]) -> dict[tuple[str, str], float]:
    keys = {k for c in (*before, *after) for k in c.by}
    return {k: _mean(c.by.get(k, 0.0) for c in after) - _mean(c.by.get(k, 0.0) for c in before) for k in keys}


def _share(before: list[Spent], after: list[Spent], keys: set[tuple[str, str]]) -> Estimate | None:
    """Of each repeat; their mean with its interval. ``None``: fewer than two repeats have both sides."""
    shares = []
    for repeat in sorted({c.repeat for c in before} & {c.repeat for c in after}):
        grown = _growth([c for c in before if c.repeat == repeat], [c for c in after if c.repeat == repeat])
        if (total := sum(grown.values())) > 0:
            shares.append(sum(g for k, g in grown.items() if k in keys) / total)
    return fmt.estimate("share", shares, share=True) if len(shares) > 1 else None


def _named(kind: str, after: list[Spent]) -> str:
    """What lies behind a group, where other figures of the same cells tell more."""
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
"""Share of the CPUs from which on they are called all busy."""
SPARE = 0.80
"""Below this they are called idle enough not to be what limits."""

_CASES = {
    RUN: "run",
    RUNQ: "runq",
    THROTTLE: "throttle",
    LOCK: "lock",
    IO: "io",
    CLIENT: "client",
    DRIVER: "driver",
    POOL: "pool",
    WAIT: "wait",
    UNACCOUNTED: "unaccounted",
}
"""Of the catalogue's entry, by the account that grows most."""

Reason = tuple[str, Claim]
"""Kind and claim; the kind is the name of the claim's value, too, where that has one: CPU WAIT, run,
throttle, lock: NAME, I/O: NAME, client, driver, pool, wait: NAME, unaccounted; without a ledger CPU or
not the CPU; no bend, unknown."""
UNKNOWN, NOT_CPU = "unknown", "not the CPU"


def reason(scaling: Scaling, results: Results | None) -> Reason:
    """Always one claim. Its value is the account's share of the growth of session time per unit of work."""
    bend = ladders.bend(scaling)
    if bend is None:
        top = fmt.load(ladders.loads(scaling.ladder)[-1], scaling.ladder.load_unit)
        return "no bend", claim("reason", {"top": top}, case="none")
    if results is not None and scaling.ladder.workload is not None:
        found = grown_most(spent(results, scaling.ladder), bend)
        if found is not None:
            return _by_ledger(scaling, bend, found)
    return _by_points(
        scaling.ladder,
        bend,
        {"bend": fmt.load(bend, scaling.ladder.load_unit), "unit": _unit(scaling.ladder)},
    )


def _by_ledger(scaling: Scaling, bend: float, found: Growth) -> Reason:
    ladder, share = scaling.ladder, found.share
    said = {
        "bend": fmt.load(bend, ladder.load_unit),
        "detail": found.detail,
        "share": fmt.percent(min(1.0, share.value)) + fmt.percent_spread(share),
        "unit": _unit(ladder),
    }
    busy = _cpus_busy(ladder) if found.group in (RUN, RUNQ) else {}
    name = f"{found.group}: {found.detail}" if found.detail else found.group
    value = Estimate(name, share.value, "of growth", share.low, share.high, share.method, share.std_err)
    return name, claim("reason", said | busy, value, case=_CASES[found.group], parts=["busy"] if busy else [])


def _unit(ladder: Ladder) -> str:
    return fmt.unit_of_work(ladder.throughput_unit)


def _cpus_busy(ladder: Ladder) -> dict[str, float]:
    """CPUs that ran sessions at the load that delivers most, and how many there are; empty: not known."""
    used, cpus = ladders.at(ladder, ladders.best_rung(ladder), "cpu"), ladder.machine.cpus
    if used is None or cpus is None:
        return {}
    return {"used": used.value, "cpus": fmt.whole(cpus)}


def _by_points(ladder: Ladder, bend: float, said: dict[str, Any]) -> Reason:
    """Without a ledger CPU seconds still show whether it can be the CPU."""
    beyond = ladder.points.filter(pl.col("load") > bend)
    used = fmt.estimate("CPUs used", beyond["cpu"].to_list(), "CPUs")
    if used is None:
        return UNKNOWN, claim("reason", said, case="no-figures")
    if (waits := _waits_share(ladder, bend)) is not None:
        return _by_cpu_wait(said, waits)
    cpus = ladder.machine.cpus
    said |= {"used": used.value}
    if cpus is None:
        return UNKNOWN, claim("reason", said, case="no-cpus")
    share = used.value / cpus
    kind, case = (CPU, "full") if share >= FULL else (UNKNOWN, "unclear")
    if share < SPARE:
        kind, case = NOT_CPU, "spare"
    return kind, claim("reason", said | {"cpus": fmt.whole(cpus)}, Estimate(kind, share), case=case)


def _waits_share(ladder: Ladder, bend: float) -> float | None:
    """How much of the growth of session time per unit of work is CPU or CPU WAIT; ``None``: not known."""
    known = ladder.points.drop_nulls(["cpu", "cpu_wait"])
    lowest = known["load"].min()
    low = known.filter(pl.col("load") <= pl.max_horizontal(pl.lit(bend), pl.lit(lowest)))
    high = known.filter(pl.col("load") > pl.max_horizontal(pl.lit(bend), pl.lit(lowest)))
    if low.is_empty() or high.is_empty():
        return None

    def each(frame: pl.DataFrame, *columns: str) -> float:
        return float(frame.select((pl.sum_horizontal(columns) / pl.col("throughput")).mean()).item())

    total = each(high, "load") - each(low, "load")
    return (each(high, "cpu", "cpu_wait") - each(low, "cpu", "cpu_wait")) / total if total > 0 else None


def _by_cpu_wait(said: dict[str, Any], share: float) -> Reason:
    said |= {"share": fmt.percent(max(0.0, min(1.0, share)))}
    kind, case = (CPU, "cpu") if share > MOSTLY else (NOT_CPU, "not-cpu")
    return kind, claim("reason", said, Estimate(kind, share), case=case)
