"""Commands as a :class:`dbdyno.model.engine.protocols.Server`; the launcher starts them."""

from __future__ import annotations

import platform
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from dbdyno import _core
from dbdyno.engines import driving, paced
from dbdyno.engines.command import PRODUCT, groups, programs, wait_families, watching
from dbdyno.engines.command.launching import Launcher
from dbdyno.engines.command.shipped import cache
from dbdyno.kernel.machine import HERE
from dbdyno.model.engine.environment import ServerFacts
from dbdyno.model.engine.machine import Machine
from dbdyno.model.engine.protocols import Capacity, Load, Target
from dbdyno.model.errors import DbdynoError, TargetError, UsageError
from dbdyno.model.journal import Journal
from dbdyno.model.plan.job_workload import workload_of_jobs
from dbdyno.model.plan.jobs import PlannedJob, ShellStart
from dbdyno.model.plan.plan import Calibration, Cell, DriverSetup, Variant, Workload
from dbdyno.model.schema.tables import from_core
from dbdyno.model.sources.source import Source

NAME = "command"
NO_GRACE_MS = 10**12
"""Never kills a command when the measurement ends: it runs to its end, or to its timeout."""
_TASKS = 2
"""Tasks of a session: a thread of the launcher, and at least one process."""
_SHELL_RUNS = 30
_MEDIAN_UPPER = 20
"""The 21st of 30 values is the upper end of the 95 % interval of their median (binomial distribution)."""
_STEP_S = 0.1
_NOT_THE_DRIVERS = {"shell", "shell_error_ns", "work_unit"}
"""Keys of a job that the driver does not take."""
_PLAIN = DriverSetup()


