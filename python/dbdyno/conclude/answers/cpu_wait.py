"""From which load on sessions wait for a CPU; how much an observed load can grow before they do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from dbdyno.conclude import number_format as fmt
from dbdyno.conclude.answers import ladders
from dbdyno.conclude.answers.ladders import cells_of, machine_of
from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.criteria import begins, waiting
from dbdyno.model.analyses import Estimate, Ladder, Machine, Scaling
from dbdyno.model.claim import Claim
from dbdyno.model.ledger_rows import BY_LABEL, account_rows
from dbdyno.model.results import Results

IDLE = 0.80
"""Sessions that use less of the CPUs than this leave some free."""


def onset(scaling: Scaling, results: Results | None) -> Claim:
    """By :func:`~dbdyno.conclude.criteria.begins`. The true onset lies between it and the rung below."""
    ladder = scaling.ladder
    unit = ladder.load_unit
    shares = [(n, s) for n in ladders.loads(ladder) if (s := _share(ladder, n, results)) is not None]
    if not shares:
        return claim("cpu-wait-onset", {}, case="unknown")
    found = begins(shares)
    if found is None:
        top, most = max(shares, key=lambda p: p[1].value)
        none = {"highest": fmt.load(shares[-1][0], unit), "share": _said(most), "load": fmt.load(top, unit)}
        return claim("cpu-wait-onset", none, case="none")
    n, s = shares[found]
    spare = _spare(ladder, n)
    said: dict[str, Any] = {"load": fmt.load(n, unit), "share": _said(s)} | spare
    parts = ["spare"] if spare else []
    if not found:
        value = Estimate("CPU WAIT from", n, unit, high=n)
        return claim("cpu-wait-onset", said, value, case="lowest", parts=parts)
    below, before = shares[found - 1]
    said |= {"before": before.value, "below": fmt.load(below, unit)}
    value = Estimate("CPU WAIT from", n, unit, below, n, "between two rungs")
    return claim("cpu-wait-onset", said, value, case="onset", parts=parts)


def _spare(ladder: Ladder, load: float) -> dict[str, float]:
    """Sessions that wait though they leave CPUs free are kept from them: by others on them, or by a limit."""
    used, cpus = ladders.at(ladder, load, "cpu"), ladder.machine.cpus
    if used is None or cpus is None or used.value >= IDLE * cpus:
        return {}
    return {"used": used.value, "cpus": fmt.whole(cpus)}


def _said(share: Estimate) -> str:
    return fmt.percent(share.value) + fmt.percent_spread(share)


def _share(ladder: Ladder, load: float, results: Results | None) -> Estimate | None:
    """Of session time; with one repeat its interval is the ledger's own."""
    found = ladders.at(ladder, load, "cpu_wait", over="load")
    if found is None or found.low is not None or results is None or ladder.workload is None:
        return found
    for window, parts in cells_of(results, ladder):
        if window["sessions"] == load:
            return waiting([account_rows(parts["ledger"], "runq")], load)
    return found


# -- headroom --

WAITS = 0.10
"""CPU WAIT over CPU time from which on there is said to be no headroom, and up to which it is counted."""


@dataclass(frozen=True)
class Present:
    """The load as it was observed: means of its windows."""

    used: Estimate
    """CPUs that were busy, whoever used them."""
    wait: float | None
    """Run-queue time of the sessions over their CPU time."""
    source: str


def headroom(results: Results) -> Claim | None:
    """Of an observed run; ``None`` of any other.

    Said with two models. Utilisation law (Denning and Buzen, Computing Surveys 10 (1978) 225): as much CPU
    per unit of work as now, so CPUs are full at ``cpus / used`` times the load: the most there can be. M/M/c
    (Erlang's delay formula; Kleinrock, Queueing Systems I (1975), section 3.5): the load at which sessions
    wait :data:`WAITS` of their CPU time. With SMT the low end takes further threads to yield nothing.
    """
    if results.plan.experiment.observation is None:
        return None
    machine, notes = machine_of(results, _variant(results))
    now = present(results)
    if machine.cpus is None or now is None:
        why = next(iter(notes), "CPU times of the sessions could not be read.")
        return claim("headroom", {"why": why}, case="unknown")
    return said(now, machine)


