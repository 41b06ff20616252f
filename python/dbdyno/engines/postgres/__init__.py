"""The engine for PostgreSQL 14 to 18. See README.md."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dbdyno.engines.postgres import embedded
from dbdyno.engines.postgres.embedded import StartOptions, open_instance
from dbdyno.kernel.machine import HERE
from dbdyno.model.errors import UsageError

if TYPE_CHECKING:
    from dbdyno.engines.postgres.server import PostgresServer
    from dbdyno.model.engine.protocols import Target
    from dbdyno.model.engine.snapshot import Snapshot
    from dbdyno.model.journal import Undo
    from dbdyno.model.plan.plan import PlannedScript, Workload
    from dbdyno.model.plan.servers import NamedServer
    from dbdyno.model.plan.suite import Suite
    from dbdyno.model.sources.code_areas import CodeAreas
    from dbdyno.model.sources.wait_advice import WaitAdvice
    from dbdyno.model.sources.wait_families import Helper, WaitFamilies

PRODUCT = "PostgreSQL"
SECRET_VARIABLES = ("PGPASSWORD", "PGPASSFILE", "PGSERVICEFILE", "PGSSLKEY")
"""Variables of libpq ("Environment Variables") that hold a password, or name a file with a password or
key."""

__all__ = [
    "PRODUCT",
    "SECRET_VARIABLES",
    "PostgresServer",
    "code_areas",
    "embedded",
    "failure_kinds",
    "helpers",
    "imported",
    "named_servers",
    "needs_simple",
    "network_address",
    "open_server",
    "put_back",
    "scripts",
    "secret_in",
    "server_programs",
    "suites",
    "truth_case_names",
    "wait_advice",
    "wait_event_names",
    "wait_families",
    "workloads",
]


def open_server(target: Target) -> PostgresServer:
    """Returns the server of ``target.dsn``. For None starts the embedded one if needed; ``close`` ends
    that."""
    from dbdyno.engines import driving
    from dbdyno.engines.postgres.server import (
        PostgresServer,
    )  # not at the top: `dbdyno server` does not need it

    if target.servers:
        from dbdyno.engines.postgres.chosen.servers import Servers

        return cast("PostgresServer", Servers(target))  # what it lacks, the server in use has
    drive = target.make_load or driving.local_load
    if target.dsn is not None:
        if target.bin_dir is not None:
            raise UsageError("both --dsn and --pg-bin were given", "--pg-bin is for the embedded server")
        dsn = _as_observer(target.dsn) if target.beside else target.dsn
        return PostgresServer(dsn, drive=drive, machine=target.machine or HERE)
    instance = open_instance(target.bin_dir, StartOptions(target.settings, target.sessions))
    try:
        return PostgresServer(instance.address, instance, drive)
    except BaseException:
        instance.close()
        raise


def _as_observer(dsn: str) -> str:
    """Returns the DSN with an application_name that observations leave out."""
    from psycopg.conninfo import make_conninfo

    from dbdyno.engines.postgres.observation import OBSERVER

    return make_conninfo(dsn, application_name=OBSERVER)


def secret_in(dsn: str) -> str | None:
    from dbdyno.engines.postgres.connect import secret_in

    return secret_in(dsn)


def beyond_address(dsn: str) -> list[str]:
    from dbdyno.engines.postgres.connect import beyond_address

    return beyond_address(dsn)


def named_servers(texts: Sequence[str], directory: Path) -> Sequence[NamedServer]:
    """See :func:`dbdyno.engines.named_servers`."""
    from dbdyno.engines.postgres.chosen import naming

    return naming.named_servers(texts, directory)


def server_programs(text: str | None) -> str:
    """See :func:`dbdyno.engines.server_programs`."""
    from dbdyno.engines.postgres.chosen import finding

    return str(finding.programs_named(text).bin_dir.resolve())


def put_back(undo: Undo) -> str | None:
    """Returns that there is nothing to restore if the change was to an embedded server whose data directory
    is gone, else None."""
    home = undo.data.get("embedded") if undo.kind == "settings" else None
    if not isinstance(home, str):
        return None
    try:
        Path(home).stat()
    except FileNotFoundError:
        return f"nothing to put back: {undo.what}; its data directory is gone"
    except OSError:
        pass  # it may be there
    return None


def network_address(dsn: str) -> tuple[str, int] | None:
    """See :func:`dbdyno.engines.network_address`."""
    from dbdyno.engines.postgres.connect import network_address

    return network_address(dsn)


def wait_advice() -> WaitAdvice:
    from dbdyno.engines.postgres.wait_events import advice

    return advice()


def truth_case_names() -> tuple[str, ...]:
    from dbdyno.engines.postgres.truth import cases

    return tuple(case.name for case in cases())


def wait_event_names() -> frozenset[str]:
    from dbdyno.engines.postgres.wait_events import event_names

    return event_names()


def wait_families() -> WaitFamilies:
    from dbdyno.engines.postgres.wait_events import families

    return families()


def scripts() -> dict[str, str]:
    """Returns the texts of the built-in scripts, by name."""
    folder = resources.files(__name__) / "workloads" / "pgbench"
    names = ("tpcb-like", "simple-update", "select-only")
    return {name: (folder / f"{name}.sql").read_text(encoding="utf-8") for name in names}


def suites() -> dict[str, Suite]:
    """Returns the suites of small benchmarks, by name."""
    from dbdyno.engines.postgres import suite_files

    return suite_files.suites()


def workloads() -> dict[str, Workload]:
    """Returns the workloads that only this engine has, by name."""
    from dbdyno.engines.postgres import suite_files

    return suite_files.workloads()


def needs_simple(scripts: Sequence[PlannedScript], given: Sequence[str]) -> str | None:
    """See :class:`dbdyno.engines.Engine`."""
    from dbdyno.engines.postgres import script_check

    return script_check.needs_simple(scripts, given)


def failure_kinds() -> dict[str, str]:
    """Returns the kinds of those failures after which pgbench retries, by SQLSTATE."""
    return {"40001": "serialization", "40P01": "deadlock"}


@cache
def code_areas() -> CodeAreas:
    """Returns the directories of PostgreSQL's sources, from a file that tools/code_areas.py generates."""
    from dbdyno.engines.postgres.wait_events import PROGRAM
    from dbdyno.model.sources.code_areas import parsed

    text = resources.files(__name__).joinpath("code_areas.txt").read_text("utf-8")
    return parsed(text, PROGRAM, ("src/backend", "src/common", "src/port", "src/timezone", "src/include"))


def imported(kind: str, content: str) -> Sequence[Snapshot]:
    """Returns the snapshots in an export of another program. Raises :class:`UsageError` if it cannot be
    read."""
    from dbdyno.engines.postgres.snapshots.imports import NOT_READ, READERS

    if kind not in READERS:
        why = NOT_READ.get(kind, f"exports of {kind!r} are not known")
        raise UsageError(why, f"what can be imported: {', '.join(READERS)}")
    return READERS[kind](content)


def helpers() -> dict[str, Helper]:
    from dbdyno.engines.postgres import facts

    return facts.helpers()


def __getattr__(name: str) -> Any:
    """Imports ``PostgresServer``, and all that it needs, on first use."""
    if name != "PostgresServer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dbdyno.engines.postgres import server

    return server.PostgresServer
