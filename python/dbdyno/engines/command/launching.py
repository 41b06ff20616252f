"""The launcher: a child process of dbdyno that starts every command and waits for it
(driver/src/launcher)."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dbdyno
from dbdyno.engines.command.groups import Keeper
from dbdyno.model.errors import ServerLost, TargetError

_PATIENCE_S = 15.0
"""The launcher kills what is left, and removes groups, within this time."""
_PROGRAM = """\
import os
import sys
sys.path.insert(0, sys.argv[1])
from dbdyno import _core
def last(pattern, text):
    import re
    found = None
    for found in re.finditer(pattern, text): pass
    return found and found[1]
control = int(sys.argv[2])
os.set_inheritable(control, False)
_core.launch_commands(control, last)
"""
"""Imports only the core of dbdyno, to keep the process small. Sets sys.path because -I ignores PYTHONPATH."""


class Launcher:
    """The launcher process. Runs until :meth:`close`, or until this process ends.

    ``environment`` is that of all commands, None for a copy of ours. Commands inherit ``descriptors``.
    """

    def __init__(
        self, token: str, environment: Mapping[str, str] | None = None, descriptors: Sequence[int] = ()
    ) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            place = str(Path(dbdyno.__file__).parents[1])
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", _PROGRAM, place, str(theirs.fileno())],
                    pass_fds=[theirs.fileno(), *descriptors],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    start_new_session=True,  # Ctrl-C in the terminal is dbdyno's
                )
            except OSError as e:
                self.control.close()
                raise TargetError(f"cannot start the launcher of commands: {e}", "see that message") from e
        self.pid = self._process.pid
        self._keeper = Keeper(token, self.pid)
        self.contain = self._keeper.contain

    def send(self, message: dict[str, Any]) -> None:
        """Sends a message that belongs to no session."""
        try:
            self.control.send(json.dumps(message).encode())
        except OSError:
            self.check()
            raise

    def check(self) -> None:
        """Raises :class:`ServerLost` if the launcher has ended."""
        if self._process.poll() is None:
            return
        stderr = self._process.stderr.read().decode(errors="replace").strip() if self._process.stderr else ""
        code = self._process.returncode
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise ServerLost(
            f"the launcher of commands has ended ({how})"
            + (f": {stderr.splitlines()[-1]}" if stderr else ""),
            "begin the run again; the kernel's log says whether memory was short",
        )

    def close(self) -> None:
        """Ends the launcher with all that it started."""
        with contextlib.suppress(OSError):  # it has ended
            self.control.shutdown(socket.SHUT_RDWR)  # loads have copies of the descriptor
        self.control.close()
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()
        self._keeper.end()
