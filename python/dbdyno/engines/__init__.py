"""Looks up engines by name: those built into dbdyno, and those that other packages provide.

An engine is a module, or any object, with the members of :class:`Engine`. An installed package provides one
by an entry point of the group ``dbdyno.engines``; a Python program calls :func:`register`. Engines are
imported on first use.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from dbdyno.model.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from dbdyno.engines.command.beside import Beside
    from dbdyno.model.engine.protocols import Server, Target
    from dbdyno.model.engine.snapshot import Snapshot
    from dbdyno.model.journal import Journal, Undo
    from dbdyno.model.plan.jobs import BuiltinJob
    from dbdyno.model.plan.plan import PlannedScript, Workload
    from dbdyno.model.plan.servers import NamedServer
    from dbdyno.model.plan.suite import Suite
    from dbdyno.model.sources.code_areas import CodeAreas
    from dbdyno.model.sources.wait_advice import WaitAdvice
    from dbdyno.model.sources.wait_families import Helper, WaitFamilies

DEFAULT = "postgres"
COMMAND = "command"
BUILT_IN = (DEFAULT, COMMAND)
GROUP = "dbdyno.engines"
_T = TypeVar("_T")
_registered: dict[str, Engine] = {}


class Engine(Protocol):
    """Members that the module of an engine must have. Optional members:

    ``embedded``: an :class:`Embedded`;
    ``failure_kinds()``: kind of failure by error code of a failed call;
    ``scripts()``: texts of the engine's built-in scripts, by name;
    ``suites()``: the engine's suites of small benchmarks, by name;
    ``jobs()``: the engine's built-in commands, by name;
    ``needs_simple(scripts, given)``: why these scripts, with variables of these names, only work with
    the simple query protocol; None if there is none;
    ``workloads()``: the engine's own workloads, by name; they replace dbdyno's workloads of the same name;
    ``imported(kind, content)``: snapshots read from an export of another program;
    ``code_areas()``: areas of the server's source code, by function;
    ``wait_advice()``: advice for sessions that wait for each other;
    ``truth_case_names()``: the names of the loads of a self-test;
    ``wait_event_names()``: the names of all wait events, ``class/event``;
    ``put_back(undo)``: undoes what a killed run changed on this machine, as
    :meth:`dbdyno.model.engine.protocols.Configuring.put_back`, but without a server;
    ``named_servers(texts, directory)``: a :class:`NamedServer` for each text that names a server; relative
    directories are below ``directory``;
    ``server_programs(text)``: the directory of the programs of a version or directory that a variant names,
    for None of the engine's own programs; raises :class:`UsageError` if they cannot be used here;
    ``secret_in(dsn)``: if the DSN holds a password, a better place to keep it; else None;
    ``beyond_address(dsn)``: keywords of a DSN that do more than say where the server is, and as whom to
    connect: those that name files, or hand options to the server;
    ``SECRET_VARIABLES``: names of environment variables that hold passwords, or name files with passwords."""

    PRODUCT: str
    """Name of the database system, as its vendor spells it."""

    def open_server(self, target: Target) -> Server:
        """Returns the server of ``target``; the caller closes it. Raises
        :class:`dbdyno.model.errors.TargetError`."""

    def wait_families(self) -> WaitFamilies:
        """Returns the families of wait events. Stored runs that lack them use these."""

    def helpers(self) -> dict[str, Helper]:
        """Returns the server's background processes by name. Stored runs that lack them use these."""


class Embedded(Protocol):
    """A private server that the engine starts and stops itself."""

    def start(
        self,
        bin_dir: Path | None = None,
        settings: Mapping[str, str] | None = None,
        max_connections: int | None = None,
        fresh: bool = False,
    ) -> Mapping[str, Any]:
        """Starts the server so that it runs until ``stop``. Returns its status."""

    def stop(self) -> Mapping[str, Any]:
        """Stops the server. Returns which server was stopped."""

    def status(self) -> Mapping[str, Any]:
        """Returns whether the server runs and how to connect, as JSON values without credentials."""

    def has_data(self, bin_dir: Path | None) -> bool:
        """Returns whether there are data of the server that ``open_server`` would start; makes none."""

    def remove_unused(self) -> Iterator[str]:
        """Ends the servers that variants of killed runs named, removes the data of all that no run uses, and
        what can be made again. Needs no room on the disk. Yields what was done, in words."""

    def client_argv(self) -> list[str]:
        """Returns the command line of an interactive client for the server."""


