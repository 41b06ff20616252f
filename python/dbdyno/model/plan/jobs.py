"""Jobs: commands that sessions run repeatedly or once each, and their keys in a recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol

from pydantic import Field

from dbdyno.model.plan.flagged import flagged
from dbdyno.model.plan.literals import Arrangement as Arrangement
from dbdyno.model.plan.literals import Shell as Shell
from dbdyno.model.plan.pacing import Strict
from dbdyno.model.plan.parameter import Parameter

if TYPE_CHECKING:
    from dbdyno.model.journal import Journal
    from dbdyno.model.plan.plan import Variant, Workload

MOST_JOBS = 1000
_MOST_AXES, _MOST_VALUES = 16, 1000


class JobSpec(Strict):
    """A command. ``{name}`` in it, and in what goes with it, is a parameter; ``{session}`` and ``{job}`` are
    the session's number and the job's name."""

    name: str | None = None
    """Its name; left out: the program's."""
    command: str
    """Command line; words are split as a shell would, but no shell runs it. @NAME: a job that comes with the
    engine."""
    shell: Shell = flagged("jobs.shell")
    """none, sh or bash: what runs the command line; a shell's own start-up is calibrated and taken off."""
    directory: str | None = flagged("jobs.directory")
    """Directory that it runs in, relative to the recipe; left out: the current one."""
    env: dict[str, str] = flagged("jobs.env", default_factory=dict)
    """Environment variables besides those of dbdyno."""
    input: str | None = flagged("jobs.input")
    """File that its standard input is; left out: /dev/null."""
    prepare: str | None = flagged("jobs.prepare")
    conclude: str | None = flagged("jobs.conclude")
    timeout: str | None = flagged("jobs.timeout")
    verify: str | None = flagged("jobs.verify")
    """Command after each execution that must succeed, not measured: cmp {out} {ref}."""
    work_bytes: str | None = flagged("jobs.work_bytes")
    """File whose size is the work of an execution, in bytes."""
    work_regex: str | None = flagged("jobs.work_regex")
    """Regular expression whose first group is the work of an execution, in what it prints: done (\\d+)."""
    work_unit: str | None = flagged("jobs.work_unit")


class JobKeys(Strict):
    """Keys of a recipe for commands."""

    command: str | None = None
    """Command line; short for one of jobs."""
    jobs: tuple[JobSpec, ...] = Field(default=(), max_length=MOST_JOBS)
    """[[jobs]]: commands side by side; a session runs them in turn."""
    axes: dict[str, Annotated[tuple[str | int | float | bool, ...], Field(max_length=_MOST_VALUES)]] = Field(
        default_factory=dict, max_length=_MOST_AXES
    )
    """Parameters of which each value is a variant; of several, each combination: threads = [1, 2, 4]."""
    once: bool = flagged("once")
    runs: int | None = flagged("runs")
    orders: tuple[Arrangement, ...] = flagged("orders", max_length=4)
    warmup: int | None = flagged("warmup")
    setup: str | None = flagged("setup")
    cleanup: str | None = flagged("cleanup")
    keep_output: str | None = flagged("keep_output")
    hide_args: bool = flagged("hide_args")

    @property
    def job_set(self) -> tuple[JobSpec, ...]:
        """All jobs of the recipe."""
        return self.jobs if self.command is None else (JobSpec(command=self.command), *self.jobs)


class BuiltinJob(NamedTuple):
    """A job that comes with the engine. Its command is ``@name`` without arguments."""

    doc: str
    parameters: Mapping[str, Parameter]  # the parameters of this job; the other jobs of a set have their own
    resolve: Callable[[Mapping[str, str | int | float | bool]], JobSpec]
    """Returns the job with these parameters, and defaults for all others. Its name is the program that it
    runs: ``zstd``. It compiles and writes the files that it needs into
    :func:`dbdyno.engines.command.shipped.cache.directory`. Its command has no placeholders but {session} and
    {job}. Other keys of the recipe take precedence over those of the job. Raises :class:`NotAvailable`."""


class PlannedJob(Strict):
    """A resolved job of a variant: parameters are filled in, words split, files found, times converted to
    ns."""

    name: str
    argv: tuple[str, ...]  # {session} and {job} are filled in when it is started
    shown: str  # as people see it; with hide_args the program alone
    directory: str | None = None
    env: dict[str, str] = Field(default_factory=dict)
    input: str | None = None
    prepare: tuple[str, ...] = ()  # argv; empty: none
    conclude: tuple[str, ...] = ()
    verify: tuple[str, ...] = ()
    timeout_ns: int | None = None
    shell: Shell = "none"  # what argv begins with
    shell_ns: int = 0  # start-up of its shell at its shortest: taken off durations
    shell_error_ns: int = 0  # how much longer that start-up usually may be
    work_file: str | None = None  # its size is the work: once set-up is done, or after each execution
    work: float | None = None  # of each execution, where it is known: bytes
    work_regex: str | None = None
    work_unit: str = "runs"  # plural: what work counts

    @property
    def asides(self) -> bool:
        """Whether commands that are not measured run between its executions."""
        return bool(self.prepare or self.conclude or self.verify)

    @property
    def hidden(self) -> PlannedJob:
        """The job without arguments, environment and files, which might reveal secrets."""
        return PlannedJob(name=self.name, argv=(self.shown,), shown=self.shown, work_unit=self.work_unit)


class ShellStart(NamedTuple):
    """The start-up time of a shell. Some starts wait for a CPU, and starts before a run may wait more than
    starts in it. Every execution has at least the shortest start-up, and the rest is the error of the
    correction."""

    least_ns: int
    usual_ns: int  # upper end of the 95 % interval of the median


class Commanding(Protocol):
    """Runs commands as calls."""

    def contain(self, journal: Journal) -> str:
        """Runs later commands in control groups of their own, if possible, with a maximum number of tasks,
        and describes that in words. ``journal`` records first what a killed run would leave behind.
        ``close`` ends the commands and removes the groups."""

    def jobs(self, jobs: Sequence[PlannedJob], variant: Variant, name: str, keep_output: int) -> Workload:
        """Returns the jobs as a workload. In measurements of the variant, its calls are executions of these
        jobs. ``keep_output`` is the number of bytes kept of each execution's output; with 0, only the end of
        the error output of failed executions is kept. Raises :class:`UsageError` for a program that is
        missing or not executable."""

    def shell_start(self, shell: str) -> ShellStart:
        """Measures the start-up time of this shell."""

    def aside(self, argv: Sequence[str], directory: str | None, env: dict[str, Any]) -> None:
        """Runs a command that is not measured, for set-up or clean-up. Raises :class:`TargetError` with the
        end of its error output if it fails."""
