"""Derives saved cells while the next ones are measured.

Runs of one or two cells, and brief ones, are derived at their end. For longer runs a process of its own
derives, with low priority and one thread, so that samplers and driver keep their CPUs; it pauses within the
windows of a load. It only works in the run's directory: if it ends early, its results are kept, and the rest
is derived at the end of the run, or when the run is first shown.

Modules that derive and conclude take long to import, so functions import them when needed.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from dbdyno.conduct.measure.cell import OnTick
from dbdyno.model.engine.protocols import Server
from dbdyno.model.errors import DbdynoError, Interrupted
from dbdyno.model.plan.plan import Plan
from dbdyno.model.schema.data_sources import BUILT_IN, SOURCES
from dbdyno.model.units import NS_PER_S
from dbdyno.plan import duration_of, window_of
from dbdyno.store import Run

NICE, NICE_SOON = 10, 5
"""Niceness of the process that derives; the lower one where its results are wanted while the load goes on: on
a machine whose CPUs are all busy the other leaves it next to no time."""
_FEW, _SOME, _BRIEF_NS = 2, 5, 15 * NS_PER_S
"""Cells that are derived at the end of a run: a few of any length, some if all together are that brief."""
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PROGRAM = f"""
import ctypes, sys; ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, {signal.SIGKILL:d}, 0, 0, 0)
from dbdyno.lazy import quick_end, uncollected
quick_end()
with uncollected():
    import dbdyno.conduct.derive.derive
    from dbdyno.conduct.derive.deriving import main
