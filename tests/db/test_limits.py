"""Limits on a real server's processes, in this machine's own control groups: set, seen, put back, kill -9.

The groups here are cgroup v1 or v2, whatever the kernel has for cpu and cpuset. Of v2 the moving of
processes and the handing down of controllers are tried for real with whatever controller it has.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psycopg
import pytest

from dbdyno import _core, limits
from dbdyno.limits import processes
from dbdyno.limits.places import members
from dbdyno.model.errors import NotPrivileged, ServerBusy, TargetError, UsageError
from dbdyno.model.lists import of_kernel
from dbdyno.model.topology import Topology
from dbdyno.model.undo import Undo
from dbdyno.model.variant import LimitSpec
from dbdyno.observe import topology
from dbdyno.store.journal import FileJournal, left_over

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: control groups are made")
NOBODY = 65534
SPIN = """do $$ declare t timestamptz := clock_timestamp();
begin while clock_timestamp() < t + '1s' loop end loop; end $$"""


def _has(controller: str) -> bool:
    groups = _core.find_cgroups(None, controllers=[controller])
    return bool(groups) and (
        groups[0][0] == 1 or controller in (Path(groups[0][1]) / "cgroup.controllers").read_text().split()
    )


needs_cpu = pytest.mark.skipif(not _has("cpu"), reason="no cpu controller here")
needs_cpuset = pytest.mark.skipif(not _has("cpuset"), reason="no cpuset controller here")
needs_two = pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two CPUs")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBDYNO_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def main_pid(dsn18: str) -> int:
    with psycopg.connect(dsn18) as c:
        return int(processes._stat(Path(f"/proc/{c.info.backend_pid}/stat"))[1])  # type: ignore[index]


def machine() -> Topology:
    return topology(Path("/"))


def where(pids: Sequence[int]) -> dict[int, tuple[str, str]]:
    """Of each process its groups, and its mask."""
    return {p: (Path(f"/proc/{p}/cgroup").read_text(), str(sorted(processes.cpus_allowed(p)))) for p in pids}


def ours(owner: int | None = None) -> list[Path]:
    """Groups that a process (this one) has made, anywhere; other runs on this machine have theirs."""
    return [p for p in Path("/sys/fs/cgroup").rglob(f"dbdyno-{owner or os.getpid()}-*") if p.is_dir()]


@contextlib.contextmanager
def sessions(dsn: str, count: int) -> Iterator[list[psycopg.Connection]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(psycopg.connect(dsn, autocommit=True)) for _ in range(count)]


def stat_of(group: Path, key: str) -> int:
    lines = (group / "cpu.stat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.split()[0] == key)


@needs_root
@needs_cpu
def test_a_quota_throttles_and_everything_goes_back(dsn18: str, main_pid: int) -> None:
    with sessions(dsn18, 1) as (early,):
        before = where(sorted(processes.tree(main_pid)))
        spec = LimitSpec(quota=0.2, period="20ms", weight=50)
        journal = FileJournal("throttled")
        means = limits.check(spec, machine(), main_pid, True, 1, journal)
        assert [m.limit for m in means] == ["quota", "weight"]
        assert "quota of 0.2 CPUs by cpu." in means[0].words
        assert ours() == []
        with limits.apply(spec, main_pid, journal) as applied:
            (group,) = applied.groups
            with sessions(dsn18, 1) as (late,):
                assert {early.info.backend_pid, late.info.backend_pid, main_pid} <= set(members(group))
                late.execute(SPIN)
            assert stat_of(group, "nr_throttled") > 0
            assert applied.broken() is None
            assert journal.path.exists()
        assert where(sorted(before)) == before
    assert ours() == []
    assert not journal.path.exists()


@needs_root
@needs_cpuset
@needs_two
def test_a_cpuset_confines_every_process_and_the_masks_come_back(dsn18: str, main_pid: int) -> None:
    with sessions(dsn18, 2) as (plain, special):
        os.sched_setaffinity(special.info.backend_pid, {1})  # somebody's own
        before = where(sorted(processes.tree(main_pid)))
        with limits.apply(LimitSpec(cpus="0", mems="0"), main_pid, FileJournal("confined")) as applied:
            with sessions(dsn18, 1) as (late,):
                tree = processes.tree(main_pid)
                assert {plain.info.backend_pid, special.info.backend_pid, late.info.backend_pid} <= tree
                assert {processes.cpus_allowed(pid) for pid in tree} == {frozenset({0})}
            assert "cpuset.cpus = 0" in {m.limit: m for m in applied.means}["cpus"].words
        assert where(sorted(before)) == before
        assert processes.cpus_allowed(special.info.backend_pid) == {1}
    assert ours() == []


@needs_root
@needs_cpu
@needs_cpuset
def test_limits_are_not_nested(main_pid: int) -> None:
    with limits.apply(LimitSpec(quota=0.5), main_pid, FileJournal("outer")):
        with pytest.raises(ServerBusy, match=f"process {os.getpid()}") as raised:
            limits.check(LimitSpec(quota=0.5), machine(), main_pid, True, 1)
        assert "dbdyno clean" in str(raised.value)
        with pytest.raises(ServerBusy):
            limits.apply(LimitSpec(weight=50), main_pid, FileJournal("inner"))
        with pytest.raises(ServerBusy):  # a variant without limits, too: it would measure these
            limits.check(LimitSpec(), machine(), main_pid, True, 1)
        with limits.apply(LimitSpec(cpus="0"), main_pid, FileJournal("another hierarchy")):
            pass
    assert ours() == []
    assert list(left_over()) == [[], [], []]


@needs_root
@needs_cpuset
def test_what_the_kernel_refuses_changes_nothing(main_pid: int) -> None:
    before = where(sorted(processes.tree(main_pid)))
    absent = max(of_kernel(Path("/sys/devices/system/cpu/possible").read_text())) + 1
    with pytest.raises(NotPrivileged, match=r"cannot write '\d+' to"):
        limits.apply(LimitSpec(cpus=str(absent)), main_pid, FileJournal("refused"))
    assert where(sorted(before)) == before
    assert ours() == []
    assert left_over().alive == []


@needs_root
@needs_cpu
@needs_cpuset
@needs_two
def test_somebody_elses_change_is_seen(main_pid: int) -> None:
    with limits.apply(LimitSpec(quota=0.5, cpus="0"), main_pid, FileJournal("changed")) as applied:
        assert applied.broken() is None
        group = next(g for g in applied.groups if (g / "cpu.stat").exists())
        file = next(f for f in (group / "cpu.max", group / "cpu.cfs_quota_us") if f.exists())
        file.write_text("max" if file.name == "cpu.max" else "-1")
        assert f"{file} is " in str(applied.broken())


@contextlib.contextmanager
def boxes(*names: str) -> Iterator[list[Path]]:
    """Groups of others with the cpu controller."""
    parent = Path(next(d for _, d in _core.find_cgroups(None, controllers=["cpu"])))
    made = [parent / f"{name}-of-others" for name in names]
    for box in made:
        box.mkdir()
    try:
        yield made
    finally:
        for box in made:
            for pid in members(box):
                (parent / "cgroup.procs").write_text(str(pid))
            box.rmdir()


@needs_root
@needs_cpu
def test_each_process_goes_back_to_the_group_it_came_from() -> None:
    argv = ["sh", "-c", "sleep 60 & sleep 60 & wait"]
    with boxes("main", "child") as (first, second), subprocess.Popen(argv, process_group=0) as main:
        _eventually(lambda: len(processes.tree(main.pid)) == 3)
        child, other = sorted(processes.tree(main.pid) - {main.pid})
        for pid, box in ((main.pid, first), (other, first), (child, second)):
            (box / "cgroup.procs").write_text(str(pid))
        before = where([main.pid, child, other])
        with limits.apply(LimitSpec(quota=0.5), main.pid, FileJournal("apart")) as applied:
            assert set(members(applied.groups[0])) == {main.pid, child, other}
            assert applied.groups[0].parent in (first, first.parent)
        assert where([main.pid, child, other]) == before
        os.killpg(main.pid, signal.SIGKILL)


@needs_root
@needs_cpu
@needs_cpuset
def test_a_server_that_forks_all_the_time_cannot_escape() -> None:
    argv = ["sh", "-c", "while :; do (sleep 0.01 &); sleep 0.002; done"]
    with subprocess.Popen(argv, process_group=0) as main:
        before = where([main.pid])
        for _ in range(5):
            with limits.apply(LimitSpec(quota=0.5, cpus="0"), main.pid, FileJournal("forking")) as applied:
                assert all(main.pid in members(group) for group in applied.groups)
                assert applied.broken() is None
            assert where([main.pid]) == before
            assert ours() == []
        os.killpg(main.pid, signal.SIGKILL)


BECOME = """
import os
if uid := int(sys.argv[1]):
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
"""
APPLY = """
import signal, sys
from dbdyno import limits
from dbdyno.model.variant import LimitSpec
from dbdyno.store.journal import FileJournal
{become}
applied = limits.apply(LimitSpec.model_validate_json(sys.argv[3]), int(sys.argv[2]), FileJournal("killed"))
print("applied", *[m.words for m in applied.means], flush=True)
signal.pause()
"""


@contextlib.contextmanager
def applying(
    main_pid: int, spec: LimitSpec, uid: int = 0, said: list[str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A process (of user ``uid``) that has set limits and waits; ``said``: by which means."""
    script = APPLY.replace("{become}", BECOME)
    argv = [sys.executable, "-c", script, str(uid), str(main_pid), spec.model_dump_json()]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("applied ")
            if said is not None:
                said.append(line)
            yield process
        finally:
            process.kill()


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(10)


