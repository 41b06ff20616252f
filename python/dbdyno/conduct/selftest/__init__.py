"""Loads whose truth is known in advance, run for real: truth against ledger, for every tier of witness."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import polars as pl

from dbdyno.account import window
from dbdyno.account.ledger import ledger
from dbdyno.conclude.ground_truth import Facts, think_ns, truths
from dbdyno.conduct.cell import Unit, measure
from dbdyno.conduct.prepare import EXTRA_CONNECTIONS
from dbdyno.conduct.selftest import other_processes
from dbdyno.conduct.selftest.brief_sessions import observed_briefly
from dbdyno.conduct.selftest.quota import QuotaRefused, quota
from dbdyno.drive import Interrupt
from dbdyno.engines import open_server
from dbdyno.lazy import ready
from dbdyno.model.data_sources import TRACED
from dbdyno.model.environment import Host
from dbdyno.model.errors import UsageError, did_you_mean
from dbdyno.model.plan import Cell, Experiment, Plan
from dbdyno.model.protocols import Progress, Server, Target, needed
from dbdyno.model.raw import RawCell
from dbdyno.model.source import TRACE
from dbdyno.model.tables import empty
from dbdyno.model.truth import Truth, TruthCase
from dbdyno.model.units import NS_PER_S

SETTLE_NS = NS_PER_S
BUDGET = 0.05
"""CPUs that reading wait event words may cost here, where throughput is no figure: a sample every 10 ms."""
FLUSH_S = 1.5  # a session's statistics reach the server's within about a second
SAMPLED = "sampled"

Say = Callable[[str], None]
OnTruths = Callable[[TruthCase, Sequence[Truth]], None]


def selftest(
    engine: str,
    target: Target,
    host: Host,
    names: Sequence[str],
    measure_ns: int,
    interrupt: Interrupt,
    say: Say,
    on_truths: OnTruths,
) -> list[Truth]:
    """All cases, or those of ``names``; each one's figures are handed on as soon as they are there.

    Raises :class:`UsageError` for a name that is none, :class:`TargetError` where the server fails.
    """
    ready()
    found: list[Truth] = []
    with open_server(engine, target) as server:
        server.claim("selftest")
        for case in chosen(needed(server.truths, "run a self-test").truth_cases(), names):
            interrupt.check()
            say(f"{case.name}: {case.title}")
            mine = _Case(server, case, host, measure_ns, interrupt).truths()
            on_truths(case, mine)
            found += mine
    return found


def chosen(cases: Sequence[TruthCase], names: Sequence[str]) -> list[TruthCase]:
    known = {c.name: c for c in cases}
    for name in names:
        if name not in known:
            raise UsageError(f"no case {name!r}", did_you_mean(name, list(known)))
    return [c for c in cases if not names or c.name in names]


class _Case:
    """One case on one server."""

    def __init__(
        self, server: Server, case: TruthCase, host: Host, measure_ns: int, interrupt: Interrupt
    ) -> None:
        self._server, self._case, self._interrupt = server, case, interrupt
        self._cpus = host.limits.usable_cpus
        self._sessions = case.count(self._cpus)
        self._measure_ns = measure_ns
        self._facts = server.facts()
        self._marks: dict[str, tuple[int, dict[int, int]]] = {}

    def truths(self) -> list[Truth]:
        room = self._server.capacity().free - EXTRA_CONNECTIONS
        if room < self._sessions:
            return [self._not_run(f"{self._sessions} sessions needed, the server has room for {room}")]
        try:
            with contextlib.ExitStack() as stack:
                limit = self._limit(stack)
                known = needed(self._server.truths, "run a self-test")
                known.truth_setup(self._case)
                stack.callback(known.truth_teardown, self._case)
                if self._case.kind == "brief":
                    return self._observed()
                raw, counted_ns = self._measured()
        except QuotaRefused as e:
            return [self._not_run(str(e))]
        if raw.meta.status == "invalid":
            return [self._not_run(raw.meta.reason or "the window could not be used")]
        facts = Facts(self._sessions, self._cpus, self._others(), limit, counted_ns)
        return [t for tier, tables in tiers_of(raw) for t in truths(self._case, facts, tables, tier)]

    def _observed(self) -> list[Truth]:
        if self._facts.main_pid is None:
            return [self._not_run("the server's processes are not on this host")]
        raw, facts = observed_briefly(self._server, self._case, self._cpus, self._measure_ns, self._interrupt)
        if raw.meta.status != "ok":
            return [self._not_run(raw.meta.reason or "the window could not be used")]
        return [t for tier, tables in tiers_of(raw) for t in truths(self._case, facts, tables, tier)]

    def _limit(self, stack: contextlib.ExitStack) -> float | None:
        if not self._case.quota_per_cpu:
            return None
        if self._facts.main_pid is None:
            raise QuotaRefused("the server's processes are not seen from here")
        cpus = self._case.quota_per_cpu * self._cpus
        stack.enter_context(quota(self._facts.main_pid, cpus))
        return cpus

    def _measured(self) -> tuple[RawCell, float | None]:
        """The cell, and the server's own timing (ns a call) where the case names a counter."""
        before = self._counter()
        workload = needed(self._server.scripts, "run scripts").script(
            self._case.sql, f"{self._case.name}.sql"
        )
        raw = measure(
            self._server, self._plan(), self._cell(), Unit(workload, None), self._interrupt, self._on_tick
        )
        if before is None:
            return raw, None
        time.sleep(FLUSH_S)
        after, calls = self._counter(), int(raw.tables["sessions"]["calls_total"].sum())
        return raw, None if after is None or not calls or after == before else (after - before) / calls

    def _counter(self) -> float | None:
        if self._case.counter is None:
            return None
        rows = (
            needed(self._server.counting, "read counters")
            .counters("t0")
            .filter(pl.col("name") == self._case.counter)
        )
        return None if rows.is_empty() else rows["value"][0]

    def _cell(self) -> Cell:
        return Cell(
            id=f"0001-{self._case.name}-base-s{self._sessions}-r1",
            workload=self._case.name,
            variant="base",
            sessions=self._sessions,
            repeat=1,
            params={},
            settle_ns=SETTLE_NS,
            measure_ns=self._measure_ns,
            think_ns=think_ns(self._case),
        )

    def _plan(self) -> Plan:
        experiment = Experiment(
            name="selftest", script=self._case.name, think=self._case.think, memory_budget=BUDGET
        )
        return Plan(
            experiment=experiment, cpus=self._cpus, call_target_ns=None, cells=(self._cell(),), expected_ns=0
        )

    def _on_tick(
        self, phase: str, _elapsed_s: float, _progress: Progress, _shares: Mapping[str, float]
    ) -> None:
        """Reads what the other processes have used when the window opens and when it closes."""
        main_pid = self._facts.main_pid
        if main_pid is not None and phase in ("measuring", "last calls") and phase not in self._marks:
            self._marks[phase] = (time.monotonic_ns(), other_processes.cpu_ns_of_others(main_pid))

    def _others(self) -> float | None:
        """CPUs that the other processes used in the window."""
        if len(self._marks) < 2:
            return None
        (t0, before), (t1, after) = self._marks["measuring"], self._marks["last calls"]
        return other_processes.grown_ns(before, after) / (t1 - t0)

    def _not_run(self, why: str) -> Truth:
        return Truth(
            case=self._case.name,
            tier="",
            account="not run",
            truth=None,
            why=why,
            ledger=None,
            wall=self._sessions,
            allowed=0.0,
        )


def tiers_of(raw: RawCell) -> Iterator[tuple[str, Mapping[str, pl.DataFrame]]]:
    """The derived tables by each tier that witnessed the cell."""
    sampled = RawCell(raw.meta, {**raw.tables, **{name: empty(name) for name in TRACED}})
    tiers = [(SAMPLED, sampled)]
    if raw.tables["traced"].filter(pl.col("status") == "ok").height:
        tiers.insert(0, (TRACE, raw))
    for tier, cell in tiers:
        tables = window.cut([cell])
        yield tier, {**tables, "ledger": ledger(tables)}
