"""Opens the observers of one cell: the engine's own, the real ones, or none."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from dbdyno import _core
from dbdyno.model.errors import TargetError
from dbdyno.model.protocols import Load, Server, Watch
from dbdyno.model.tables import CoreColumn

TASK_INTERVAL_MS = 1000


class NoWatch:
    """Observation switched off: nothing is read, nothing is known."""

    def start(self, t0_ns: int, t1_ns: int) -> None: ...

    def stop(self) -> None: ...

    def latest(self) -> Mapping[str, float]:
        return {}

    def trouble(self) -> str | None:
        return None

    def tables(self) -> Mapping[str, Mapping[str, CoreColumn]]:
        return {}


def open_watch(
    server: Server, load: Load, *, sample_hz: float = 10.0, seed: int = 1, enabled: bool = True
) -> Watch:
    """The watch over ``load``, whose sessions are connected.

    It is to be started before t0. A server that cannot be asked for activity is no error: the samples are
    lost, everything else is read. Raises :class:`TargetError` only for a defect of the engine's half.
    """
    if not enabled:
        return NoWatch()
    ours = os.getpid()
    driver = [{"pid": ours, "tid": tid, "role": "driver"} for tid in load.threads()]
    engine_half = {"tasks": driver, **server.watch_spec(load)}
    spec = engine_half | {
        "sample_hz": sample_hz,
        "seed": seed,
        "task_interval_ms": TASK_INTERVAL_MS,
        "cgroups": groups(engine_half),
        "host": True,
    }
    own = server.watch(spec)
    if own is not None:
        return own
    try:
        return _core.Watch(json.dumps(spec))
    except _core.ObserverError as e:
        raise TargetError(
            f"cannot watch the server: {e.args[1]}", "dbdyno run --no-observe leaves it out"
        ) from e


def groups(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Groups to read: the server's, if it is here, and our own; innermost first in each hierarchy."""
    found = []
    if spec.get("os") and (server_pid := _some_pid(spec)) is not None:
        found += _of("server", server_pid)
    return found + _of("driver", os.getpid())


def _some_pid(spec: Mapping[str, Any]) -> int | None:
    """The main process, or else a session's: they share their group unless somebody parted them."""
    pids = [spec.get("main_pid"), *(pid for _, pid in spec.get("sessions", ()))]
    return next((pid for pid in pids if pid), None)


def _of(scope: str, pid: int) -> list[dict[str, Any]]:
    try:
        return [{"scope": scope, "version": v, "path": path} for v, path in _core.find_cgroups(pid)]
    except OSError:  # gone, or hidden from us: no rows, and the source says so
        return []
