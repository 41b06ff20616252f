"""Devices of a process in a mount namespace of its own: a file system on a loop device, which nobody else
uses, so that all that is counted is known."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

from dbdyno import _core, remote
from dbdyno.account.devices import device_io, device_time
from dbdyno.observe.watch import frames
from tests.agents import INSTANTS, OtherClock, agent
from tests.elsewhere import needs_root
from tests.fakery import made_cell
from tests.waiting import eventually

pytestmark = [pytest.mark.root, needs_root]
S = 1_000_000_000
CLOCKED = INSTANTS | {name: {"before_ns", "after_ns"} for name in ("devices", "places")}
BLOCK_BYTES, WRITES, READS = 64 << 10, 48, 32
INSIDE = f"""
mount -o noatime "$1" "$2"
mkdir "$2/data" "$2/elsewhere"
cd "$2/data"
ln -s /mnt/elsewhere wal     # led astray outside: there is no such directory, or another one
dd if=/dev/zero of=file bs={BLOCK_BYTES} count=64 oflag=direct conv=fsync
sync --file-system .
echo ready
read order
dd if=/dev/zero of=file bs={BLOCK_BYTES} count={WRITES} oflag=direct conv=notrunc
dd if=file of=/dev/null bs={BLOCK_BYTES} count={READS} iflag=direct
sync file
echo done
read order
"""


class Inside(NamedTuple):
    """A process whose working directory is on the loop device, at /mnt of its own mount namespace."""

    process: subprocess.Popen[str]
    device: str
    backing: Path

    def goes_on(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("go on\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[Inside]:
    for program in ("mkfs.ext4", "losetup", "unshare", "dd"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program}: apt-get install e2fsprogs util-linux coreutils")
    backing = tmp_path / "image"
    with backing.open("wb") as file:
        file.truncate(32 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal", str(backing)], check=True)
    attached = subprocess.run(["losetup", "--find", "--show", str(backing)], capture_output=True, text=True)
    if attached.returncode:
        pytest.skip(f"no loop device: {attached.stderr.strip()}")
    device = attached.stdout.strip()
    words = ["unshare", "--mount", "sh", "-ec", INSIDE, "sh", device, "/mnt"]
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    try:
        if process.stdout.readline() != "ready\n":
            pytest.skip(f"no file system of our own: {process.stderr.read().strip()}")
        yield Inside(process, Path(device).name, backing)
    finally:
        process.kill()
        process.communicate()
        if Path(f"/sys/block/{Path(device).name}/loop/backing_file").exists():
            subprocess.run(["losetup", "--detach", device], check=True)


def places(*paths: tuple[str, str]) -> list[dict[str, object]]:
    return [{"place": name, "paths": [path]} for name, path in paths]


def test_all_that_is_written_and_read_is_counted(inside: Inside) -> None:
    asked = places(
        ("data", "."), ("WAL", "wal"), ("temporary files", "/dev/shm"), ("tablespace t", "../no/such/place")
    )
    spec = {
        "engine": None,
        "os": True,
        "main_pid": inside.process.pid,
        "places": asked,
        "task_interval_ms": 100,
    }
    watch = _core.Watch(json.dumps(spec))
    t0_ns = _core.now_ns() + S // 10
    t1_ns = t0_ns + S
    watch.start(t0_ns, t1_ns)
    while _core.now_ns() < t0_ns + S // 20:
        time.sleep(0.01)
    inside.goes_on()
    over_ns = max(_core.now_ns(), t1_ns)
    while _core.now_ns() < over_ns + S // 5:
        time.sleep(0.01)
    watch.stop()
    tables = frames(watch)

    found = {row["place"]: row for row in tables["places"].to_dicts()}
    assert {name: (row["filesystem"], row["device"], row["status"]) for name, row in found.items()} == {
        "data": ("ext4", inside.device, "ok"),
        "WAL": ("ext4", inside.device, "ok"),
        "temporary files": ("tmpfs", None, "no device: tmpfs"),
        "tablespace t": (None, None, "not permitted"),
    }
    assert found["data"]["path"] == "/mnt/data" and found["WAL"]["path"] == "/mnt/data/wal"
    in_memory = os.major(inside.backing.stat().st_dev) == 0  # the image lies on no device
    assert in_memory or found["data"]["layers"].startswith(f"{inside.device} on ")

    raw = {name: tables[name].to_dicts() for name in ("devices", "places")}
    cell = made_cell(raw, t0=t0_ns, t1=over_ns + S // 10)
    row = device_io([cell]).filter(pl.col("device") == inside.device).row(0, named=True)
    assert (row["reads"], row["read_bytes"]) == (READS, READS * BLOCK_BYTES)
    # fsync writes the inode and what the file system keeps of itself: some blocks of 4 kB
    assert WRITES <= row["writes"] <= WRITES + 8
    assert 0 <= row["written_bytes"] - WRITES * BLOCK_BYTES <= 8 * 4096
    assert row["flushes"] >= 1 and row["places"] == "data, WAL" and row["counted"]
    assert 0 <= row["utilisation"] <= 1.05, "the kernel counts ms, and an image in memory takes less"
    below = device_io([cell]).filter(pl.col("below") == inside.device).to_dicts()
    assert bool(below) != in_memory and not any(disk["counted"] for disk in below)
    steps = device_time([cell]).filter(pl.col("device") == inside.device)
    assert steps["written_bytes"].sum() == row["written_bytes"] and steps.height >= 5


def test_iostat_says_the_same(inside: Inside) -> None:
    """Both are asked around the same requests, which are all that the device gets."""
    iostat = shutil.which("iostat")
    if iostat is None:
        pytest.skip("no iostat: apt-get install sysstat")
    spec = {"engine": None, "os": True, "main_pid": inside.process.pid, "places": places(("data", "."))}
    watch = _core.Watch(json.dumps(spec | {"task_interval_ms": 100}))
    words = [iostat, "-dxk", "-y", "-o", "JSON", inside.device, "3", "1"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={"LC_ALL": "C"}) as other:
        t0_ns = _core.now_ns()
        watch.start(t0_ns, t0_ns + 4 * S)
        while _core.now_ns() < t0_ns + S:  # iostat has read its first counters
            time.sleep(0.01)
        inside.goes_on()
        text, _ = other.communicate(timeout=60)
    watch.stop()
    (theirs,) = json.loads(text)["sysstat"]["hosts"][0]["statistics"][0]["disk"]
    raw = {name: frames(watch)[name].to_dicts() for name in ("devices", "places")}
    cell = made_cell(raw, t0=t0_ns, t1=t0_ns + 4 * S)
    ours = device_io([cell]).filter(pl.col("device") == inside.device).row(0, named=True)
    for name, column in (("r_await", "read_await_ns"), ("w_await", "write_await_ns")):
        assert theirs[name] == pytest.approx(ours[column] / 1e6, abs=0.006)  # two digits behind the point
    for name, count in (("r/s", "reads"), ("w/s", "writes")):
        assert 3 * theirs[name] == pytest.approx(ours[count], rel=0.02)
    assert theirs["rareq-sz"] == pytest.approx(ours["read_bytes"] / ours["reads"] / 1024, abs=0.006)
    assert 3 * theirs["aqu-sz"] == pytest.approx(ours["weighted_ns"] / S, abs=0.04)


REMOVE, ADD = 0x4C81, 0x4C80
"""Requests LOOP_CTL_REMOVE and LOOP_CTL_ADD of loop(4)."""


def test_a_device_that_is_taken_away_in_a_window(inside: Inside) -> None:
    """Its line of /proc/diskstats goes; what was read before is kept, and its growth is unknown."""
    spec = {"engine": None, "os": True, "main_pid": inside.process.pid, "places": places(("data", "."))}
    watch = _core.Watch(json.dumps(spec | {"task_interval_ms": 100}))
    t0_ns = _core.now_ns() + S // 10
    watch.start(t0_ns, t0_ns + 2 * S)
    while _core.now_ns() < t0_ns + S // 2:
        time.sleep(0.01)
    inside.process.kill()  # its mount goes with its namespace
    inside.process.wait()
    number = int(inside.device.removeprefix("loop"))
    eventually(lambda: not subprocess.run(["losetup", "--detach", f"/dev/{inside.device}"]).returncode)
    with Path("/dev/loop-control").open("rb") as control:
        eventually(lambda: _taken_away(control.fileno(), number))
        try:
            while _core.now_ns() < t0_ns + 22 * S // 10:
                time.sleep(0.01)
            watch.stop()
        finally:
            fcntl.ioctl(control, ADD, number)
    tables = frames(watch)
    reads = tables["devices"].filter(pl.col("device") == inside.device)
    assert reads["status"].to_list()[0] == "ok" and reads["status"].to_list()[-1] == "vanished"
    assert reads.filter(pl.col("status") == "vanished")["writes"].null_count() > 0
    raw = {name: tables[name].to_dicts() for name in ("devices", "places")}
    rows = device_io([made_cell(raw, t0=t0_ns, t1=t0_ns + 2 * S)])
    row = rows.filter(pl.col("device") == inside.device).row(0, named=True)
    assert (row["status"], row["reads"], row["places"]) == ("vanished", None, "data")
    others = rows.filter(pl.col("device") != inside.device)
    assert others.height == 0 or set(others["status"]) == {"ok"}, "the disk below goes on"


def _taken_away(control: int, number: int) -> bool:
    try:
        fcntl.ioctl(control, REMOVE, number)
    except OSError:  # still in use
        return False
    return True


def test_a_process_that_ended_before_it_was_asked_about() -> None:
    spec = {"engine": None, "os": True, "main_pid": 2**22 - 1, "places": places(("data", "."))}
    watch = _core.Watch(json.dumps(spec))
    watch.start(_core.now_ns(), _core.now_ns() + S // 10)
    watch.stop()
    tables = frames(watch)
    assert tables["places"]["status"].to_list() != ["ok"] and tables["devices"].is_empty()


def test_a_server_on_another_host_has_places_without_devices() -> None:
    spec = {"engine": None, "os": False, "unseen": "not here", "places": places(("data", "/var/lib/data"))}
    watch = _core.Watch(json.dumps(spec))
    watch.start(_core.now_ns(), _core.now_ns() + S // 10)
    watch.stop()
    tables = frames(watch)
    assert tables["places"].select("place", "path", "device", "status").rows() == [
        ("data", "/var/lib/data", None, "not here")
    ]
    assert tables["devices"].is_empty()


def test_the_agent_on_another_host_reads_them_with_times_on_our_clock(inside: Inside) -> None:
    spec = {"engine": None, "os": True, "main_pid": inside.process.pid, "places": places(("data", "."))}
    with agent(lambda channel: OtherClock(channel, 3600 * S, 0.0, CLOCKED)) as (peer, _):
        watch = remote.RemoteWatch(peer, remote.HostClock(peer.clock), spec | {"task_interval_ms": 100})
        t0_ns = _core.now_ns() + S // 5
        watch.start(t0_ns, t0_ns + S)
        inside.goes_on()
        while _core.now_ns() < t0_ns + 13 * S // 10:
            time.sleep(0.01)
        watch.stop()
        tables = frames(watch)
    assert tables["places"].select("device", "status").rows() == [(inside.device, "ok")]
    reads = tables["devices"].filter(pl.col("device") == inside.device)
    assert reads.height >= 10 and set(reads["status"]) == {"ok"}
    assert reads["before_ns"].is_between(t0_ns - 10 * S, t0_ns + 10 * S).all()
    assert reads["writes"][-1] - reads["writes"][0] >= WRITES
    assert reads["read_ns"].max() < 60 * S, "a duration is not shifted by the clocks"
