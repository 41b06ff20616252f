"""Limits without a server: lists, orders of binding, what cannot be, where groups would go and with what."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.observe_trees import BIG, golden

from dbdyno import limits
from dbdyno.kernel.control_groups import members
from dbdyno.limits import groups, means, places
from dbdyno.limits.places import Place, Refused
from dbdyno.model.engine.topology import LogicalCpu, Topology
from dbdyno.model.errors import NotPrivileged, ServerBusy, UsageError
from dbdyno.model.plan.plan import LimitSpec
from dbdyno.model.text import cpu_lists
from dbdyno.observe import topology

PID = 4711
HERE = topology(Path("/"))
STATUS = "Uid:\t{0}\t{0}\nCpus_allowed_list:\t0-3\nMems_allowed_list:\t0\n"


# -- lists ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("listed", "numbers"),
    [("0-5", (0, 1, 2, 3, 4, 5)), ("8,0-2,1", (0, 1, 2, 8)), ("10-15:2", (10, 12, 14)), (" 3 , 4 ", (3, 4))],
)
def test_a_list_of_cpus_is_read(listed: str, numbers: tuple[int, ...]) -> None:
    assert cpu_lists.parse(listed, "cpus") == numbers


@pytest.mark.parametrize(
    "listed", ["", " ", "a", "1-", "-1", "3-1", "1,,2", "0-4:0", "0x3", "1.5", "0-9999999"]
)
def test_a_wrong_list_is_refused_with_the_grammar(listed: str) -> None:
    with pytest.raises(UsageError, match=r"^cpus = .*") as raised:
        cpu_lists.parse(listed, "cpus")
    assert "0-5,8" in str(raised.value)


@given(st.sets(st.integers(0, 300), min_size=1))
def test_a_written_list_is_read_back(numbers: set[int]) -> None:
    assert (
        set(cpu_lists.parse(cpu_lists.text(numbers), "cpus"))
        == numbers
        == cpu_lists.of_kernel(cpu_lists.text(numbers))
    )


# -- binding ----------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def eight_sockets() -> Topology:
    """8 sockets x 10 cores x 2 threads: the machine of the seed about binding and caging."""
    return topology(golden(BIG))


def all_cpus(t: Topology) -> list[int]:
    return [c.cpu for c in t.cpus]


def test_spread_serves_every_socket_before_one_twice(eight_sockets: Topology) -> None:
    """By hand from the seed's rows: CPUs 0 and 81-89 are of socket 0, 90-99 of 1, 1-10 of 4, 11-20 of 5."""
    order = limits.order(eight_sockets, "spread", all_cpus(eight_sockets))
    assert order[:10] == [0, 90, 100, 110, 1, 11, 21, 31, 81, 91]
    assert order[72:84] == [89, 99, 109, 119, 10, 20, 30, 40, 120, 130, 140, 150]
    assert order[84:88] == [41, 51, 61, 71]


def test_pack_fills_a_core_then_its_socket(eight_sockets: Topology) -> None:
    order = limits.order(eight_sockets, "pack", all_cpus(eight_sockets))
    assert order[:6] == [0, 120, 81, 121, 82, 122]
    assert order[18:24] == [89, 129, 90, 130, 91, 131]


def test_orders_within_some_cpus_of_one_socket(eight_sockets: Topology) -> None:
    """cpuset.cpus = 1-6: six cores of socket 4, one thread each."""
    for how in ("spread", "pack"):
        assert limits.order(eight_sockets, how, cpu_lists.parse("1-6", "cpus")) == [1, 2, 3, 4, 5, 6]
    both = cpu_lists.parse("1-3,41-43", "cpus")
    assert limits.order(eight_sockets, "spread", both) == [1, 2, 3, 41, 42, 43]
    assert limits.order(eight_sockets, "pack", both) == [1, 41, 2, 42, 3, 43]


def test_orders_of_four_threads_a_core_leave_out_offline_ones() -> None:
    power = topology(golden("power9-lpar-smt4"))
    assert limits.order(power, "pack", all_cpus(power))[:6] == [0, 1, 2, 3, 8, 9]
    spread = limits.order(power, "spread", all_cpus(power))
    assert spread[:4] == [0, 40, 8, 48]
    assert spread[10:12] == [1, 41]
    assert len(spread) == 40, "those that are offline serve nobody"


