"""Concludes from which load on sessions wait for a CPU, how far an existing load can grow before they do,
whether a CPU quota throttled the server, and how much run-queue and CPU time the server's labels hide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.catalogue.criteria import CPU_WAIT, begins, waiting
from dbdyno.conclude.checking import check
from dbdyno.conclude.ladder import ladders
from dbdyno.conclude.ladder.ladders import Measured, cells_of, machine_of, quota_cure
from dbdyno.conclude.run.activity import activity
from dbdyno.conclude.run.case import OF_MEMO, SESSION_LEDGER, Case, Row, at, ids, known_aas, of_cell
from dbdyno.conclude.scaling.smt import equivalent
from dbdyno.model.plan.kinds import SERVED
from dbdyno.model.results.analyses import Estimate, Ladder, Machine
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.ledger_rows import BY_LABEL, TOGETHER, account_rows, queue_labels
from dbdyno.model.results.session_time import NO_EVENT
from dbdyno.model.schema.tables import sum_if_all_known
from dbdyno.model.text.nouns import noun

if TYPE_CHECKING:
    from dbdyno.model.results.results import Results

IDLE = 0.80
"""Share of the CPUs in use below which some CPUs are free."""


@check("cpu-wait", of="whole")
def onsets(case: Case) -> Iterator[Claim]:
    """Yields the load at which CPU WAIT begins on each ladder."""
    if case.observed:
        return
    for ladder in case.ladders.values():
        onset_claim = onset(ladder, case, ladder.name if len(case.ladders) > 1 else "")
        if onset_claim.case != "unknown":
            yield onset_claim


@check("cpu-wait")
def in_windows(case: Case) -> Iterator[Claim]:
    """Yields the window of an observation with the largest share of CPU WAIT."""
    candidates = []
    for cell in case.usable if case.observed else ():
        queued, served = case.aas(cell["cell"], "runq"), case.served(cell["cell"])
        if served and queued / served > CPU_WAIT:
            candidates.append(({"queued": queued, "share": queued / served}, cell))
    yield from case.worst("cpu-wait", candidates, "share", case="observed")


def onset(ladder: Ladder, run: Measured | None, subject: str = "") -> Claim:
    """Returns the claim of where CPU WAIT begins, by :func:`~dbdyno.conclude.catalogue.criteria.begins`. The
    true onset lies between the load below and the load claimed."""
    unit = ladder.load_unit
    shares = []
    if ladder.points["cpu_wait"].null_count() < ladder.points.height:
        shares = [
            (load, share)
            for load in ladders.loads(ladder)
            if (share := _share(ladder, load, run)) is not None
        ]
    if not shares:
        return claim("cpu-wait", {}, case="unknown", subject=subject)
    (highest, at_top), first = shares[-1], begins(shares)
    values: dict[str, Any] = {"top": fmt.load(highest, unit), "top_share": at_top.value}
    values["source"] = ladders.source(ladder, f"run queue of the {noun('owners')}' tasks (schedstat)")
    if first is None:
        load, most = max(shares, key=lambda p: p[1].value)
        values |= {"share": _share_text(most), "load": fmt.load(load, unit)}
        return claim("cpu-wait", values, case="none", severity="good", subject=subject)
    load, share = shares[first]
    spare = _free_cpus(ladder, load)
    values |= {"load": fmt.load(load, unit), "share": _share_text(share)} | spare
    parts = [*(["spare"] if spare else []), *(["climbing"] if load != highest else [])]
    advice = None
    if ladder.machine.quota and run is not None and ladder.variant is not None:
        cure = quota_cure(run, ladder.variant)
        advice = f"{cure}, use fewer {noun('at_once')}, or measure when others do not use the CPUs"
    if not first:
        value = Estimate("CPU WAIT from", load, unit, high=load)
        case = "lowest" if len(shares) > 1 else "only"
        return claim("cpu-wait", values, value, case=case, parts=parts, advice=advice, subject=subject)
    below, before = shares[first - 1]
    values |= {"before": before.value, "below": fmt.load(below, unit)}
    value = Estimate("CPU WAIT from", load, unit, below, load, "between two loads")
    return claim("cpu-wait", values, value, case="onset", parts=parts, advice=advice, subject=subject)


def _free_cpus(ladder: Ladder, load: float) -> dict[str, float]:
    """Returns CPUs in use and CPUs available if sessions wait although CPUs are free: then other processes
    keep them waiting. Empty otherwise, for fewer sessions than CPUs, which could not use them all, and under
    a quota, of which others use nothing."""
    used, machine, cpus = ladders.at(ladder, load, "cpu"), ladder.machine, ladder.machine.cpus
    if used is None or cpus is None or machine.quota or load < cpus or used.value >= IDLE * cpus:
        return {}
    return {"used": used.value, "cpus": fmt.whole(cpus)}


def _share_text(share: Estimate) -> str:
    whole = replace(share, high=None if share.high is None else min(1.0, share.high))
    return fmt.percent(share.value) + fmt.percent_spread(whole)


def _share(ladder: Ladder, load: float, run: Measured | None) -> Estimate | None:
    """Returns the share of session time in the run queue at a load. With one repeat its interval is the
    ledger's own."""
    share = ladders.at(ladder, load, "cpu_wait", over="whole")
    if share is None or share.low is not None or run is None or ladder.workload is None:
        return share
    for window, parts in cells_of(run, ladder):
        if window["sessions"] == load:
            time = ladders.at(ladder, load, "whole")
            return waiting([account_rows(parts["ledger"], "runq")], time.value if time else load)
    return share


