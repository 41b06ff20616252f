"""Notes the progress of a run in its directory, for who looks at it from another process.

A thread writes, so that a slow disk never delays a measurement: only the newest note counts. About once a
second it is what the terminal shows, a few hundred bytes, not synced.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dbdyno.conduct.measure.progress import Pace, ProgressListener, Tick, pace
from dbdyno.model.engine.environment import Environment
from dbdyno.model.plan.plan import Calibration, Plan
from dbdyno.model.results.results import Results
from dbdyno.store import Run

EVERY_S = 1.0
"""Least interval of two notes of one phase."""


@contextmanager
def announcing(listener: ProgressListener, record: Run) -> Iterator[ProgressListener]:
    """Yields a listener that passes everything on to ``listener`` and notes progress in ``record``."""
    writer = _Writer(record)
    try:
        yield _Announcing(listener, writer)
    finally:
        writer.close()
        record.remove_progress()


class _Writer:
    def __init__(self, record: Run) -> None:
        self._record, self._due = record, threading.Condition()
        self._newest: dict[str, Any] | None = None
        self._ended = False
        self._thread: threading.Thread | None = None

    def put(self, note: dict[str, Any]) -> None:
        with self._due:
            self._newest = note
            self._due.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="dbdyno-progress", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            with self._due:
                while self._newest is None and not self._ended:
                    self._due.wait()
                note, self._newest = self._newest, None
            if note is None:
                return
            self._record.write_progress(note)

    def close(self) -> None:
        with self._due:
            self._ended, self._newest = True, None
            self._due.notify()
        if self._thread is not None:
            self._thread.join()


class _Announcing:
    """See :class:`~dbdyno.conduct.measure.progress.ProgressListener`."""

    def __init__(self, listener: ProgressListener, writer: _Writer) -> None:
        self._listener, self._writer = listener, writer
        self._last: Tick | None = None
        self._noted_s, self._at = 0.0, ("", "")  # of the last note: when, and cell and phase

    def planned(self, plan: Plan, run_id: str) -> None:
        self._listener.planned(plan, run_id)

    def preparing(self, what: str) -> None:
        self._listener.preparing(what)
        self._writer.put({"at_s": time.time(), "doing": what})

    def opened(self, environment: Environment) -> None:
        self._listener.opened(environment)

    def calibrated(self, variant: str, calibration: Calibration, unit: str) -> None:
        self._listener.calibrated(variant, calibration, unit)

    def noted(self, words: str) -> None:
        self._listener.noted(words)

    def measured(self, results: Results) -> None:
        self._listener.measured(results)

    def tick(self, tick: Tick) -> None:
        self._listener.tick(tick)
        now_s, at = time.monotonic(), (tick.cell.id, tick.phase)
        if at == self._at and now_s - self._noted_s < EVERY_S:
            return
        self._writer.put(_note(tick, pace(tick, self._last)))
        self._noted_s, self._at = now_s, at
        last = self._last
        if last is None or last.cell.id != tick.cell.id or tick.elapsed_s - last.elapsed_s >= EVERY_S:
            self._last = tick


def _note(tick: Tick, since: Pace | None) -> dict[str, Any]:
    calls = tick.progress
    return {
        "at_s": time.time(),
        "cell": tick.cell.id,
        "number": tick.number,
        "phase": tick.phase,
        "elapsed_s": round(tick.elapsed_s, 3),
        "calls_per_s": None if since is None else since.calls_per_s,
        "response_mean_ns": None if since is None else since.response_mean_ns,
        "errors": calls.errors,
        "waiting": calls.waiting,
        "oldest_ns": calls.oldest_ns,
        "shares": dict(sorted(tick.shares.items(), key=lambda s: -s[1])[:3]),
        "left_s": tick.left_s,
    }