@st.composite
def machines(draw: st.DrawFn) -> Topology:
    """Any machine, also one whose CPUs have no known place."""
    sockets, cores, threads = (draw(st.integers(1, n)) for n in (4, 6, 4))
    reported = draw(st.booleans())
    places = [(s, c, t) for t in range(threads) for s in range(sockets) for c in range(cores)]
    cpus = [
        LogicalCpu(
            cpu=n,
            online=draw(st.booleans()) or n == 0,
            socket=s if reported else None,
            core=s * cores + c if reported else None,
            thread=t if reported else None,
        )
        for n, (s, c, t) in enumerate(places)
    ]
    return HERE.model_copy(update={"cpus": tuple(cpus)})


@given(machines(), st.data())
def test_spread_takes_every_core_once_first_and_pack_socket_after_socket(
    t: Topology, data: st.DataObject
) -> None:
    online = [c.cpu for c in t.online]
    within = data.draw(st.sets(st.sampled_from(online)))
    spread, pack = (limits.order(t, how, within) for how in ("spread", "pack"))
    assert sorted(spread) == sorted(pack) == sorted(within)
    where = {c.cpu: c for c in t.cpus}
    cores = len({(where[n].core, n if where[n].core is None else -1) for n in within})
    first = [(where[n].core, n if where[n].core is None else -1) for n in spread[:cores]]
    assert len(set(first)) == cores, "no core serves twice before every core has served"
    sockets = [where[n].socket for n in pack]
    assert sum(a != b for a, b in pairwise(sockets)) == max(0, len(set(sockets)) - 1), "one after another"


# -- what cannot be ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"cpus": "0-160"}, "there is no CPU 160; this machine has 0-159"),
        ({"cpus": "200,7,201"}, "there is no CPU 200-201"),
        ({"cpus": "x"}, "'x' is no number"),
        ({"mems": "8"}, "there is no NUMA node 8; this machine has 0-7"),
        ({"quota": 161.0}, "quota = 161 CPUs is more than the machine has: 160"),
        ({"quota": 6.5, "cpus": "1-6"}, "quota = 6.5 CPUs is more than cpus = '1-6': 6"),
        ({"quota": 1.0, "period": "2s"}, "the kernel accepts 1ms to 1s"),
        ({"quota": 1.0, "period": "500us"}, "the kernel accepts 1ms to 1s"),
        ({"quota": 1.0, "period": "fast"}, "not a duration"),
        ({"quota": 0.005}, "take a period of 200 ms or more"),
        ({"period": "50ms"}, "period without quota"),
    ],
)
def test_wrong_limits_are_refused(eight_sockets: Topology, spec: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError) as raised:
        limits.check_spec(LimitSpec.model_validate(spec), eight_sockets)
    assert says in str(raised.value)
    assert raised.value.cure


def test_limits_that_fit_the_machine_are_accepted(eight_sockets: Topology) -> None:
    for spec in (
        LimitSpec(),
        LimitSpec(cpus="1-6", mems="0", quota=6.0, period="1ms", weight=10_000, bind="spread"),
        LimitSpec(quota=160.0, period="1s"),
    ):
        limits.check_spec(spec, eight_sockets)


def test_offline_and_absent_cpus_have_different_errors() -> None:
    power = topology(golden("power9-lpar-smt4"))
    with pytest.raises(UsageError, match="CPU 4-7 is offline") as raised:
        limits.check_spec(LimitSpec(cpus="0-8"), power)
    assert "/sys/devices/system/cpu/cpu4/online" in str(raised.value)
    with pytest.raises(UsageError, match="no NUMA node 1; this machine has 0,8"):
        limits.check_spec(LimitSpec(mems="1"), power)


# -- where groups would go, on recorded and written trees -------------------------------------------
def machine(root: Path, cgroup: str, mounts: str, files: dict[str, str]) -> Path:
    """A tree with one process of ours in the groups of ``cgroup``."""
    texts = {
        f"proc/{PID}/cgroup": cgroup,
        f"proc/{PID}/stat": f"{PID} (server) S 1 " + " ".join(["0"] * 17) + " 99 0",
        f"proc/{PID}/status": STATUS.format(os.geteuid()),
        "proc/self/mountinfo": mounts,
        **files,
    }
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


