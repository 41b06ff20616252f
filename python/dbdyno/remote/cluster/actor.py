"""The actor on a node: starts the agent as its child and hands bytes to and fro, nothing else.

The class travels by value and uses the standard library alone: a node needs Ray and Python, not dbdyno.
The program comes as bytes, is checked by its hash, and leaves no file behind. All that its methods return is
bytes: Ray would hand over anything else, and each exception, as a pickle, of which the gateway reads few.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import select
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

SILENCE_S = 15.0
"""After so long without a call the conductor is gone; the agent itself ends after 10 s without a frame."""
IDLE_S = 120.0
"""The same before it has an agent: others may take long to start."""
READ_S = 2.0
MOST_BYTES = 8 << 20
_PIPE_BYTES = 1 << 20
_F_SETPIPE_SZ = 1031
_LAST_WORDS_BYTES = 2000


def _boot_id() -> str | None:
    with contextlib.suppress(OSError), Path("/proc/sys/kernel/random/boot_id").open() as file:
        return file.read().strip()
    return None


def _niceness() -> int:
    """Of this thread and of what it starts, made 0 where this user may.

    Ray's is 15: a driver would give way to all else on its node.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    return os.getpriority(os.PRIO_PROCESS, 0)


class AgentProcess:
    """The gateway calls ``answer`` and ``read``, also at the same time."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the actor
        self._heard_s = time.monotonic()
        threading.Thread(target=self._end_when_silent, daemon=True).start()

    def answer(self, method: str, *arguments: Any) -> bytes:
        """Calls a method; its value behind ``ok``, or words of its error behind ``error``, as JSON."""
        try:
            return json.dumps({"ok": getattr(self, method)(*arguments)}).encode()
        except Exception as e:
            return json.dumps({"error": str(e) or type(e).__name__}).encode()

    def facts(self) -> dict[str, Any]:
        """Of this node."""
        self._heard_s = time.monotonic()
        return {
            "python": platform.python_version(),
            "hostname": socket.gethostname(),
            "arch": platform.machine(),
            "cpus": len(os.sched_getaffinity(0)),
            "uid": os.getuid(),
            "pid": os.getpid(),
            "boot_id": _boot_id(),
            "since_1970_ns": time.time_ns() - time.monotonic_ns(),
            "nice": _niceness(),
        }

    def start(self, program: bytes, sha256: str, arguments: list[str]) -> None:
        """Raises ValueError for a program of another hash, OSError where it cannot be started."""
        self._heard_s = time.monotonic()
        if hashlib.sha256(program).hexdigest() != sha256:
            raise ValueError("the program arrived damaged")
        _niceness()  # the child has it from this thread
        with tempfile.TemporaryDirectory(prefix="dbdyno-") as place:
            path = os.path.join(place, "dbdyno-agent")  # noqa: PTH118 - the name that ps shows
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700), "wb") as file:
                file.write(program)
            self._child = subprocess.Popen(
                [path, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
            )
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._pipes()[1], _F_SETPIPE_SZ, _PIPE_BYTES)

    def write(self, data: bytes) -> None:
        """To the agent's standard input. Raises OSError where it has ended."""
        self._heard_s = time.monotonic()
        into, view = self._pipes()[0], memoryview(data)
        while view:
            view = view[os.write(into, view) :]

    def read(self) -> bytes | None:
        """What the agent has written; None: nothing for 2 s; empty: it has ended."""
        self._heard_s = time.monotonic()
        try:
            return self._read(self._pipes()[1])
        except (OSError, ValueError):  # it was ended meanwhile
            return b""

    def _read(self, out: int) -> bytes | None:
        size = 0
        parts: list[bytes] = []
        wait_s = READ_S
        while size < MOST_BYTES and select.select([out], [], [], wait_s)[0]:
            part = os.read(out, _PIPE_BYTES)
            if not part:
                return b"".join(parts)
            parts.append(part)
            size, wait_s = size + len(part), 0.0
        return b"".join(parts) if parts else None

    def silent_s(self) -> float:
        """For how long the conductor has not been heard."""
        return time.monotonic() - self._heard_s

    def free_cpus(self) -> dict[str, float]:
        """CPUs of each node of the cluster that Ray has not given away, by id. Empty: not known."""
        try:
            from ray._private.state import available_resources_per_node

            return {node: float(has.get("CPU", 0.0)) for node, has in available_resources_per_node().items()}
        except Exception:
            return {}

    def last_words(self) -> str:
        """The end of what the agent wrote to standard error."""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _LAST_WORDS_BYTES))
        return self._errors.read().decode(errors="replace").strip()

    def reach(self, host: str, port: int, times: int, timeout_s: float) -> int:
        """Shortest time to connect, in ns: one round trip. Raises OSError."""
        self._heard_s = time.monotonic()
        found = []
        for _ in range(times):
            begun_ns = time.monotonic_ns()
            socket.create_connection((host, port), timeout_s).close()
            found.append(time.monotonic_ns() - begun_ns)
        return min(found)

    def owns(self, addresses: list[str]) -> bool:
        """Whether one of these addresses is this host's own, and not one that every host has."""
        for address in addresses:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.bind((address, 0))
                return True
        return False

    def close(self) -> None:
        """The agent ends, with all its sessions."""
        child, self._child = self._child, None
        if child is None:
            return
        for pipe in (child.stdin, child.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def _pipes(self) -> tuple[int, int]:
        if self._child is None or self._child.stdin is None or self._child.stdout is None:
            raise BrokenPipeError("the agent was ended")
        return self._child.stdin.fileno(), self._child.stdout.fileno()

    def _end_when_silent(self) -> None:
        while time.monotonic() - self._heard_s < (SILENCE_S if self._child else IDLE_S):
            time.sleep(1)
        self.close()
        os._exit(0)
