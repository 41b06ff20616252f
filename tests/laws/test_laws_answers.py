"""Laws of answers of another host: each is of the right type or that host's error."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Mapping
from queue import Queue
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.hostile_host import HELLO, frame

import dbdyno
from dbdyno import _core
from dbdyno.model.errors import HostLost
from dbdyno.model.schema.rawtables import RAW
from dbdyno.model.schema.tables import from_core, raw
from dbdyno.remote.agent import Agent, gather
from dbdyno.remote.answers import OPERATIONS, Fault, checked_answer
from dbdyno.remote.clocks import HostClock
from dbdyno.remote.load import RemoteLoad
from dbdyno.remote.watch import RemoteWatch
from dbdyno.remote.wire import Frames, WrongAnswer, pack, tables, unpack

NUMBERS = st.integers() | st.sampled_from([0, 1, -1, 2**31, 2**53, 2**63, -(2**63), 2**64, 10**30])
LEAVES = st.none() | st.booleans() | NUMBERS | st.floats() | st.text() | st.sampled_from(["ok", "lost", "os"])
NAMES = st.sampled_from(["read", "link", "list", "stat", "family", "kind", "message", "code", "session"])
JSON = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=6) | st.dictionaries(NAMES | st.text(max_size=5), inner, max_size=9)
    ),
    max_leaves=40,
)
HEADERS = st.fixed_dictionaries({}, optional={"ok": JSON, "error": JSON})


@examples(300)
@given(st.sampled_from(sorted(OPERATIONS)), HEADERS)
def test_any_value_is_of_the_type_or_a_wrong_answer(op: str, header: Mapping[str, Any]) -> None:
    try:
        value = checked_answer(op, header)
    except WrongAnswer as e:
        assert str(e) and len(str(e)) < 1000
    else:
        again = {"error" if isinstance(value, Fault) else "ok": _plain(value)}
        assert checked_answer(op, json.loads(json.dumps(again))) == value


def _plain(value: Any) -> Any:
    return value.model_dump() if hasattr(value, "model_dump") else value


class Host:
    """A channel to a host that greets correctly, and answers all else with ``header`` and ``body``."""

    def __init__(self, header: Mapping[str, Any], body: bytes) -> None:
        self._header, self._body = header, body
        self._answers: Queue[bytes] = Queue()

    def send(self, data: bytes) -> None:
        length, _ = struct.unpack_from("<II", data)
        asked = json.loads(data[8 : 8 + length])
        kept = {
            "hello": HELLO | {"product": dbdyno.__version__},
            "load.new": 1,
            "watch.new": 1,
            "drop": None,
        }
        if asked["op"] == "clock":
            kept["clock"] = _core.now_ns()
        if asked["op"] in kept:
            self._answers.put(frame({"id": asked["id"], "ok": kept[asked["op"]]}))
        else:
            self._answers.put(frame({"id": asked["id"], **self._header}, self._body))

    def receive(self) -> bytes:
        return self._answers.get()

    def close(self) -> None:
        self._answers.put(b"")


def _load(agent: Agent) -> RemoteLoad:
    return RemoteLoad(agent, HostClock(agent.clock, 1), "postgres", {})


def _watch(agent: Agent) -> RemoteWatch:
    return RemoteWatch(agent, HostClock(agent.clock, 1), {})


USES: list[Callable[[Agent], Any]] = [
    lambda a: gather(a, read=["/proc/1/stat"], link=["/proc/1/exe"], list=["/proc/*"], stat=["/"]),
    lambda a: a.request_each("read_task", 1, tasks=[[1, 1]])[0]["run_ns"],
    lambda a: a.request("find_cgroups").value,
    lambda a: _load(a).progress().calls + 1,
    lambda a: sum(pid for _, pid, _ in _load(a).backends()),
    lambda a: sum(_load(a).threads_there()),
    lambda a: _load(a).connect(),
    lambda a: _load(a).tables().items(),
    lambda a: dict(_watch(a).latest()),
    lambda a: [status for status, _ in _watch(a).source_status().values()],
    lambda a: _watch(a).trouble(),
    lambda a: _watch(a).recent(0).items(),
    lambda a: _watch(a).tables().items(),
]


@examples(100)
@given(st.sampled_from(USES), HEADERS, st.binary(max_size=40))
def test_any_answer_is_used_or_is_the_host_s_error(
    use: Callable[[Agent], Any], header: Mapping[str, Any], body: bytes
) -> None:
    agent = Agent(Host(header, body), "far")
    try:
        use(agent)
    except HostLost as e:
        assert e.host == "far" and e.why and e.cure
    except (_core.DriverError, _core.ObserverError, OSError) as e:
        assert "error" in header and "far" in str(e)
    finally:
        agent.close()


@examples(100)
@given(st.lists(st.binary(max_size=30)))
def test_any_bytes_are_frames_or_none(pieces: list[bytes]) -> None:
    frames = Frames()
    try:
        for piece in pieces:
            for header, _ in frames.feed(piece):
                assert isinstance(header, dict)
    except WrongAnswer:
        pass


@examples(100)
@given(st.lists(st.tuples(st.dictionaries(st.text(), NUMBERS), st.binary()), max_size=4), st.data())
def test_frames_come_back_however_they_are_cut(sent: list[tuple[dict[str, Any], bytes]], data: Any) -> None:
    whole, frames, received = b"".join(pack(*one) for one in sent), Frames(), []
    while whole:
        size = data.draw(st.integers(1, len(whole)))
        received += frames.feed(whole[:size])
        whole = whole[size:]
    assert [(dict(header), body) for header, body in received] == sent


SOME = ["tasks", "samples", "host", "sampler", "profile_samples", "errors"]
LENGTHS = st.sampled_from([0, 1, 4, 8, 16, 24]) | st.integers(0, 100)


@st.composite
def described_tables(draw: Callable[..., Any]) -> tuple[list[Any], bytes]:
    """Draws tables, of which most have a schema's columns, and some a fault or two."""
    layout, size = [], 0
    for table in draw(st.lists(st.sampled_from(SOME), max_size=3)):
        rows, columns = draw(st.integers(0, 3)), []
        for column in RAW[table]:
            if draw(st.integers(0, 30)) == 0:
                continue
            kind = draw(st.sampled_from([column.type] * 40 + ["i64", "f64", "bool", "str", "x"]))
            wide = rows * {"i64": 8, "f64": 8, "bool": 1}.get(kind, 4)
            length = draw(st.sampled_from([wide] * 40 + [0, 8]))
            validity = draw(st.sampled_from([None, rows, rows, rows] if column.null else [None]))
            texts = ["a", "b"] if kind == "str" else None
            columns.append([column.name, kind, length, validity, texts])
            size += length + (validity or 0)
        layout.append([table, columns])
    few = st.sampled_from(b"\x00\x01\xff")
    return layout, bytes(draw(st.lists(few, min_size=size, max_size=size)))


