"""Directories of dead embedded servers are removed; whatever may be alive, or another's, stays untouched."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dbdyno.engines.postgres.embedded import leftovers
from dbdyno.engines.postgres.embedded.account import Account
from dbdyno.engines.postgres.embedded.places import SOCKET_NAME, Places
from dbdyno.engines.postgres.embedded.worker import Worker

SELF = Account("self", os.geteuid(), os.getegid(), switch=False)
LOCK = f"{SOCKET_NAME}.lock"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="changes users: run the tests as root")


@pytest.fixture
def places() -> Iterator[Places]:
    """Short paths, as those of sockets have to be."""
    with tempfile.TemporaryDirectory(prefix="dd", dir="/tmp") as place:
        root = Path(place)
        for name in ("data", "run"):
            (root / name).mkdir(mode=0o700)
        yield Places(root / "data", root / "cache", root / "run")


@pytest.fixture(scope="module")
def dead_pid() -> int:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    return process.pid


def data_of(places: Places, name: str) -> Path:
    data = places.data / name / "data"
    data.mkdir(parents=True)
    return data


def directory(places: Places, data: Path, *, recorded: bool) -> Path:
    made = places.socket_dir(data)
    made.mkdir(mode=0o700)
    if recorded:
        leftovers.record(made, data)
    return made


def leave_socket(where: Path, pid: int) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(where / SOCKET_NAME))
        one.listen()
    (where / LOCK).write_text(f"{pid}\n/x\n")


def sweep(places: Places, *, old: bool = True, account: Account = SELF) -> list[str]:
    """Removes leftovers, and returns the names that are left."""
    if old:
        past = time.time() - 2 * leftovers.LEAST_AGE_S
        for entry in places.runtime.iterdir():
            os.utime(entry, (past, past), follow_symlinks=False)
    leftovers.sweep(places, Worker(account))
    return sorted(p.name for p in places.runtime.iterdir())


def contents(where: Path) -> list[str]:
    return sorted(p.name for p in where.iterdir())


def test_what_a_dead_server_left_is_removed_with_its_record(places: Places, dead_pid: int) -> None:
    full, empty, unrecorded = (data_of(places, n) for n in "abc")
    leave_socket(directory(places, full, recorded=True), dead_pid)
    directory(places, empty, recorded=True)
    leave_socket(directory(places, unrecorded, recorded=False), dead_pid)
    gone = places.data / "d" / "data"
    leave_socket(directory(places, gone, recorded=True), os.getpid())  # its pid is another process's by now
    assert sweep(places) == []
    assert full.exists() and empty.exists() and unrecorded.exists()


def test_a_directory_that_was_just_made_stays(places: Places, dead_pid: int) -> None:
    made = directory(places, data_of(places, "a"), recorded=True)
    leave_socket(made, dead_pid)
    assert sweep(places, old=False) == [made.name, f"{made.name}.json"]
    assert contents(made) == [SOCKET_NAME, LOCK]


@pytest.mark.parametrize("recorded", [True, False])
def test_a_socket_that_somebody_listens_on_stays(places: Places, recorded: bool, dead_pid: int) -> None:
    made = directory(places, places.data / "gone" / "data", recorded=recorded)
    with closing(socket.socket(socket.AF_UNIX)) as alive:
        alive.bind(str(made / SOCKET_NAME))
        alive.listen()
        (made / LOCK).write_text(f"{dead_pid}\n")
        assert made.name in sweep(places)
        assert contents(made) == [SOCKET_NAME, LOCK]


@pytest.mark.parametrize("name", ["start.lock", "owner.lock", "server.lock"])
def test_the_directory_of_a_server_whose_lock_is_held_stays(places: Places, name: str, dead_pid: int) -> None:
    data = data_of(places, "a")
    made = directory(places, data, recorded=True)
    leave_socket(made, dead_pid)
    with (data.parent / name).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert made.name in sweep(places)
    assert sweep(places) == []


def test_without_a_record_the_process_must_be_gone_and_both_files_there(
    places: Places, dead_pid: int
) -> None:
    living, empty, socket_alone, lock_alone, no_pid = (
        directory(places, data_of(places, n), recorded=False) for n in "abcde"
    )
    leave_socket(living, os.getpid())
    leave_socket(socket_alone, dead_pid)
    (socket_alone / LOCK).unlink()
    (lock_alone / LOCK).write_text(f"{dead_pid}\n")
    leave_socket(no_pid, dead_pid)
    (no_pid / LOCK).write_text("who knows\n")
    every = sorted(d.name for d in (living, empty, socket_alone, lock_alone, no_pid))
    assert sweep(places) == every
    assert contents(living) == contents(no_pid) == [SOCKET_NAME, LOCK]


def test_a_record_of_another_directory_counts_as_none(places: Places) -> None:
    made = directory(places, data_of(places, "a"), recorded=False)
    for content in (json.dumps({"data": "/elsewhere", "pid": 1}), "[]", "{", '{"data": 1}', ""):
        (places.runtime / f"{made.name}.json").write_text(content)
        assert made.name in sweep(places)


@pytest.mark.parametrize("kind", ["file", "directory", "link", "socket is a link", "lock is a link"])
def test_a_directory_that_holds_anything_else_stays_whole(places: Places, kind: str, dead_pid: int) -> None:
    made = directory(places, places.data / "gone" / "data", recorded=True)
    outside = places.data / "outside"
    outside.write_text(f"{dead_pid}\n")
    leave_socket(made, dead_pid)
    if kind == "file":
        (made / "notes").write_text("x")
    elif kind == "directory":
        (made / "more").mkdir()
    elif kind == "link":
        (made / "link").symlink_to(outside)
    else:
        name = SOCKET_NAME if kind.startswith("socket") else LOCK
        (made / name).unlink()
        (made / name).symlink_to(outside)
    before = contents(made)
    assert made.name in sweep(places)
    assert contents(made) == before and outside.exists()


def test_links_files_and_other_names_beside_the_directories_stay(places: Places, dead_pid: int) -> None:
    far = places.data / "far"
    far.mkdir()
    leave_socket(far, dead_pid)
    link = places.socket_dir(places.data / "x" / "data")
    link.symlink_to(far)
    leftovers.record(link, places.data / "x" / "data")
    other = places.runtime / "agents"
    other.mkdir()
    leave_socket(other, dead_pid)
    (places.runtime / ("0" * 12)).write_text("a file")
    assert sweep(places) == sorted([link.name, f"{link.name}.json", "agents", "0" * 12])
    assert contents(far) == contents(other) == [SOCKET_NAME, LOCK]


@needs_root
def test_root_removes_what_the_servers_user_left_with_that_users_rights(
    places: Places, dead_pid: int
) -> None:
    user = Account("12345", 12345, 12345, switch=True)
    for passed in (places.runtime, places.runtime.parent):
        passed.chmod(0o711)
    dead, alive = (directory(places, data_of(places, n), recorded=n == "a") for n in "ab")
    leave_socket(dead, dead_pid)
    leave_socket(alive, os.getpid())
    for made in (dead, alive):
        for path in (*made.iterdir(), made):
            os.chown(path, user.uid, user.gid)
    assert sweep(places, account=user) == [alive.name]
    assert contents(alive) == [SOCKET_NAME, LOCK]


@needs_root
def test_a_directory_of_another_user_stays(places: Places, dead_pid: int) -> None:
    made = directory(places, places.data / "gone" / "data", recorded=True)
    leave_socket(made, dead_pid)
    os.chown(made, 12345, 12345)
    assert made.name in sweep(places)
    assert contents(made) == [SOCKET_NAME, LOCK]


def test_a_server_that_ends_takes_its_record_along(places: Places) -> None:
    made = directory(places, data_of(places, "a"), recorded=True)
    leftovers.remove_empty(made)
    assert list(places.runtime.iterdir()) == []
