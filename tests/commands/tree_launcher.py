"""A minimal launcher: a subreaper that keeps ``sessions`` slots busy until SIGTERM.

It notes what the kernel reports of each execution before and at reaping. It imports nothing of dbdyno.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any


def launch(argv: list[str], sessions: int) -> list[dict[str, Any]]:
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    running: dict[int, tuple[int, int]] = {}
    ended: list[dict[str, Any]] = []

    def start(session: int) -> None:
        began = time.monotonic_ns()
        environment = {**os.environ, "DBDYNO_SESSION": str(session)}
        running[os.posix_spawn(argv[0], argv, environment)] = (session, began)

    for session in range(sessions):
        start(session)
    while running:
        exit_info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        assert exit_info is not None
        pid, end_ns = exit_info.si_pid, time.monotonic_ns()
        run, runq, _ = map(int, Path(f"/proc/{pid}/schedstat").read_text().split())
        _, _, used = os.wait4(pid, 0)
        if pid not in running:
            continue  # an orphan
        session, began = running.pop(pid)
        cpu = (round(used.ru_utime * 1e9), round(used.ru_stime * 1e9))
        ended.append(
            {
                "session": session,
                "number": len(ended),
                "job": "tool",
                "pid": pid,
                "start_ns": began,
                "end_ns": end_ns,
            }
            | {"outcome": "ok", "run_ns": run, "runq_ns": runq, "user_ns": cpu[0], "system_ns": cpu[1]}
        )
        if not stopped:
            start(session)
    return ended


if __name__ == "__main__":
    json.dump(launch(**json.loads(sys.argv[1])), sys.stdout)
