"""The engine for commands under load: each session runs one command after another. See README.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dbdyno.model.engine.protocols import Server, Target
    from dbdyno.model.journal import Undo
    from dbdyno.model.plan.jobs import BuiltinJob
    from dbdyno.model.sources.wait_families import Helper, WaitFamilies

PRODUCT = "commands"


def open_server(target: Target) -> Server:
    from dbdyno.engines.command.server import CommandServer

    return CommandServer(target)


def put_back(undo: Undo) -> str | None:
    """Kills what commands of a killed run left behind, and removes their control groups. None if ``undo`` is
    not about commands."""
    if undo.kind != "commands":
        return None
    from dbdyno.engines.command import groups

    return groups.put_back(undo.data)


def wait_families() -> WaitFamilies:
    from dbdyno.model.sources.wait_families import Family, WaitFamilies

    return WaitFamilies(
        {
            "Sleep": Family.OTHER,  # interruptible: for another task, a pipe, a socket, a signal
            "Sleep/timer": Family.TIMER,
            "Sleep/kernel lock": Family.LATCH,
            "Sleep/file lock": Family.LOCK,
            "Sleep/io_uring": Family.IO,
            "Disk": Family.IO,  # uninterruptible
            "Disk/journal": Family.COMMIT,
            "Disk/writeback": Family.COMMIT,
            "Disk/kernel lock": Family.LATCH,
            "Stopped": Family.OTHER,
        }
    )


def helpers() -> dict[str, Helper]:
    return {}


def jobs() -> Mapping[str, BuiltinJob]:
    """Returns the built-in jobs by name, for example ``loop`` for ``@loop``."""
    from dbdyno.engines.command import shipped

    return shipped.JOBS
