"""The actions of triggers, each an entry of :data:`ACTIONS`.

An action is a generator. It yields the time in ns until which it waits, is sent whether it must end early,
and returns the outcome. An action that needs observers opens a second watch beside the current one, and at
its end stores what it read as an observation of one window below ``captures`` of the run.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbdyno import observe
from dbdyno.conduct.measure.observed import STOPPED, Closing, End, Numbers, Window, closed
from dbdyno.conduct.measure.snapshots import take_snapshot
from dbdyno.conduct.memory.memory import read_memory
from dbdyno.engines import open_server, run_beside, without_secrets
from dbdyno.model.engine.protocols import Clock, Server, Target, Watch
from dbdyno.model.errors import NotAvailable
from dbdyno.model.plan.plan import Experiment, Observation, Plan
from dbdyno.model.plan.triggers import Fired
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.data_sources import SOURCES
from dbdyno.model.schema.data_sources.syscalls import SYSTEM_CALLS
from dbdyno.model.sources.source import READ, TRACE
from dbdyno.model.units import NS_PER_S, format_ns
from dbdyno.observe.watch import Waits
from dbdyno.plan import OBSERVED, resolve_observation
from dbdyno.plan.triggers import TIMED, Action
from dbdyno.store import FileJournal, Run, RunStore, SnapshotStore

if TYPE_CHECKING:
    from dbdyno.engines.command.beside import Ended

CAPTURES = "captures"
ENDED = "the measurement ended"
LEAD_NS = 200_000_000  # from opening a watch to the capture: time for its first reads
STEP_NS = 100_000_000
MEMORY_NS = 2 * NS_PER_S
_READ_S = 1.0  # to read the rest of the output of a command that has ended
_LINES, _TAIL = 20, 8192
_WAY_SECRETS = ("SSHPASS", "DBDYNO_SSH_COMMAND")
"""Variables that may hold the password for another host."""
_HZ = {"profile": 99.0}
"""More samples per second than for a whole run, since a capture is short."""
Work = Generator[int, bool, dict[str, Any]]
"""The generator of an action; it returns fields of :class:`Fired`."""


@dataclass(frozen=True)
class Around:
    """The run, server and clock that an action works with."""

    server: Server
    plan: Plan
    record: Run
    clock: Clock
    target: Callable[[], Target]  # for a connection of its own
    open_watch: Callable[[observe.How], Watch]  # a second one, over the same sessions


def watch_source(around: Around, action: Action, fired: Fired) -> Work:
    """Reads a data source that is otherwise off, for the action's duration."""
    key = TIMED[action.name]
    source = next(s for s in SOURCES if s.option and s.option.key == key)
    experiment = around.plan.experiment
    traced: Waits = "auto" if action.name != "profile" else "sampled"  # a trace takes time to attach
    how = observe.How(experiment.sample_hz, experiment.seed, asked=(key,), waits=traced, hz=_HZ)
    watch = around.open_watch(how)
    try:
        t0_ns = around.clock.now_ns() + LEAD_NS
        window = Window(watch, t0_ns, t0_ns + action.ns)
        watch.start(window.t0_ns, window.t1_ns)
        stopped = yield t0_ns
        if not stopped and (why := _refusal(watch, source.name)):
            raise NotAvailable(why)
        stopped = stopped or (yield window.t1_ns)
    finally:
        watch.stop()
    cell = _cell(around, window, stopped=stopped)
    if cell.meta.t1_ns - cell.meta.t0_ns < NS_PER_S:
        return {"status": "failed", "detail": f"{ENDED} before a second was captured"}
    return _store_capture(around, fired, cell, {key: True}, stopped=stopped)


def _refusal(watch: Watch, name: str) -> str:
    """Returns why the source is not read; empty if it is, or if that is not known yet."""
    status_of = watch.source_status()
    asked = name if name in status_of or name != SYSTEM_CALLS.name else TRACE
    status, detail = status_of.get(asked, ("ok", ""))
    return "" if status in READ else f"{asked}: {status}: {detail}".rstrip(": ")


def _cell(around: Around, window: Window, *, stopped: bool) -> RawCell:
    end = End(STOPPED, lost=False) if stopped else None
    closing = Closing(1, around.clock.now_ns(), end=end)
    return closed(around.server, around.plan, window, Numbers(), closing)


def _store_capture(
    around: Around, fired: Fired, cell: RawCell, asked: dict[str, Any], *, stopped: bool
) -> dict[str, Any]:
    """Stores a capture as an observation of its own."""
    plan = around.plan
    experiment = Experiment(
        name=fired.action.partition(" ")[0],
        doc=f"{fired.action}, when {fired.matched}",
        engine=plan.experiment.engine,
        observation=replace_window(plan.experiment.observation, cell),
        snapshots=False,
        **asked,
    )
    planned = resolve_observation(experiment, plan.cpus, "as in the run")
    note = f"Captured by trigger {fired.trigger} of run {around.record.id}: {fired.matched}"
    store = RunStore(around.record.path / CAPTURES)
    capture = store.create(planned, workloads={OBSERVED.name: OBSERVED}, note=note)
    capture.write_environment(around.record.environment)
    capture.write_cell(cell)
    capture.finish("complete")
    lasted = cell.meta.t1_ns - cell.meta.t0_ns
    return {
        "status": "short" if stopped else "ok",
        "detail": f"ended after {format_ns(lasted)}" if stopped else "",
        "from_ns": cell.meta.t0_ns,
        "to_ns": cell.meta.t1_ns,
        "capture": capture.id,
        "size_bytes": _size(capture.path),
    }