sys.exit(main(*sys.argv[1:]))
"""
"""The kernel kills it when the process that started it ends, even while it is paused or still importing."""
_LOOK_S = 0.02
_REPORT_S = 2.0  # progress is reported after this time, and at this interval


class Deriving(Protocol):
    def more(self) -> None:
        """Announces a saved cell. Returns at once."""

    def resting_while_measured(self, on_tick: OnTick) -> OnTick:
        """Returns a function for a cell's ticks that pauses the derivation within the cell's window."""

    def tasks(self) -> list[dict[str, Any]]:
        """Returns its threads, in the form in which a watch accepts tasks of dbdyno."""

    def cpu_s(self) -> float:
        """Returns the CPU time in seconds that it has used."""

    def finish(self, say: Callable[[str], None], patience_s: float = math.inf) -> bool:
        """Derives the rest and concludes. ``say`` is called with the progress if that takes long.

        Returns False if it took longer than ``patience_s``: the rest is then derived when the run is first
        shown.
        """

    def close(self) -> None: ...


def finish(derived: Deriving, record: Run, say: Callable[[str], None], patience_s: float = math.inf) -> bool:
    """Finishes the derivation (:meth:`Deriving.finish`) after the last measurement. Raises
    :class:`Interrupted` with the kept run."""
    try:
        return derived.finish(say, patience_s)
    except Interrupted:
        raise Interrupted(kept=record.id) from None


_alone: list[None] = []
"""One entry for each active :func:`in_this_process`."""


@contextlib.contextmanager
def in_this_process() -> Iterator[None]:
    """Runs within this context are derived in this process after their last measurement.

    For callers that make many short runs, each of which would start a process.
    """
    _alone.append(None)
    try:
        yield
    finally:
        _alone.pop()


@contextlib.contextmanager
def deriving(record: Run, server: Server, *, soon: bool = False) -> Iterator[Deriving]:
    """Yields the derivation that runs beside the measurement. A simulated server cannot be disturbed by
    it. ``soon``: cells are wanted while the run goes on, even of a run of few."""
    derivation = _in_a_world(record, soon) if server.world is not None else _derivation_of(record, soon)
    try:
        with record.in_use():
            yield derivation
    finally:
        derivation.close()


class _Here:
    """Derives in this process, between the windows."""

    def __init__(self, record: Run) -> None:
        from dbdyno.conduct.derive.derive import Making  # takes long to load

        self._record, self._making = record, Making(record)

    def more(self) -> None:
        self._making.more()

    def resting_while_measured(self, on_tick: OnTick) -> OnTick:
        return on_tick

    def tasks(self) -> list[dict[str, Any]]:
        return []

    def cpu_s(self) -> float:
        return 0.0  # it is part of this process's own CPU time

    def finish(self, say: Callable[[str], None], patience_s: float = math.inf) -> bool:  # noqa: ARG002
        from dbdyno.conduct.derive.rebuild import conclude_made  # takes long to load

        if self._record.cells():
            conclude_made(self._making)
        return True

    def close(self) -> None: ...


class _AtTheEnd(_Here):
    """Derives in this process after the last measurement: all cells together, which costs less."""

    def more(self) -> None: ...


def _in_a_world(record: Run, soon: bool) -> Deriving:
    at_once = soon or record.plan.experiment.observation is not None
    return _Here(record) if at_once else _AtTheEnd(record)


def _derivation_of(record: Run, soon: bool) -> Deriving:
    """Derives at the end of the run if there are few cells, if this user may start no further process, or if
    sources of data are registered in this process only."""
    here = _Here if soon else _AtTheEnd
    if _alone or tuple(SOURCES) != BUILT_IN or (_ends_soon(record.plan) and not soon):
        return here(record)
    try:
        if soon:
            return _Beside(record, _together_within(record.plan, LAG_NS), NICE_SOON)
        return _Beside(record)
    except OSError:
        return here(record)


def _together_within(plan: Plan, lag_ns: int) -> int:
    """Returns how many windows may be derived together so that the first of them does not wait for longer.
    Cells of a load are derived between its measurements anyway."""
    observation = plan.experiment.observation
    return 1 if observation is None else max(1, min(TOGETHER, lag_ns // window_of(observation)))


def _ends_soon(plan: Plan) -> bool:
    """Returns whether the run will end soon: importing in another process would take longer than that
    process could save."""
    if plan.adaptive or plan.experiment.until:
        return False
    if (chosen := plan.experiment.observation) is not None:
        measured_ns = duration_of(chosen)
        return measured_ns is not None and measured_ns <= min(_BRIEF_NS, _SOME * window_of(chosen))
    brief = sum(c.measure_ns for c in plan.cells) <= _BRIEF_NS and not any(c.once for c in plan.cells)
    return len(plan.cells) <= (_SOME if brief else _FEW)


LITTLE_MEMORY = {"POLARS_MAX_THREADS": "1", "_RJEM_MALLOC_CONF": "dirty_decay_ms:0,muzzy_decay_ms:0"}
"""Environment variables that make polars return freed memory at once, at little cost with one thread."""


class _Beside:
    """Derives in a process of its own. A line on its input announces more cells; the end of the input
    announces the end of the run."""

    def __init__(self, record: Run, together: int | None = None, nice: int = NICE) -> None:
        """``together``: most cells that are derived together."""
        self._record = record
        arguments = (record.path, os.getpid(), TOGETHER if together is None else together, nice)
        command = [sys.executable, "-c", _PROGRAM, *map(str, arguments)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=os.environ | LITTLE_MEMORY,
        )
        assert self._process.stdin is not None
        self._resting = False
        os.set_blocking(self._process.stdin.fileno(), False)

    def more(self) -> None:
        # a full pipe has earlier lines, and each makes it read all new cells; a broken one: it has ended
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self._input, b"\n")

    def resting_while_measured(self, on_tick: OnTick) -> OnTick:
        def tick(phase: str, *figures: Any) -> None:
            self._rest(phase == "measuring")
            on_tick(phase, *figures)

        return tick

    def _rest(self, resting: bool) -> None:
        if resting != self._resting:
            self._resting = resting
            self._signal(signal.SIGSTOP if resting else signal.SIGCONT)

    def tasks(self) -> list[dict[str, Any]]:
        pid = self._process.pid
        try:
            tids = sorted(int(p.name) for p in Path(f"/proc/{pid}/task").iterdir())
        except OSError:
            return []
        return [{"pid": pid, "tid": tid, "role": "dbdyno"} for tid in tids]

    def cpu_s(self) -> float:
        try:
            stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        except OSError:
            return 0.0
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def finish(self, say: Callable[[str], None], patience_s: float = math.inf) -> bool:
        """Finishes in this process if the other one failed, and reports why."""
        if not self._record.cells():
            return True
        self._rest(False)
        self._hurry()
        assert self._process.stdin is not None
        self._process.stdin.close()
        began_s = reported_s = time.monotonic()
        reported = ""
        while self._process.poll() is None:
            if time.monotonic() - began_s > patience_s:
                self.close()
                return False
            time.sleep(_LOOK_S)
            progress = self._how_far()
            if time.monotonic() - reported_s > _REPORT_S and progress != reported:
                reported_s, reported = time.monotonic(), progress
                say(progress)
        if self._process.returncode:
            from dbdyno.conduct.derive.rebuild import conclude  # takes long to load

            conclude(self._record, say)
        return True

    def _how_far(self) -> str:
        """Returns the progress; a part is named after its first cell."""
        cells, parts = self._record.cells(), self._record.parts.names()
        done = cells.index(parts[-1]) + 1 if parts and parts[-1] in cells else 0
        return f"deriving: {done} of {len(cells)}"

    def _hurry(self) -> None:
        """Raises the priority after the last measurement; not permitted without privileges."""
        with contextlib.suppress(OSError):
            for task in self.tasks():
                os.setpriority(os.PRIO_PROCESS, task["tid"], 0)
        with contextlib.suppress(OSError):
            Path(f"/proc/{self._process.pid}/autogroup").write_text("0")

    def close(self) -> None:
        self._signal(signal.SIGKILL)
        self._process.wait()
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    @property
    def _input(self) -> int:
        assert self._process.stdin is not None
        return self._process.stdin.fileno()

    def _signal(self, number: int) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)


TOGETHER, _LITTLE_S = 4, 1.0
"""Cells are derived together up to this number or CPU time, since several take little longer than one."""
LAG_NS = 40 * NS_PER_S
"""Longest time that windows which are derived together may span if their figures are served while the
observation goes on. Of those of 10 s that is four, as without."""


WATCHED_LAG_NS = 10 * NS_PER_S
"""As :data:`LAG_NS`, while somebody looks at the observation. A window of 10 s then costs half as much
again."""


def _never(_: int) -> bool:
    return False


def derive_each(
    lines: Iterable[str],
    derive: Callable[[], None],
    together: int = TOGETHER,
    enough: Callable[[int], bool] = _never,
) -> None:
    """Calls ``derive`` after each line, or after a few lines, at most ``together``, if it is quick and
    ``enough`` does not say that so many are not to wait longer."""
    waiting, each_s = 0, math.inf
    for _ in lines:
        waiting += 1
        if waiting >= together or waiting * each_s > _LITTLE_S or enough(waiting):
            began_s = time.process_time()
            derive()
            waiting, each_s = 0, (time.process_time() - began_s) / waiting


def give_priority(nice: int) -> None:
    """Sets the niceness of all threads of this process; without privileges it cannot be lowered again.

    The scheduler may group processes by session (autogroup): then nice only counts within the session.
    """
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, int(task.name), nice)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(nice))


def main(path: str, parent: str, together: str, nice: str) -> int:
    """Runs the process. An error is not reported here: the process that started it meets and reports it
    again."""
    from dbdyno.conduct.derive.derive import Making  # takes long to load
    from dbdyno.conduct.derive.rebuild import conclude_made

    if os.getppid() != int(parent):
        return 1
    usual = os.nice(int(nice))
    sooner = usual - max(0, int(nice) - NICE_SOON)
    give_priority(usual)
    record = Run(Path(path))
    making, few = Making(record), _together_within(record.plan, WATCHED_LAG_NS)

    def lines() -> Iterator[str]:
        watched = False
        for line in sys.stdin:
            if record.is_watched != watched:  # not at each line: at the end the priority is raised
                watched = not watched
                give_priority(sooner if watched else usual)
            yield line

    try:
        derive_each(lines(), making.more, int(together), lambda n: n >= few and record.is_watched)
        conclude_made(making)
    except DbdynoError:
        return 1
    return 0
