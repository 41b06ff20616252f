"""Commands executed through the engine's server, without a run around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dbdyno.engines import open_server
from dbdyno.model.engine.protocols import Target
from dbdyno.model.journal import Journal
from dbdyno.model.plan.jobs import PlannedJob
from dbdyno.model.plan.plan import Cell, Variant
from tests.contract import driving
from tests.waiting import eventually as eventually

BASE = Variant(name="base")


class Opened:
    """A server, its launcher, and the output of the latest executions."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self.launcher = server.facts().main_pid
        self.outputs: list[dict[str, Any]] = []
        self.contain: Callable[[Journal], str] = server.commands.contain

    def run(
        self,
        *argv: str,
        calls: int = 1,
        sessions: int = 1,
        seconds: float = 60,
        keep: int = 0,
        before: Callable[[Any], None] | None = None,
        **keys: Any,
    ) -> list[dict[str, Any]]:
        """Executes a command so many times a session and returns rows of ``executions``. ``before`` gets
        the running load."""
        job = PlannedJob(name="job", argv=argv, shown=" ".join(argv)[:80], **keys)
        workload = self.server.commands.jobs([job], BASE, "test", keep)
        cell = Cell(
            id="c",
            workload="test",
            variant="base",
            sessions=sessions,
            repeat=0,
            settle_ns=0,
            measure_ns=int(seconds * 1e9),
            params={},
        )
        load = self.server.load(workload, cell, None, False, calls)
        load.connect()
        driving.until_done(load)
        driving.start(load, seconds)
        if before is not None:
            before(load)
        tables = driving.tables(load)
        self.outputs = tables["outputs"].to_dicts()
        return tables["executions"].to_dicts()

    def peak_kb(self) -> int:
        """Returns the largest resident set of the launcher so far (VmHWM)."""
        status = Path(f"/proc/{self.launcher}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0])


@contextmanager
def open_commands() -> Iterator[Opened]:
    with open_server("command", Target()) as server:
        yield Opened(server)
