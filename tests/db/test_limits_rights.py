"""Limits that cannot be set are refused before the start, with the missing right and the command."""

from __future__ import annotations

import os
import subprocess

import pytest

from dbdyno import _core, limits
from dbdyno.kernel import processes
from dbdyno.kernel.control_groups import members
from dbdyno.model.errors import TargetError, UsageError
from dbdyno.model.plan.plan import LimitSpec
from tests.db.limiting import (
    NOBODY,
    Unwritten,
    as_nobody,
    boxes,
    eventually,
    machine,
    needs_cpu,
    needs_root,
    needs_two,
    own_groups,
)

pytestmark = pytest.mark.usefixtures("own_state")


@needs_root
@needs_two
def test_cpus_that_the_server_may_not_use_are_refused(main_pid: int) -> None:
    with subprocess.Popen(["taskset", "-c", "0", "sleep", "60"]) as server:
        eventually(lambda: processes.cpus_allowed(server.pid) == {0})
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
def test_a_quota_above_that_of_the_servers_group_is_refused() -> None:
    with boxes("box") as (box,), subprocess.Popen(["sleep", "60"]) as server:
        v2 = (box / "cpu.max").exists()
        (box / ("cpu.max" if v2 else "cpu.cfs_quota_us")).write_text("50000 100000" if v2 else "50000")
        (box / "cgroup.procs").write_text(str(server.pid))
        with pytest.raises(
            UsageError, match=r"more than control group .*box-[0-9]+-of-others leaves .* 0\.5"
        ):
            limits.check(LimitSpec(quota=0.6), machine(), server.pid, True, 1)
        limits.check(LimitSpec(quota=0.5), machine(), server.pid, True, 1)
        assert list(box.glob("dbdyno-*")) == []
        server.kill()


@needs_root
@needs_cpu
def test_a_user_with_a_v1_group_of_his_own_needs_no_root() -> None:
    """test_limits_v2.py has the same test for v2."""
    if _core.find_cgroups(None, controllers=["cpu"])[0][0] != 1:
        pytest.skip("cpu is on v2 here")
    with boxes("nobody") as (box,), subprocess.Popen(["sleep", "60"], user=NOBODY, group=NOBODY) as server:
        (box / "cgroup.procs").write_text(str(server.pid))
        for path in (box, box / "cgroup.procs"):
            os.chown(path, NOBODY, NOBODY)
        kind, text = as_nobody(server.pid, LimitSpec(quota=0.5))
        assert (kind, "cpu.cfs_quota_us = 50000" in text) == ("none", True)
        os.seteuid(NOBODY)
        try:
            with limits.apply(LimitSpec(quota=0.5), server.pid, Unwritten()) as applied:
                assert members(applied.groups[0]) == [server.pid]
        finally:
            os.seteuid(0)
        assert members(box) == [server.pid]
        assert own_groups() == []
        server.kill()


@needs_root
@needs_cpu
@pytest.mark.parametrize(
    "limit", [{"quota": 0.5}, {"cpus": "0"}, {"mems": "0"}, {"bind": "spread"}, {"weight": 7}]
)
def test_a_plain_user_gets_the_missing_right_and_the_command(main_pid: int, limit: dict[str, object]) -> None:
    kind, text = as_nobody(main_pid, LimitSpec.model_validate(limit))
    if "mems" in limit:  # one node, and the server has it: nothing to do
        assert (kind, "nothing to do" in text) == ("none", True)
        return
    assert kind in ("NotPrivileged", "Refused")
    assert 'sudo "$(command -v dbdyno)" ...' in text
    assert ("CAP_SYS_NICE" if limit.keys() & {"cpus", "bind"} else "needs root") in text
