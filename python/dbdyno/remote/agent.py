"""The client of an agent: any thread sends requests, one thread reads answers, another sends heartbeats."""

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
from dbdyno.remote.answers import Fault, Hello, checked_answer, operation
from dbdyno.remote.channels import Channel
from dbdyno.remote.wire import MOST_TABLES_BYTES, Frames, Tables, WrongAnswer, pack, tables, unpack
from dbdyno.stats.clocks import Exchange

PROTOCOL = 1
SILENCE_S = 10.0
"""After this time without a byte the agent counts as lost. The agent applies the same limit to us."""
BEAT_S = 2.0
ANSWER_S = 60.0
"""Limit of an answer. Most operations take milliseconds."""
TABLES_S = 10 * ANSWER_S  # reading all tables over a slow link takes longest
_MOST_PARTS = 1_000_000
"""Most parts of a watch's tables; it writes one in two seconds."""
_CLOCK_RATE = 0.1
"""Most relative difference of two clocks: Linux sets none more than a tenth faster (adjtimex(2))."""
_DISTRUST = "nothing that it measured is to be trusted; if it is a host of yours, please report this"


class Answer(NamedTuple):
    value: Any
    body: bytes
    received_ns: int


class _Question(NamedTuple):
    op: str
    future: Future[Answer]


class Agent:
    """An agent that answers over ``channel``; ``name``: its host, for messages.

    Several threads may call :meth:`request`. Once the agent is lost, each call raises :class:`HostLost`.
    """

    def __init__(self, channel: Channel, name: str, silence_s: float = SILENCE_S) -> None:
        self.name = name
        self.exchanges: list[Exchange] = []
        """Clock exchanges of the heartbeats: about one in two seconds."""
        self._channel, self._silence_s = channel, silence_s
        self._numbers = itertools.count(1)
        self._waiting: dict[int, _Question] = {}
        self._lock, self._sending, self._over = threading.Lock(), threading.Lock(), threading.Event()
        self._forgotten: deque[int] = deque()
        self._received_ns = _core.now_ns()
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
        """Returns the future answer, of the operation's type (:mod:`dbdyno.remote.answers`).

        It raises what the core raises for the same operation here (DriverError, ObserverError, OSError), and
        :class:`HostLost` if the agent is gone or fails in another way.
        """
        number, future = next(self._numbers), Future[Answer]()
        with self._lock:
            if self._lost is not None:
                future.set_exception(self._error())
                return future
            self._waiting[number] = _Question(op, future)
        self._send(pack({"id": number, "op": op, **arguments}, body))
        return future

    def request(self, op: str, body: bytes = b"", *, answer_s: float = ANSWER_S, **arguments: Any) -> Answer:
        """Returns the answer.

        Raises :class:`HostLost` also if none arrives within ``answer_s`` seconds: then the agent counts as
        lost.
        """
        future = self.ask(op, body, **arguments)
        try:
            return future.result(answer_s)
        except TookTooLong:
            if future.done():  # the answer itself is a TimeoutError
                raise
            self._end(f"no answer to {op} within {answer_s:g} s")
            raise self._error() from None

    def request_each(self, op: str, number: int, body: bytes = b"", **arguments: Any) -> Sequence[Any]:
        """Returns answers about ``number`` things. Raises :class:`HostLost` if there are fewer or more."""
        answers: Sequence[Any] = self.request(op, body, **arguments).value
        with self.trusted():
            if len(answers) != number:
                raise WrongAnswer(f"{len(answers)} answers to {number} questions of {op}")
        return answers

    def request_tables(self, op: str, **arguments: Any) -> Tables:
        """Returns the tables of an answer, checked against the schema."""
        answer = self.request(op, answer_s=TABLES_S, **arguments)
        with self.trusted():
            return tables(answer.value, answer.body)

    def request_parts(self, op: str, **arguments: Any) -> Iterator[Tables]:
        """Yields the tables of an answer that comes compressed and in parts; their number may grow
        meanwhile."""
        part, parts, left_bytes = 0, 1, MOST_TABLES_BYTES
        while part < parts:
            answer = self.request(op, part=part, answer_s=TABLES_S, **arguments)
            parts, part = answer.value, part + 1
            with self.trusted():
                if not part <= parts <= _MOST_PARTS:
                    raise WrongAnswer(f"part {part} of {parts}")
                unpacked_tables, size = unpack(answer.body, left_bytes)
            left_bytes -= size
            yield unpacked_tables

    @contextmanager
    def trusted(self) -> Iterator[None]:
        """Checks an answer within the context; after a :class:`WrongAnswer` the agent counts as lost."""
        try:
            yield
        except WrongAnswer as e:
            self._distrust(e)
            raise self._error() from None

    def clock(self) -> Exchange:
        """Requests the agent's time once. Raises :class:`HostLost`, also if the clock jumps."""
        sent_ns = _core.now_ns()
        try:
            answer = self.ask("clock").result(self._silence_s)
        except TookTooLong:  # not lost: a long answer may delay it, and the heartbeat decides
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
        """The reason why it is lost; None if it is not."""
        return self._lost

    def forget(self, of: int) -> None:
        """Ends a load or watch there soon that nobody refers to any more. A finalizer may call it."""
        self._forgotten.append(of)

    def close(self) -> None:
        """Ends the agent with all its loads and watches."""
        self._end("it was closed")
        self._channel.close()

    # -- threads --------------------------------------------------------------------------------
    def _send(self, data: bytes) -> None:
        try:
            with self._sending:
                self._channel.send(data)
        except Exception as e:  # each channel has its own exceptions
            self._end(f"the connection to it is broken: {e}")

    def _read(self) -> None:
        frames = Frames(self._most_body_bytes)
        try:
            while self._lost is None and (data := self._channel.receive()):
                now_ns = self._received_ns = _core.now_ns()
                for header, body in frames.feed(data):
                    self._take(header, body, now_ns)
            self._end("the connection to it has ended")
        except WrongAnswer as e:
            self._distrust(e)
        except Exception as e:
            self._end(f"the connection to it is broken: {e}")

    def _question(self, header: Mapping[str, Any]) -> tuple[int, _Question]:
        """Returns the request of an answer. Raises :class:`WrongAnswer` if there is none."""
        number = header.get("id")
        if number is None and "error" in header:  # an error about its input, before it ends
            raise WrongAnswer(f"an error: {checked_answer('its input', header).message}")
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
        answer = checked_answer(question.op, header)
        with self._lock:
            self._waiting.pop(number, None)
        if isinstance(answer, Fault):
            question.future.set_exception(self._failure(question.op, answer))
        else:
            question.future.set_result(Answer(answer, body, now_ns))

    def _failure(self, op: str, fault: Fault) -> Exception:
        """Returns the core's error of a fault; :class:`HostLost` if the core raises none such for the
        operation."""
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
        """Heartbeat: keeps the agent alive, detects a lost link, tracks clock drift."""
        while not self._over.wait(BEAT_S):
            silent_s = (_core.now_ns() - self._received_ns) / 1e9
            if silent_s > self._silence_s:
                self._end(f"it did not respond for {silent_s:.0f} s")
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
    """Returns whether no clock with nearly the rate of ours could give these two answers."""
    there_ns = after.there_ns - before.there_ns
    least_ns, most_ns = after.sent_ns - before.received_ns, after.received_ns - before.sent_ns
    return not least_ns - _CLOCK_RATE * abs(least_ns) <= there_ns <= most_ns + _CLOCK_RATE * abs(most_ns)