# -- headroom --


def observed(results: Results) -> tuple[Claim, ...]:
    """Returns activity, headroom and equivalent-cores of an observation; empty for any other run."""
    claimed = headroom(results)
    if claimed is None:
        return ()
    active = activity(results)
    cores = results.tables["cores"] if "cores" in results.tables else pl.DataFrame()
    known = cores.drop_nulls("threads") if cores.height else cores
    machine = machine_of(results, _variant(results))[0]
    if known.is_empty() or machine.cpus is None:  # then the table has the CPUs of this machine
        return active, claimed
    cpus = claimed.slots.get("cpus")
    in_use = equivalent(known, "At the present load", None if machine.quota else cpus)
    # Without SMT it is what the claim of headroom contains.
    return (active, claimed) if in_use.case == "same" else (active, claimed, in_use)


WAITS = 0.10
"""CPU WAIT over CPU time above which there is no headroom, and up to which headroom is counted."""
FULL = 0.01
"""Possible growth of the load below which all CPUs count as busy."""
BUSY = 0.90
"""Share of the CPUs in use below which a queue is not for lack of CPUs, as means over windows show it."""
MACHINE = "host: whole machine"


@dataclass(frozen=True)
class Present:
    """The load as observed: means over its windows."""

    used: Estimate
    """CPUs that were busy: by any process if the source is :data:`MACHINE`, else by the server's alone."""
    own: float | None
    """CPUs that the sessions used; None if unknown."""
    wait: float | None
    """Run-queue time of the sessions over their CPU time; None if unknown."""
    source: str


def headroom(results: Results) -> Claim | None:
    """Returns by how much the load of an observation can grow; None for any other run.

    It uses two models. The utilisation law (Denning and Buzen, Computing Surveys 10 (1978) 225) with constant
    CPU time per unit of work: the CPUs are full at ``cpus / used`` times the load, which is the upper end.
    M/M/c (Erlang's delay formula; Kleinrock, Queueing Systems I (1975), section 3.5): the load at which
    sessions wait :data:`WAITS` of their CPU time. With SMT the lower end assumes that further threads of a
    core add nothing.
    """
    if results.plan.experiment.observation is None:
        return None
    machine, notes = machine_of(results, _variant(results))
    now = present(results, of_server=machine.quota)
    if machine.cpus is None or now is None:
        why = next(iter(notes), "CPU times of the sessions could not be read.")
        return claim("headroom", {"why": why}, case="unknown")
    return headroom_claim(now, machine)


