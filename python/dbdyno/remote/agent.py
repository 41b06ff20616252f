"""The client of an agent: requests by any thread, one thread for answers, another that keeps it alive."""

from __future__ import annotations

import itertools
import json
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TookTooLong
from contextlib import suppress
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

import dbdyno
from dbdyno import _core
from dbdyno.model.errors import DbdynoError, HostLost, NotAvailable
from dbdyno.remote.channels import Channel
from dbdyno.remote.wire import Frames, NoFrame, packed
from dbdyno.stats.clocks import Exchange

PROTOCOL = 1
SILENCE_S = 10.0
"""Nothing heard for so long: it is lost. The agent thinks the same of us."""
BEAT_S = 2.0
ANSWER_S = 60.0
"""Most operations take milliseconds; reading all tables over a slow link takes longest."""


class Answer(NamedTuple):
    value: Any
    body: bytes
    received_ns: int


class Hello(BaseModel):
    """Who answers, and where."""

    model_config = ConfigDict(frozen=True)

    product: str
    protocol: int
    hash: str  # SHA-256 of the program, hexadecimal
    uid: int
    pid: int
    hostname: str | None
    boot_id: str | None
    machine_id: str | None
    kernel: str | None
    arch: str
    cpus: int
    affinity: tuple[int, ...] | None
    ns_per_tick: int
    page_bytes: int


class Agent:
    """An agent that answers over ``channel``; ``name``: of its host, for messages.

    :meth:`request` may be called by several threads. Once the agent is lost each raises :class:`HostLost`.
    """

    def __init__(self, channel: Channel, name: str, silence_s: float = SILENCE_S) -> None:
        self.name = name
        self.exchanges: list[Exchange] = []
        """Those of the beats: about one in two seconds."""
        self._channel, self._silence_s = channel, silence_s
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[Answer]] = {}
        self._lock, self._sending, self._over = threading.Lock(), threading.Lock(), threading.Event()
        self._forgotten: deque[int] = deque()
        self._heard_ns = _core.now_ns()
        self._lost: str | None = None
        for work in (self._read, self._beat):
            threading.Thread(target=work, name=f"dbdyno-agent-{work.__name__}", daemon=True).start()
        try:
            self.hello = Hello(**self.request("hello").value)
            self._check()
        except BaseException:
            self.close()
            raise

    def _check(self) -> None:
        said = self.hello
        if (said.protocol, said.product) != (PROTOCOL, dbdyno.__version__):
            raise NotAvailable(
                f"the agent on {self.name} is of dbdyno {said.product}, this is {dbdyno.__version__}",
                "install the same version on both hosts",
            )

    # -- requests -------------------------------------------------------------------------------
    def ask(self, op: str, body: bytes = b"", **arguments: Any) -> Future[Answer]:
        """The answer to come. It raises what the core raises for the same here (DriverError, ObserverError,
        OSError), and :class:`HostLost` once the agent is gone."""
        number, future = next(self._numbers), Future[Answer]()
        with self._lock:
            if self._lost is not None:
                future.set_exception(HostLost(self.name, self._lost))
                return future
            self._waiting[number] = future
        self._send(packed({"id": number, "op": op, **arguments}, body))
        return future

    def request(self, op: str, body: bytes = b"", *, answer_s: float = ANSWER_S, **arguments: Any) -> Answer:
        """The answer; :class:`HostLost` also where none comes within ``answer_s`` seconds."""
        try:
            return self.ask(op, body, **arguments).result(answer_s)
        except TookTooLong:
            raise HostLost(self.name, f"no answer to {op} within {answer_s:g} s") from None

    def clock(self) -> Exchange:
        """Asks for its time once."""
        sent_ns = _core.now_ns()
        answer = self.request("clock", answer_s=self._silence_s)
        return Exchange(sent_ns, answer.value, answer.received_ns)

    @property
    def lost(self) -> str | None:
        """Why it is, if it is."""
        return self._lost

    def forget(self, of: int) -> None:
        """A load or watch that nobody has any more ends there, soon. May be called by a finalizer."""
        self._forgotten.append(of)

    def close(self) -> None:
        """Ends it, with all that it runs."""
        self._end("it was closed")
        self._channel.close()

    # -- threads --------------------------------------------------------------------------------
    def _send(self, data: bytes) -> None:
        try:
            with self._sending:
                self._channel.send(data)
        except Exception as e:  # whatever carries the bytes may fail in its own way
            self._end(f"the connection to it is broken: {e}")

    def _read(self) -> None:
        frames = Frames()
        try:
            while data := self._channel.receive():
                now_ns = self._heard_ns = _core.now_ns()
                for header, body in frames.feed(data):
                    self._take(header, body, now_ns)
            self._end("the connection to it has ended")
        except NoFrame as e:
            self._end(f"it sent what is no answer: {e}")
        except Exception as e:
            self._end(f"the connection to it is broken: {e}")

    def _take(self, header: Mapping[str, Any], body: bytes, now_ns: int) -> None:
        with self._lock:
            future = self._waiting.pop(header.get("id") or 0, None)
        if future is None:
            return  # nobody waits any more
        if "error" in header:
            future.set_exception(self._error(header["error"]))
        else:
            future.set_result(Answer(header.get("ok"), body, now_ns))

    def _error(self, said: Mapping[str, Any]) -> Exception:
        family, kind, message = said["family"], said["kind"], f"{self.name}: {said['message']}"
        if family == "os":
            return OSError(int(said["code"] or 0), message)
        if family == "agent":
            return DbdynoError(message, "this is a bug in dbdyno: please report it")
        made = _core.DriverError if family == "driver" else _core.ObserverError
        return made(kind, message, said["code"], said["session"])

    def _beat(self) -> None:
        """A question for the time now and then: it hears from us, we from it, and of its clock's drift."""
        while not self._over.wait(BEAT_S):
            silent_s = (_core.now_ns() - self._heard_ns) / 1e9
            if silent_s > self._silence_s:
                self._end(f"nothing was heard of it for {silent_s:.0f} s")
                return
            while self._forgotten:
                self.ask("drop", of=self._forgotten.popleft())
            with suppress(HostLost):
                self.exchanges.append(self.clock())

    def _end(self, why: str) -> None:
        with self._lock:
            if self._lost is None:
                self._lost = why
            waiting, self._waiting = list(self._waiting.values()), {}
        self._over.set()
        for future in waiting:
            future.set_exception(HostLost(self.name, self._lost))