# Files of its host.


class Gathered(NamedTuple):
    """The result of :func:`gather` by path; an OSError for what could not be read."""

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
    """Reads files (their first ``limit`` bytes), targets of links, names in directories, and facts of files
    in one request.

    Paths may have ``*`` and ``?`` in their components. A path without these always has an entry.
    """
    wanted = {"read": [*read], "link": [*link], "list": [*list], "stat": [*stat]}
    arguments: dict[str, Any] = {**wanted, "limit": limit}
    entries, body, _ = agent.request("gather", **arguments)
    files: dict[str, bytes | OSError] = {}
    at = 0
    with agent.trusted():
        for part, paths in wanted.items():
            _check_paths(paths, [entry[0] for entry in entries[part]])
        for path, length, _, error in entries["read"]:
            if length > limit:
                raise WrongAnswer(f"{length} bytes of {path}, of which {limit} were asked for")
            files[path] = body[at : at + length] if error is None else _read_error(path, error)
            at += length
        if at != len(body):
            raise WrongAnswer(f"files of {at} bytes in {len(body)}")

    def others(part: str) -> dict[str, Any]:
        return {
            path: value if error is None else _read_error(path, error) for path, value, error in entries[part]
        }

    return Gathered(files, others("link"), others("list"), others("stat"))


def _check_paths(requested: Sequence[str], returned: Sequence[str]) -> None:
    """Raises :class:`WrongAnswer` if an answer lacks a path, or has one that matches no pattern."""
    patterns = [p for p in requested if "*" in p or "?" in p]
    plain = set(requested).difference(patterns)
    if missing := plain.difference(returned):
        raise WrongAnswer(f"nothing of {min(missing)}")
    expected = re.compile("|".join(map(pattern_of, patterns)) or r"(?!)")
    if other := next((p for p in returned if p not in plain and not expected.fullmatch(p)), None):
        raise WrongAnswer(f"something of {other[:200]}, which nobody asked for")


def pattern_of(path: str) -> str:
    """Returns a path with ``*`` and ``?`` as a regular expression."""
    return re.escape(path).replace(r"\*", "[^/]*").replace(r"\?", "[^/]")


def _read_error(path: str, error: Sequence[Any]) -> OSError:
    return OSError(error[0], error[1], path)


def spec_of(text: Mapping[str, Any] | str) -> Mapping[str, Any]:
    """Returns a specification that may be given as JSON."""
    spec: Mapping[str, Any] = json.loads(text) if isinstance(text, str) else text
    return spec