def register(name: str, engine: Engine) -> None:
    """Registers an engine under a name, in this process."""
    _registered[name] = engine


def names() -> list[str]:
    """Returns the names of all engines, the default first."""
    return [*BUILT_IN, *sorted({*_registered, *_installed()} - {*BUILT_IN})]


def checked(engine: str) -> str:
    """Returns the engine's name, or the default for an empty one. Raises :class:`UsageError` that suggests
    the nearest name."""
    if engine and engine not in BUILT_IN and engine not in names():
        raise UsageError(f"no engine {engine!r}", did_you_mean(engine, names()))
    return engine or DEFAULT


@contextmanager
def open_server(engine: str, target: Target) -> Iterator[Server]:
    """Opens the server of ``target`` and closes it at the end. Raises
    :class:`dbdyno.model.errors.TargetError`, and :class:`UsageError` if programs or settings are given for an
    embedded server and the engine has none."""
    if target.dsn is None and (target.bin_dir or target.settings):
        embedded(engine)
    server = _engine(engine).open_server(target)
    try:
        yield server
    finally:
        server.close()


def product(engine: str) -> str:
    """Returns the name of the database system."""
    return _engine(engine).PRODUCT


def wait_families(engine: str) -> WaitFamilies:
    """See :class:`Engine`."""
    return _engine(engine).wait_families()


def helpers(engine: str) -> dict[str, Helper]:
    """See :class:`Engine`."""
    return _engine(engine).helpers()


def _optional(engine: str, name: str, default: _T, *arguments: object) -> _T:
    """Calls an optional member of an engine. Returns ``default`` if the engine lacks it."""
    member = getattr(_engine(engine), name, None)
    return default if member is None else cast("_T", member(*arguments))


def workloads(engine: str) -> dict[str, Workload]:
    """Returns the engine's own workloads, by name."""
    return _optional(engine, "workloads", {})


def scripts(engine: str) -> Mapping[str, str]:
    """Returns the texts of the engine's built-in scripts, by name."""
    return _optional(engine, "scripts", {})


def suites(engine: str) -> Mapping[str, Suite]:
    """Returns the engine's suites of small benchmarks, by name."""
    return _optional(engine, "suites", {})


def runs_commands(engine: str) -> bool:
    """Returns whether the engine runs commands instead of database calls."""
    return hasattr(_engine(engine), "jobs")


def jobs(engine: str) -> Mapping[str, BuiltinJob]:
    """Returns the engine's built-in commands, by name without the @."""
    return _optional(engine, "jobs", {})


def needs_simple(engine: str, scripts: Sequence[PlannedScript], given: Sequence[str]) -> str | None:
    """Returns why these scripts, with variables of these names, only work with the simple query protocol.
    None if they work with any protocol."""
    return _optional(engine, "needs_simple", None, scripts, given)


def failure_kinds(engine: str) -> Mapping[str, str]:
    """Returns ``serialization`` or ``deadlock`` by the server's error code. Other codes are other
    failures."""
    return _optional(engine, "failure_kinds", {})


def code_areas(engine: str) -> CodeAreas:
    """Returns the areas of the server's source code, by function; empty if the engine defines none."""
    from dbdyno.model.sources.code_areas import CodeAreas

    return _optional(engine, "code_areas", CodeAreas())


def imported(engine: str, kind: str, content: str) -> Sequence[Snapshot]:
    """Returns the snapshots in an export of another program, oldest first. Raises :class:`UsageError`."""
    read = getattr(_engine(engine), "imported", None)
    if read is None:
        raise UsageError(f"engine {engine!r} imports nothing", "choose another --engine")
    return cast("Sequence[Snapshot]", read(kind, content))


def wait_advice(engine: str) -> WaitAdvice:
    """Returns advice on wait events by event; empty if the engine is no longer installed."""
    from dbdyno.model.sources.wait_advice import WaitAdvice

    try:
        _engine(engine)
    except UsageError:
        return WaitAdvice()
    return _optional(engine, "wait_advice", WaitAdvice())


def wait_event_names(engine: str) -> Collection[str]:
    """Returns the names of all wait events, ``class/event``, of all versions; empty if they are unknown."""
    return _optional(engine, "wait_event_names", ())


