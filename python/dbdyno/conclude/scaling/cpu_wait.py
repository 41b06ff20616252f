"""From which load on sessions wait for a CPU, and how much an existing load can grow before they do; a quota;
what the server's labels hide of the run queue and of CPU."""

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
from dbdyno.conclude.ladder.ladders import Measured, cells_of, machine_of
from dbdyno.conclude.run.case import OF_MEMO, SESSION_LEDGER, Case, Row, at, ids, known_aas, of_cell
from dbdyno.conclude.run.reason import activity
from dbdyno.conclude.scaling.smt import equivalent
from dbdyno.model.plan.kinds import SERVED
from dbdyno.model.results.analyses import Estimate, Ladder, Machine
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.ledger_rows import BY_LABEL, account_rows, queue_labels
from dbdyno.model.results.session_time import NO_EVENT
from dbdyno.model.schema.tables import sum_if_all_known
from dbdyno.model.text.nouns import noun

if TYPE_CHECKING:
    from dbdyno.model.results.results import Results

IDLE = 0.80
"""Sessions that use less of the CPUs than this leave some free."""


@check("cpu-wait", of="whole")
def onsets(case: Case) -> Iterator[Claim]:
    """Where CPU WAIT begins on each ladder."""
    if case.observed:
        return
    for ladder in case.ladders.values():
        made = onset(ladder, case, ladder.name if len(case.ladders) > 1 else "")
        if made.case != "unknown":
            yield made


@check("cpu-wait")
def in_windows(case: Case) -> Iterator[Claim]:
    """The window of an observation with the largest part of CPU WAIT."""
    found = []
    for cell in case.usable if case.observed else ():
        queued, served = case.aas(cell["cell"], "runq"), case.served(cell["cell"])
        if served and queued / served > CPU_WAIT:
            found.append(({"queued": queued, "share": queued / served}, cell))
    yield from case.worst("cpu-wait", found, "share", case="observed")


def onset(ladder: Ladder, run: Measured | None, subject: str = "") -> Claim:
    """By :func:`~dbdyno.conclude.catalogue.criteria.begins`. The true onset is below it."""
    unit = ladder.load_unit
    shares = []
    if ladder.points["cpu_wait"].null_count() < ladder.points.height:
        shares = [(n, s) for n in ladders.loads(ladder) if (s := _share(ladder, n, run)) is not None]
    if not shares:
        return claim("cpu-wait", {}, case="unknown", subject=subject)
    (highest, at_top), found = shares[-1], begins(shares)
    said: dict[str, Any] = {"top": fmt.load(highest, unit), "top_share": at_top.value}
    said["source"] = ladders.source(ladder, f"run queue of the {noun('owners')}' tasks (schedstat)")
    if found is None:
        n, most = max(shares, key=lambda p: p[1].value)
        said |= {"share": _said(most), "load": fmt.load(n, unit)}
        return claim("cpu-wait", said, case="none", severity="good", subject=subject)
    n, s = shares[found]
    spare = _spare(ladder, n)
    said |= {"load": fmt.load(n, unit), "share": _said(s)} | spare
    parts = [*(["climbing"] if n != highest else []), *(["spare"] if spare else [])]
    if not found:
        value = Estimate("CPU WAIT from", n, unit, high=n)
        return claim("cpu-wait", said, value, case="lowest", parts=parts, subject=subject)
    below, before = shares[found - 1]
    said |= {"before": before.value, "below": fmt.load(below, unit)}
    value = Estimate("CPU WAIT from", n, unit, below, n, "between two rungs")
    return claim("cpu-wait", said, value, case="onset", parts=parts, subject=subject)


def _spare(ladder: Ladder, load: float) -> dict[str, float]:
    """Sessions that wait though they leave CPUs free are kept from them: by others on them, or by a limit."""
    used, cpus = ladders.at(ladder, load, "cpu"), ladder.machine.cpus
    if used is None or cpus is None or used.value >= IDLE * cpus:
        return {}
    return {"used": used.value, "cpus": fmt.whole(cpus)}


def _said(share: Estimate) -> str:
    whole = replace(share, high=None if share.high is None else min(1.0, share.high))
    return fmt.percent(share.value) + fmt.percent_spread(whole)


