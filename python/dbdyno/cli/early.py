"""Signals while modules are loaded. Imports nothing that takes time."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

EXIT_INTERRUPTED = 130  # that of dbdyno.model.errors, which is not loaded yet


@contextmanager
def at_once() -> Iterator[None]:
    """Within it Ctrl-C, SIGTERM and SIGHUP end the program at once, without a traceback: nothing was begun
    that would have to be put back, and an exception in the middle of an import may come out as any other."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    ours = {s: handler for s, handler in before.items() if handler not in (signal.SIG_IGN, None)}
    for sign in ours:
        signal.signal(sign, lambda *_: os._exit(EXIT_INTERRUPTED))
    try:
        yield
    finally:
        for sign, handler in ours.items():
            signal.signal(sign, handler)
