"""A PostgreSQL server as :class:`dbdyno.model.engine.protocols.Server`, over a control connection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import polars as pl
import psycopg

from dbdyno import _core
from dbdyno.engines.driving import local_load
from dbdyno.engines.postgres import (
    connect,
    connection_options,
    counters,
    enabling,
    facts,
    objects,
    observation,
    own_settings,
    password_file,
    presence,
    script_check,
    sessions,
    statements,
    timing,
    truth,
)
from dbdyno.engines.postgres.caching import Cache
from dbdyno.engines.postgres.calibrate import Bench, calibrate
from dbdyno.engines.postgres.checking import Checks
from dbdyno.engines.postgres.conditions import Conditions
from dbdyno.engines.postgres.embedded import Instance
from dbdyno.engines.postgres.errors import doing, protocol_checked
from dbdyno.engines.postgres.facts import visibility
from dbdyno.engines.postgres.from_there import FromThere
from dbdyno.engines.postgres.live import Live
from dbdyno.engines.postgres.login_trace import LoginTraces
from dbdyno.engines.postgres.places import places, unknown_directories
from dbdyno.engines.postgres.planning import Plans
from dbdyno.engines.postgres.pooler import Fronting
from dbdyno.engines.postgres.pooler import put_back as end_pooler
from dbdyno.engines.postgres.query_id import backend_word
from dbdyno.engines.postgres.resetting import Resets
from dbdyno.engines.postgres.sessions import Recipe, recipe_of
from dbdyno.engines.postgres.settings import Keeper, Site
from dbdyno.engines.postgres.snapshots import Snapshots
from dbdyno.engines.postgres.storage_reads import StorageReads
from dbdyno.engines.postgres.table_making import Tables
from dbdyno.engines.postgres.wait_events import families
from dbdyno.kernel.machine import HERE
from dbdyno.model.engine.environment import ServerFacts
from dbdyno.model.engine.machine import Machine
from dbdyno.model.engine.protocols import PLAIN, Capacity, Configured, Journal, Load, LoadMaker, Pool, Undo
from dbdyno.model.engine.truth import TruthCase
from dbdyno.model.errors import DbdynoError
from dbdyno.model.plan.plan import (
    Calibration,
    Cell,
    DriverSetup,
    Observation,
    PlannedScript,
    Variant,
    Workload,
)
from dbdyno.model.plan.script_workload import workload_of
from dbdyno.model.results.raw import OWN, WARM_CALLS
from dbdyno.model.schema.rawtables import OWN_CONNECTION
from dbdyno.model.schema.tables import empty, rows
from dbdyno.model.sources.source import Source
from dbdyno.model.sources.wait_families import WaitFamilies
from dbdyno.model.units import counted

_Key = tuple[str, tuple[tuple[str, Any], ...]]


class PostgresServer:
    """A server under load. ``instance`` is the embedded server; :meth:`close` ends it if dbdyno owns it."""

    def __init__(
        self,
        dsn: str,
        instance: Instance | None = None,
        drive: LoadMaker = local_load,
        machine: Machine = HERE,
    ) -> None:
        self._dsn, self._instance, self._connection = dsn, instance, connect.connect(dsn)
        self._front, self.machine, self._from_there = Fronting(drive), machine, FromThere(machine)
        self.version: int = self._connection.info.server_version  # 180004
        self._database = self._connection.database
        with doing("looking at the server"), protocol_checked():
            self._visibility = visibility(self._connection)
            self._presence = presence.presence(self._connection, machine, self._visibility.service)
            self._identity = facts.identity(self._connection)
            self._places = places(self._connection, self._presence)
        self._login = connect.driver_target(self._connection)
        site = Site(dsn, instance, self._identity, lambda: self._connection, self.reconnect, machine)
        self._settings = Keeper(site)
        self._statement_reader, self._storage_reads = statements.Statements(), StorageReads(machine.root)
        self._preloaded: enabling.Preloaded | None = None
        self._run: str | None = None  # the run that has claimed this server
        self._recipes: dict[_Key, Recipe] = {}
        self._scripts: dict[tuple[str, str], Recipe] = {}  # by workload and variant
        self._script_settings: dict[str, dict[str, str]] = {}  # by script, for loads of known truth
        self._probes: dict[str, int] = {}  # what the server counts of one session's probes, by counter
        self._single = False  # whether each session is one transaction, which ends after the window
        self._warm = 0  # calls before the barrier that are reported after it
        self._added = Counter(dict.fromkeys(OWN, 0))  # by samplers and probes
        self._own_reads = counters.OwnReads()
        self._unread: set[counters.Counter] = set()  # counters whose statement the server did not know
        self._unprobed: str | None = None  # why the sessions of the latest load are not probed
        self.counting = self.second_counting = self.statement_counting = self.listing = self.watching = self
        self.settings = self
        self.scripts = self.calibrating = self.pooling = self.truths = self
        self.snapshots = Snapshots(site, self._statements, self._added)
        self.tables, self.resetting, self.login_tracing = Tables(site), Resets(site), LoginTraces(site)
        self.checking, self.planning, self.conditions = Checks(site), Plans(site), Conditions(site)
        self.caching = Cache(site, lambda: self._presence, self.backends, self._added)
        self.live = Live(site, self._own_activity)
        self.commands = self.choosing = self.world = None

    @property
    def control(self) -> connect.Connection:
        """The current control connection."""
        return self._connection

    @property
    def _target(self) -> Mapping[str, Any]:
        """Returns how sessions connect, with the password that the password file has now."""
        password = password_file.password(self._connection)
        return self._login if password is None else {**self._login, "password": password}

    @property
    def identity(self) -> facts.Identity:
        return self._identity

    @property
    def wait_families(self) -> WaitFamilies:
        return families()

    def facts(self) -> ServerFacts:
        with doing("asking for settings"):
            return facts.facts(
                self._connection,
                self._presence,
                self._visibility,
                embedded=self._instance is not None,
            )

    def sources(self) -> Sequence[Source]:
        with suppress(psycopg.Error):  # keep the last state: a lost server has data sources, too
            self._visibility = visibility(self._connection)
        known = facts.sources(
            self._identity.major,
            self._scripts.values(),
            self._visibility,
            self._statements(),
            counts_own_work=self._connection.counts_own_work,
            unprobed=self._unprobed,
            unread=self._unread,
            lacking=self._connection.lacking,
        )
        if self._presence.here:
            known += unknown_directories(self._places, self._visibility.role)
        return [*known, *self._presence.sources(), *self._front.sources()]

    def _statements(self) -> Source:  # reads the libraries once: they change only with a restart
        if not self._visibility.statements_loaded and self._preloaded is None:
            with suppress(psycopg.Error):
                self._preloaded = enabling.preloaded_libraries(self._connection)
        source = enabling.statements(
            self._visibility, self._database, self._preloaded, embedded=self._instance is not None
        )
        if source.status != "ok" or not (trouble := self._statement_reader.trouble):
            return source
        detail = f"executions and blocks dirtied are unknown: {trouble}"
        return source.model_copy(update={"status": "lost", "detail": detail})

    def enable(self, statement: str) -> None:
        with doing(statement), self._connection.users_settings():
            self._connection.execute(statement.encode())

    def capacity(self) -> Capacity:
        with doing("counting connections"):
            return sessions.capacity(self._connection)

    def claim(self, run: str) -> None:
        with doing("claiming the server"):
            sessions.claim(self._connection, run)
        self._run = run

    def reconnect(self) -> None:
        """Connects again, for example after a restart. Checks that it is the same server, and claims it
        again."""
        self._connection.close()
        connection = connect.connect(self._dsn)
        try:
            with doing("looking at the server again"):
                facts.check_same(self._identity, facts.identity(connection))
                self.machine.revive()
                self._presence = presence.presence(connection, self.machine, self._visibility.service)
                self._places = places(connection, self._presence)
                if self._run is not None:
                    sessions.claim(connection, self._run)
        except BaseException:
            connection.close()
            raise
        self._connection, self.version = connection, connection.info.server_version
        self._login = connect.driver_target(connection)

    # -- settings of a variant, how calls are sent, a pooler in front ----------------------------
    def check_settings(self, settings: Mapping[str, str]) -> Sequence[str]:
        with doing("checking settings"):
            return self._settings.check(settings)

    def configure(self, settings: Mapping[str, str], journal: Journal) -> Configured:
        with doing("changing settings"):
            return self._settings.configure(settings, journal)

    def restart(self) -> None:
        with doing("restarting the server"):
            self._settings.restart()

    def put_back(self, undo: Undo) -> str | None:
        if undo.kind == "pooler":
            return end_pooler(undo)
        with doing("putting back settings"):
            return (self._settings if undo.kind == "settings" else self.login_tracing).put_back(undo)

    def check_driver(self, driver: DriverSetup) -> None:
        with doing("checking how calls are sent"):
            sessions.check_driver(self._connection, driver)

    def check_pool(self, pool: Pool) -> None:
        connection_options.check_pooler(self._connection, self._target)
        self._front.check(pool, self._target, self.capacity())

    def use_pool(self, pool: Pool | None, journal: Journal) -> None:
        self._front.use(pool, journal)

    # -- what is run on it ----------------------------------------------------------------------
    def prepare(self, workload: Workload, params: Mapping[str, Any], sessions: int) -> None:
        if any(name == workload.name for name, _ in self._scripts):
            return
        with doing(f"preparing {workload.name}"):
            recipe = recipe_of(self._connection, workload.name, params, sessions)
        self._recipes[_key(workload, params)] = recipe

    def script(self, scripts: Sequence[PlannedScript], variant: Variant = PLAIN, name: str = "") -> Workload:
        workload = workload_of(scripts, name)
        settings = self._script_settings.get(workload.name, {})
        with doing("checking the script"):
            recipe = sessions.own_recipe(self._connection, workload.name, scripts, variant, settings)
        self._scripts[workload.name, variant.name] = recipe
        return sessions.sized(workload, recipe)

    def needs_simple(self, scripts: Sequence[PlannedScript], variant: Variant) -> str | None:
        with doing("checking the script"):
            return script_check.server_needs_simple(self._connection, scripts, variant)

    def scale(self, scripts: Sequence[PlannedScript]) -> tuple[int, str] | None:
        return script_check.scale_of(self._connection, scripts)

    def calibrate(
        self,
        workload: Workload,
        params: Mapping[str, Any],
        target_ns: int,
        reason: str,
        size: int | None = None,
    ) -> Calibration:
        recipe = self._recipe(workload, params)
        with doing(f"calibrating {workload.name}"), connect.connect(self._dsn) as connection:
            for statement in sessions.entries(self._connection, recipe, 1, 1)[0]["setup"]:
                connection.execute(statement.encode())
            pid = connection.info.backend_pid
            run_ns = partial(presence.run_ns, pid, self.machine)
            readable = self._presence.owns(pid) and run_ns() is not None
            with connection.patient():
                bench = Bench(connection, recipe, run_ns if readable else None)
                return calibrate(bench, target_ns, reason, size)

    def load(
        self,
        workload: Workload,
        cell: Cell,
        calibration: Calibration | None,
        log_calls: bool,
        max_calls: int | None,
    ) -> Load:
        recipe = replace(self._recipe(workload, cell.params, cell.variant), varied=self._settings.names)
        size = 1 if calibration is None else calibration.size
        self.check_driver(cell.driver)
        with doing(f"preparing {counted(cell.sessions, 'session')}"):
            probe, report = self._probe(recipe, cell.sessions)
            entries = sessions.entries(self._connection, recipe, cell.sessions, size, cell.driver, report)
        spec = {
            **sessions.load_spec(recipe, cell),
            "target": self._target,
            "sessions": entries,
            "probe": probe,
            "log_calls": log_calls,
            "log_cpu": log_calls and self._presence.local,
            "max_calls": max_calls,
        }
        if self._front.pool is not None:
            with doing("preparing the pool"):
                settings = sessions.shared(self._connection, recipe)
                return self._front.load(self._connection, spec, settings, cell.sessions)
        return self._front.drive("postgres", spec)

    def _probe(self, recipe: Recipe, count: int) -> tuple[dict[str, Any] | None, Mapping[str, Any] | None]:
        """Returns how sessions are probed, and how they report activity before the barrier if no probe
        does."""
        self._unprobed = self._front.unprobed()
        if self._unprobed is None and self._connection.counts_own_work:
            self._unprobed = facts.probe_refusal(self._connection, count, here=self._presence.local)
        probe = sessions.probe(recipe, self._connection) if self._unprobed is None else None
        self._probes = sessions.counted_of_probes(probe)
        self._single = not self._front.shared and sessions.in_one_transaction(recipe, self._connection)
        flushed = probe is not None and bool(probe["flush"])
        reports_itself = self._front.pool is None and not flushed  # a pool's connections are no session's
        report = sessions.reporting(recipe, self._connection, count) if reports_itself else None
        reported = recipe.half is None or flushed or report is not None
        self._warm = 0 if reported else count * sessions.WARM_CALLS
        return probe, report

    def _recipe(self, workload: Workload, params: Mapping[str, Any], variant: str = "") -> Recipe:
        if (workload.name, variant) in self._scripts:
            return self._scripts[workload.name, variant]
        try:
            return self._recipes[_key(workload, params)]
        except KeyError:
            raise DbdynoError(
                f"workload {workload.name} has not been prepared on this server with {dict(params)}",
                "this is a bug in dbdyno: please report it",
            ) from None

    # -- watching -------------------------------------------------------------------------------
    def watch_spec(self, load: Load) -> Mapping[str, Any]:
        with doing("preparing the activity samples"):
            numbered = load.backends()
            self._added.update({name: count * len(numbered) for name, count in self._probes.items()})
            half = self._watch_half(observation.activity_sql(self._connection), numbered)
            return self._front.watched(self._connection, half)

    def observation_spec(
        self, chosen: Observation, known: Mapping[tuple[int, int], int]
    ) -> Mapping[str, Any]:
        with doing("choosing sessions"):
            query = observation.activity_sql(self._connection, chosen)
            numbered = [(session, *task) for task, session in known.items()]
            return {**self._watch_half(query, numbered), "adopt": True}

    def _watch_half(self, query: str, numbered: Sequence[tuple[int, int, int]]) -> dict[str, Any]:
        self._added.update(observation.counted_to_begin(self._connection))
        known = {pid for _, pid, _ in numbered}
        visible, target = self._presence.here, self._from_there.target(self._connection, self._target)
        unseen = presence.unseen_tasks(self._presence, known, all_helpers=not self._visibility.all_sessions)
        return {
            "engine": "postgres",
            "activity": {
                "target": {**target, "application_name": observation.OBSERVER},
                "setup": own_settings.statement(self._connection.info.server_version, "{pid}"),
                "sql": query,
                "blocking": observation.blocking_spec(self._connection),
            },
            "sessions": [list(task) for task in numbered],
            "os": visible,
            "unseen": self._presence.status if not visible else "not here",
            "main_pid": self._presence.main_pid,
            "word": backend_word(self._connection, self._presence) if visible else None,
            "tasks": [{"pid": pid, "tid": pid, "role": role} for pid, role in unseen],
            "places": self._places,
        }

    def backends(self) -> pl.DataFrame:
        with doing("asking who is connected"):
            processes = sessions.backends(self._connection, _core.now_ns)
        for row in processes:
            if row["application"] == observation.OBSERVER or row["pid"] == self._connection.info.backend_pid:
                row["kind"] = OWN_CONNECTION
        return rows("backends", processes)

    def end_left(self, pids: Sequence[int]) -> int:
        with doing("ending sessions of a lost driver"):
            return sessions.end_left(self._connection, pids)

    def clock_facts(self) -> Mapping[str, str]:
        programs = None if self._instance is None else self._instance.bin_dir
        main_pid = self._presence.main_pid if self._presence.local else None
        with doing("asking for the clock"):
            return timing.clock_facts(self._connection, main_pid, programs)

    def counters(self, phase: str) -> pl.DataFrame:
        if phase == counters.CONNECTING and not self._warm:
            return empty("counters")
        with doing("reading counters"):
            if phase == counters.END:
                self._front.leave(self._connection)
            read = counters.read(self._connection, phase, _core.now_ns, self._unread)
            reads = self._own_reads.added(self._connection, observation.OBSERVER)
        transactions, executions = self._own_activity()
        added = {
            OWN["transactions_committed"]: transactions,
            OWN["executions"]: executions,
        }
        if self._single:
            del added[OWN["transactions_committed"]]
        read += counters.own({**added, **reads} | {WARM_CALLS: self._warm}, phase, _core.now_ns())
        read += self._storage_reads.rows(self._presence, phase, _core.now_ns)
        return rows("counters", [*read, *self._front.counters(phase, _core.now_ns)])

    def second_counters(self) -> Sequence[Mapping[str, Any]]:
        with doing("reading counters by second"):
            return counters.read_series(self._connection, _core.now_ns)

    def _own_activity(self) -> tuple[int, int]:
        """Returns the transactions and executions of dbdyno's own connections so far, without samples."""
        sent, added, live = self._connection.statements, self._added, self.live
        transactions = sent + added["transactions_committed"] + self.snapshots.transactions
        return transactions + live.transactions, sent + added["executions"] + live.statements

    def statements(self, phase: str) -> pl.DataFrame:
        with doing("reading counters of statements"):
            return self._statement_reader.read(self._connection, phase, _core.now_ns)

    def executed(
        self, first: pl.DataFrame, last: pl.DataFrame, seen: Collection[int] = ()
    ) -> Mapping[str, pl.DataFrame]:
        with doing("reading texts of statements"):
            return self._statement_reader.executed(self._connection, first, last, seen)

    # -- loads of known truth -------------------------------------------------------------------
    def truth_cases(self) -> Sequence[TruthCase]:
        return truth.cases()

    def truth_setup(self, case: TruthCase) -> None:
        with doing(f"preparing {case.name}"), self._connection.patient():
            objects.own_schema(self._connection)
            for statement in case.setup:
                self._connection.execute(statement.encode())
            may_set = partial(truth.may_set, self._connection, superuser=self._visibility.superuser)
            permitted = {n: v for n, v in case.settings.items() if may_set(n, v)}
        self._script_settings = {case.name: permitted}

    def truth_teardown(self, case: TruthCase) -> None:
        with doing(f"tidying up after {case.name}"), self._connection.patient():
            for statement in case.teardown:
                self._connection.execute(statement.encode())

    def brief_session(self, case: TruthCase) -> int | None:
        with doing(f"running {case.name}"):
            return truth.brief_session(self._dsn, case)

    def clean(self) -> Sequence[str]:
        with doing("removing dbdyno's objects"):
            return [*self.login_tracing.remove(watched=False), *objects.clean(self._connection)]

    def checkpoint(self) -> None:
        with doing("writing a checkpoint"), self._connection.patient():
            self._connection.execute("checkpoint")

    def leave(self) -> None:
        """Closes all connections; :meth:`reconnect` opens them again."""
        for part in (self._front, self.snapshots, self._connection):
            part.close()

    def close(self) -> None:
        self.leave()
        if self._instance is not None:
            self._instance.close()


def _key(workload: Workload, params: Mapping[str, Any]) -> _Key:
    return workload.name, tuple(sorted(params.items()))