V1 = "32 31 0:29 / /sys/fs/cgroup/{0} rw - cgroup cgroup rw,{0}\n"
V2 = "41 31 0:38 / {0} rw - cgroup2 cgroup2 rw\n"


def v2_group(
    path: str, controllers: str = "cpuset cpu memory", handed: str = "", pids: str = ""
) -> dict[str, str]:
    return {
        f"{path}/cgroup.controllers": controllers,
        f"{path}/cgroup.subtree_control": handed,
        f"{path}/cgroup.procs": pids,
        f"{path}/cgroup.type": "domain",
    }


def test_on_v1_each_controller_has_a_group_in_its_hierarchy(tmp_path: Path) -> None:
    files = {f"sys/fs/cgroup/cpu,cpuacct/db/{n}": t for n, t in {"cgroup.procs": str(PID)}.items()}
    cpuset = {"cgroup.procs": str(PID), "cpuset.mems": "0-1", "cpuset.cpus": "0-7"}
    files |= {f"sys/fs/cgroup/cpuset/{n}": t for n, t in cpuset.items()}
    mounts = V1.format("cpu,cpuacct") + V1.format("cpuset")
    root = machine(tmp_path, "3:cpuset:/\n2:cpu,cpuacct:/db\n", mounts, files)
    cpu, cpus = places.find(PID, ["cpu", "cpuset"], root)
    assert cpu == Place(1, ("cpu",), *[root / "sys/fs/cgroup/cpu,cpuacct/db"] * 2)
    assert cpus == Place(1, ("cpuset",), *[root / "sys/fs/cgroup/cpuset"] * 2)
    spec = LimitSpec(cpus="2,1", quota=1.5, period="50ms", weight=200)
    assert list(groups.values(spec, means.period_us(spec), cpu).items()) == [
        ("cpu.cfs_period_us", "50000"),
        ("cpu.cfs_quota_us", "75000"),
        ("cpu.shares", "2048"),
    ]
    assert list(groups.values(spec, 50_000, cpus).items()) == [("cpuset.mems", "0-1"), ("cpuset.cpus", "1-2")]


def test_on_v1_controllers_mounted_together_share_a_group(tmp_path: Path) -> None:
    names = {"cgroup.procs": str(PID), "cpuset.mems": "0", "cpuset.cpus": "0-3"}
    files = {f"sys/fs/cgroup/cpu,cpuset/{n}": t for n, t in names.items()}
    root = machine(tmp_path, "2:cpu,cpuset:/\n", V1.format("cpu,cpuset"), files)
    (place,) = places.find(PID, ["cpu", "cpuset"], root)
    assert place.controllers == ("cpu", "cpuset")
    (place,) = places.find(PID, ["cpu"], root)
    content = groups.values(LimitSpec(quota=1.0), 100_000, place)
    assert (content["cpuset.mems"], content["cpuset.cpus"]) == ("0", "0-3"), "else it takes no process"


def test_with_both_versions_the_place_is_chosen_for_each_controller(tmp_path: Path) -> None:
    """cpu is on v1, cpuset on v2."""
    unified = "sys/fs/cgroup/unified"
    files = {"sys/fs/cgroup/cpu/cgroup.procs": str(PID)}
    files |= v2_group(f"{unified}/db", "cpuset", pids=str(PID)) | v2_group(unified, "cpuset", "cpuset")
    root = machine(
        tmp_path, "1:cpu:/\n0::/db\n", V1.format("cpu") + V2.format("/sys/fs/cgroup/unified"), files
    )
    (root / unified / "cgroup.type").unlink()  # the root has none
    first, second = places.find(PID, ["cpu", "cpuset"], root)
    assert (first.version, first.parent) == (1, root / "sys/fs/cgroup/cpu")
    assert (second.version, second.home, second.parent) == (2, root / unified / "db", root / unified)
    assert second.enable == ()


def v2_machine(root: Path, **slice_: str) -> Path:
    base = "sys/fs/cgroup"
    files = v2_group(base, handed="cpu memory")
    files |= v2_group(f"{base}/system.slice", **({"handed": "cpu memory"} | slice_))
    files |= v2_group(f"{base}/system.slice/db.service", "cpu memory", pids=str(PID))
    place = machine(root, "0::/system.slice/db.service\n", V2.format("/sys/fs/cgroup"), files)
    (place / base / "cgroup.type").unlink()
    return place