@examples(100)
@given(described_tables())
def test_any_tables_are_the_schema_s_or_a_wrong_answer(given_: tuple[list[Any], bytes]) -> None:
    layout, body = given_
    try:
        received = tables(checked_answer("load.tables", {"ok": layout}), body)
    except WrongAnswer:
        return
    for table, columns in received.items():
        assert from_core(raw(table), columns).columns == [c.name for c in RAW[table]]


@examples(100)
@given(described_tables(), st.sampled_from([0, 0, 0, 1, -1]))
def test_tables_come_back_from_a_part(given_: tuple[list[Any], bytes], cut: int) -> None:
    layout, body = given_
    content = zlib.compress(pack({"tables": layout}, body))
    content = content[:cut] if cut < 0 else content + cut * b"x"
    try:
        received, size = unpack(content)
    except WrongAnswer:
        return
    assert cut == 0 and set(received) == {table for table, _ in layout}
    assert size == len(pack({"tables": layout}, body))


@pytest.mark.parametrize("mebibytes", [40, 100])
def test_a_part_is_unpacked_up_to_its_size_and_what_was_measured(mebibytes: int) -> None:
    content = zlib.compress(pack({"tables": []}, bytes(mebibytes << 20)))
    with pytest.raises(WrongAnswer, match="MiB when unpacked"):
        unpack(content)
    with pytest.raises(WrongAnswer, match="bytes behind"):
        unpack(zlib.compress(pack({"tables": []}, bytes(1 << 20))))
