"""CPU time of reading the devices below the server's directories, once a second."""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence

from benchmarks.common import pairs
from dbdyno import _core

_SESSIONS = 50
_INTERVAL_MS = 10
_PLACES = ("/", "/tmp", "/var", "/home")


def main(count: int, seconds: float) -> None:
    """Compares a watch over 50 processes with devices and one without, in turn: CPU time of a read. The watch
    reads a hundred times as often as in a measurement."""
    sleepers = [subprocess.Popen(["sleep", "1000"]) for _ in range(_SESSIONS)]
    places = [{"place": path, "paths": [path]} for path in _PLACES]
    try:
        sessions = [[n, sleeper.pid] for n, sleeper in enumerate(sleepers)]
        measured = pairs(
            count, lambda: _read_us(sessions, places, seconds), lambda: _read_us(sessions, [], seconds)
        )
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()
    more = sorted(with_devices - without for with_devices, without in measured)
    middle = statistics.median(more)
    opened = statistics.median(_open_us(places) - _open_us([]) for _ in range(count))
    print(
        f"a read of {_SESSIONS} processes and the devices: {middle:.1f} us more "
        f"[{more[0]:.1f} .. {more[-1]:.1f}] over {count} pairs; once a second {middle / 1e4:.4f} % of a CPU "
        f"(wanted <= 0.05 %)\nfinding the devices of {len(_PLACES)} directories: {opened / 1e3:.2f} ms",
        flush=True,
    )


def _read_us(sessions: list[list[int]], places: Sequence[Mapping[str, object]], seconds: float) -> float:
    """Returns the CPU time of this process for each read of the watch."""
    spec = {"engine": None, "os": True, "host": True, "sessions": sessions, "places": places}
    watch = _core.Watch(json.dumps(spec | {"task_interval_ms": _INTERVAL_MS}))
    now_ns = _core.now_ns()
    watch.start(now_ns, now_ns + int(seconds * 1e9))
    begun = time.process_time()
    time.sleep(seconds)
    used = time.process_time() - begun
    watch.stop()
    reads = seconds * 1000 / _INTERVAL_MS
    return used * 1e6 / reads


def _open_us(places: Sequence[Mapping[str, object]]) -> float:
    begun = time.process_time()
    watch = _core.Watch(json.dumps({"engine": None, "os": True, "places": places}))
    used = time.process_time() - begun
    watch.stop()
    return used * 1e6