def _share(ladder: Ladder, load: float, run: Measured | None) -> Estimate | None:
    """Part of session time; with one repeat its interval is the ledger's own."""
    found = ladders.at(ladder, load, "cpu_wait", over="whole")
    if found is None or found.low is not None or run is None or ladder.workload is None:
        return found
    for window, parts in cells_of(run, ladder):
        if window["sessions"] == load:
            time = ladders.at(ladder, load, "whole")
            return waiting([account_rows(parts["ledger"], "runq")], time.value if time else load)
    return found


# -- headroom --


def observed(results: Results) -> tuple[Claim, ...]:
    """activity, headroom and equivalent-cores of an observation; empty for any other run."""
    found = headroom(results)
    if found is None:
        return ()
    active = activity(results)
    cores = results.tables["cores"] if "cores" in results.tables else pl.DataFrame()
    known = cores.drop_nulls("threads") if cores.height else cores
    return (active, found, *([equivalent(known, "At the present load")] if known.height else []))


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
    """How much the load of an observation can grow; ``None`` for any other run.

    By two models. Utilisation law (Denning and Buzen, Computing Surveys 10 (1978) 225): as much CPU
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
    used_by, source = _machine_wide(results.tables["data_sources"], cells), "host: whole machine"
    ledger = results.tables["ledger"]
    runs, runqs = (_sums(ledger.filter(_is(name)), cells) for name in ("run", "runq"))
    if None in used_by or not used_by:
        every = _sums(ledger.filter(_is("run", "rung", "helper", "beside")).drop_nulls("aas"), cells)
        used_by = [
            None if rung is None else all_of_them for rung, all_of_them in zip(runs, every, strict=True)
        ]
        source = "os tasks"
    used = fmt.estimate("CPUs used", used_by, "CPUs")
    run, runq = (fmt.estimate("", v) for v in (runs, runqs))
    wait = runq.value / run.value if run is not None and runq is not None and run.value > 0 else None
    return None if used is None else Present(used, wait, source)


def _machine_wide(sources: pl.DataFrame, cells: list[str]) -> list[float | None]:
    rows = sources.filter((pl.col("quantity") == "cpu_used_machine") & (pl.col("source") == "host"))
    return _sums(rows.with_columns(aas="value"), cells)


def _is(account: str, *scopes: str) -> pl.Expr:
    return (pl.col("account") == account) & ~BY_LABEL & pl.col("scope").is_in(scopes or ("rung",))


def _sums(rows: pl.DataFrame, cells: list[str]) -> list[float | None]:
    """Sum by cell; ``None`` where one of its rows is unknown, or it has none."""
    found = dict(rows.group_by("cell").agg(sum_if_all_known("aas")).rows())
    return [found.get(cell) for cell in cells]


def _surely(machine: Machine) -> float:
    """CPUs that are there if threads that share a core yield nothing."""
    assert machine.cpus is not None
    return machine.cpus if machine.cores is None else min(machine.cpus, machine.cores)


def _variant(results: Results) -> str:
    variants = results.tables["windows"]["variant"]
    return str(variants[0]) if len(variants) else "base"


# -- a quota --


@check("throttled")
def throttled(case: Case) -> Iterator[Claim]:
    """A quota that struck, at the rung where it did so most: CPU WAIT, and how much of it was throttling."""
    struck = [(n, periods, c) for c in case.usable for n, periods in [_struck(case, c["cell"])] if n > 0]
    if not struck:
        return
    n, periods, cell = max(struck, key=lambda s: (s[0] / max(1.0, s[1]), s[2]["sessions"]))
    ledger = case.table("ledger", cell["cell"])
    bracket = account_rows(ledger, "runq.throttled_bracket").drop_nulls("low")
    low, high = (float(bracket[c][0]) if bracket.height else None for c in ("low", "high"))
    exact = known_aas(account_rows(ledger, "runq.throttled"))
    parts = ["bracket"] if low is not None and high is not None else []
    if exact is not None:
        low, high, parts = exact, exact, ["exact"]
    said = {
        "measurements": case.many(len(struck)),
        "place": at(cell, case),
        "throttled": n,
        "periods": periods,
    }
    cells = ids([c for _, _, c in struck])
    yield claim(
        "throttled", said | {"low": low, "high": high}, low, parts=parts, low=low, high=high, cells=cells
    )


@of_cell
def _struck(case: Case, cell: str) -> tuple[float, float]:
    """Periods throttled, and periods: of the group that was throttled most often."""
    mine = case.levels(cell, "cgroup").filter((pl.col("scope") == "server") & pl.col("delta").is_not_null())
    most = dict(mine.group_by("key").agg(pl.col("delta").max().cast(float)).rows())
    return most.get("nr_throttled", 0.0), most.get("nr_periods", 0.0)


# -- labels: run-queue time under waits, CPU of idle sessions, "active" as CPU --

HIDDEN = 0.01
"""Run-queue time behind a wait's label is reported from this share of the sessions' time on."""
IDLE_SESSIONS, IDLE_SESSION = 0.05, 0.01
"""Seconds per second of all idle sessions; of one, to be counted."""
NAIVE, NAIVE_S = 0.10, 0.05
"""The simple figure is off if it differs by this part, and by this many s/s, beyond its interval."""


@check("hidden-run-queue", kinds=(SERVED,))
def hidden_run_queue(case: Case) -> Iterator[Claim]:
    """For each wait the rung where most run-queue time bore its label."""
    worst: dict[str, tuple[float, Row, Row]] = {}
    for cell in case.usable:
        wall = case.wall(cell["cell"])
        for row in _hidden(case, cell["cell"]):
            share = row["aas"] / wall if wall else 0.0
            if share > worst.get(row["detail"], (0.0,))[0]:
                worst[row["detail"]] = (share, cell, row)
    for detail, (_, cell, row) in sorted(worst.items(), key=lambda item: -item[1][0]):
        said = {"place": at(cell, case), "seconds": row["aas"], "event": detail, "source": row["source"]}
        kind, value = "queued" if row["account"] == "runq" else "runnable", row["aas"]
        ends = {"low": row["low"], "high": row["high"]}
        yield claim("hidden-run-queue", said, value, case=kind, cells=(cell["cell"],), **ends)


@of_cell
def _hidden(case: Case, cell: str) -> list[Row]:
    """Apportioned to the exact run queue where that was done, else the raw samples; only what is reported."""
    parts = queue_labels(case.table("ledger", cell)).select(OF_MEMO).to_dicts()
    named = (r for r in parts or case.memo(cell, "label.runnable") if r["detail"] not in (None, NO_EVENT))
    least = HIDDEN * case.wall(cell)
    return [r for r in named if (r["low"] or 0.0) > least]


@check("idle-busy", kinds=(SERVED,))
def idle_burn(case: Case) -> Iterator[Claim]:
    """Sessions that the server calls idle, and that use a CPU or wait for one."""
    found = []
    for cell in case.usable:
        used, queued, least = _idle(case, cell["cell"])
        if least > IDLE_SESSIONS:
            sessions = _idle_sessions(case, cell["cell"])
            found.append(({"used": used, "queued": queued, "all": used + queued, "sessions": sessions}, cell))
    yield from case.worst("idle-busy", found, "all")


@of_cell
def _idle(case: Case, cell: str) -> tuple[float, float, float]:
    """Idle sessions on a CPU, and in the run queue; the least of both together. Seconds per second."""
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
    """What "active without wait event" would report as CPU, where it is furthest off."""
    found = []
    for cell in case.usable:
        for naive, true in _naive(case, cell["cell"]):
            off = naive - true
            found.append(({"naive": naive, "actual": true, "off": off, "size": abs(off)}, cell))
    yield from case.worst("naive-cpu", found, "off", by="size")


@of_cell
def _naive(case: Case, cell: str) -> list[tuple[float, float]]:
    """(that figure, the CPU really used), where it is off."""
    if (true := case.known(cell, "run")) is None:
        return []
    found = []
    for row in case.memo(cell, "naive.cpu"):
        naive, high = row["aas"], row["aas"] if row["high"] is None else row["high"]
        if not (row["low"] or 0.0) <= true <= high and abs(naive - true) > max(NAIVE * true, NAIVE_S):
            found.append((naive, true))
    return found