class CommandServer:
    """Runs commands as calls. The capability ``commands`` is the object itself."""

    wait_families = wait_families()
    counting = second_counting = statement_counting = listing = watching = settings = scripts = None
    snapshots = tables = resetting = planning = checking = caching = conditions = login_tracing = live = None
    truths = world = choosing = calibrating = pooling = None
    machine: Machine = HERE

    def __init__(
        self, target: Target, environment: Mapping[str, str] | None = None, descriptors: Sequence[int] = ()
    ) -> None:
        """``environment`` and ``descriptors`` are those of :class:`Launcher`."""
        if target.dsn is not None:
            raise UsageError("commands run on this machine: they have no DSN", "leave out --dsn")
        if target.make_load is not None:
            raise UsageError("commands run on this machine alone", "leave out the other hosts' drivers")
        self._token = secrets.token_hex(8)
        self._launcher = Launcher(self._token, environment, descriptors)
        self._contained: groups.Containment | None = None
        self._jobs: dict[tuple[str, str], tuple[tuple[PlannedJob, ...], int]] = {}  # by workload and variant
        self.commands = self

    def facts(self) -> ServerFacts:
        self._launcher.check()
        release = platform.release()
        return ServerFacts(
            engine=NAME,
            product=PRODUCT,
            version=release,
            version_num=0,
            description=f"commands on {platform.system()} {release}",
            where="this machine",
            embedded=True,
            tls=None,
            here=True,
            here_detail="dbdyno starts them",
            main_pid=self._launcher.pid,
            settings={},
        )

    def sources(self) -> Sequence[Source]:
        own = Source(name="executions", provenance="wait4(2), /proc/PID/schedstat, /proc/PID/io", status="ok")
        return [own, *watching.SOURCES, *([] if self._contained is None else [self._contained.source()])]

    def capacity(self) -> Capacity:
        limit = groups.limit() if self._contained is None else self._contained.limit
        words = f"a session needs {_TASKS} tasks, and there may be {limit.tasks:,} ({limit.words})"
        return Capacity(limit.tasks // _TASKS, 0, 0, words)

    def claim(self, run: str) -> None: ...

    def check_driver(self, driver: DriverSetup) -> None:
        own = {"threads": driver.threads, "rounds": driver.rounds}
        if driver.model_copy(update=own) != _PLAIN.model_copy(update=own):
            raise UsageError(
                f"commands cannot be {', '.join(driver.words())}",
                "leave out what is for sessions of a database",
            )

    def prepare(self, workload: Workload, params: Mapping[str, Any], sessions: int) -> None: ...

    # -- what is run ----------------------------------------------------------------------------
    def contain(self, journal: Journal) -> str:
        self._contained = self._launcher.contain(journal)
        self._launcher.send(self._contained.for_launcher(self._token))
        return self._contained.words()

    def jobs(self, jobs: Sequence[PlannedJob], variant: Variant, name: str, keep_output: int) -> Workload:
        for job in jobs:
            programs.check(job)
        workload = workload_of_jobs(jobs, name)
        self._jobs[workload.name, variant.name] = tuple(jobs), keep_output
        return workload

    def shell_start(self, shell: str) -> ShellStart:
        argv = (shell, "-c", "")
        programs.check_program(f"--shell {shell}", argv, None, {})
        executions = self._run_unwatched(PlannedJob(name=shell, argv=argv, shown=shell), _SHELL_RUNS)
        durations = sorted((executions["end_ns"] - executions["start_ns"]).to_list())
        return ShellStart(durations[0], durations[_MEDIAN_UPPER])

    def aside(self, argv: Sequence[str], directory: str | None, env: dict[str, Any]) -> None:
        programs.check_program(argv[0] if argv else "command", argv, directory, env)
        job = PlannedJob(name="aside", argv=tuple(argv), shown=argv[0], directory=directory, env=env)
        executions = self._run_unwatched(job, 1)
        if executions["outcome"].to_list() != ["ok"]:
            words = next(iter(executions["detail"].drop_nulls()), "it did not end")
            raise TargetError(f"{argv[0]}: {words}", "it must succeed, as what is measured relies on it")

    def begin_unwatched(self, job: PlannedJob, runs: int) -> Load:
        """Starts ``runs`` executions one after another, without observation. The caller aborts the load."""
        load = driving.local_load(NAME, self._spec((job,), 1, 0) | {"shared_calls": runs})
        try:
            load.connect()
            self._wait(load)
            now_ns = _core.now_ns()
            load.start(now_ns, now_ns, 2**62)
        except BaseException:
            load.abort()
            raise
        return load

    def is_over(self, load: Load, patience_s: float = 0.0) -> bool:
        """Returns whether all executions have ended, after waiting up to ``patience_s``. Raises
        :class:`UsageError` for a wrong command, else :class:`TargetError`."""
        try:
            if load.wait(patience_s):
                return True
        except _core.DriverError as e:
            kind, message = e.args[:2]
            wrong = kind == "statement"
            cure = "change the command" if wrong else "see that message"
            raise (UsageError if wrong else TargetError)(message, cure) from None
        self._launcher.check()
        return False

    def executions(self, load: Load) -> pl.DataFrame:
        """Returns the table ``executions`` of a load that has ended."""
        return from_core("executions", load.tables()["executions"])

    def _run_unwatched(self, job: PlannedJob, runs: int) -> pl.DataFrame:
        """Runs the job ``runs`` times without observation. Returns its ``executions``."""
        load = self.begin_unwatched(job, runs)
        try:
            self._wait(load)
            return self.executions(load)
        finally:
            load.abort()

    def _wait(self, load: Load) -> None:
        while not self.is_over(load, _STEP_S):
            pass

    def load(
        self,
        workload: Workload,
        cell: Cell,
        calibration: Calibration | None,  # noqa: ARG002
        log_calls: bool,
        max_calls: int | None,
    ) -> Load:
        self._launcher.check()
        self.check_driver(cell.driver)
        if (workload.name, cell.variant) not in self._jobs:
            raise DbdynoError(
                f"the jobs of {workload.name} are not known", "this is a bug in dbdyno: please report it"
            )
        jobs, keep_output = self._jobs[workload.name, cell.variant]
        spec = {
            **self._spec(jobs, cell.sessions, keep_output),
            **paced.spec(cell),
            "threads": cell.driver.threads,
            "log_calls": log_calls,
            "max_calls": max_calls,
            "in_turn": cell.once,
            "shared_calls": len(jobs) * cell.runs if cell.once else None,
        }
        return driving.local_load(NAME, spec)

    def _spec(self, jobs: Sequence[PlannedJob], sessions: int, keep_output: int) -> dict[str, Any]:
        return {
            "control": self._launcher.control.fileno(),
            "run": self._token,
            "sessions": sessions,
            "jobs": [job.model_dump(exclude=_NOT_THE_DRIVERS) for job in jobs],
            "keep_output": keep_output,
            "grace_ms": NO_GRACE_MS,
        }

    def watch_spec(self, load: Load) -> Mapping[str, Any]:  # noqa: ARG002
        return watching.watch_spec(self._launcher.pid)

    def clean(self) -> Sequence[str]:
        return cache.remove_all()

    def close(self) -> None:
        self._launcher.close()
