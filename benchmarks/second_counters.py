"""CPU time of reading counters by second: one statement over the control connection."""

from __future__ import annotations

import statistics
import time

from dbdyno.engines.postgres import presence
from dbdyno.engines.postgres.embedded import StartOptions, open_instance
from dbdyno.engines.postgres.server import PostgresServer

_READS_PER_S = 50


def main(count: int, seconds: float) -> None:
    """Reads at a steady rate from a server of its own, and adds the CPU time of its process to that of this
    one, the pause between the reads included."""
    instance = open_instance(None, StartOptions(sessions=10))
    try:
        server = PostgresServer(str(instance.facts()["dsn"]))
        pid = server._connection.info.backend_pid
        server.second_counters()
        reads = int(seconds * _READS_PER_S)
        measured = [_of_reads(server, pid, reads) for _ in range(count)]
        server.close()
    finally:
        instance.close()
    for who, us in zip(("server", "dbdyno"), zip(*measured, strict=True), strict=True):
        middle = statistics.median(us)
        print(
            f"counters by second, {who}: {middle:.0f} us [{min(us):.0f} .. {max(us):.0f}] over {count} times "
            f"{reads} reads; once a second {middle / 1e4:.4f} % of a CPU",
            flush=True,
        )
    print("wanted: <= 0.1 % of a CPU together", flush=True)


def _of_reads(server: PostgresServer, pid: int, reads: int) -> tuple[float, float]:
    """Returns the CPU time per read in us, of the server's process and of this one."""
    theirs, ours = presence.run_ns(pid) or 0, time.process_time_ns()
    for _ in range(reads):
        server.second_counters()
        time.sleep(1 / _READS_PER_S)
    took = (presence.run_ns(pid) or 0) - theirs, time.process_time_ns() - ours
    return took[0] / reads / 1e3, took[1] / reads / 1e3
