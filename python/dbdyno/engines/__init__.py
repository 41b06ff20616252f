"""The engines by name: the one that comes with dbdyno, and those that other packages bring.

An engine is a module, or any object, with the members of :class:`Engine`. An installed package brings it by
an entry point of the group ``dbdyno.engines``, a Python program by :func:`register`. It is imported when it
is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from dbdyno.model.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from dbdyno.engines.command.beside import Beside
    from dbdyno.model.engine.protocols import Server, Target
    from dbdyno.model.engine.snapshot import Snapshot
    from dbdyno.model.journal import Journal, Undo
    from dbdyno.model.plan.jobs import BuiltinJob
    from dbdyno.model.plan.plan import PlannedScript, Workload
    from dbdyno.model.sources.code_areas import CodeAreas
    from dbdyno.model.sources.wait_advice import WaitAdvice
    from dbdyno.model.sources.wait_families import Helper, WaitFamilies

DEFAULT = "postgres"
COMMAND = "command"
BUILT_IN = (DEFAULT, COMMAND)
GROUP = "dbdyno.engines"
_registered: dict[str, Engine] = {}


class Engine(Protocol):
    """What an engine's module has. It may have besides:

    ``embedded``: an :class:`Embedded`;
    ``failure_kinds()``: what codes of failed calls mean;
    ``scripts()``: texts of scripts that come with it, by name;
    ``jobs()``: commands that come with it, by name;
    ``needs_simple(scripts, given)``: why these scripts, with variables of these names, can be sent as simple
    queries alone; else None;
    ``workloads()``: workloads that only it has, by name, or has otherwise than dbdyno's own of that name;
    ``imported(kind, content)``: snapshots of an export of another program;
    ``code_areas()``: parts of its program, by function;
    ``wait_advice()``: what to change where sessions wait for each other;
    ``put_back(undo)``: puts back what a killed run changed on this machine, as
    :meth:`dbdyno.model.engine.protocols.Configuring.put_back`, but without a server;
    ``secret_in(dsn)``: of a DSN that holds a password, where to keep that instead; else None;
    ``SECRET_VARIABLES``: names of environment variables that hold its passwords, or name files with them."""

    PRODUCT: str
    """The system's own name."""

    def open_server(self, target: Target) -> Server:
        """The server of ``target``, to be closed. Raises :class:`dbdyno.model.errors.TargetError`."""

    def wait_families(self) -> WaitFamilies:
        """What its wait events are for: of runs that were stored without it."""

    def helpers(self) -> dict[str, Helper]:
        """What its own processes are for: of runs that were stored without it."""


class Embedded(Protocol):
    """The server that an engine brings with it."""

    def start(
        self,
        bin_dir: Path | None = None,
        settings: Mapping[str, str] | None = None,
        max_connections: int | None = None,
        fresh: bool = False,
    ) -> Mapping[str, Any]:
        """Starts it to stay until ``stop``; its status."""

    def stop(self) -> Mapping[str, Any]:
        """Stops it; what was stopped."""

    def status(self) -> Mapping[str, Any]:
        """Whether it runs and how to connect, fit for JSON, without credentials."""

    def client_argv(self) -> list[str]:
        """Command line of an interactive client for it."""


def register(name: str, engine: Engine) -> None:
    """Makes an engine known under a name, in this process."""
    _registered[name] = engine


def names() -> list[str]:
    """All engines that there are, the default first."""
    return [*BUILT_IN, *sorted({*_registered, *_installed()} - {*BUILT_IN})]


def checked(engine: str) -> str:
    """The engine of that name; empty: the default. Raises :class:`UsageError` with the nearest name."""
    if engine and engine not in BUILT_IN and engine not in names():
        raise UsageError(f"no engine {engine!r}", did_you_mean(engine, names()))
    return engine or DEFAULT


@contextmanager
def open_server(engine: str, target: Target) -> Iterator[Server]:
    """The server of ``target``, closed at the end. Raises :class:`dbdyno.model.errors.TargetError`, and
    :class:`UsageError` for an embedded server's programs or settings where there is none."""
    if target.dsn is None and (target.bin_dir or target.settings):
        embedded(engine)
    server = _engine(engine).open_server(target)
    try:
        yield server
    finally:
        server.close()


def product(engine: str) -> str:
    """The system's own name."""
    return _engine(engine).PRODUCT


def wait_families(engine: str) -> WaitFamilies:
    """See :class:`Engine`."""
    return _engine(engine).wait_families()


def helpers(engine: str) -> dict[str, Helper]:
    """See :class:`Engine`."""
    return _engine(engine).helpers()


def workloads(engine: str) -> dict[str, Workload]:
    """Its own workloads, by name."""
    found = getattr(_engine(engine), "workloads", None)
    return {} if found is None else cast("dict[str, Workload]", found())


