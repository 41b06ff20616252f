"""The agent as a process of its own: what it answers, what it refuses, and when it ends."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import platform
import signal
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest

import dbdyno
from dbdyno import _core, remote
from dbdyno.model.errors import DbdynoError, HostLost, NotAvailable
from dbdyno.model.schema.tables import from_core
from dbdyno.remote.agent import gather
from dbdyno.remote.wire import pack
from tests.agents import agent
from tests.waiting import eventually


def raw(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [str(remote.program()), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_an_agent_says_who_it_is_and_where() -> None:
    with agent() as (peer, channel):
        hello = peer.hello
        assert hello.pid == channel.pid
        assert hello.hash == hashlib.sha256(remote.program().read_bytes()).hexdigest()
        assert (hello.hostname, hello.arch) == (platform.node(), platform.machine())
        assert hello.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        assert hello.affinity == tuple(sorted(os.sched_getaffinity(0)))
        assert hello.page_bytes == os.sysconf("SC_PAGESIZE")
    assert channel.status == 0


def test_an_agent_needs_nothing_but_the_kernel() -> None:
    description = subprocess.run(["file", "-b", str(remote.program())], capture_output=True, text=True).stdout
    assert (
        not description or "static" in description or "dynamically" in description
    )  # see tools/build_agent.sh
    with subprocess.Popen(["env", "-i", str(remote.program()), "--version"], stdout=subprocess.PIPE) as p:
        assert p.communicate()[0].decode().split() == ["dbdyno-agent", dbdyno.__version__, "protocol", "1"]


def test_the_clock_is_answered_while_long_requests_are_worked_on() -> None:
    target = {"host": "127.0.0.1", "user": "u", "database": "d", "password": None, "tls": None}
    with socket.create_server(("127.0.0.1", 0)) as mute, agent() as (peer, _):
        target = {**target, "port": mute.getsockname()[1]}
        spec = {"target": target, "sessions": [{"call": [{"sql": "select 1", "params": []}]}], "probe": None}
        load = remote.RemoteLoad(peer, remote.HostClock(peer.clock), "postgres", spec)
        load.connect()
        exchanges = [peer.clock() for _ in range(100)]
        assert all(e.sent_ns <= e.there_ns <= e.received_ns for e in exchanges)  # it is the same clock
        assert not load.wait(0.1)
        load.abort()
        with pytest.raises(_core.DriverError):
            load.wait(60)


def test_errors_are_those_of_the_core() -> None:
    with agent() as (peer, _):
        with pytest.raises(_core.DriverError) as driver:
            peer.request("load.new", engine="oracle", spec={})
        assert driver.value.args[0] == "spec"
        with pytest.raises(_core.ObserverError) as observer:
            peer.request("watch.new", spec={"nonsense": 1})
        assert observer.value.args[0] == "spec"
        with pytest.raises(OSError) as os_error:
            peer.request("find_cgroups", pid=2**22 + 1)
        assert os_error.value.errno == errno.ENOENT
        for wrong in ({"op": "nonsense"}, {"op": "clockwork"}, {"op": "load.wait", "of": 99, "timeout_s": 0}):
            with pytest.raises(DbdynoError):
                peer.request(wrong.pop("op"), **wrong)  # type: ignore[arg-type]


def test_files_links_and_names_come_in_one_answer() -> None:
    with agent() as (peer, _):
        answer = gather(
            peer,
            read=[
                "/proc/sys/kernel/osrelease",
                "/sys/devices/system/cpu/cpu*/online",
                "/proc/none",
                "/etc/shadow",
            ],
            link=["/proc/self/exe"],
            list=["/proc/self/task"],
            stat=["/"],
        )
        assert answer.read["/proc/sys/kernel/osrelease"] == platform.release().encode() + b"\n"
        none, shadow = answer.read["/proc/none"], answer.read["/etc/shadow"]
        assert isinstance(none, OSError) and none.errno == errno.ENOENT
        assert isinstance(shadow, OSError) and shadow.errno == errno.EACCES
        assert answer.link["/proc/self/exe"] == str(remote.program())
        assert str(peer.hello.pid) in answer.list["/proc/self/task"]  # type: ignore[operator]
        assert answer.stat["/"]["inode"] == Path("/").stat().st_ino  # type: ignore[index]


def test_a_watch_reads_tasks_as_one_in_this_process_does() -> None:
    ours = os.getpid()
    spec = {
        "engine": None,
        "os": True,
        "tasks": [{"pid": ours, "tid": ours, "role": "driver"}],
        "trace": "off",
    }
    with agent() as (peer, _):
        watch = remote.RemoteWatch(peer, remote.HostClock(peer.clock), spec)
        begin_ns = _core.now_ns()
        watch.start(begin_ns, begin_ns + 1_000_000_000)
        while _core.now_ns() < begin_ns + 1_200_000_000:
            sum(range(1000))
        watch.stop()
        first = _core.read_task(ours, ours)["run_ns"]
        read = from_core("tasks", watch.tables()["tasks"])
        of_us = read.filter(pid=ours, tid=ours)["run_ns"]
        assert 0 < of_us[-1] - of_us[0] <= 1_500_000_000
        assert of_us[-1] <= first
        assert begin_ns - 1_000_000_000 < read["before_ns"].min()  # type: ignore[operator]
        assert watch.source_status()["scheduler trace"][0] == "off"


def test_what_a_watch_has_read_lies_on_its_disk_and_comes_whole() -> None:
    """The rows are in a file without a name. Rows older than live ones are no longer in memory."""
    ours = os.getpid()
    spec = {
        "engine": None,
        "os": True,
        "tasks": [{"pid": ours, "tid": ours, "role": "driver"}],
        "trace": "off",
        "task_interval_ms": 100,
    }
    with agent(lambda channel: channel, "--live-s", "0.3") as (peer, channel):
        watch = remote.RemoteWatch(peer, remote.HostClock(peer.clock), spec)
        begin_ns = _core.now_ns()
        watch.start(begin_ns, begin_ns + 60_000_000_000)
        status, place = watch.source_status()["samples on disk"]
        assert status == "ok", place

        def spooled() -> int:
            files = [f for f in Path(f"/proc/{channel.pid}/fd").iterdir() if place in str(f.readlink())]
            return sum(f.stat().st_size for f in files if f.stat().st_nlink == 0)

        eventually(lambda: spooled() > 0)
        sizes = spooled()
        eventually(lambda: spooled() > sizes)
        watch.stop()
        for _ in range(2):  # it may be asked for again
            read = from_core("tasks", watch.tables()["tasks"]).filter(tid=ours)["before_ns"]
            assert read[0] < begin_ns + 2_000_000_000
            assert read.is_sorted() and read.n_unique() == len(read) >= 5
        later = from_core("tasks", watch.recent(_core.now_ns())["tasks"])
        assert later.is_empty()


@pytest.mark.parametrize(
    "bytes_",
    [
        b"\xff" * 8,  # too long
        struct.pack("<II", 64 << 20 | 1, 0),
        struct.pack("<II", 2, 0) + b"[]",
        struct.pack("<II", 4, 0) + b"{{{{",
        pack({"id": 1, "op": "hello"})[:-1] + b"\xff",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_bytes_that_are_no_frame_end_an_agent(bytes_: bytes) -> None:
    process = raw()
    out, err = process.communicate(bytes_, timeout=60)
    assert process.returncode == 2
    assert b'"id":null' in out and b"error" in out
    assert b"dbdyno-agent: " in err


def test_a_declared_length_alone_takes_no_memory() -> None:
    with raw() as process:
        assert process.stdin is not None
        process.stdin.write(struct.pack("<II", 60 << 20, 60 << 20) + b"{")
        process.stdin.flush()
        time.sleep(0.2)
        status = Path(f"/proc/{process.pid}/status").read_text()
        (rss,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
        assert int(rss) < 40_000
        process.stdin.close()
        assert process.wait(60) == 2


def test_a_client_that_never_reads_its_answers_counts_as_silent() -> None:
    """The agent reads no more than it can answer, however much the client asks."""
    with raw("--silence-s", "1") as process:
        assert process.stdin is not None
        asked = 1000 * pack({"id": 1, "op": "clock"})

        def ask() -> None:
            with contextlib.suppress(OSError, ValueError):
                while True:
                    os.write(process.stdin.fileno(), asked)  # type: ignore[union-attr]

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        try:
            assert process.wait(60) == 3
        finally:
            process.kill()
            asking.join(60)


def test_an_agent_ends_with_its_input_and_after_silence() -> None:
    process = raw()
    process.communicate(b"", timeout=60)
    assert process.returncode == 0
    with raw("--silence-s", "1") as silent:
        assert silent.wait(60) == 3
        assert silent.stderr is not None
        assert b"nothing came for 1 s" in silent.stderr.read()


def test_an_agent_stays_while_it_gets_beats_and_is_lost_when_killed() -> None:
    with agent(lambda channel: channel, "--silence-s", "4") as (peer, channel):
        time.sleep(6)
        assert peer.lost is None
        assert len(peer.exchanges) >= 1
        waiting = peer.ask("pulse.new")
        waiting.result(60)
        os.kill(channel.pid, signal.SIGKILL)
        eventually(lambda: peer.lost)
        with pytest.raises(HostLost, match="elsewhere"):
            peer.clock()


def test_a_request_under_way_fails_when_the_agent_dies() -> None:
    with agent() as (peer, channel):
        os.kill(channel.pid, signal.SIGSTOP)
        waiting = peer.ask("hello")
        os.kill(channel.pid, signal.SIGKILL)
        with pytest.raises(HostLost):
            waiting.result(60)


def test_an_agent_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dbdyno, "__version__", "9.9")
    with pytest.raises(NotAvailable, match=r"9\.9"), agent():
        pass


def test_a_processor_without_a_program_is_named() -> None:
    with pytest.raises(NotAvailable, match="mips"):
        remote.program("mips")