def truth_case_names(engine: str) -> Sequence[str]:
    """Returns the names of the loads of a self-test; empty if only a server knows them."""
    return _optional(engine, "truth_case_names", ())


def put_back(undo: Undo) -> str | None:
    """Undoes what a killed run of an engine changed on this machine. Returns a description of it, or None if
    no engine made this change."""
    for name in BUILT_IN:
        undo_change = getattr(_engine(name), "put_back", None)
        if undo_change is not None and (description := undo_change(undo)) is not None:
            return cast(str, description)
    return None


def named_servers(engine: str, texts: Sequence[str], directory: Path) -> Sequence[NamedServer]:
    """Returns the servers of variants that these texts name. Raises :class:`UsageError` if a text names none,
    or holds a password, and if the engine lets variants name no servers."""
    member = getattr(_engine(engine), "named_servers", None)
    if member is None:
        raise UsageError(
            f"variants of the engine {checked(engine)} name no servers", "leave out servers, or --engine"
        )
    return cast("Sequence[NamedServer]", member(texts, directory))


def server_programs(engine: str, text: str | None) -> str | None:
    """Returns the directory of the programs of a variant's server; None if the text is a connection string.
    Raises :class:`UsageError` if they cannot be used on this machine."""
    from dbdyno.model.plan.servers import is_dsn  # not at the top: most commands need no models

    if text is not None and is_dsn(text):
        return None
    return _optional(engine, "server_programs", None, text)


def secret_in(engine: str, dsn: str) -> str | None:
    """Returns a safer place for the password that a DSN contains, since every user of the machine can read
    command lines (ps). None if it contains none."""
    return _optional(engine, "secret_in", None, dsn)


def beyond_address(engine: str, dsn: str) -> Sequence[str] | None:
    """Returns the keywords of a DSN that do more than say where the server is, and as whom to connect; None
    if the engine does not part them. Raises :class:`UsageError` for a DSN that cannot be read."""
    return _optional(engine, "beyond_address", None, dsn)


def without_secrets(engine: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns ``environment`` without the password variables of this engine and of the built-in engines, and
    without all variables that hold a DSN with a password."""
    engines = dict.fromkeys((engine, *BUILT_IN))
    names = {
        name for engine_name in engines for name in getattr(_engine(engine_name), "SECRET_VARIABLES", ())
    }
    return {
        name: value
        for name, value in environment.items()
        if name not in names and all(secret_in(engine_name, value) is None for engine_name in engines)
    }


@contextmanager
def run_beside(
    text: str, given: bytes, output: int, environment: Mapping[str, str], journal: Journal
) -> Iterator[Beside]:
    """Runs a command of the user beside a measurement and ends it with all its children; see
    :mod:`.command.beside`."""
    from dbdyno.engines.command import beside

    with beside.run_beside(text, given, output, environment, journal) as running:
        yield running


def network_address(engine: str, dsn: str) -> tuple[str, int] | None:
    """Returns the host and port by which a connection reaches the server. None if the connection uses no
    network, or the address is unknown. Raises :class:`dbdyno.model.errors.TargetError`."""
    return _optional(engine, "network_address", None, dsn)


def embedded(engine: str = DEFAULT) -> Embedded:
    """Returns the engine's embedded server. Raises :class:`UsageError` if the engine has none."""
    server = getattr(_engine(engine), "embedded", None)
    if server is None:
        raise UsageError(f"engine {engine!r} has no embedded server", "name a server with --dsn")
    return cast(Embedded, server)


def has_data(engine: str, bin_dir: Path | None) -> bool:
    """See :meth:`Embedded.has_data`. True if the engine has no embedded server."""
    server = getattr(_engine(engine), "embedded", None)
    return server is None or cast("Embedded", server).has_data(bin_dir)


def remove_unused(engine: str) -> Iterator[str]:
    """See :meth:`Embedded.remove_unused`. Does nothing if the engine has no embedded server."""
    server = getattr(_engine(engine), "embedded", None)
    return iter(()) if server is None else cast("Embedded", server).remove_unused()


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
    """Returns entry points by engine name. Called only if neither a built-in nor a registered engine has the
    name, because reading entry points takes longer than most commands."""
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=GROUP)}
