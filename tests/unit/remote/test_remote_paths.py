"""Files of another host as paths: read through its agent, alone or together, never here."""

from __future__ import annotations

import errno
import json
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

import dbdyno
from dbdyno import _core
from dbdyno.kernel.machine import HERE, machine_of
from dbdyno.remote.agent import Agent
from dbdyno.remote.files import Files, tree

FILES = {"/proc/1/stat": b"1 (init) S", "/proc/2/stat": b"2 (other) R", "/sys/a": b"x\n"}
HELLO = {"product": dbdyno.__version__, "protocol": 1, "hash": "", "uid": 7, "pid": 70, "hostname": "far"}
HELLO |= {"boot_id": None, "machine_id": None, "kernel": "6.1", "arch": "x86_64", "cpus": 1, "affinity": None}
HELLO |= {"ns_per_tick": 10_000_000, "page_bytes": 4096}


class FarHost:
    """Answers as an agent with these files does; ``asked``: what for."""

    def __init__(self) -> None:
        self._answers: Queue[bytes] = Queue()
        self.asked: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def send(self, data: bytes) -> None:
        header, _ = struct.unpack_from("<II", data)
        request = json.loads(data[8 : 8 + header])
        value, body = self._answer(request)
        text = json.dumps({"id": request.get("id"), "ok": value}).encode()
        self._answers.put(struct.pack("<II", len(text), len(body)) + text + body)

    def _answer(self, request: dict[str, Any]) -> tuple[Any, bytes]:
        if request["op"] == "hello":
            return HELLO, b""
        if request["op"] == "clock":
            return _core.now_ns(), b""
        self.asked.append(request)
        read, body = [], b""
        for pattern in request["read"]:
            paths = [p for p in FILES if Path(p).match(pattern)] if "*" in pattern else [pattern]
            for path in paths:
                content = FILES.get(path)
                error = None if content is not None else [errno.ENOENT, "no such file"]
                read.append([path, len(content or b""), True, error])
                body += content or b""
        names = [[path, ["1", "2"], None] for path in request["list"]]
        return {"read": read, "link": [], "list": names, "stat": []}, body

    def receive(self) -> bytes:
        return self._answers.get()

    def close(self) -> None:
        self._answers.put(b"")


@pytest.fixture
def far() -> Iterator[tuple[FarHost, Path, Files]]:
    host = FarHost()
    agent = Agent(host, "far")
    files = Files(agent)
    yield host, tree(files, HERE), files
    agent.close()


def test_a_path_is_read_on_the_other_host(far: tuple[FarHost, Path, Files]) -> None:
    host, root, _ = far
    assert (root / "proc" / "1" / "stat").read_text() == "1 (init) S"
    assert (root / "sys/a").read_bytes() == b"x\n"
    assert sorted(p.name for p in (root / "proc").iterdir()) == ["1", "2"]
    with pytest.raises(FileNotFoundError):
        (root / "proc/3/stat").read_text()
    assert machine_of(root / "proc") is machine_of(root) and len(host.asked) == 4


def test_no_path_is_opened_on_this_host(far: tuple[FarHost, Path, Files]) -> None:
    _, root, _ = far
    for use in (lambda: (root / "etc/passwd").open(), lambda: (root / "tmp/x").write_text("y")):
        with pytest.raises(OSError, match="another host"):
            use()


def test_files_that_are_read_ahead_take_one_request(far: tuple[FarHost, Path, Files]) -> None:
    host, root, files = far
    with files.ahead([str(root / "proc/*/stat"), "/sys/a"], ["/proc"]):
        read = {p.name: (p / "stat").read_text() for p in (root / "proc").iterdir()}
        with pytest.raises(FileNotFoundError):
            (root / "proc/9/stat").read_text()
        assert (root / "sys/a").read_text() == "x\n"
    assert read == {"1": "1 (init) S", "2": "2 (other) R"} and len(host.asked) == 1
    (root / "sys/a").read_text()
    assert len(host.asked) == 2


def test_files_of_a_host_that_is_lost_cannot_be_read(far: tuple[FarHost, Path, Files]) -> None:
    _, root, files = far
    files.agent.close()
    with pytest.raises(OSError, match="far is lost"):
        (root / "sys/a").read_text()