def replace_window(chosen: Observation | None, cell: RawCell) -> Observation:
    """Returns the observation of the same sessions with the duration of the capture."""
    length = f"{(cell.meta.t1_ns - cell.meta.t0_ns) // 1_000_000}ms"
    update = {"window": length, "duration": length}
    return (chosen or Observation()).model_copy(update=update)


def _size(path: Path) -> int:
    return sum(f.stat().st_size for f in path.rglob("*") if f.is_file())


def memory(around: Around, _action: Action, fired: Fired) -> Work:
    """Reads the memory of the server and its machine over a connection of its own, since the control
    connection is the measurement's."""
    t0_ns = around.clock.now_ns()
    with open_server(around.plan.experiment.engine, replace(around.target(), beside=True)) as server:
        tables = read_memory(server, "now", MEMORY_NS)
    window = Window(observe.NoWatch(), t0_ns, max(t0_ns + NS_PER_S, around.clock.now_ns()))
    cell = _cell(around, window, stopped=False)
    cell = replace(cell, tables={**cell.tables, **tables})
    yield t0_ns
    return _store_capture(around, fired, cell, {}, stopped=False)


def snapshot(around: Around, _action: Action, fired: Fired) -> Work:
    """Takes a snapshot of the server's statistics and stores it among those that the user took."""
    from_ns = around.clock.now_ns()
    name = f"{around.record.id} trigger {fired.number}"
    store = SnapshotStore(around.record.path.parent)
    taken = take_snapshot(around.plan.experiment.engine, around.target(), store, name)
    yield from_ns
    detail = f"snapshot {taken.info.id}; until another one: dbdyno report {taken.info.id} OTHER"
    return {"status": "ok", "detail": detail, "from_ns": from_ns, "to_ns": around.clock.now_ns()}


def command(around: Around, action: Action, fired: Fired) -> Work:
    """Runs a command of the user by ``sh -c``, and ends all processes that it started."""
    given, environment = _document(around, fired), _environment(around, action)
    began_ns = around.clock.now_ns()
    with (
        contextlib.closing(FileJournal(around.record.id)) as journal,
        _read_output() as (descriptor, output),
        run_beside(action.command, given, descriptor, environment, journal) as running,
    ):
        end_ns, late, stopped = around.clock.now_ns() + action.ns, False, False
        while (ended := running.ended()) is None and not (late or stopped):
            stopped = yield around.clock.now_ns() + STEP_NS
            late = around.clock.now_ns() >= end_ns
    early = ended is None and not late
    return {
        "status": "short" if early else "ok" if ended is not None and ended.outcome == "ok" else "failed",
        "detail": f"{ENDED} first" if early else _end_words(ended, action),
        "from_ns": began_ns,
        "to_ns": around.clock.now_ns(),
        "lines": tuple(output.lines()),
    }


def _end_words(ended: Ended | None, action: Action) -> str:
    """Returns why a command failed; empty if it did not. ``ended`` is None if it took too long."""
    if ended is None:
        return f"ended after {format_ns(action.ns)}"
    if ended.outcome == "exit":
        return f"exit status {ended.code}"
    if ended.outcome == "signal":
        return f"ended by {signal.Signals(ended.code or 0).name}"
    return ended.detail


def _environment(around: Around, action: Action) -> dict[str, str]:
    """Returns this process's environment without the secrets that dbdyno connects with, except those
    requested by the user."""
    kept = without_secrets(around.plan.experiment.engine, os.environ)
    asked = {name: value for name, value in os.environ.items() if name in action.secrets}
    return {name: value for name, value in kept.items() if name not in _WAY_SECRETS} | asked


def _document(around: Around, fired: Fired) -> bytes:
    """Returns the standard input of a command: the trigger that fired, and the run."""
    known = {"number", "trigger", "condition", "matched", "values", "at_ns", "action"}
    run = {"id": around.record.id, "path": str(around.record.path)}
    document = {"run": run, "time": datetime.now(UTC).isoformat(), **fired.model_dump(include=known)}
    return json.dumps(document).encode() + b"\n"


class _Output:
    """The end of a command's output. All of it is read, so that the command never blocks."""

    def __init__(self) -> None:
        self._tail = b""

    def read(self, descriptor: int) -> None:
        with contextlib.suppress(OSError):
            while part := os.read(descriptor, 1 << 16):
                self._tail = (self._tail + part)[-_TAIL:]
        os.close(descriptor)

    def lines(self) -> list[str]:
        return self._tail.decode(errors="replace").splitlines()[-_LINES:]


@contextlib.contextmanager
def _read_output() -> Iterator[tuple[int, _Output]]:
    """Yields the write end of a pipe for a command, and its output. Leave it when the command has ended: the
    command may have closed its output long before."""
    read, write = os.pipe()
    output = _Output()
    reader = threading.Thread(target=output.read, args=(read,), name="dbdyno-exec", daemon=True)
    reader.start()
    try:
        yield write, output
    finally:
        os.close(write)
        reader.join(_READ_S)


ACTIONS: dict[str, Callable[[Around, Action, Fired], Work]] = {
    **dict.fromkeys(TIMED, watch_source),
    "memory": memory,
    "snapshot": snapshot,
    "exec": command,
}
