"""Limits on a real server's processes, in this machine's own control groups: set, observed, put back.

The groups are of cgroup v1 or v2, whichever the kernel has for cpu and cpuset; see also
test_limits_v2.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from dbdyno import limits, observe
from dbdyno.kernel import processes
from dbdyno.kernel.control_groups import members
from dbdyno.model.errors import NotPrivileged, ServerBusy, TargetError
from dbdyno.model.plan.plan import LimitSpec
from dbdyno.model.text.cpu_lists import of_kernel
from dbdyno.store.journal import FileJournal, left_over
from tests.db.limiting import (
    SPIN,
    are_unmoved,
    boxes,
    eventually,
    machine,
    needs_cpu,
    needs_cpuset,
    needs_root,
    needs_two,
    own_groups,
    placements,
    sessions,
    stat_of,
)

pytestmark = pytest.mark.usefixtures("own_state")


@needs_root
@needs_cpu
def test_a_quota_throttles_and_everything_goes_back(dsn18: str, main_pid: int) -> None:
    with sessions(dsn18, 1) as (early,):
        before = placements(sorted(processes.tree(main_pid)))
        spec = LimitSpec(quota=0.2, period="20ms", weight=50)
        journal = FileJournal("throttled")
        means = limits.check(spec, machine(), main_pid, True, 1, journal)
        assert [m.limit for m in means] == ["quota", "weight"]
        assert "quota of 0.2 CPUs by cpu." in means[0].words
        assert own_groups() == []
        with limits.apply(spec, main_pid, journal) as applied:
            (group,) = applied.groups
            known = observe.server_limits(main_pid, Path("/"))
            assert known["quota_cpus"] == 0.2 and known["quota_where"] == str(group)
            with sessions(dsn18, 1) as (late,):
                assert {early.info.backend_pid, late.info.backend_pid, main_pid} <= set(members(group))
                late.execute(SPIN)
            assert stat_of(group, "nr_throttled") > 0
            assert applied.broken() is None
            assert journal.path.exists()
        assert are_unmoved(before)
    assert own_groups() == []
    assert not journal.path.exists()


@needs_root
@needs_cpuset
@needs_two
def test_a_cpuset_confines_every_process_and_the_masks_come_back(dsn18: str, main_pid: int) -> None:
    with sessions(dsn18, 2) as (plain, special):
        os.sched_setaffinity(special.info.backend_pid, {1})  # set by another process
        before = placements(sorted(processes.tree(main_pid)))
        with limits.apply(LimitSpec(cpus="0", mems="0"), main_pid, FileJournal("confined")) as applied:
            with sessions(dsn18, 1) as (late,):
                tree = processes.tree(main_pid)
                assert {plain.info.backend_pid, special.info.backend_pid, late.info.backend_pid} <= tree
                gone: frozenset[int] = frozenset()
                assert {processes.cpus_allowed(pid) for pid in tree} - {gone} == {frozenset({0})}
            assert observe.server_limits(main_pid, Path("/"))["allowed_cpus"] == 1
            assert "cpuset.cpus = 0" in {m.limit: m for m in applied.means}["cpus"].words
        assert are_unmoved(before)
        assert processes.cpus_allowed(special.info.backend_pid) == {1}
    assert own_groups() == []


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
    assert own_groups() == []
    assert list(left_over()) == [[], [], []]


@needs_root
@needs_cpuset
def test_what_the_kernel_refuses_changes_nothing(main_pid: int) -> None:
    before = placements(sorted(processes.tree(main_pid)))
    absent = max(of_kernel(Path("/sys/devices/system/cpu/possible").read_text())) + 1
    with pytest.raises(NotPrivileged, match=r"cannot write '\d+' to"):
        limits.apply(LimitSpec(cpus=str(absent)), main_pid, FileJournal("refused"))
    assert are_unmoved(before)
    assert own_groups() == []
    assert left_over().alive == []


@needs_root
@needs_cpu
@needs_cpuset
@needs_two
def test_a_change_by_another_process_is_noticed(main_pid: int) -> None:
    with limits.apply(LimitSpec(quota=0.5, cpus="0"), main_pid, FileJournal("changed")) as applied:
        assert applied.broken() is None
        group = next(g for g in applied.groups if (g / "cpu.stat").exists())
        file = next(f for f in (group / "cpu.max", group / "cpu.cfs_quota_us") if f.exists())
        file.write_text("max" if file.name == "cpu.max" else "-1")
        assert f"{file} is " in str(applied.broken())


@needs_root
@needs_cpu
def test_each_process_goes_back_to_the_group_it_came_from() -> None:
    argv = ["sh", "-c", "sleep 60 & sleep 60 & wait"]
    with boxes("main", "child") as (first, second), subprocess.Popen(argv, process_group=0) as main:
        eventually(lambda: len(processes.tree(main.pid)) == 3)
        child, other = sorted(processes.tree(main.pid) - {main.pid})
        for pid, box in ((main.pid, first), (other, first), (child, second)):
            (box / "cgroup.procs").write_text(str(pid))
        before = placements([main.pid, child, other])
        with limits.apply(LimitSpec(quota=0.5), main.pid, FileJournal("apart")) as applied:
            assert set(members(applied.groups[0])) == {main.pid, child, other}
            assert applied.groups[0].parent in (first, first.parent)
        assert placements([main.pid, child, other]) == before
        os.killpg(main.pid, signal.SIGKILL)


@needs_root
@needs_cpu
@needs_cpuset
def test_a_server_that_forks_all_the_time_cannot_escape() -> None:
    argv = ["sh", "-c", "while :; do (sleep 0.01 &); sleep 0.002; done"]
    with subprocess.Popen(argv, process_group=0) as main:
        before = placements([main.pid])
        for _ in range(5):
            with limits.apply(LimitSpec(quota=0.5, cpus="0"), main.pid, FileJournal("forking")) as applied:
                assert all(main.pid in members(group) for group in applied.groups)
                assert applied.broken() is None
            assert placements([main.pid]) == before
            assert own_groups() == []
        os.killpg(main.pid, signal.SIGKILL)


@needs_two
def test_sessions_are_bound_in_turn(dsn18: str, main_pid: int) -> None:
    spec = LimitSpec(bind="spread")
    (means,) = limits.check(spec, machine(), main_pid, True, 3)
    assert means.limit == "bind"
    order = limits.bind_order(spec, machine(), main_pid)
    with sessions(dsn18, 3) as opened:
        pids = [c.info.backend_pid for c in opened]
        bound = limits.pin([(7 + k, pid, pid) for k, pid in enumerate(pids)], order, main_pid)
        assert bound == {7: order[0], 8: order[1], 9: order[2 % len(order)]}
        assert [processes.cpus_allowed(pid) for pid in pids] == [{bound[7]}, {bound[8]}, {bound[9]}]
    eventually(lambda: limits.pin([(1, pids[0], pids[0])], order, main_pid) == {})  # it has ended
    with pytest.raises(TargetError, match="is not one of the server's"):
        limits.pin([(1, os.getpid(), os.getpid())], order, main_pid)
