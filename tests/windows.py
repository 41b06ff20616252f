"""Actions in the window of a run, whose begin the program itself announces.

How long connecting and settling take on a busy machine is no part of a test.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

from dbdyno.cli.live import LiveProgress
from dbdyno.conduct.measure.progress import Tick

KEPT_S = 1.2
"""A window that is cut shorter, to below a second, is not kept."""


def into_the_window(run: subprocess.Popen[str], after_s: float = KEPT_S) -> None:
    """Waits until so long after a window of this process has begun. It must run with ``--verbose``."""
    assert run.stderr is not None
    assert any(line.endswith(": measuring\n") for line in run.stderr), "it ended before"
    time.sleep(after_s)


@contextmanager
def in_the_window(
    act: Callable[[], None], after_s: float = KEPT_S, which: Callable[[Tick], bool] = lambda _: True
) -> Iterator[None]:
    """Calls ``act`` beside a run in this process, so long after its first window has begun, or the first
    that ``which`` selects.

    Does not call it if none begins.
    """
    begun, over = threading.Event(), threading.Event()
    tick = LiveProgress.tick

    def noting_tick(self: LiveProgress, progress: Tick) -> None:
        if progress.phase == "measuring" and which(progress):
            begun.set()
        tick(self, progress)

    def wait() -> None:
        begun.wait()
        if not over.wait(after_s):
            act()

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        with mock.patch.object(LiveProgress, "tick", noting_tick):
            yield
    finally:
        over.set()
        begun.set()
        thread.join()
