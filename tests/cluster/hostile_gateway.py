"""A gateway whose actors answer what nodes should not: ``python -m tests.cluster.hostile_gateway FD``.

The actors' class is what a node's owner can make of it; the gateway is dbdyno's.
"""

from __future__ import annotations

import socket
import sys
from typing import Any

from dbdyno.remote.cluster import actor, gateway, unpickling


class Trap:
    """Leaves a file named after the process that unpickles it."""

    def __init__(self, place: str) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        code = f"open({self.place!r} + '/' + str(__import__('os').getpid()), 'w').close()"
        return exec, (code,)


class Carried:
    """A value that passes through the server of ray://, which reads it first, and becomes a trap behind
    it."""

    def __init__(self, place: str) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return Trap, (self.place,)


class TrapError(Exception):
    """An error that is a trap."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.place = place

    def __reduce__(self) -> Any:
        return Trap(self.place).__reduce__()


_Honest = actor.AgentProcess


class HostileActor:
    """An actor that answers ``owns`` as its argument says; there is one argument for each kind of answer."""

    def __init__(self) -> None:
        self._honest = _Honest()
        self._trap: Any = None

    def answer(self, method: str, *arguments: Any) -> Any:
        if method != "owns":
            answered = self._honest.answer(method, *arguments)
            self._honest._called_s = float("inf")  # it does not end where a test is slow
            return answered
        kind, place = arguments[0]
        if kind.startswith("read "):
            self._trap = {"trap": Trap(place), "carried": Carried(place)}[kind.removeprefix("read ")]
            return b'{"ok": true}'
        if kind == "trap":
            return Trap(place)
        if kind == "carried":
            return Carried(place)
        if kind == "error":
            raise TrapError(place)
        return {
            "other": {"ok": True},
            "text": "yes",
            "no JSON": b"yes",
            "number": b'{"ok": 1}',
            "both": b'{"ok": true, "error": "x"}',
            "deep": b"[" * 100_000,
            "endless": b'{"error": "' + b"x" * 900_000 + b'"}',
            "too long": b'{"error": "' + b"x" * 9_000_000 + b'"}',
            "steering": b'{"error": "\\u001b]0;gone\\u0007\\u001b[2J\\nsecond line"}',
        }[kind]

    def read(self) -> Any:
        return self._trap or self._honest.read()


if __name__ == "__main__":
    unpickling.refuse_code()
    gateway.actor.AgentProcess = HostileActor  # type: ignore[misc]
    gateway.serve(socket.socket(fileno=int(sys.argv[1])))
