"""Limits of a run that was killed with -9: its journal or ``dbdyno clean`` puts them back, and nothing
else."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from dbdyno import _core, limits
from dbdyno.kernel import processes
from dbdyno.model.engine.protocols import Undo
from dbdyno.model.plan.plan import LimitSpec
from dbdyno.model.text.cpu_lists import of_kernel
from dbdyno.store.journal import left_over
from tests.db.limiting import (
    apply_limits,
    are_unmoved,
    clean,
    kill,
    needs_cpu,
    needs_cpuset,
    needs_root,
    needs_two,
    own_groups,
    placements,
    sessions,
)

pytestmark = pytest.mark.usefixtures("own_state")


@needs_root
@needs_cpu
@needs_cpuset
def test_after_kill_9_the_journal_puts_everything_back(dsn18: str, main_pid: int) -> None:
    with sessions(dsn18, 1), apply_limits(main_pid, LimitSpec(quota=0.5, cpus="0", weight=20)) as process:
        before_ours = own_groups(process.pid)
        assert before_ours
        assert [j.owner_pid for j in left_over().alive] == [process.pid]
        kill(process)
        assert own_groups(process.pid) == before_ours
        (journal,) = left_over().dead
        assert {u.kind for u in journal.undos} == {"group", "affinity"}
        undos = list(reversed(journal.undos))
        first = [limits.undo(u) for u in undos]
        again = [limits.undo(u) for u in undos]
        assert own_groups(process.pid) == []
        everything = of_kernel(Path("/sys/devices/system/cpu/online").read_text())
        masks = {processes.cpus_allowed(p) & everything for p in processes.tree(main_pid)}
        assert masks - {frozenset()} == {everything}  # of those that have not ended meanwhile
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
    with apply_limits(main_pid, LimitSpec(quota=0.5)) as process:
        alive = clean(dsn18)
        assert f"run killed is under way (process {process.pid}): left alone" in alive
        assert own_groups(process.pid)
        kill(process)
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "2")
    unreachable = clean("host=/nonexistent", code=3)
    assert "run killed: removed control group" in unreachable
    assert own_groups(process.pid) == []
    clean(dsn18)
    assert clean(dsn18) == "nothing to remove\n"


@needs_root
@needs_cpu
def test_a_server_that_has_ended_leaves_only_its_group(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as server:
        with apply_limits(server.pid, LimitSpec(quota=0.5, cpus="0")) as process:
            kill(process)
        server.kill()
        server.wait(60)
        (journal,) = left_over().dead
        done = [str(limits.undo(u)) for u in reversed(journal.undos)]
    assert own_groups(process.pid) == []
    assert any("the server has ended" in line for line in done)
    assert not any("1 processes" in line for line in done)
    assert tmp_path.exists()


@needs_root
def test_no_group_of_others_is_touched() -> None:
    parent = Path(next(d for _, d in _core.find_cgroups(None, controllers=["cpu"])))
    theirs = parent / f"database-{os.getpid()}-of-others"
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
            "mask": "0",
            "ours": "0",
            "tasks": {},
            "boot": processes.boot_id(),
        }
        assert "has ended" in str(limits.undo(Undo(kind="affinity", key="x", what="x", data=data)))
        assert processes.cpus_allowed(stranger.pid) == mask
        stranger.kill()


@needs_root
@needs_cpuset
@needs_two
def test_affinity_stands_in_where_no_cpuset_can_be_made_and_is_named(
    dsn18: str, main_pid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's own user runs it, who may set affinity and make no group; kill -9 ends it."""
    user = Path(f"/proc/{main_pid}").stat().st_uid
    with sessions(dsn18, 2) as (plain, special), tempfile.TemporaryDirectory(dir="/tmp") as place:
        os.chown(place, user, -1)
        monkeypatch.setenv("DBDYNO_STATE_DIR", place)
        os.sched_setaffinity(special.info.backend_pid, {1})
        before = placements(sorted(processes.tree(main_pid)))
        means: list[str] = []
        with apply_limits(main_pid, LimitSpec(cpus="0"), user, means) as process:
            assert (
                "CPUs 0 by affinity alone, which a process may change: no control group can be made"
                in means[0]
            )
            with sessions(dsn18, 1) as (late,):
                pids = (main_pid, plain.info.backend_pid, special.info.backend_pid, late.info.backend_pid)
                assert [processes.cpus_allowed(pid) for pid in pids] == [{0}] * 4
                kill(process)
                assert left_over().dead == [] and "another user" in str(left_over().damaged[0])
                for part in (Path(place), undo_dir := Path(place, "undo"), *undo_dir.iterdir()):
                    os.chown(part, 0, 0)  # for root follows its own journals alone
                (journal,) = left_over().dead
                (undo,) = journal.undos
                assert undo.kind == "affinity"
                assert "put back affinity" in str(limits.undo(undo))
                whole = processes.cpus_allowed(main_pid)
                assert [processes.cpus_allowed(pid) for pid in pids] == [whole, whole, {1}, whole]
            assert "was back already" in str(limits.undo(undo))
        assert are_unmoved(before)