@needs_root
@needs_cpu
@needs_cpuset
def test_after_kill_9_the_journal_puts_everything_back(dsn18: str, main_pid: int) -> None:
    with sessions(dsn18, 1), applying(main_pid, LimitSpec(quota=0.5, cpus="0", weight=20)) as process:
        before_ours = ours(process.pid)
        assert before_ours
        assert [j.owner_pid for j in left_over().alive] == [process.pid]
        kill(process)
        assert ours(process.pid) == before_ours
        (journal,) = left_over().dead
        assert {u.kind for u in journal.undos} == {"group", "affinity"}
        undos = list(reversed(journal.undos))
        first = [limits.undo(u) for u in undos]
        again = [limits.undo(u) for u in undos]
        assert ours(process.pid) == []
        everything = of_kernel(Path("/sys/devices/system/cpu/online").read_text())
        assert {processes.cpus_allowed(p) & everything for p in processes.tree(main_pid)} == {everything}
        assert any("processes went back to" in str(line) for line in first)
        assert all("already" in str(line) for line in again)
        for u in undos:
            journal.forget(u.key)
    assert left_over().dead == []


@needs_root
@needs_cpu
def test_clean_puts_back_what_a_killed_run_left(
    dsn18: str, main_pid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with applying(main_pid, LimitSpec(quota=0.5)) as process:
        alive = _clean(dsn18)
        assert f"run killed is under way (process {process.pid}): left alone" in alive
        assert ours(process.pid)
        kill(process)
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "2")
    unreachable = _clean("host=/nonexistent", code=3)
    assert "run killed: removed control group" in unreachable
    assert ours(process.pid) == []
    _clean(dsn18)
    assert _clean(dsn18) == "nothing to remove\n"


