"""Hosts over ssh that answer unlike an agent, or not at all: errors in words, within bounded memory and
time."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import dbdyno
from dbdyno.kernel import processes
from dbdyno.model.errors import Abandoned, HostLost, TargetError, Unreachable, request, reset
from dbdyno.remote import channels, ssh
from dbdyno.remote.machine import RemoteMachine
from tests import hostile_host
from tests.on_terminal import obeyed, on_terminal
from tests.waiting import eventually

LYING = [sys.executable, hostile_host.__file__]


def lying_ssh(case: str) -> str:
    """Returns the ssh command of such a host."""
    return shlex.join([*LYING, case, dbdyno.__version__])


def cases(part: str) -> list[str]:
    """Returns the names of the host's answers that begin with ``part``, from its source."""
    words = Path(hostile_host.__file__).read_text().split('"')
    return [w for w in words if w.startswith(f"{part}: ")]


@contextmanager
def host(case: str) -> Iterator[RemoteMachine]:
    host = ssh.machine("db", lying_ssh(case))
    try:
        yield host
    finally:
        host.close()


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the wait for the end of a host, because a host that lies does not end by itself."""
    monkeypatch.setattr(channels, "_END_S", 0.5)


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("case", [*cases("hello"), *cases("clock")])
def test_a_wrong_answer_at_the_start_is_an_error_in_words(case: str) -> None:
    with pytest.raises(HostLost, match="host db is lost: ") as lost, host(case) as machine:
        machine.boot_s()
        pytest.fail("it was believed")
    assert lost.value.cure
    assert len(lost.value.message) < 1000


@pytest.mark.parametrize("case", cases("gather"))
def test_a_file_of_a_host_that_lies_cannot_be_read(case: str) -> None:
    with host(case) as machine, pytest.raises(OSError, match="db is lost"):
        machine.boot_s()


@pytest.mark.parametrize("case", cases("watch"))
def test_readings_of_a_host_that_lies_are_lost(case: str) -> None:
    with host(case) as machine:
        watch = machine.watch({"engine": None, "os": True})
        assert watch.tables() == {}
        assert "what is no answer" in str(watch.trouble())
        assert "to be trusted" in str(machine._agent._error().cure)


_UNPACKING = """
import sys
from tests.commands.test_ssh_hostile import host
with host("watch: a bomb") as made:
    watch = made.watch({"engine": None, "os": True})
    assert watch.tables() == {}, "believed"
    assert "MiB when unpacked" in watch.trouble(), watch.trouble()
status = open("/proc/self/status").read().split()
print(status[status.index("VmHWM:") + 1])
"""


def test_a_bomb_is_not_unpacked() -> None:
    """The answer has 3 MB and would unpack to 3 GB."""
    assert len(hostile_host.bomb(3000)) < 4 << 20
    assert zlib.decompress(hostile_host.bomb(30))[-(30 << 20) :] == bytes(30 << 20)
    done = subprocess.run(
        [sys.executable, "-c", _UNPACKING], capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 1 << 20, "more than 1 GiB"


@pytest.mark.parametrize(
    "case", ["hello: an error that steers", "hello: noise without end", "hello: nested", "clock: absurd"]
)
def test_a_command_names_the_lost_host_without_a_traceback(case: str) -> None:
    code, written = on_terminal("doctor", "--dsn", "host=/nowhere", *reached_by(lying_ssh(case)))
    assert code == 3, written
    assert "host db is lost" in written.replace("\r\n", " ")
    assert "Traceback" not in written and not obeyed(written)


def reached_by(command: str) -> list[str]:
    return ["--server-ssh", "db", "--ssh-command", command]


# Hosts that are silent before the agent begins.


def stand_in(tmp_path: Path, script: str) -> str:
    """Writes a program to use in place of ssh; it stores its process number in a file."""
    program = tmp_path / "ssh"
    program.write_text(
        f"#!/bin/sh\necho $$ >{tmp_path}/pid.new\nmv {tmp_path}/pid.new {tmp_path}/pid\n{script}\n"
    )
    program.chmod(0o755)
    return str(program)


def leftover_processes(tmp_path: Path) -> set[int]:
    """Returns processes of the stand-in that still run. Sleeps that it started have its directory in their
    arguments."""
    pids = processes.tree(int((tmp_path / "pid").read_text()))
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                words = (entry / "environ").read_bytes()
            except OSError:
                continue
            if f"STAND_IN={tmp_path}\0".encode() in words:
                pids.add(int(entry.name))
    return {pid for pid in pids if processes.identity(pid) is not None}


SILENT = {
    "silent": "sleep 600",
    "child of its own": 'sh -c "sleep 600; true" & wait',
    "trickling": "while :; do printf x; sleep 0.2; done",
    "silent after its first line": "echo; echo dbdyno host Linux x86_64; sleep 600",
    "takes nothing": "echo; echo dbdyno host Linux x86_64; head -n 1 >/dev/null; echo dbdyno send; sleep 600",
    "output closed": "exec >&-; sleep 600",
}


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"LOGIN_S": 1.5, "_TRANSFER_S": 3.0, "_START_S": 1.5, "_END_S": 1.0}.items():
        monkeypatch.setattr(ssh, name, seconds)
    monkeypatch.setattr(channels, "STALL_S", 1.5)
    monkeypatch.setattr(ssh, "STALL_S", 1.5)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("script", SILENT.values(), ids=SILENT)
def test_a_host_that_is_silent_has_a_time_limit(
    tmp_path: Path, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN", str(tmp_path))
    with pytest.raises(Unreachable) as late:
        ssh.machine("db", stand_in(tmp_path, script))
    assert "ssh db: " in late.value.message and "ssh db /bin/sh -c true" in str(late.value.cure)
    eventually(lambda: not leftover_processes(tmp_path), 30)


def test_ssh_has_no_password_of_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that ssh itself needs stay."""
    for name, value in {
        "PGPASSWORD": "hush-1",
        "URL": "postgresql://u:hush-2@h/d",
        "SSH_AUTH_SOCK": "/agent",
    }.items():
        monkeypatch.setenv(name, value)
    seen = tmp_path / "environment"
    with pytest.raises(Unreachable):
        ssh.machine("db", stand_in(tmp_path, f"env >{seen}"))
    assert "hush" not in seen.read_text() and "SSH_AUTH_SOCK=/agent\n" in seen.read_text()


