"""The client of an agent: requests by any thread, one thread for answers, another that keeps it alive."""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TookTooLong
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import dbdyno
from dbdyno import _core
from dbdyno.model.errors import HostLost, NotAvailable
from dbdyno.model.units import NS_PER_S
from dbdyno.remote.answers import Fault, Hello, answered, operation
from dbdyno.remote.channels import Channel
from dbdyno.remote.wire import MOST_TABLES_BYTES, Frames, Tables, WrongAnswer, packed, tables, unpacked
from dbdyno.stats.clocks import Exchange

PROTOCOL = 1
SILENCE_S = 10.0
"""Nothing heard for so long: it is lost. The agent thinks the same of us."""
BEAT_S = 2.0
ANSWER_S = 60.0
"""Most operations take milliseconds; reading all tables over a slow link takes longest."""
TABLES_S = 10 * ANSWER_S
_MOST_PARTS = 1_000_000
"""Of a watch's tables: one in two seconds."""
_CLOCK_RATE = 0.1
"""Clocks that count the same time differ by less: Linux sets none more than a tenth faster (adjtimex(2))."""
_DISTRUST = "nothing that it measured is to be trusted; if it is a host of yours, please report this"


class Answer(NamedTuple):
    value: Any
    body: bytes
    received_ns: int


class _Question(NamedTuple):
    op: str
    future: Future[Answer]


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
        self._waiting: dict[int, _Question] = {}
        self._lock, self._sending, self._over = threading.Lock(), threading.Lock(), threading.Event()
        self._forgotten: deque[int] = deque()
        self._heard_ns = _core.now_ns()
        self._before: Exchange | None = None
        self._lost: str | None = None
        self._cure: Collection[str] = ()
        for work in (self._read, self._beat):
            threading.Thread(target=work, name=f"dbdyno-agent-{work.__name__}", daemon=True).start()
        try:
            self.hello: Hello = self.request("hello").value
            self._check()
        except BaseException:
            self.close()
            raise

    def _check(self) -> None:
        hello = self.hello
        if (hello.protocol, hello.product) != (PROTOCOL, dbdyno.__version__):
            raise NotAvailable(
                f"the agent on {self.name} is of dbdyno {hello.product}, this is {dbdyno.__version__}",
                "install the same version on both hosts",
            )

    # -- requests -------------------------------------------------------------------------------
    def ask(self, op: str, body: bytes = b"", **arguments: Any) -> Future[Answer]:
        """The answer to come, of the operation's type (:mod:`dbdyno.remote.answers`). It raises what the core
        raises for the same here (DriverError, ObserverError, OSError), and :class:`HostLost` where the agent
        is gone or has failed in another way."""
        number, future = next(self._numbers), Future[Answer]()
        with self._lock:
            if self._lost is not None:
                future.set_exception(self._error())
                return future
            self._waiting[number] = _Question(op, future)
        self._send(packed({"id": number, "op": op, **arguments}, body))
        return future

    def request(self, op: str, body: bytes = b"", *, answer_s: float = ANSWER_S, **arguments: Any) -> Answer:
        """The answer; :class:`HostLost` also where none comes within ``answer_s`` seconds: then the agent is
        lost."""
        future = self.ask(op, body, **arguments)
        try:
            return future.result(answer_s)
        except TookTooLong:
            if future.done():  # an error of that kind is the answer
                raise
            self._end(f"no answer to {op} within {answer_s:g} s")
            raise self._error() from None

    def request_each(self, op: str, number: int, body: bytes = b"", **arguments: Any) -> Sequence[Any]:
        """An answer for each of so many things that are asked about."""
        found: Sequence[Any] = self.request(op, body, **arguments).value
        with self.trusted():
            if len(found) != number:
                raise WrongAnswer(f"{len(found)} answers to {number} questions of {op}")
        return found

    def request_tables(self, op: str, **arguments: Any) -> Tables:
        """The tables of an answer, which have the columns of the schema."""
        answer = self.request(op, answer_s=TABLES_S, **arguments)
        with self.trusted():
            return tables(answer.value, answer.body)

    def request_parts(self, op: str, **arguments: Any) -> Iterator[Tables]:
        """The same of tables that come packed and in parts; more parts may come meanwhile."""
        part, parts, left_bytes = 0, 1, MOST_TABLES_BYTES
        while part < parts:
            answer = self.request(op, part=part, answer_s=TABLES_S, **arguments)
            parts, part = answer.value, part + 1
            with self.trusted():
                if not part <= parts <= _MOST_PARTS:
                    raise WrongAnswer(f"part {part} of {parts}")
                found, size = unpacked(answer.body, left_bytes)
            left_bytes -= size
            yield found

    @contextmanager
    def trusted(self) -> Iterator[None]:
        """Within it an answer is looked at; where it is wrong (:class:`WrongAnswer`) the agent is lost."""
        try:
            yield
        except WrongAnswer as e:
            self._distrust(e)
            raise self._error() from None

    def clock(self) -> Exchange:
        """Asks for its time once. A clock that jumps is none: :class:`HostLost`."""
        sent_ns = _core.now_ns()
        try:
            answer = self.ask("clock").result(self._silence_s)
        except TookTooLong:  # a long answer may be under way: the heartbeat knows
            raise HostLost(self.name, f"no answer to clock within {self._silence_s:g} s") from None
        exchange = Exchange(sent_ns, answer.value, answer.received_ns)
        with self.trusted():
            before, self._before = self._before, exchange
            if before is not None and _jumps(before, exchange):
                there_s = (exchange.there_ns - before.there_ns) / NS_PER_S
                here_s = (exchange.received_ns - before.sent_ns) / NS_PER_S
                raise WrongAnswer(f"a clock that went on by {there_s:.3f} s within {here_s:.3f} s")
        return exchange

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
        frames = Frames(self._most_body_bytes)
        try:
            while self._lost is None and (data := self._channel.receive()):
                now_ns = self._heard_ns = _core.now_ns()
                for header, body in frames.feed(data):
                    self._take(header, body, now_ns)
            self._end("the connection to it has ended")
        except WrongAnswer as e:
            self._distrust(e)
        except Exception as e:
            self._end(f"the connection to it is broken: {e}")

    def _question(self, header: Mapping[str, Any]) -> tuple[int, _Question]:
        """The question that is answered. Raises :class:`WrongAnswer` where nobody asked it."""
        number = header.get("id")
        if number is None and "error" in header:  # its last words
            raise WrongAnswer(f"an error: {answered('its input', header).message}")
        with self._lock:
            question = self._waiting.get(number) if type(number) is int else None
        if question is None or type(number) is not int:
            raise WrongAnswer("an answer to a question that was not asked, or was answered before")
        return number, question

    def _most_body_bytes(self, header: Mapping[str, Any]) -> int:
        _, question = self._question(header)
        return 0 if "error" in header else operation(question.op).most_body_bytes

    def _take(self, header: Mapping[str, Any], body: bytes, now_ns: int) -> None:
        number, question = self._question(header)
        answer = answered(question.op, header)
        with self._lock:
            self._waiting.pop(number, None)
        if isinstance(answer, Fault):
            question.future.set_exception(self._failure(question.op, answer))
        else:
            question.future.set_result(Answer(answer, body, now_ns))

    def _failure(self, op: str, fault: Fault) -> Exception:
        """The error of the core that this is; :class:`HostLost` where the core has none for the operation."""
        message = f"{self.name}: {fault.message}"
        if fault.family == "agent":
            return HostLost(self.name, f"{op}: {fault.message}", "this is a bug in dbdyno: please report it")
        if fault.family not in operation(op).raises:
            return HostLost(self.name, f"{op}: {fault.message}")
        if fault.family == "os":
            code = fault.code or ""
            return OSError(int(code) if re.fullmatch(r"[0-9]{1,4}", code) else 0, message)
        kind = _core.DriverError if fault.family == "driver" else _core.ObserverError
        return kind(fault.kind, message, fault.code, fault.session)

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

    def _distrust(self, error: WrongAnswer) -> None:
        self._end(f"it sent what is no answer: {error}", _DISTRUST)

    def _end(self, why: str, *cure: str) -> None:
        with self._lock:
            if self._lost is None:
                self._lost, self._cure = why, cure
            waiting, self._waiting = list(self._waiting.values()), {}
        self._over.set()
        for question in waiting:
            question.future.set_exception(self._error())

    def _error(self) -> HostLost:
        return HostLost(self.name, self._lost or "it is gone", *self._cure)