def _clean(dsn: str, code: int = 0) -> str:
    program = Path(sys.executable).parent / "dbdyno"
    done = subprocess.run([program, "clean", "--dsn", dsn], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@needs_root
@needs_cpu
def test_a_server_that_has_ended_leaves_only_its_group(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as server:
        with applying(server.pid, LimitSpec(quota=0.5, cpus="0")) as process:
            kill(process)
        server.kill()
        server.wait(10)
        (journal,) = left_over().dead
        done = [str(limits.undo(u)) for u in reversed(journal.undos)]
    assert ours(process.pid) == []
    assert any("the server has ended" in line for line in done)
    assert not any("1 processes" in line for line in done)
    assert tmp_path.exists()


@needs_root
def test_no_group_of_others_is_touched() -> None:
    parent = Path(next(d for _, d in _core.find_cgroups(None, controllers=["cpu"])))
    theirs = parent / "database-of-others"
    theirs.mkdir()
    try:
        data = {"version": 1, "group": str(theirs), "home": str(parent), "enabled": [], "elsewhere": []}
        undo = Undo(kind="group", key="x", what="x", data={**data, "boot": processes.boot_id()})
        limits.undo(undo)
        assert theirs.is_dir()
    finally:
        theirs.rmdir()


def test_a_reused_pid_keeps_its_affinity() -> None:
    with subprocess.Popen(["sleep", "60"]) as stranger:
        mask = processes.cpus_allowed(stranger.pid)
        data = {
            "main": [stranger.pid, 1],  # somebody who began at another time
            "mask": "0", "ours": "0", "tasks": {}, "boot": processes.boot_id(),
        }  # fmt: skip
        assert "has ended" in str(limits.undo(Undo(kind="affinity", key="x", what="x", data=data)))
        assert processes.cpus_allowed(stranger.pid) == mask
        stranger.kill()


@needs_root
@needs_cpuset
@needs_two
def test_where_no_cpuset_can_be_made_affinity_does_and_says_so(
    dsn18: str, main_pid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the server's own user, who may set affinity and make no group; killed with kill -9."""
    user = Path(f"/proc/{main_pid}").stat().st_uid
    with sessions(dsn18, 2) as (plain, special), tempfile.TemporaryDirectory(dir="/tmp") as place:
        os.chown(place, user, -1)
        monkeypatch.setenv("DBDYNO_STATE_DIR", place)
        os.sched_setaffinity(special.info.backend_pid, {1})
        before = where(sorted(processes.tree(main_pid)))
        said: list[str] = []
        with applying(main_pid, LimitSpec(cpus="0"), user, said) as process:
            assert (
                "CPUs 0 by affinity alone, which a process may change: no control group can be made"
                in said[0]
            )
            with sessions(dsn18, 1) as (late,):
                mine = (main_pid, plain.info.backend_pid, special.info.backend_pid, late.info.backend_pid)
                assert [processes.cpus_allowed(pid) for pid in mine] == [{0}] * 4
                kill(process)
                (journal,) = left_over().dead
                (undo,) = journal.undos
                assert undo.kind == "affinity"
                assert "put back affinity" in str(limits.undo(undo))
                whole = processes.cpus_allowed(main_pid)
                assert [processes.cpus_allowed(pid) for pid in mine] == [whole, whole, {1}, whole]
            assert "was back already" in str(limits.undo(undo))
        assert where(sorted(before)) == before


@needs_two
def test_sessions_are_bound_in_turn(dsn18: str, main_pid: int) -> None:
    spec = LimitSpec(bind="spread")
    (means,) = limits.check(spec, machine(), main_pid, True, 3)
    assert means.limit == "bind"
    order = limits.bind_order(spec, machine(), main_pid)
    with sessions(dsn18, 3) as opened:
        pids = [c.info.backend_pid for c in opened]
        bound = limits.pin([(7 + k, pid) for k, pid in enumerate(pids)], order)
        assert bound == {7: order[0], 8: order[1], 9: order[2 % len(order)]}
        assert [processes.cpus_allowed(pid) for pid in pids] == [{bound[7]}, {bound[8]}, {bound[9]}]
    _eventually(lambda: limits.pin([(1, pids[0])], order) == {})  # it has ended


@needs_root
@needs_two
def test_cpus_that_the_server_may_not_use(main_pid: int) -> None:
    with subprocess.Popen(["taskset", "-c", "0", "sleep", "60"]) as server:
        _eventually(lambda: processes.cpus_allowed(server.pid) == {0})
        with pytest.raises(UsageError, match="CPU 1 is not allowed to the server: its affinity is 0"):
            limits.check(LimitSpec(cpus="0,1"), machine(), server.pid, True, 1)
        with pytest.raises(UsageError, match=r"quota = 1\.5 CPUs is more than the server may use: 1"):
            limits.check(LimitSpec(quota=1.5), machine(), server.pid, True, 1)
        server.kill()
    with pytest.raises(TargetError, match="not seen here"):
        limits.check(LimitSpec(quota=1), machine(), None, False, 1)
    assert limits.check(LimitSpec(), machine(), None, False, 1) == ()
    assert limits.check(LimitSpec(quota=1), machine(), main_pid, True, 1)


@needs_root
@needs_cpu
def test_a_quota_above_that_of_the_group_it_is_in() -> None:
    with boxes("box") as (box,), subprocess.Popen(["sleep", "60"]) as server:
        v2 = (box / "cpu.max").exists()
        (box / ("cpu.max" if v2 else "cpu.cfs_quota_us")).write_text("50000 100000" if v2 else "50000")
        (box / "cgroup.procs").write_text(str(server.pid))
        with pytest.raises(UsageError, match=r"more than control group .*box-of-others leaves .* 0\.5"):
            limits.check(LimitSpec(quota=0.6), machine(), server.pid, True, 1)
        limits.check(LimitSpec(quota=0.5), machine(), server.pid, True, 1)
        assert list(box.glob("dbdyno-*")) == []
        server.kill()


REFUSE = """
import json, sys
from dbdyno import limits
from dbdyno.model.errors import DbdynoError
from dbdyno.model.topology import Topology
from dbdyno.model.variant import LimitSpec
{become}
try:
    means = limits.check(
        LimitSpec.model_validate_json(sys.argv[3]), Topology.model_validate_json(sys.argv[4]),
        int(sys.argv[2]), True, 1)
    print(json.dumps(["none", [m.words for m in means]]))
except DbdynoError as e:
    print(json.dumps([type(e).__name__, str(e)]))
"""


def as_nobody(main_pid: int, spec: LimitSpec) -> tuple[str, str]:
    script = REFUSE.replace("{become}", BECOME)
    words = [str(NOBODY), str(main_pid), spec.model_dump_json(), machine().model_dump_json()]
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kind, text = json.loads(done.stdout)
    return kind, str(text)


@needs_root
@needs_cpu
@pytest.mark.parametrize(
    "limit", [{"quota": 0.5}, {"cpus": "0"}, {"mems": "0"}, {"bind": "spread"}, {"weight": 7}]
)
def test_a_plain_user_is_told_the_right_and_the_command(main_pid: int, limit: dict[str, object]) -> None:
    kind, text = as_nobody(main_pid, LimitSpec.model_validate(limit))
    if "mems" in limit:  # one node, and the server has it: nothing to do
        assert (kind, "nothing to do" in text) == ("none", True)
        return
    assert kind in ("NotPrivileged", "Refused")
    assert "sudo dbdyno run ..." in text
    assert ("CAP_SYS_NICE" if limit.keys() & {"cpus", "bind"} else "needs root") in text


def _eventually(what) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + 10
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)
