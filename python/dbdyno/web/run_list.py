"""What is kept of a store between requests, so that each costs little: the rows of its runs, and curves."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from dbdyno import conduct
from dbdyno.store.listing import is_alive
from dbdyno.store.overview import Overview, directories_stamp, overviews

_SETTLED_NS = 100_000_000
"""A file system's clock advances in steps: a change that is younger may not be the last one of its time."""
_MOST_CURVES = 4_000


class Listing(NamedTuple):
    """All runs, newest first. ``tag`` is another one as soon as a row is."""

    tag: str
    rows: Sequence[conduct.RunRow]


class RunList:
    """The rows of the runs below ``root``; they are read again when a run's directory has changed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()  # several requests at once read once
        self._stamp: str | None = None
        self._running: Sequence[tuple[int, int]] = ()
        self._listing = Listing("", ())

    def listing(self) -> Listing:
        """Raises :class:`StoreError` if the store cannot be read."""
        with self._lock:
            now_ns = time.time_ns()
            stamp, changed_ns = directories_stamp(self._root)
            if stamp != self._stamp or not all(is_alive(*process) for process in self._running):
                self._read()
                self._stamp = stamp if changed_ns < now_ns - _SETTLED_NS else None
            return self._listing

    def _read(self) -> None:
        entries = overviews(self._root)[::-1]
        rows = [conduct.run_row(one) for one in entries]
        self._running = [_process(one) for one in entries if one.run.status == "running"]
        self._listing = Listing(sha256(repr(rows).encode("utf-8", "surrogatepass")).hexdigest()[:32], rows)


def _process(one: Overview) -> tuple[int, int]:
    return int(one.run.document["pid"]), int(one.run.document["pid_start_ticks"])


class Curves:
    """Small curves of runs. Those asked for last are kept, as long as what was derived is the same."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[object, conduct.Curve | None]] = OrderedDict()

    def of(self, runs: Iterable[str]) -> dict[str, conduct.Curve | None]:
        """Returns the curves by run; None where a run has none."""
        return {run: self._curve(run) for run in runs}

    def known(self, runs: Collection[str]) -> dict[str, conduct.Curve | None]:
        """Returns the kept ones of these runs."""
        with self._lock:
            return {run: self._kept[run][1] for run in runs if run in self._kept}

    def _curve(self, run: str) -> conduct.Curve | None:
        path = self._root / run
        stamp = _stamp(path / "derived")
        with self._lock:
            kept = self._kept.get(run)
            if kept is not None and kept[0] == stamp:
                self._kept.move_to_end(run)
                return kept[1]
        curve = None if stamp is None else conduct.curve(path)
        with self._lock:
            self._kept[run] = stamp, curve
            while len(self._kept) > _MOST_CURVES:
                self._kept.popitem(last=False)
        return curve


def _stamp(path: Path) -> object:
    with suppress(OSError, ValueError):
        status = path.stat()
        return status.st_mtime_ns, status.st_ino
    return None