def test_on_v2_a_group_beside_the_service_gets_its_controllers_handed_down(tmp_path: Path) -> None:
    root = v2_machine(tmp_path)
    (place,) = places.find(PID, ["cpu", "cpuset"], root)
    beside = root / "sys/fs/cgroup/system.slice"
    assert place == Place(2, ("cpu", "cpuset"), beside / "db.service", beside, ("cpuset",))
    assert not place.parts
    spec = LimitSpec(cpus="0", mems="0", quota=0.5, weight=50)
    assert groups.values(spec, 100_000, place) == {
        "cpu.max": "50000 100000",
        "cpu.weight": "50",
        "cpuset.mems": "0",
        "cpuset.cpus": "0",
    }
    texts = {m.limit: m.words for m in means.describe(spec, means.decide(spec, PID, root))}
    assert "quota of 0.5 CPUs by cpu.max = 50000 100000 of a control group beside" in texts["quota"]
    assert "what it has already stays where it is" in texts["mems"]


def test_on_v2_without_cpuset_affinity_replaces_it_and_the_quota_stays(tmp_path: Path) -> None:
    root = v2_machine(tmp_path, controllers="cpu memory")
    spec = LimitSpec(cpus="0-1", quota=0.5)
    decision = means.decide(spec, PID, root)
    assert [p.controllers for p in decision.places] == [("cpu",)]
    assert decision.cpus == {0, 1}
    texts = {m.limit: m.words for m in means.describe(spec, decision)}
    assert texts["cpus"].startswith("CPUs 0-1 by affinity alone, which a process may change: control group")
    assert "is not given the controller cpuset: it has cpu memory" in texts["cpus"]


def test_without_cpuset_only_memory_nodes_that_hold_already_are_accepted(tmp_path: Path) -> None:
    root = v2_machine(tmp_path, controllers="cpu memory")
    assert means.decide(LimitSpec(mems="0"), PID, root).mems_there
    status = root / f"proc/{PID}/status"
    status.write_text(status.read_text().replace("Mems_allowed_list:\t0", "Mems_allowed_list:\t0-1"))
    with pytest.raises(NotPrivileged, match="needs a cpuset") as raised:
        means.decide(LimitSpec(mems="0"), PID, root)
    assert "numactl --membind=0" in str(raised.value)


def test_a_container_divides_its_own_group(tmp_path: Path) -> None:
    """The container's root has a cgroup.type: it is not the hierarchy's, and processes have to leave it."""
    files = v2_group("sys/fs/cgroup", "cpuset cpu", pids=f"0\n1\n{PID}\n")
    root = machine(tmp_path, "0::/\n", V2.format("/sys/fs/cgroup"), files)
    (place,) = places.find(PID, ["cpu"], root)
    assert place.parent == place.home == root / "sys/fs/cgroup"
    assert place.parts
    assert members(place.home) == [1, PID], "0 is a process outside of our pid namespace"


def test_a_process_whose_group_is_not_seen_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no control groups are mounted here"):
        places.find(PID, ["cpu"], machine(tmp_path / "a", "0::/../else\n", V2.format("/sys/fs/cgroup"), {}))
    other = machine(
        tmp_path / "b", "0::/\n", V2.format("/sys/fs/cgroup"), v2_group("sys/fs/cgroup", pids="1")
    )
    with pytest.raises(Refused, match="outside of what is mounted here"):
        places.find(PID, ["cpu"], other)


def test_a_group_of_ours_is_not_divided_again(tmp_path: Path) -> None:
    name = "dbdyno-815-0123abcd"
    files = {f"sys/fs/cgroup/cpu/{name}/cgroup.procs": str(PID)}
    root = machine(tmp_path, f"1:cpu:/{name}\n", V1.format("cpu"), files)
    with pytest.raises(ServerBusy, match=r"limits of another run \(process 815\)"):
        places.find(PID, ["cpu"], root)


def test_only_names_of_our_own_pattern_are_our_groups() -> None:
    assert places.OURS.fullmatch(groups.new_name())
    for foreign in (
        "dbdyno",
        "dbdyno.service",
        "dbdyno-1",
        "my-dbdyno-1-0123abcd",
        "dbdyno-1-0123abcd.slice",
    ):
        assert not places.OURS.fullmatch(foreign)
