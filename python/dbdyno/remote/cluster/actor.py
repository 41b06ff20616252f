"""The actor on a node: starts the agent as its child and passes bytes between it and the gateway.

The class is sent by value and uses the standard library only: a node needs Ray and Python, not dbdyno. The
program comes as bytes, is checked by its hash, and leaves no file behind. All methods return bytes: Ray
would send other types and exceptions as pickles, of which the gateway accepts few.
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
"""After this time without a call the conductor counts as gone. The agent ends after 10 s without a frame."""
IDLE_S = 120.0
"""The same limit before the agent is started: other nodes may take long."""
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
    """Sets the nice value of this thread and its children to 0 if permitted; returns the value.

    Ray sets 15, with which a driver would yield to all other processes of its node.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    return os.getpriority(os.PRIO_PROCESS, 0)


class AgentProcess:
    """The gateway calls ``answer`` and ``read``, also at the same time."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the actor lives
        self._called_s = time.monotonic()
        threading.Thread(target=self._end_when_silent, daemon=True).start()

    def answer(self, method: str, *arguments: Any) -> bytes:
        """Calls a method; returns JSON with its value as ``ok``, or its error's message as ``error``."""
        try:
            return json.dumps({"ok": getattr(self, method)(*arguments)}).encode()
        except Exception as e:
            return json.dumps({"error": str(e) or type(e).__name__}).encode()

    def facts(self) -> dict[str, Any]:
        """Returns facts of this node."""
        self._called_s = time.monotonic()
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
        """Raises ValueError if the program's hash differs, OSError if it cannot be started."""
        self._called_s = time.monotonic()
        if hashlib.sha256(program).hexdigest() != sha256:
            raise ValueError("the program arrived damaged")
        _niceness()  # the child inherits it from this thread
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
        """Writes to the agent's standard input. Raises OSError if it has ended."""
        self._called_s = time.monotonic()
        into, view = self._pipes()[0], memoryview(data)
        while view:
            view = view[os.write(into, view) :]

    def read(self) -> bytes | None:
        """Returns what the agent has written; None after 2 s without output; empty if it has ended."""
        self._called_s = time.monotonic()
        try:
            return self._read(self._pipes()[1])
        except (OSError, ValueError):  # the agent was closed meanwhile
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
        """Returns the time since the conductor's last call."""
        return time.monotonic() - self._called_s

    def free_cpus(self) -> dict[str, float]:
        """Returns unassigned CPUs of each node of the cluster, by id; empty if unknown."""
        try:
            from ray._private.state import available_resources_per_node

            return {node: float(has.get("CPU", 0.0)) for node, has in available_resources_per_node().items()}
        except Exception:
            return {}

    def last_words(self) -> str:
        """Returns the end of the agent's error output."""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _LAST_WORDS_BYTES))
        return self._errors.read().decode(errors="replace").strip()

    def reach(self, host: str, port: int, times: int, timeout_s: float) -> int:
        """Returns the shortest time to connect, in ns: one round trip. Raises OSError."""
        self._called_s = time.monotonic()
        durations_ns = []
        for _ in range(times):
            begun_ns = time.monotonic_ns()
            socket.create_connection((host, port), timeout_s).close()
            durations_ns.append(time.monotonic_ns() - begun_ns)
        return min(durations_ns)

    def owns(self, addresses: list[str]) -> bool:
        """Returns whether one of these addresses belongs to this host alone, unlike a loopback address."""
        for address in addresses:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.bind((address, 0))
                return True
        return False

    def close(self) -> None:
        """Ends the agent with all its sessions."""
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
        while time.monotonic() - self._called_s < (SILENCE_S if self._child else IDLE_S):
            time.sleep(1)
        self.close()
        os._exit(0)
