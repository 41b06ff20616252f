"""The engines: one folder each, imported when it is asked for. Nothing outside a folder knows its names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from dbdyno.model.errors import UsageError
from dbdyno.model.suggest import did_you_mean

if TYPE_CHECKING:
    from dbdyno.model.helpers import Helper
    from dbdyno.model.protocols import Server, Target
    from dbdyno.model.wait_families import WaitFamilies

ENGINES = ("postgres", "fake")
DEFAULT = ENGINES[0]


def checked(engine: str) -> str:
    """The engine of that name; empty: the default. Raises :class:`UsageError` with the nearest name."""
    if engine and engine not in ENGINES:
        raise UsageError(f"no engine {engine!r}", did_you_mean(engine, ENGINES))
    return engine or DEFAULT


def product(engine: str) -> str:
    """The system's own name."""
    return str(import_module(f"dbdyno.engines.{checked(engine)}").PRODUCT)


class Embedded(Protocol):
    """The server that dbdyno brings with it."""

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

    def psql_argv(self) -> list[str]:
        """Command line of an interactive client for it."""


@contextmanager
def open_server(engine: str, target: Target) -> Iterator[Server]:
    """The server of ``target``, closed at the end. Raises :class:`dbdyno.model.errors.TargetError`."""
    server = cast("Server", import_module(f"dbdyno.engines.{checked(engine)}").open_server(target))
    try:
        yield server
    finally:
        server.close()


def wait_families(engine: str) -> WaitFamilies:
    """What its wait events are for: of runs that were stored without it."""
    return cast("WaitFamilies", import_module(f"dbdyno.engines.{checked(engine)}").wait_families())


def helpers(engine: str) -> dict[str, Helper]:
    """What its own processes are for: of runs that were stored without it."""
    return cast("dict[str, Helper]", import_module(f"dbdyno.engines.{checked(engine)}").helpers())


def holds_password(dsn: str) -> bool:
    """Whether a secret stands in the DSN itself, where every user of the machine may read it (ps)."""
    return bool(import_module("dbdyno.engines.postgres.connect").holds_password(dsn))


def embedded() -> Embedded:
    """The embedded server by hand (``dbdyno server``)."""
    return cast(Embedded, import_module("dbdyno.engines.postgres.embedded"))
