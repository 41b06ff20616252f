"""The events of a run in progress: one look a second for all its readers, and only while there are any.

Events are kept in a ring, encoded once. A reader has a position in it and nothing else, so that a slow
one takes no memory; one that falls behind the ring is told to load the page again.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

from dbdyno.conduct.live import following
from dbdyno.conduct.live.following import Following
from dbdyno.model.errors import DbdynoError
from dbdyno.store import Run

LOOK_S = 1.0
RING = 32
"""Events that a reader may be behind."""
_MOST_BYTES = 256 << 10
"""Longest event; for a longer one the page is loaded again."""
_SILENCE_S = 15.0
"""Time after which something is sent in any case, so that a reader that is gone is noticed."""
_MOST = 4
"""Runs whose events are kept while nobody reads them."""
_DIGITS = 12  # of a position; longer ones are none of ours
_RETRY = b"retry: 2000\n\n"


class _Event(NamedTuple):
    number: int
    text: bytes


class Channel:
    def __init__(self, record: Run) -> None:
        self.following: Following = following(record)
        self.lock = threading.Lock()
        """Held while ``following`` is used."""
        self.readers = 0
        self.over = False
        self._measures = True
        self._epoch = secrets.token_hex(4)  # positions of an earlier server are none of this one
        self._ring = deque[_Event](maxlen=RING)
        self._number = 0
        self._now = _Event(0, b"")  # replaced, not kept: the progress of a measurement
        self._noted: set[str] = set()
        self._pulse = asyncio.Event()
        self._poller: asyncio.Task[None] | None = None

    @property
    def position(self) -> str:
        """The newest event, as the id of an event."""
        return f"{self._epoch}-{self._number}"

    def look(self) -> None:
        """Adds what is new. What goes wrong is an event, too, each fault once."""
        with self.lock:
            if self.over:
                return
            try:
                for item in self.following.look():
                    self._add(item.kind, item.data)
                if self.following.over or not self.following.record.path.is_dir():
                    self._end()
                elif self._measures and self.following.record.info.status != "running":
                    self._measures = False
                    self._add("measured", {"headline": self.following.headline()})
            except Exception as error:  # whatever it is, the view goes on
                fault = f"{type(error).__name__}: {error}"
                self._note(error.message if isinstance(error, DbdynoError) else fault)

    def _note(self, text: str) -> None:
        if text not in self._noted and len(self._noted) < RING:
            self._noted.add(text)
            self._add("note", {"text": text})

    def _end(self) -> None:
        self.over = True
        record = self.following.record
        status = record.info.status if record.path.is_dir() else "removed"
        self._add("end", {"status": status, "run": f"/run/{record.id}"})

    def _add(self, kind: str, data: Mapping[str, Any]) -> None:
        text = json.dumps(data, separators=(",", ":"), allow_nan=False).encode()
        if len(text) > _MOST_BYTES:
            kind, text = "reload", b"{}"
        if kind == "now":
            self._now = _Event(self._now.number + 1, _encoded(kind, text))
            return
        self._number += 1
        self._ring.append(_Event(self._number, _encoded(kind, text, self.position)))

    # -- in the event loop ------------------------------------------------------------------------

    async def events(self, after: str) -> AsyncIterator[bytes]:
        """Yields the events after the one with the id ``after``, and those to come, until the run is over."""
        epoch, _, number = after.partition("-")
        ours = epoch == self._epoch and number.isdecimal() and len(number) < _DIGITS
        at = int(number) if ours else -1
        at = at if after else self._number
        seen = self._now.number if at >= 0 else -1
        self.readers += 1
        try:
            self._start()
            yield _RETRY
            while True:
                pulse = self._pulse
                if self._behind(at):
                    yield _encoded("reload", b"{}")
                    return
                for event in [e for e in tuple(self._ring) if e.number > at]:
                    yield event.text
                    at = event.number
                if self._now.number > seen >= 0:
                    seen = self._now.number
                    yield self._now.text
                if self.over or self._poller is None:
                    return
                try:
                    await asyncio.wait_for(pulse.wait(), _SILENCE_S)
                except TimeoutError:
                    yield b":\n\n"
        finally:
            self.readers -= 1

    def _behind(self, at: int) -> bool:
        ring = tuple(self._ring)
        oldest = ring[0].number if ring else self._number + 1
        return at < oldest - 1 or at > self._number

    def _start(self) -> None:
        if self._poller is None or self._poller.done():
            self._poller = asyncio.get_running_loop().create_task(self._poll())

    async def _poll(self) -> None:
        """Looks once a second while there are readers."""
        shown = (self._number, self._now.number)
        while self.readers and not self.over:
            await asyncio.to_thread(self.look)
            if (self._number, self._now.number) != shown or self.over:
                shown = (self._number, self._now.number)
                self._wake()
            await asyncio.sleep(LOOK_S)
        self._wake()

    def _wake(self) -> None:
        pulse, self._pulse = self._pulse, asyncio.Event()
        pulse.set()

    def close(self) -> None:
        """Ends all readers at once, when the server is stopped."""
        poller, self._poller = self._poller, None
        if poller is not None:
            poller.cancel()
        self._wake()


def _encoded(kind: str, data: bytes, position: str = "") -> bytes:
    """Returns an event of an event stream (HTML Living Standard, 9.2)."""
    named = f"id: {position}\n".encode() if position else b""
    return named + b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"


class Channels:
    """The channels of the runs that somebody looks at."""

    def __init__(self) -> None:
        self._channels: dict[str, Channel] = {}
        self._lock = threading.Lock()

    def of(self, record: Run) -> Channel:
        with self._lock:
            channel = self._channels.pop(record.id, None)
            if channel is None or (channel.over and record.info.status == "running"):
                self._leave_out()
                channel = Channel(record)
            self._channels[record.id] = channel  # the newest last
            return channel

    def _leave_out(self) -> None:
        unread = [run for run, channel in self._channels.items() if not channel.readers]
        for run in unread[: max(0, len(self._channels) - _MOST + 1)]:
            del self._channels[run]

    def close(self) -> None:
        with self._lock:
            for channel in self._channels.values():
                channel.close()
