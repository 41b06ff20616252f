"""Why growth bends: by the ledger's accounts, else as far as CPU figures tell."""

from __future__ import annotations

from typing import Any

import polars as pl

from dbdyno.conclude import number_format as fmt
from dbdyno.conclude.answers import accounts, rungs
from dbdyno.conclude.answers.accounts import Growth
from dbdyno.conclude.catalogue import claim
from dbdyno.model.claim import Claim
from dbdyno.model.results import Results
from dbdyno.model.scaling import Estimate, Ladder, Scaling

FULL = 0.95
"""Share of the CPUs from which on they are called all busy."""
SPARE = 0.80
"""Below this they are called idle enough not to be what limits."""

_CASES = {
    accounts.RUN: "run",
    accounts.RUNQ: "runq",
    accounts.THROTTLE: "throttle",
    accounts.LOCK: "lock",
    accounts.IO: "io",
    accounts.CLIENT: "client",
    accounts.DRIVER: "driver",
    accounts.POOL: "pool",
    accounts.WAIT: "wait",
    accounts.UNACCOUNTED: "unaccounted",
}
"""Of the catalogue's entry, by the account that grows most."""

Reason = tuple[str, Claim]
"""Kind and claim; the kind is the name of the claim's value, too, where that has one: CPU WAIT, run,
throttle, lock: NAME, I/O: NAME, client, driver, pool, wait: NAME, unaccounted; without a ledger CPU or
not the CPU; no bend, unknown."""
UNKNOWN, NOT_CPU = "unknown", "not the CPU"


def reason(scaling: Scaling, results: Results | None) -> Reason:
    """Always one claim. Its value is the account's share of the growth of session time per unit of work."""
    bend = rungs.bend(scaling)
    if bend is None:
        top = fmt.load(rungs.loads(scaling.ladder)[-1], scaling.ladder.load_unit)
        return "no bend", claim("reason", {"top": top}, case="none")
    if results is not None and scaling.ladder.workload is not None:
        found = accounts.grown_most(accounts.spent(results, scaling.ladder), bend)
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
    busy = _cpus_busy(ladder) if found.group in (accounts.RUN, accounts.RUNQ) else {}
    name = f"{found.group}: {found.detail}" if found.detail else found.group
    value = Estimate(name, share.value, "of growth", share.low, share.high, share.method, share.std_err)
    return name, claim("reason", said | busy, value, case=_CASES[found.group], parts=["busy"] if busy else [])


def _unit(ladder: Ladder) -> str:
    return fmt.unit_of_work(ladder.throughput_unit)


def _cpus_busy(ladder: Ladder) -> dict[str, float]:
    """CPUs that ran sessions at the load that delivers most, and how many there are; empty: not known."""
    used, cpus = rungs.at(ladder, rungs.best_rung(ladder), "cpu"), ladder.machine.cpus
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
    kind, case = (accounts.CPU, "full") if share >= FULL else (UNKNOWN, "unclear")
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
    kind, case = (accounts.CPU, "cpu") if share > accounts.MOSTLY else (NOT_CPU, "not-cpu")
    return kind, claim("reason", said, Estimate(kind, share), case=case)
