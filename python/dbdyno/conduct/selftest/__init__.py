"""Loads whose truth is known in advance, run for real: truth against ledger, by each tier of waits."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import polars as pl

from dbdyno.account import window
from dbdyno.account.chains import wait_chains
from dbdyno.account.ledger import ledger
from dbdyno.conclude.ground_truth import Facts, accounts_of, think_ns, truths
from dbdyno.conduct.measure.cell import Setting, Unit
from dbdyno.conduct.measure.cells import measure_cell
from dbdyno.conduct.measure.prepare import EXTRA_CONNECTIONS
from dbdyno.conduct.selftest.brief_sessions import lead_ns, observed_briefly
from dbdyno.conduct.selftest.other_processes import Meter
from dbdyno.conduct.selftest.quota import QuotaRefused, quota
from dbdyno.drive import Interrupt
from dbdyno.engines import open_server, truth_case_names
from dbdyno.lazy import ready
from dbdyno.model.engine.environment import Host
from dbdyno.model.engine.protocols import Progress, Server, Target, needed
from dbdyno.model.engine.truth import Knowing, Truth, TruthCase
from dbdyno.model.errors import UsageError, did_you_mean
from dbdyno.model.plan.plan import Cell, Experiment, Plan, PlannedScript
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.data_sources import TRACED
from dbdyno.model.schema.tables import empty
from dbdyno.model.sources.source import TRACE
from dbdyno.model.units import NS_PER_S, counted
from dbdyno.plan import cell_expected_ns

SETTLE_NS = NS_PER_S // 2
BUDGET = 0.05
"""CPUs that reading wait event words may cost here, where throughput is no figure: a sample every 10 ms."""
FLUSH_S = 1.5  # a session's statistics reach the server's within about a second
SAMPLED = "sampled"
NOT_RUN = "not run"


class Planned(NamedTuple):
    """A case with its number of sessions and expected duration."""

    case: TruthCase
    sessions: int
    accounts: Sequence[str]
    expected_ns: int


class SelfTestListener(Protocol):
    """Follows a self-test."""

    def planned(self, cases: Sequence[Planned]) -> None: ...

    def tick(self, number: int, phase: str, share: float, left_s: float) -> None:
        """Reports the progress of case ``number`` of the plan (from 0): ``share`` of it is done; ``left_s``
        is the time left for all."""

    def measured(self, planned: Planned, verdicts: Sequence[Truth]) -> None: ...


def selftest(
    engine: str,
    target: Target,
    host: Host,
    names: Sequence[str],
    measure_ns: int,
    interrupt: Interrupt,
    listener: SelfTestListener,
) -> None:
    """Runs all cases, or those in ``names``; passes the figures of each on as soon as they are known.

    Raises :class:`UsageError` for an unknown name, :class:`TargetError` if the server fails,
    :class:`Interrupted` after a case that a signal ended early.
    """
    ready()
    with open_server(engine, target) as server:
        server.claim("selftest")
        knowing = needed(server.truths, "run a self-test")
        cases = [
            _Case(server, knowing, case, host, measure_ns, interrupt)
            for case in chosen(knowing.truth_cases(), names)
        ]
        plan = [case.planned() for case in cases]
        listener.planned(plan)
        clock = _TimeLeft([p.expected_ns for p in plan], listener)
        for number, (planned, case) in enumerate(zip(plan, cases, strict=True)):
            interrupt.check()
            clock.begin(number)
            verdicts = case.truths(clock)
            if any(t.account == NOT_RUN for t in verdicts):
                interrupt.check()  # an interrupt may be the reason
            listener.measured(planned, verdicts)
    interrupt.check()


def check_cases(engine: str, names: Sequence[str]) -> None:
    """Raises :class:`UsageError` for an unknown name, if the engine knows its cases without a server."""
    if known := truth_case_names(engine):
        check_names(names, known)


def check_names(names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise UsageError(f"no case {name!r}", did_you_mean(name, known))


def chosen(cases: Sequence[TruthCase], names: Sequence[str]) -> list[TruthCase]:
    check_names(names, [c.name for c in cases])
    return [c for c in cases if not names or c.name in names]


class _TimeLeft:
    """Estimates the remaining time from what was expected, scaled by how much longer completed cases took."""

    def __init__(self, expected_ns: Sequence[int], listener: SelfTestListener) -> None:
        self._expected_ns, self._listener = expected_ns, listener
        self._number = self._start_ns = self._began_ns = 0

    def begin(self, number: int) -> None:
        self._number, self._began_ns = number, time.monotonic_ns()
        self._start_ns = self._start_ns or self._began_ns
        self.tick("connecting")

    def tick(self, phase: str) -> None:
        now_ns, expected = time.monotonic_ns(), self._expected_ns
        over_ns = sum(expected[: self._number])
        slower = max(1.0, (self._began_ns - self._start_ns) / over_ns) if over_ns else 1.0
        own_ns = expected[self._number] * slower
        spent_ns = min(own_ns, now_ns - self._began_ns)
        left_ns = own_ns - spent_ns + slower * sum(expected[self._number + 1 :])
        self._listener.tick(self._number, phase, spent_ns / own_ns, left_ns / NS_PER_S)


class _Case:
    """One case on one server."""

    def __init__(
        self,
        server: Server,
        known: Knowing,
        case: TruthCase,
        host: Host,
        measure_ns: int,
        interrupt: Interrupt,
    ) -> None:
        self._server, self._known, self._case, self._interrupt = server, known, case, interrupt
        self._cpus = host.limits.usable_cpus
        self._capped = host.limits.quota_cpus is not None and self._cpus == host.limits.quota_cpus
        self._sessions = case.count(self._cpus)
        self._measure_ns = measure_ns
        self._main_pid = server.facts().main_pid
        self._meter: Meter | None = None

    def planned(self) -> Planned:
        beside_ns = round(FLUSH_S * NS_PER_S) if self._case.counter else 0
        if self._case.kind == "brief":
            beside_ns = lead_ns(self._case)
        expected_ns = cell_expected_ns(self._cell(), None, self._cpus) + beside_ns
        return Planned(self._case, self._sessions, accounts_of(self._case), expected_ns)

    def truths(self, clock: _TimeLeft) -> list[Truth]:
        room = self._server.capacity().free - EXTRA_CONNECTIONS
        if room < self._sessions:
            return [
                self._not_run(f"{counted(self._sessions, 'session')} needed, the server has room for {room}")
            ]
        try:
            with contextlib.ExitStack() as stack:
                cpus, groups = self._limit(stack)
                self._known.truth_setup(self._case)
                stack.callback(self._known.truth_teardown, self._case)
                if self._case.kind == "brief":
                    raw, facts = self._observe(clock)
                else:
                    raw, counted_ns = self._measure(clock)
                    used = None if self._meter is None else self._meter.used()
                    facts = Facts(
                        self._sessions, self._cpus, used, cpus, counted_ns, groups=groups, capped=self._capped
                    )
        except QuotaRefused as e:
            return [self._not_run(str(e))]
        if raw.meta.status != "ok":
            return [self._not_run(raw.meta.reason or "the window could not be used")]
        return [t for tier, tables in tiers_of(raw) for t in truths(self._case, facts, tables, tier)]

    def _observe(self, clock: _TimeLeft) -> tuple[RawCell, Facts]:
        if self._main_pid is None:
            raise QuotaRefused("the server's processes are not on this host")
        return observed_briefly(
            self._server, self._case, self._cpus, self._measure_ns, self._interrupt, clock.tick
        )

    def _limit(self, stack: contextlib.ExitStack) -> tuple[float | None, Sequence[str]]:
        """Sets the quota and returns it with the control groups of the server's processes alone."""
        if not self._case.quota_per_cpu:
            return None, ()
        if self._main_pid is None:
            raise QuotaRefused("the server's processes are not visible from here")
        cpus = self._case.quota_per_cpu * self._cpus
        return cpus, [str(g) for g in stack.enter_context(quota(self._main_pid, cpus))]

    def _measure(self, clock: _TimeLeft) -> tuple[RawCell, float | None]:
        """Measures the cell, and returns it with the server's own timing in ns a call if the case names a
        counter."""
        before = self._counter()
        script = PlannedScript(name=f"{self._case.name}.sql", text=self._case.sql)
        workload = needed(self._server.scripts, "run scripts").script([script])

        def on_tick(phase: str, elapsed_s: float, _p: Progress, _shares: Mapping[str, float]) -> None:
            clock.tick(phase)
            if self._meter is None and phase != "connecting":
                t0_ns = time.monotonic_ns() + SETTLE_NS - round(elapsed_s * NS_PER_S)
                self._meter = Meter(self._main_pid, t0_ns, t0_ns + self._measure_ns)

        setting = Setting(self._server, self._plan(), self._interrupt, lambda _cell: on_tick)
        raw = measure_cell(setting, self._cell(), Unit(workload, None))
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

    def _not_run(self, why: str) -> Truth:
        return Truth(
            case=self._case.name,
            tier="",
            account=NOT_RUN,
            truth=None,
            why=why,
            ledger=None,
            wall=self._sessions,
            allowed=0.0,
        )


def tiers_of(raw: RawCell) -> Iterator[tuple[str, Mapping[str, pl.DataFrame]]]:
    """Yields the derived tables of a cell for each tier of waits that it has."""
    sampled = RawCell(raw.meta, {**raw.tables, **{name: empty(name) for name in TRACED}})
    tiers = [(SAMPLED, sampled)]
    if raw.tables["traced"].filter(pl.col("status") == "ok").height:
        tiers.insert(0, (TRACE, raw))
    for tier, cell in tiers:
        tables = window.cut([cell])
        tables = {**tables, "ledger": ledger(tables)}
        yield tier, {**tables, "wait_chains": wait_chains(tables)}
