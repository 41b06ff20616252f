"""Agents for tests: the real program in a process of its own, behind channels that distort or count."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dbdyno import _core, remote
from dbdyno.remote.wire import Frames, pack

TIMES = {"start_ns", "t0_ns", "t1_ns", "since_ns"}
"""Arguments of operations that are times."""
INSTANTS = {
    "sessions": {"began_ns", "first_start_ns", "last_end_ns"},
    "calls": {"start_ns", "due_ns"},
    "tasks": {"before_ns", "after_ns"},
    "counters": {"before_ns", "after_ns"},
    "host": {"before_ns", "after_ns"},
}
"""As the schema's words say, read by eye."""


@contextmanager
def agent(
    wrap: Callable[[remote.ProcessChannel], remote.Channel] = lambda channel: channel, *words: str
) -> Iterator[tuple[remote.Agent, remote.ProcessChannel]]:
    """Yields an agent and the channel to its process."""
    channel = remote.ProcessChannel([str(remote.program()), *words])
    peer = remote.Agent(wrap(channel), "elsewhere")
    try:
        yield peer, channel
    finally:
        peer.close()


class OtherClock:
    """A channel to an agent whose host has another clock.

    That clock is ahead by ``ahead_ns`` when the channel is opened, and gains ``drift`` seconds in one.
    Times of requests and answers are in that clock.
    """

    def __init__(self, inner: remote.Channel, ahead_ns: int, drift: float, instants: Mapping[str, set[str]]):
        self._inner, self._ahead_ns, self._drift, self._instants = inner, ahead_ns, drift, instants
        self._begun_ns = _core.now_ns()
        self._sent, self._received = Frames(), Frames()
        self._clocks: set[int] = set()

    def theirs(self, real_ns: int) -> int:
        return real_ns + self._ahead_ns + round(self._drift * (real_ns - self._begun_ns))

    def real(self, theirs_ns: int) -> int:
        since = (theirs_ns - self._begun_ns - self._ahead_ns) / (1 + self._drift)
        return self._begun_ns + round(since)

    def send(self, data: bytes) -> None:
        for header, body in self._sent.feed(data):
            if header["op"] == "clock":
                self._clocks.add(header["id"])
            changed = {k: self.real(v) if k in TIMES else v for k, v in header.items()}
            self._inner.send(pack(changed, body))

    def receive(self) -> bytes:
        while data := self._inner.receive():
            if answers := b"".join(pack(*self._answer(*frame)) for frame in self._received.feed(data)):
                return answers
        return b""

    def _answer(self, header: Mapping[str, Any], body: bytes) -> tuple[Mapping[str, Any], bytes]:
        value = header.get("ok")
        if header.get("id") in self._clocks:
            return {**header, "ok": self.theirs(value)}, body
        if body and isinstance(value, int):  # of a watch, packed
            ((inner, values),) = Frames().feed(zlib.decompress(body))
            return header, zlib.compress(pack(inner, self._shifted(inner["tables"], values)))
        tables = value if body and "id" in header else []  # no other answers here have a body
        return header, self._shifted(tables, body)

    def _shifted(self, tables: Any, body: bytes) -> bytes:
        shifted, at = b"", 0
        for table, columns in tables:
            for name, _, length, known, _ in columns:
                values = body[at : at + length]
                if name in self._instants.get(table, ()):
                    form = f"<{length // 8}q"
                    values = struct.pack(form, *(self.theirs(t) for t in struct.unpack(form, values)))
                shifted += values + body[at + length : at + length + (known or 0)]
                at += length + (known or 0)
        return shifted

    def close(self) -> None:
        self._inner.close()
