"""Time from no server to the first call: with a new data directory from the cached template, then with an
existing one."""

from __future__ import annotations

import statistics
import time

import psycopg

from dbdyno.engines.postgres.embedded import StartOptions, instance_of, open_instance


def main(count: int, _seconds: float) -> None:
    open_instance(None, StartOptions(sessions=10)).close()  # creates the template
    for fresh, what in ((True, "new data directory from the template"), (False, "kept data directory")):
        times = sorted(_start(fresh) for _ in range(count))
        print(
            f"{what}: start to first call {statistics.median(times):.3f} s "
            f"[{times[0]:.3f} .. {times[-1]:.3f}] over {count} starts (wanted <= 2 s)",
            flush=True,
        )


def _start(fresh: bool) -> float:
    before = time.monotonic()
    instance, programs = instance_of(None)
    instance.open(programs, StartOptions(sessions=10, fresh=fresh))
    try:
        with psycopg.connect(instance.facts()["dsn"]) as connection:
            connection.execute("select 1")
        return time.monotonic() - before
    finally:
        instance.close()
