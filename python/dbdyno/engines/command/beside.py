"""Runs a command of the user beside a measurement.

It has a launcher of its own, like the commands under load, so that all its children end with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from dbdyno.engines.command.server import CommandServer
from dbdyno.model.engine.protocols import Load, Target
from dbdyno.model.journal import Journal
from dbdyno.model.plan.jobs import PlannedJob

_TEXT = "DBDYNO_EXEC"
_BEGIN = f'text=${_TEXT}; unset {_TEXT}; exec sh -c "$text" <"$0" >"$1" 2>&1'
"""Passes the text by an environment variable because the launcher substitutes words in braces. Uses
descriptors because the launcher keeps the output only of commands that end by themselves."""


class Ended(NamedTuple):
    """How a command ended by itself, with an outcome of the table ``executions``."""

    outcome: str
    code: int | None  # exit code, or number of the signal
    detail: str


class Beside:
    """A running command."""

    def __init__(self, server: CommandServer, load: Load) -> None:
        self._server, self._load = server, load

    def ended(self) -> Ended | None:
        """Returns how the command ended, None while it runs. Raises :class:`dbdyno.model.errors.TargetError`,
        also if the command killed its launcher."""
        if not self._server.is_over(self._load):
            return None
        (row,) = self._server.executions(self._load).iter_rows(named=True)
        return Ended(row["outcome"], row["exit_code"], row["detail"] or "")


@contextmanager
def run_beside(
    text: str, given: bytes, output: int, environment: Mapping[str, str], journal: Journal
) -> Iterator[Beside]:
    """Runs ``text`` by ``sh -c``. ``given`` is its standard input, ``output`` the descriptor of a pipe for
    what it prints.

    At the end the command and its children get SIGTERM, and SIGKILL two seconds later. ``journal`` records
    what would remain if dbdyno were killed.
    """
    source = os.memfd_create("given", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(source), "wb") as file:
            file.write(given)
        server = CommandServer(Target(), {**environment, _TEXT: text}, (source, output))
    finally:
        os.close(source)
    try:
        server.contain(journal)
        argv = ("sh", "-c", _BEGIN, f"/proc/self/fd/{source}", f"/proc/self/fd/{output}")
        load = server.begin_unwatched(PlannedJob(name="exec", argv=argv, shown="sh"), 1)
        try:
            yield Beside(server, load)
        finally:
            load.abort()
    finally:
        server.close()