# What is read of its host.


class Gathered(NamedTuple):
    """What :func:`gather` has found, by path; what could not be read is an OSError."""

    read: Mapping[str, bytes | OSError]
    link: Mapping[str, str | OSError]
    list: Mapping[str, Sequence[str] | OSError]
    stat: Mapping[str, Mapping[str, Any] | OSError]


def gather(
    agent: Agent,
    *,
    read: Iterable[str] = (),
    link: Iterable[str] = (),
    list: Iterable[str] = (),
    stat: Iterable[str] = (),
    limit: int = 65_536,
) -> Gathered:
    """Files (their first ``limit`` bytes), targets of links, names in directories, facts of files, all in one
    question. Paths may have ``*`` and ``?`` in their components; a path without them always has an entry."""
    found, body, _ = agent.request(
        "gather", limit=limit, read=[*read], link=[*link], list=[*list], stat=[*stat]
    )
    files: dict[str, bytes | OSError] = {}
    at = 0
    for path, length, _, error in found["read"]:
        files[path] = body[at : at + length] if error is None else _refused(path, error)
        at += length

    def others(part: str) -> dict[str, Any]:
        return {path: value if error is None else _refused(path, error) for path, value, error in found[part]}

    return Gathered(files, others("link"), others("list"), others("stat"))


def _refused(path: str, error: Sequence[Any]) -> OSError:
    return OSError(error[0], error[1], path)


def spec_of(text: Mapping[str, Any] | str) -> Mapping[str, Any]:
    """A specification, which may be its JSON."""
    found: Mapping[str, Any] = json.loads(text) if isinstance(text, str) else text
    return found