def scripts(engine: str) -> Mapping[str, str]:
    """Texts of the scripts that come with it, by name."""
    found = getattr(_engine(engine), "scripts", None)
    return {} if found is None else cast("Mapping[str, str]", found())


def runs_commands(engine: str) -> bool:
    """Whether it has jobs in place of a database's calls."""
    return hasattr(_engine(engine), "jobs")


def jobs(engine: str) -> Mapping[str, BuiltinJob]:
    """Commands that come with it, by name without the @."""
    found = getattr(_engine(engine), "jobs", None)
    return {} if found is None else cast("Mapping[str, BuiltinJob]", found())


def needs_simple(engine: str, scripts: Sequence[PlannedScript], given: Sequence[str]) -> str | None:
    """Why these scripts, with variables of these names, can be sent as simple queries alone; else None."""
    found = getattr(_engine(engine), "needs_simple", None)
    return None if found is None else cast("str | None", found(scripts, given))


def failure_kinds(engine: str) -> Mapping[str, str]:
    """By the server's code: ``serialization`` or ``deadlock``; other codes are of other failures."""
    found = getattr(_engine(engine), "failure_kinds", None)
    return {} if found is None else cast("Mapping[str, str]", found())


def code_areas(engine: str) -> CodeAreas:
    """Parts of its program, by function: of an engine that does not say so, none."""
    from dbdyno.model.sources.code_areas import CodeAreas

    found = getattr(_engine(engine), "code_areas", None)
    return CodeAreas() if found is None else cast("CodeAreas", found())


def imported(engine: str, kind: str, content: str) -> Sequence[Snapshot]:
    """Snapshots of an export of another program, oldest first. Raises :class:`UsageError`."""
    found = getattr(_engine(engine), "imported", None)
    if found is None:
        raise UsageError(f"engine {engine!r} imports nothing", "choose another --engine")
    return cast("Sequence[Snapshot]", found(kind, content))


def wait_advice(engine: str) -> WaitAdvice:
    """What to change where sessions wait for each other, by event; empty where the engine is gone."""
    from dbdyno.model.sources.wait_advice import WaitAdvice

    try:
        found = getattr(_engine(engine), "wait_advice", None)
    except UsageError:
        return WaitAdvice()
    return WaitAdvice() if found is None else cast("WaitAdvice", found())


def put_back(undo: Undo) -> str | None:
    """Puts back what a killed run of an engine changed on this machine; in words. None: it is no engine's."""
    for name in BUILT_IN:
        found = getattr(_engine(name), "put_back", None)
        if found is not None and (done := found(undo)) is not None:
            return cast(str, done)
    return None


def secret_in(engine: str, dsn: str) -> str | None:
    """Where to keep the password that stands in the DSN itself, where every user of the machine may read it
    (ps). None: none does."""
    found = getattr(_engine(engine), "secret_in", None)
    return None if found is None else cast("str | None", found(dsn))


def without_secrets(engine: str, environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` without what a server is connected to by: variables of passwords of this engine and of
    those that come with dbdyno, and all that hold a DSN with one."""
    every = dict.fromkeys((engine, *BUILT_IN))
    names = {name for e in every for name in getattr(_engine(e), "SECRET_VARIABLES", ())}
    return {
        name: value
        for name, value in environment.items()
        if name not in names and all(secret_in(e, value) is None for e in every)
    }


@contextmanager
def run_beside(
    text: str, given: bytes, output: int, environment: Mapping[str, str], journal: Journal
) -> Iterator[Beside]:
    """A command of the user's, which ends with all that it started; see :mod:`.command.beside`."""
    from dbdyno.engines.command import beside

    with beside.run_beside(text, given, output, environment, journal) as running:
        yield running


def network_address(engine: str, dsn: str) -> tuple[str, int] | None:
    """Host and port by which a connection reaches the server. None: not over a network, or not known.
    Raises :class:`dbdyno.model.errors.TargetError`."""
    found = getattr(_engine(engine), "network_address", None)
    return None if found is None else cast("tuple[str, int] | None", found(dsn))


def embedded(engine: str = DEFAULT) -> Embedded:
    """The embedded server by hand. Raises :class:`UsageError` where the engine has none."""
    found = getattr(_engine(engine), "embedded", None)
    if found is None:
        raise UsageError(f"engine {engine!r} has no embedded server", "name a server with --dsn")
    return cast(Embedded, found)


def _engine(name: str) -> Engine:
    name = checked(name)
    if name in _registered:
        return _registered[name]
    if name in BUILT_IN:
        return cast(Engine, import_module(f"{__name__}.{name}"))
    point = _installed()[name]
    try:
        return cast(Engine, point.load())
    except (ImportError, AttributeError) as e:
        package = point.dist.name if point.dist is not None else point.module
        raise UsageError(f"engine {name!r} of package {package} cannot be loaded: {e}", "reinstall it") from e


@cache
def _installed() -> dict[str, EntryPoint]:
    """Read when another than the default is asked for: it takes longer than most commands."""
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=GROUP)}