def said(now: Present, machine: Machine) -> Claim:
    """The claim, from what was observed and the machine (its CPUs must be known)."""
    assert machine.cpus is not None
    used = now.used.value
    values = {"used": used, "wait": now.wait, "source": now.source, "cpus": fmt.whole(machine.cpus)}
    parts = ["busy" if now.wait is None else "wait"]
    waits = now.wait is not None and now.wait > WAITS
    if waits or used >= machine.cpus:
        none = Estimate(
            "headroom", 0.0, "of the present load", 0.0, 0.0, "CPU WAIT" if waits else "CPUs busy"
        )
        return claim("headroom", values, none, case="none" if waits else "full", parts=parts)
    if used <= 0:
        return claim("headroom", values, case="idle")
    busiest = now.used.high if now.used.high is not None else used
    until = load_until(WAITS, machine.cpus)
    most, more = machine.cpus / used - 1, max(0.0, until / used - 1)
    least = min(more, max(0.0, load_until(WAITS, _surely(machine)) / busiest - 1))
    value = Estimate("headroom", more, "of the present load", least, most, "M/M/c to utilisation law")
    if _surely(machine) < machine.cpus:
        parts.append("smt")
    elif now.wait is None:
        parts.append("unsure")
    values |= {"more": more, "most": most, "least": least}
    return claim("headroom", values, value, case="some", parts=parts)


def load_until(wait: float, cpus: float) -> float:
    """Busy CPUs of M/M/c at which the mean wait is ``wait`` of the mean service: C(c, a) / (c - a) = wait."""
    servers = max(1, int(cpus))
    scale = cpus / servers  # a quota's part of a CPU makes each a little faster
    low, high = 0.0, float(servers)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if delay(servers, middle) / (servers - middle) < wait else (low, middle)
    return low * scale


def delay(servers: int, offered: float) -> float:
    """Erlang's C: the share of arrivals that wait, by the recursion of his B (Kleinrock, section 3.5)."""
    blocked = 1.0
    for n in range(1, servers + 1):
        blocked = offered * blocked / (n + offered * blocked)
    busy = offered / servers
    return blocked / (1 - busy * (1 - blocked))


def present(results: Results) -> Present | None:
    """The usable windows taken together; ``None``: how much CPU was used is not known."""
    usable = pl.col("status") != "invalid"
    cells = results.tables["windows"].filter(usable)["cell"].to_list()
    told, source = _machine_wide(results.tables["witnesses"], cells), "host: whole machine"
    ledger = results.tables["ledger"]
    runs, runqs = (_sums(ledger.filter(_is(name)), cells) for name in ("run", "runq"))
    if None in told or not told:
        every = _sums(ledger.filter(_is("run", "rung", "helper", "beside")).drop_nulls("aas"), cells)
        told = [None if rung is None else all_of_them for rung, all_of_them in zip(runs, every, strict=True)]
        source = "os tasks"
    used = fmt.estimate("CPUs used", told, "CPUs")
    run, runq = (fmt.estimate("", v) for v in (runs, runqs))
    wait = runq.value / run.value if run is not None and runq is not None and run.value > 0 else None
    return None if used is None else Present(used, wait, source)


def _machine_wide(witnesses: pl.DataFrame, cells: list[str]) -> list[float | None]:
    rows = witnesses.filter((pl.col("quantity") == "cpu_used_machine") & (pl.col("source") == "host"))
    return _sums(rows.with_columns(aas="value"), cells)


def _is(account: str, *scopes: str) -> pl.Expr:
    return (pl.col("account") == account) & ~BY_LABEL & pl.col("scope").is_in(scopes or ("rung",))


def _sums(rows: pl.DataFrame, cells: list[str]) -> list[float | None]:
    """Of each cell; ``None`` where one of its rows is unknown, or it has none."""
    known = pl.when(pl.col("aas").null_count() == 0).then(pl.col("aas").sum())
    found = dict(rows.group_by("cell").agg(known).rows())
    return [found.get(cell) for cell in cells]


def _surely(machine: Machine) -> float:
    """CPUs that are there if threads that share a core yield nothing."""
    assert machine.cpus is not None
    return machine.cpus if machine.cores is None else min(machine.cpus, machine.cores)


def _variant(results: Results) -> str:
    variants = results.tables["windows"]["variant"]
    return str(variants[0]) if len(variants) else "base"
