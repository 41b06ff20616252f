"""Keeps rows and curves of a store's runs between requests, so that each costs little."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from dbdyno import conduct
from dbdyno.store.listing import is_alive, is_run
from dbdyno.store.overview import directory_stamps, overview_of, overviews

_SETTLED_NS = 100_000_000
"""A file system's clock advances in steps: a change that is younger may not be the last one of its time."""
_FEW = 20
"""Runs up to which each is read by itself; more are read together, which uses the store's index."""
_MOST_CURVES = 4_000


class Listing(NamedTuple):
    """All runs, newest first. ``tag`` is another one as soon as a row is."""

    tag: str
    rows: Sequence[conduct.RunRow]


class RunList:
    """The rows of the runs below ``root``. Those are read again whose directory has changed, and running ones
    whose process has ended."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()  # several requests at once read once
        self._stamps: dict[str, tuple[int, int] | None] = {}
        self._rows: dict[str, conduct.RunRow] = {}
        self._running: dict[str, tuple[int, int]] = {}
        self._server, self._changes = secrets.token_hex(8), 0
        self._listing = Listing("", ())

    def listing(self) -> Listing:
        """Raises :class:`StoreError` if the store cannot be read."""
        with self._lock:
            settled_ns = time.time_ns() - _SETTLED_NS
            stamps = directory_stamps(self._root)
            changed = {name for name, stamp in stamps.items() if self._stamps.get(name) != stamp}
            changed |= {name for name, process in self._running.items() if not is_alive(*process)}
            before = dict(self._rows)
            self._read(changed)
            for gone in self._rows.keys() - stamps.keys():
                self._rows.pop(gone)
                self._running.pop(gone, None)
            self._stamps = {n: s if s[0] < settled_ns else None for n, s in stamps.items()}
            if self._rows != before or not self._listing.tag:
                self._changes += 1
                rows = [self._rows[name] for name in sorted(self._rows, reverse=True)]
                self._listing = Listing(f"{self._server}-{self._changes}", rows)
            return self._listing

    def _read(self, names: Collection[str]) -> None:
        if len(names) > _FEW:
            entries = [one for one in overviews(self._root) if one.run.id in names]
        else:
            entries = [overview_of(path) for n in names if is_run(path := self._root / n)]
        for name in names:
            self._rows.pop(name, None)
            self._running.pop(name, None)
        for one in entries:
            self._rows[one.run.id] = conduct.run_row(one)
            if one.run.status == "running":
                ids = one.run.document
                self._running[one.run.id] = int(ids["pid"]), int(ids["pid_start_ticks"])


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