def headroom_claim(now: Present, machine: Machine) -> Claim:
    """Returns the claim of headroom from the observed load and the machine, whose CPUs must be known."""
    assert machine.cpus is not None
    used = now.used.value
    values = {"used": used, "wait": now.wait, "source": now.source, "cpus": fmt.whole(machine.cpus)}
    waits = now.wait is not None and now.wait > WAITS
    parts = ["busy" if now.wait is None or waits else "wait"]
    if waits and used < BUSY * machine.cpus:
        value = Estimate(
            "headroom", 0.0, "of the present load", 0.0, max(0.0, machine.cpus / used - 1), "CPU WAIT"
        )
        parts = ["busy" if now.source == MACHINE else "own"]
        if now.source == MACHINE and now.own is not None and now.own < used / 2:
            parts, values["others"] = [*parts, "others"], used - now.own
        return claim("headroom", values, value, case="queued", parts=parts)
    if waits or used * (1 + FULL) >= machine.cpus:
        none = Estimate(
            "headroom", 0.0, "of the present load", 0.0, 0.0, "CPU WAIT" if waits else "CPUs busy"
        )
        full = "full"
        if not waits and now.own is not None and now.own < used / 2:
            full, parts, values["others"] = "others", [*parts, "others"], used - now.own
        return claim("headroom", values, none, case="none" if waits else full, parts=parts)
    if used <= 0:
        return claim("headroom", values, case="idle")
    busiest = now.used.high if now.used.high is not None else used
    until = load_until(WAITS, machine.cpus)
    most, more = machine.cpus / used - 1, max(0.0, until / used - 1)
    least = min(more, max(0.0, load_until(WAITS, _certain_cpus(machine)) / busiest - 1))
    value = Estimate("headroom", more, "of the present load", least, most, "M/M/c to utilisation law")
    if _certain_cpus(machine) < machine.cpus:
        parts.append("smt")
    elif now.wait is None:
        parts.append("unsure")
    values |= {"more": more, "most": most, "least": least}
    return claim("headroom", values, value, case="some" if more > 0 else "little", parts=parts)


def load_until(wait: float, cpus: float) -> float:
    """Returns the number of busy CPUs of M/M/c at which the mean wait is ``wait`` times the mean service
    time: C(c, a) / (c - a) = wait, solved by bisection."""
    servers = max(1, int(cpus))
    scale = cpus / servers  # M/M/c needs a whole c: a quota of 2.5 CPUs becomes two servers of 1.25 each
    low, high = 0.0, float(servers)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if delay(servers, middle) / (servers - middle) < wait else (low, middle)
    return low * scale


def delay(servers: int, offered: float) -> float:
    """Returns Erlang's C, the share of arrivals that wait, from the recursion of his B (Kleinrock, section
    3.5)."""
    blocked = 1.0
    for n in range(1, servers + 1):
        blocked = offered * blocked / (n + offered * blocked)
    busy = offered / servers
    return blocked / (1 - busy * (1 - blocked))


def present(results: Results, *, of_server: bool = False) -> Present | None:
    """Returns the load over all usable windows: of the whole machine where that is known, or ``of_server``
    alone. None if the CPU in use is unknown."""
    usable = pl.col("status") != "invalid"
    cells = results.tables["windows"].filter(usable)["cell"].to_list()
    used_by, source = _machine_wide(results.tables["data_sources"], cells), MACHINE
    ledger = results.tables["ledger"]
    runs, runqs = (_sums(ledger.filter(_account_rows(name)), cells) for name in ("run", "runq"))
    if of_server or None in used_by or not used_by:
        every = _sums(
            ledger.filter(_account_rows("run", "rung", "helper", "beside")).drop_nulls("aas"), cells
        )
        used_by = [
            None if rung is None else all_of_them for rung, all_of_them in zip(runs, every, strict=True)
        ]
        source = "os tasks"
    used = fmt.estimate("CPUs used", used_by, "CPUs")
    run, runq = (fmt.estimate("", v) for v in (runs, runqs))
    wait = runq.value / run.value if run is not None and runq is not None and run.value > 0 else None
    own = _idle_own(results) if run is None else run.value
    return None if used is None else Present(used, own, wait, source)