@pytest.mark.usefixtures("soon")
@pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh here: apt-get install openssh-client")
def test_ssh_that_waits_for_a_server_s_first_word_has_a_time_limit() -> None:
    """It is connected, and could not yet ask for anything."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        with pytest.raises(Unreachable, match="no shell answered"):
            ssh.machine("127.0.0.1", f"ssh -F none -p {port}")
        identities = (processes.identity(p) for p in processes.tree(os.getpid()) - {os.getpid()})
        names = [Path(f"/proc/{p.pid}/comm").read_text() for p in identities if p is not None]
    assert "ssh\n" not in names


@pytest.mark.usefixtures("soon")
def test_output_without_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    """This holds for the shell and for ssh's errors, whose end is quoted."""
    with pytest.raises(TargetError, match="prints more"):
        ssh.machine("db", stand_in(tmp_path, "exec yes hello"))
    with pytest.raises(Unreachable) as late:
        ssh.machine("db", stand_in(tmp_path, "exec yes hello >&2"))
    assert "hello" in late.value.message and len(late.value.message) < 1000


def test_errors_are_kept_up_to_a_length(tmp_path: Path) -> None:
    way = ssh._SshChannel([stand_in(tmp_path, "yes hello | head -c 3000000 >&2; echo over; sleep 600")], "db")
    try:
        patience = ssh._Patience(way, 60.0, "")
        assert [way._byte(patience) for _ in range(5)] == [b"o", b"v", b"e", b"r", b"\n"]
        eventually(lambda: way._error_output)
        assert len(way._error_output) <= 1 << 16
    finally:
        way.kill()


@pytest.mark.usefixtures("soon")
def test_ctrl_c_ends_the_wait_while_a_host_is_reached_again(tmp_path: Path) -> None:
    """In a run the first Ctrl-C is only counted, and every wait looks at the count."""
    command = stand_in(tmp_path, "sleep 600")
    with pytest.raises(Abandoned):
        try:
            _after(0.2, request)
            ssh._open([command], "db", again=True)
        finally:
            reset()
    assert not leftover_processes(tmp_path)


def _after(seconds: float, act: Callable[[], Any]) -> None:
    threading.Timer(seconds, act).start()


@pytest.mark.parametrize("script", [SILENT["silent"], SILENT["child of its own"], SILENT["takes nothing"]])
def test_the_first_ctrl_c_ends_the_wait_for_ssh_and_leaves_no_process(tmp_path: Path, script: str) -> None:
    words = [sys.executable, "-m", "dbdyno", "doctor", "--dsn", "host=/nowhere"]
    env = {**os.environ, "STAND_IN": str(tmp_path)}
    with subprocess.Popen(
        [*words, *reached_by(stand_in(tmp_path, script))],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as program:
        eventually((tmp_path / "pid").exists)
        time.sleep(0.5)
        os.killpg(program.pid, signal.SIGINT)  # as a terminal does
        _, err = program.communicate(timeout=ssh.LOGIN_S / 2)
    assert program.returncode == 130, err
    assert b"Traceback" not in err
    assert not leftover_processes(tmp_path)


ASKING = """
exec 3<>/dev/tty
printf 'password: ' >&3
read -r word <&3
exec 3>&-
[ "$word" = secret ] || exit 1
exec /bin/sh
"""


@pytest.mark.usefixtures("soon")
def test_time_for_a_password_does_not_count(tmp_path: Path) -> None:
    """Somebody types after twice the limit, on the terminal that ssh opens for it."""
    import pty

    command = stand_in(tmp_path, ASKING)
    child, terminal = pty.fork()
    if child == 0:
        code = 1
        try:
            machine = ssh.machine("db", command)
            code = 0 if machine.uid == os.geteuid() else 2
            machine.close()
        finally:
            os._exit(code)
    try:
        eventually(lambda: b"password" in os.read(terminal, 1000))
        time.sleep(2 * ssh.LOGIN_S + 1)
        os.write(terminal, b"secret\n")
        _, status = os.waitpid(child, 0)
    finally:
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0


# Channels that take nothing.


def test_a_channel_that_takes_nothing_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that sends returns, so that the heartbeat goes on."""
    monkeypatch.setattr(channels, "STALL_S", 0.5)
    channel = channels.ProcessChannel(["sleep", "600"])
    try:
        with pytest.raises(TimeoutError, match="has taken nothing"):
            channel.send(bytes(1 << 20))
    finally:
        channel.kill()


def test_a_channel_is_closed_while_it_sends() -> None:
    channel = channels.ProcessChannel(["sleep", "600"])
    _after(0.3, channel.kill)
    with pytest.raises(OSError):
        channel.send(bytes(1 << 20))
    eventually(lambda: channel.status is not None)
