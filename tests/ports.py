"""Ports for servers of tests."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

_OURS = range(15_000, 32_000)
"""Below those that the kernel gives to connections, or to whoever binds none in particular: between the look
and the server's own bind nobody is given it."""
_random = random.SystemRandom()


def free_port() -> int:
    while True:
        port = _random.choice(_OURS)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