def _idle_own(results: Results) -> float | None:
    """Returns 0 if it is known that no session was active; None otherwise."""
    whole = (pl.col("cell") == TOGETHER) & (pl.col("name") == "DB CPU")
    known = results.tables["profile"].filter(whole)["per_s"].to_list()
    return 0.0 if known == [0.0] else None


def _machine_wide(sources: pl.DataFrame, cells: list[str]) -> list[float | None]:
    rows = sources.filter((pl.col("quantity") == "cpu_used_machine") & (pl.col("source") == "host"))
    return _sums(rows.with_columns(aas="value"), cells)


def _account_rows(account: str, *scopes: str) -> pl.Expr:
    return (pl.col("account") == account) & ~BY_LABEL & pl.col("scope").is_in(scopes or ("rung",))


def _sums(rows: pl.DataFrame, cells: list[str]) -> list[float | None]:
    """Returns the sum by cell; None for a cell without rows or with an unknown one."""
    sums = dict(rows.group_by("cell").agg(sum_if_all_known("aas")).rows())
    return [sums.get(cell) for cell in cells]


def _certain_cpus(machine: Machine) -> float:
    """Returns the CPUs that are certain if threads that share a core add nothing: the cores."""
    assert machine.cpus is not None
    return machine.cpus if machine.cores is None else min(machine.cpus, machine.cores)


def _variant(results: Results) -> str:
    variants = results.tables["windows"]["variant"]
    return str(variants[0]) if len(variants) else "base"


# -- a quota --


@check("throttled")
def throttled(case: Case) -> Iterator[Claim]:
    """Yields a claim if a CPU quota throttled the server, for the rung where it did so most: CPU WAIT and the
    part of it that was throttling."""
    throttled_cells = [
        (count, periods, c) for c in case.usable for count, periods in [_struck(case, c["cell"])] if count > 0
    ]
    if not throttled_cells:
        return
    count, periods, cell = max(throttled_cells, key=lambda s: (s[0] / max(1.0, s[1]), s[2]["sessions"]))
    ledger = case.table("ledger", cell["cell"])
    bracket = account_rows(ledger, "runq.throttled_bracket").drop_nulls("low")
    low, high = (float(bracket[c][0]) if bracket.height else None for c in ("low", "high"))
    exact = known_aas(account_rows(ledger, "runq.throttled"))
    parts = ["bracket"] if low is not None and high is not None else []
    if exact is not None:
        low, high, parts = exact, exact, ["exact"]
    values = {
        "measurements": case.many(len(throttled_cells)),
        "place": at(cell, case),
        "throttled": count,
        "periods": periods,
        "raise_the_quota": quota_cure(case, cell["variant"]),
    }
    cells = ids([c for _, _, c in throttled_cells])
    yield claim(
        "throttled", values | {"low": low, "high": high}, low, parts=parts, low=low, high=high, cells=cells
    )


@of_cell
def _struck(case: Case, cell: str) -> tuple[float, float]:
    """Returns the throttled periods and all periods of the control group that was throttled most often."""
    counters = case.levels(cell, "cgroup").filter(
        (pl.col("scope") == "server") & pl.col("delta").is_not_null()
    )
    most = dict(counters.group_by("key").agg(pl.col("delta").max().cast(float)).rows())
    return most.get("nr_throttled", 0.0), most.get("nr_periods", 0.0)


# -- labels: run-queue time under waits, CPU of idle sessions, "active" as CPU --

HIDDEN = 0.01
"""Share of the sessions' time from which on run-queue time behind a wait's label is reported."""
IDLE_SESSIONS, IDLE_SESSION = 0.05, 0.01
"""Seconds per second of all idle sessions, and of one session to be counted."""
NAIVE, NAIVE_S = 0.10, 0.05
"""Difference of the simple figure from the true one, relative and in seconds per second, that counts if it is
also beyond the interval."""