def _jumps(before: Exchange, after: Exchange) -> bool:
    """Whether no clock that runs as fast as ours, or nearly, gave these answers."""
    there_ns = after.there_ns - before.there_ns
    least_ns, most_ns = after.sent_ns - before.received_ns, after.received_ns - before.sent_ns
    return not least_ns - _CLOCK_RATE * abs(least_ns) <= there_ns <= most_ns + _CLOCK_RATE * abs(most_ns)


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
    wanted = {"read": [*read], "link": [*link], "list": [*list], "stat": [*stat]}
    asked: dict[str, Any] = {**wanted, "limit": limit}
    found, body, _ = agent.request("gather", **asked)
    files: dict[str, bytes | OSError] = {}
    at = 0
    with agent.trusted():
        for part, paths in wanted.items():
            _check_paths(paths, [entry[0] for entry in found[part]])
        for path, length, _, error in found["read"]:
            if length > limit:
                raise WrongAnswer(f"{length} bytes of {path}, of which {limit} were asked for")
            files[path] = body[at : at + length] if error is None else _refused(path, error)
            at += length
        if at != len(body):
            raise WrongAnswer(f"files of {at} bytes in {len(body)}")

    def others(part: str) -> dict[str, Any]:
        return {path: value if error is None else _refused(path, error) for path, value, error in found[part]}

    return Gathered(files, others("link"), others("list"), others("stat"))


def _check_paths(asked: Sequence[str], found: Sequence[str]) -> None:
    """Raises :class:`WrongAnswer` where an answer has not each path, or one that no pattern stands for."""
    patterns = [p for p in asked if "*" in p or "?" in p]
    plain = set(asked).difference(patterns)
    if missing := plain.difference(found):
        raise WrongAnswer(f"nothing of {min(missing)}")
    known = re.compile("|".join(map(pattern_of, patterns)) or r"(?!)")
    if other := next((p for p in found if p not in plain and not known.fullmatch(p)), None):
        raise WrongAnswer(f"something of {other[:200]}, which nobody asked for")


def pattern_of(path: str) -> str:
    """A path with ``*`` and ``?`` as a regular expression."""
    return re.escape(path).replace(r"\*", "[^/]*").replace(r"\?", "[^/]")


def _refused(path: str, error: Sequence[Any]) -> OSError:
    return OSError(error[0], error[1], path)


def spec_of(text: Mapping[str, Any] | str) -> Mapping[str, Any]:
    """A specification, which may be its JSON."""
    found: Mapping[str, Any] = json.loads(text) if isinstance(text, str) else text
    return found
