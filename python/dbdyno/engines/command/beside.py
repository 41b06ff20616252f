"""A command of the user's beside what is measured: by a launcher of its own, as commands under load are, so
that all that it starts ends with it."""

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
"""By the environment, because the launcher fills in braces of words; by descriptors, because it keeps what is
printed only of a command that ends by itself."""


class Ended(NamedTuple):
    """How it ended by itself: an outcome of the table ``executions``."""

    outcome: str
    code: int | None  # exit code, or number of the signal
    detail: str


class Beside:
    """The command while it runs."""

    def __init__(self, server: CommandServer, load: Load) -> None:
        self._server, self._load = server, load

    def ended(self) -> Ended | None:
        """None: it runs. Raises :class:`dbdyno.model.errors.TargetError`, where it killed its launcher,
        too."""
        if not self._server.is_over(self._load):
            return None
        (row,) = self._server.executions(self._load).iter_rows(named=True)
        return Ended(row["outcome"], row["exit_code"], row["detail"] or "")


@contextmanager
def run_beside(
    text: str, given: bytes, output: int, environment: Mapping[str, str], journal: Journal
) -> Iterator[Beside]:
    """Runs ``text`` by ``sh -c``. ``given``: its standard input; ``output``: descriptor of a pipe to which it
    prints. Left, it and all that it started has ended: by SIGTERM, or two seconds later by SIGKILL.
    ``journal`` has what a killed dbdyno would leave."""
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
        load = server.begin(PlannedJob(name="exec", argv=argv, shown="sh"), 1)
        try:
            yield Beside(server, load)
        finally:
            load.abort()
    finally:
        server.close()