@check("hidden-run-queue", kinds=(SERVED,))
def hidden_run_queue(case: Case) -> Iterator[Claim]:
    """Yields for each wait the rung where most run-queue time was labelled with it."""
    worst: dict[str, tuple[float, Row, Row]] = {}
    for cell in case.usable:
        wall = case.wall(cell["cell"])
        for row in _hidden(case, cell["cell"]):
            share = row["aas"] / wall if wall else 0.0
            if share > worst.get(row["detail"], (0.0,))[0]:
                worst[row["detail"]] = (share, cell, row)
    for detail, (_, cell, row) in sorted(worst.items(), key=lambda item: -item[1][0]):
        values = {"place": at(cell, case), "seconds": row["aas"], "event": detail, "source": row["source"]}
        kind, value = "queued" if row["account"] == "runq" else "runnable", row["aas"]
        ends = {"low": row["low"], "high": row["high"]}
        yield claim("hidden-run-queue", values, value, case=kind, cells=(cell["cell"],), **ends)


@of_cell
def _hidden(case: Case, cell: str) -> list[Row]:
    """Returns the run-queue rows with a wait's label that are large enough to report: apportioned to the
    exact run-queue time where possible, else raw samples."""
    parts = queue_labels(case.table("ledger", cell)).select(OF_MEMO).to_dicts()
    named = (r for r in parts or case.memo(cell, "label.runnable") if r["detail"] not in (None, NO_EVENT))
    least = HIDDEN * case.wall(cell)
    return [r for r in named if (r["low"] or 0.0) > least]


@check("idle-busy", kinds=(SERVED,))
def idle_burn(case: Case) -> Iterator[Claim]:
    """Yields a claim if sessions that the server calls idle use a CPU or wait for one."""
    candidates = []
    for cell in case.usable:
        used, queued, least = _idle(case, cell["cell"])
        if least > IDLE_SESSIONS:
            sessions = _idle_sessions(case, cell["cell"])
            candidates.append(
                ({"used": used, "queued": queued, "all": used + queued, "sessions": sessions}, cell)
            )
    yield from case.worst("idle-busy", candidates, "all")


@of_cell
def _idle(case: Case, cell: str) -> tuple[float, float, float]:
    """Returns seconds per second of idle sessions on a CPU, in the run queue, and the lower end of both
    together."""
    run, runq = (
        [r for r in case.memo(cell, f"state.{part}") if str(r["detail"] or "").startswith("idle")]
        for part in ("run", "runq")
    )
    used, queued = (sum((r["aas"] for r in rows), 0.0) for rows in (run, runq))
    return used, queued, sum((r["low"] or 0.0 for r in (*run, *runq)), 0.0)


@of_cell
def _idle_sessions(case: Case, cell: str) -> int:
    memo = case.table(SESSION_LEDGER, cell).filter(
        (pl.col("scope") == "memo")
        & (pl.col("who") == "session")
        & pl.col("account").is_in(["state.run", "state.runq"])
        & pl.col("detail").str.starts_with("idle")
    )
    return memo.group_by("session").agg(pl.col("aas").sum()).filter(pl.col("aas") >= IDLE_SESSION).height


@check("naive-cpu", kinds=(SERVED,))
def naive_cpu(case: Case) -> Iterator[Claim]:
    """Yields where "active without wait event", taken as CPU, differs most from the CPU time used."""
    candidates = []
    for cell in case.usable:
        for naive, true in _naive(case, cell["cell"]):
            difference = naive - true
            candidates.append(
                ({"naive": naive, "actual": true, "off": difference, "size": abs(difference)}, cell)
            )
    yield from case.worst("naive-cpu", candidates, "off", by="size")


@of_cell
def _naive(case: Case, cell: str) -> list[tuple[float, float]]:
    """Returns pairs of (the simple figure, CPU time used) that differ."""
    if (true := case.known(cell, "run")) is None:
        return []
    pairs = []
    for row in case.memo(cell, "naive.cpu"):
        naive, high = row["aas"], row["aas"] if row["high"] is None else row["high"]
        if not (row["low"] or 0.0) <= true <= high and abs(naive - true) > max(NAIVE * true, NAIVE_S):
            pairs.append((naive, true))
    return pairs
