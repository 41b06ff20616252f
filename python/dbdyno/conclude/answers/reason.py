"""Why growth bends: by the ledger's accounts, else as far as CPU figures tell."""

from __future__ import annotations

import polars as pl

from dbdyno.conclude import number_format as fmt
from dbdyno.conclude.answers import accounts, rungs
from dbdyno.conclude.answers.accounts import Growth
from dbdyno.conclude.claims import claim
from dbdyno.model.claim import Claim
from dbdyno.model.results import Results
from dbdyno.model.scaling import Estimate, Ladder, Scaling

FULL = 0.95
"""Share of the CPUs from which on they are called all busy."""
SPARE = 0.80
"""Below this they are called idle enough not to be what limits."""

_WORDS = {
    accounts.RUN: "a unit of work is charged more CPU time",
    accounts.RUNQ: "sessions wait for a CPU (CPU WAIT)",
    accounts.THROTTLE: "a quota throttles the sessions (it is a limit, not the machine)",
    accounts.LOCK: "sessions queue for a lock: {detail}",
    accounts.IO: "sessions wait for I/O: {detail}",
    accounts.CLIENT: "the time at the client grows: its own work, the network, or a pause, not the server",
    accounts.DRIVER: "the driver is short of CPU: it limits the load, not the server",
    accounts.POOL: "sessions queue for the pool's connections",
    accounts.WAIT: "sessions wait: {detail}",
    accounts.UNACCOUNTED: "time that no account names grows",
}


Reason = tuple[str, Claim]
"""Kind and answer; the kind is the name of the answer's value, too, where that has one: CPU WAIT, run,
throttle, lock: NAME, I/O: NAME, client, driver, pool, wait: NAME, unaccounted; without a ledger CPU or
not the CPU; no bend, not told."""


def reason(scaling: Scaling, results: Results | None) -> Reason:
    """Always one answer. Its value is the account's share of the growth of session time per unit of work."""
    bend = rungs.bend(scaling)
    if bend is None:
        top = fmt.load(rungs.loads(scaling.ladder)[-1], scaling.ladder.load_unit)
        return _answer(f"No bend was measured up to {top}: there is nothing to explain", "no bend")
    if results is not None and scaling.ladder.workload is not None:
        found = accounts.grown_most(accounts.spent(results, scaling.ladder), bend)
        if found is not None:
            return _by_ledger(scaling, bend, found)
    return _by_points(scaling.ladder, bend, _where(scaling, bend))


def _by_ledger(scaling: Scaling, bend: float, found: Growth) -> Reason:
    ladder = scaling.ladder
    words = _WORDS[found.group].format(detail=found.detail)
    unit = ladder.throughput_unit.partition("/")[0]
    text = f"{_where(scaling, bend)} because {words}: "
    text += f"{fmt.percent(min(1.0, found.share.value))}{fmt.percent_spread(found.share)} of the extra time "
    text += f"that a unit of work ({unit}) takes beyond it"
    if found.group in (accounts.RUN, accounts.RUNQ):
        text += _cpus_busy(ladder)
    name = f"{found.group}: {found.detail}" if found.detail else found.group
    share = found.share
    value = Estimate(name, share.value, "of growth", share.low, share.high, share.method, share.std_err)
    evidence = "ledger: accounts per unit of work before and after the bend"
    return name, claim("reason", f"{text}.", value, evidence)


def _where(scaling: Scaling, bend: float) -> str:
    load = fmt.load(bend, scaling.ladder.load_unit)
    if scaling.best is None or not scaling.best.knees:
        return f"Growth falls off beyond {load}"
    return f"Growth bends at {load}{fmt.spread(scaling.best.knees[0])}"


def _cpus_busy(ladder: Ladder) -> str:
    """`` (3.98 of 4 CPUs ran sessions)``: at the rung that delivers most."""
    used, cpus = rungs.at(ladder, rungs.best_rung(ladder), "cpu"), ladder.machine.cpus
    if used is None or cpus is None:
        return ""
    return f" ({fmt.plain(used.value)} of {fmt.plain(cpus)} CPUs ran sessions at the peak)"


def _by_points(ladder: Ladder, bend: float, where: str) -> Reason:
    """Without a ledger CPU seconds still tell whether it can be the CPU."""
    beyond = ladder.points.filter(pl.col("load") > bend)
    used = fmt.estimate("CPUs used", beyond["cpu"].to_list(), "CPUs")
    if used is None:
        return _answer(f"{where}; why is not told: no ledger, and no CPU figures", "not told")
    if (waits := _waits_share(ladder, bend)) is not None:
        return _by_cpu_wait(where, waits)
    cpus = ladder.machine.cpus
    if cpus is None:
        text = f"{where}; why is not told: {fmt.plain(used.value)} CPUs were used, of how many is not known"
        return _answer(text, "not told")
    busy = f"{fmt.plain(used.value)} of {fmt.plain(cpus)} CPUs were busy beyond it"
    share = used.value / cpus
    if share >= FULL:
        return _answer(f"{where} because the CPUs are all busy: {busy}", accounts.CPU, share)
    if share < SPARE:
        text = f"{where}, but not for the CPU: {busy}; what else it is, is not told: no ledger"
        return _answer(text, "not the CPU", share)
    return _answer(
        f"{where}; whether for the CPU is not told: {busy}, and there is no ledger", "not told", share
    )


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


def _by_cpu_wait(where: str, share: float) -> Reason:
    said = f"{fmt.percent(max(0.0, min(1.0, share)))} of the extra time that a unit of work takes"
    if share > accounts.MOSTLY:
        return _answer(f"{where} because sessions run longer or wait for a CPU: {said}", accounts.CPU, share)
    text = f"{where}, but not for the CPU: run and CPU WAIT are {said}; "
    text += "what else it is, is not told: no ledger"
    return _answer(text, "not the CPU", share)


def _answer(text: str, kind: str, share: float | None = None) -> Reason:
    value = Estimate(kind, share) if share is not None else None
    return kind, claim("reason", f"{text}.", value, "CPU columns" if share is not None else "")
