"""The topology of golden machines. Expected figures are published, or read off the trees; lscpu agrees."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.observe_trees import BIG, GOLDEN, add_masks, big_numa_machine, golden, printed_rows, unpack

from dbdyno.model.engine.topology import Topology
from dbdyno.model.text import cpu_lists
from dbdyno.observe import topology
from dbdyno.observe.cpus import cpu_list, cpu_mask
from dbdyno.observe.limits import opened
from dbdyno.present import topology_parsable

MACHINES = [
    BIG,
    "ec2-c4-4xlarge",
    "power9-lpar-smt4",
    "v2-container-cpuset",
    "arm64-altra-2x80",
]


def counts(t: Topology) -> tuple[int, int, int, int, int | None]:
    """CPUs online, cores, sockets, nodes, threads a core."""
    return len(t.online), len(t.cores), len(t.sockets), len(t.nodes), t.smt.threads_per_core


def test_recorded_machines_have_their_numbers_of_cpus_cores_and_nodes() -> None:
    by_machine = {name: counts(topology(golden(name))) for name in MACHINES}
    assert by_machine == {
        "xeon-e7-4850-160cpu": (160, 80, 8, 8, 2),
        "ec2-c4-4xlarge": (16, 8, 1, 1, 2),
        "power9-lpar-smt4": (40, 10, 2, 2, 4),
        "v2-container-cpuset": (64, 32, 2, 2, 2),
        "arm64-altra-2x80": (160, 160, 2, 2, 1),
    }


@pytest.mark.whole
@pytest.mark.skipif(shutil.which("lscpu") is None, reason="no lscpu here: apt-get install util-linux")
@pytest.mark.parametrize("name", MACHINES)
def test_lscpu_reads_the_same_in_the_same_tree(name: str, tmp_path: Path) -> None:
    root = shutil.copytree(golden(name), tmp_path / name)
    add_masks(root)
    assert topology_parsable(topology(root))[1:] == lscpu("--sysroot", str(root))


@pytest.mark.skipif(shutil.which("lscpu") is None, reason="no lscpu here: apt-get install util-linux")
def test_lscpu_agrees_on_this_machine() -> None:
    assert topology_parsable(topology())[1:] == lscpu()


def lscpu(*options: str) -> list[str]:
    ran = subprocess.run(
        ["lscpu", "-p=CPU,CORE,SOCKET,NODE", *options], capture_output=True, text=True, check=True
    )
    return [line for line in ran.stdout.splitlines() if not line.startswith("#")]


def test_a_server_of_eight_nodes_is_read() -> None:
    t, rows = topology(golden(BIG)), printed_rows()
    for node in t.nodes:
        assert node.cpus == cpu_list(rows[f"NUMA node{node.node} CPU(s)"])
    assert [c.socket for c in t.cpus] == [int(s) for s in rows["physical id"].split()]
    assert [c.core_id for c in t.cpus] == [int(s) for s in rows["core id"].split()]
    assert t.sockets[4].nodes == (0,), "socket 4 is node 0: the numbers differ"
    assert [(c.cpu, c.thread, c.core) for c in t.cpus if c.core == 0] == [(0, 0, 0), (120, 1, 0)]
    assert {(c.name, c.size_bytes, len(c.cpus)) for c in t.caches} == {
        ("L1d", 32 << 10, 2),
        ("L1i", 32 << 10, 2),
        ("L2", 256 << 10, 2),
        ("L3", 24576 << 10, 20),
    }
    assert [len([c for c in t.caches if c.name == n]) for n in ("L1d", "L2", "L3")] == [80, 80, 8]
    assert (t.smt.state, t.smt.control, t.hypervisor) == ("on", None, "none")
    assert {n: c.why_not for n, c in enumerate(t.cpus)} == {
        n: None if n in {*range(1, 11), *range(41, 51)} else "affinity" for n in range(160)
    }


def test_a_cpuset_allows_its_cpus_and_nodes_alone(tmp_path: Path) -> None:
    """``cpuset.cpus="1-6"``, ``cpuset.mems="0"``: the binding of the article that printed this machine."""
    write(tmp_path, "proc/self/cgroup", "4:cpuset:/oracle")
    mount = "31 25 0:27 / /cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset"
    write(tmp_path, "proc/self/mountinfo", mount)
    write(tmp_path, "cgroup/cpuset/oracle/cpuset.cpus", "1-6")
    write(tmp_path, "cgroup/cpuset/oracle/cpuset.mems", "0")
    root = big_numa_machine(tmp_path)
    write(root, "proc/self/status", "Cpus_allowed_list:\t1-6")
    t = topology(root)
    assert t.cpuset is not None
    assert (t.cpuset.version, t.cpuset.directory) == (1, "/cgroup/cpuset/oracle")
    assert (t.cpuset.cpus, t.cpuset.mems) == ((1, 2, 3, 4, 5, 6), (0,))
    assert cpu_lists.text(c.cpu for c in t.allowed) == "1-6"
    assert {c.why_not for c in t.cpus if not c.allowed} == {"cpuset"}
    assert t.usable_cpus == 6


def test_a_cloud_instance_is_read() -> None:
    t = topology(golden("ec2-c4-4xlarge"))
    assert t.cores[3].cpus == (3, 11), "the second threads come after all first ones"
    assert (t.hypervisor, t.container) == ("virtual machine (Xen)", None)
    assert (t.clocksource, t.clocksources) == ("xen", ("xen", "tsc", "hpet", "acpi_pm"))
    assert (t.smt.state, t.smt.control) == ("on", None)
    assert (t.usable_cpus, t.quota) == (16, None)
    assert (t.nodes[0].memory_bytes, t.nodes[0].distances) == (30 << 30, {0: 10})
    assert t.isolated is None
    assert [note.partition(":")[0] for note in t.notes] == ["frequency and governor"]


def test_a_partition_with_four_of_eight_threads_is_read() -> None:
    t = topology(golden("power9-lpar-smt4"))
    assert t.model == "POWER9 (architected), altivec supported"
    assert t.hypervisor == "virtual machine (PowerVM)"
    assert (t.smt.state, t.smt.control) == ("on", "4")
    assert [core.cpus for core in t.cores[:2]] == [(0, 1, 2, 3), (8, 9, 10, 11)]
    assert (len(t.offline), t.offline[:5]) == (40, (4, 5, 6, 7, 12))
    assert t.cpus[4].why_not == "offline"
    assert t.cpus[4].core is None
    assert [s.cpus[0] for s in t.sockets] == [0, 40], "firmware names no package: numbered as lscpu does"
    assert {n.node: n.distances for n in t.nodes} == {0: {0: 10, 8: 20}, 8: {0: 20, 8: 10}}
    assert t.clocksource == "timebase"


def test_a_container_with_a_cpuset_smaller_than_the_machine_is_read() -> None:
    t = topology(golden("v2-container-cpuset"))
    assert [c.cpu for c in t.allowed] == [4, 5, 6, 7, 36, 37, 38, 39]
    assert {c.why_not for c in t.cpus if not c.allowed} == {"cpuset"}
    assert t.cpuset is not None
    assert (t.cpuset.version, t.cpuset.directory) == (2, "/sys/fs/cgroup")
    assert t.quota is not None
    assert (t.quota.cpus, t.quota.directory, t.usable_cpus) == (3.0, "/sys/fs/cgroup", 3.0)
    assert (t.container, t.hypervisor) == ("docker container", "none")
    assert len({c.caches[-1] for c in t.allowed}) == 1, "they share one cache of the last level"
    unknown = [note.partition(":")[0] for note in t.notes]
    assert unknown == ["NUMA distances", "quotas above the container", "frequency and governor"]


def test_an_arm_machine_is_read() -> None:
    t = topology(golden("arm64-altra-2x80"))
    assert (t.model, [s.socket for s in t.sockets]) == ("Neoverse-N1", [36, 3876])
    assert {(c.governor, c.min_mhz, c.max_mhz) for c in t.cpus} == {("ondemand", 1000, 3000)}
    assert (cpu_lists.text(t.isolated or ()), t.smt.state) == ("72-79", "notsupported")
    assert cpu_lists.text(c.cpu for c in t.cpus if c.why_not == "affinity") == "80-99"
    assert t.quota is not None
    assert (t.quota.cpus, t.quota.directory) == (16, "/sys/fs/cgroup/user.slice/user-1000.slice")
    assert t.hypervisor is None, "without flags and DMI there may be one"


def test_old_kernels_have_masks_alone(tmp_path: Path) -> None:
    with_lists = topology(unpack("v2-container-cpuset", tmp_path))
    add_masks(tmp_path)
    for pattern in ("cpu/cpu*/topology/*_list", "cpu/cpu*/cache/*/shared_cpu_list", "node/node*/cpulist"):
        for listed in tmp_path.glob(f"sys/devices/system/{pattern}"):
            listed.unlink()
    assert topology(tmp_path) == with_lists


def test_without_sys_the_places_are_those_of_cpuinfo() -> None:
    t = topology(golden("no-sys"))
    assert [(c.socket, c.core_id, c.core, c.thread) for c in t.cpus] == [
        (0, 0, 0, 0),
        (0, 1, 1, 0),
        (1, 0, 2, 0),
        (1, 1, 3, 0),
    ]
    assert t.smt.state is None, "one thread a core may be SMT off or none there"
    assert (t.affinity, t.cpus[0].allowed, t.usable_cpus) == (None, None, None), "never this process's own"


def test_what_no_source_has_is_unknown_and_noted() -> None:
    t = topology(golden("arm-board"))
    assert (t.model, t.cores, t.sockets, t.nodes, t.caches) == (None, (), (), (), ())
    noted = {note.partition(":")[0] for note in t.notes}
    assert {"cores and threads", "sockets", "NUMA nodes", "caches", "SMT", "clocksource"} <= noted


def test_an_empty_tree_has_no_cpus(tmp_path: Path) -> None:
    assert topology(tmp_path).cpus == ()


@pytest.mark.parametrize(
    ("control", "state"),
    [("on", "on"), ("off", "off"), ("forceoff", "forceoff"), ("notsupported", "notsupported"), ("2", "on")],
)
def test_the_state_of_smt_control_is_read(control: str, state: str, tmp_path: Path) -> None:
    write(tmp_path, "sys/devices/system/cpu/smt/control", control)
    write(tmp_path, "sys/devices/system/cpu/online", "0")
    assert (topology(tmp_path).smt.state, topology(tmp_path).smt.control) == (state, control)


def test_smt_off_leaves_the_second_threads_offline(tmp_path: Path) -> None:
    root = unpack("ec2-c4-4xlarge", tmp_path)
    write(root, "sys/devices/system/cpu/online", "0-7")
    write(root, "sys/devices/system/cpu/offline", "8-15")
    write(root, "sys/devices/system/cpu/smt/control", "off")
    for n in range(8):
        write(root, f"sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list", str(n))
    for n in range(8, 16):
        shutil.rmtree(root / f"sys/devices/system/cpu/cpu{n}")
    t = topology(root)
    assert (t.smt.state, t.smt.threads_per_core, cpu_lists.text(t.offline)) == ("off", 1, "8-15")
    assert (len(t.allowed), t.usable_cpus) == (8, 8)


def test_dies_repeat_core_ids_and_nodes_may_be_memory_alone(tmp_path: Path) -> None:
    for n in range(4):
        folder = f"sys/devices/system/cpu/cpu{n}/topology"
        for name, text in {"physical_package_id": 0, "die_id": n // 2, "core_id": n % 2}.items():
            write(tmp_path, f"{folder}/{name}", str(text))
        write(tmp_path, f"{folder}/core_cpus_list", str(n))
    write(tmp_path, "sys/devices/system/cpu/online", "0-3")
    write(tmp_path, "sys/devices/system/node/online", "0,2")
    write(tmp_path, "sys/devices/system/node/node0/cpulist", "0-3")
    write(tmp_path, "sys/devices/system/node/node2/cpulist", "")
    t = topology(tmp_path)
    assert [(c.die, c.core_id, c.core) for c in t.cpus] == [(0, 0, 0), (0, 1, 1), (1, 0, 2), (1, 1, 3)]
    assert [(n.node, n.cpus) for n in t.nodes] == [(0, (0, 1, 2, 3)), (2, ())]


_BIND = "import os; os.sched_setaffinity(0, {%d}); from dbdyno.observe import topology; t = topology()\n"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_a_process_bound_to_one_cpu_may_use_it_alone() -> None:
    own, other = sorted(os.sched_getaffinity(0))[:2]
    shown = python(
        _BIND % own + f"print([(c.allowed, c.why_not) for c in t.cpus if c.cpu in {(own, other)}])"
    )
    assert shown == "[(True, None), (False, 'affinity')]"


_CPUSET = Path("/sys/fs/cgroup/cpuset")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
@pytest.mark.skipif(not os.access(_CPUSET / "tasks", os.W_OK), reason="needs a cpuset v1 that we may write")
def test_a_process_in_a_real_cpuset_may_use_its_cpus_alone() -> None:
    own, other = sorted(os.sched_getaffinity(0))[:2]
    group = _CPUSET / f"dbdyno-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cpuset.mems").write_text((_CPUSET / "cpuset.mems").read_text())
        (group / "cpuset.cpus").write_text(str(own))
        shown = python(
            f"import os; open('{group}/tasks', 'w').write(str(os.getpid()))\n"
            "from dbdyno.observe import topology; t = topology()\n"
            f"print(t.cpuset.directory, [(c.allowed, c.why_not) for c in t.cpus if c.cpu in {(own, other)}])"
        )
    finally:
        group.rmdir()
    assert shown == f"{group} [(True, None), (False, 'cpuset')]"


def python(code: str) -> str:
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def test_every_golden_machine_is_read_without_an_error() -> None:
    for tree in GOLDEN.glob("*.tree"):
        assert topology(golden(tree.stem)).online


@pytest.mark.parametrize(
    ("cpus", "text"), [((), ""), ((0,), "0"), ((5, 2, 0, 1), "0-2,5"), ((0, 2, 4), "0,2,4"), ((7, 7), "7")]
)
def test_ranges_are_written_and_read_back(cpus: tuple[int, ...], text: str) -> None:
    assert cpu_lists.text(cpus) == text
    assert cpu_list(text) == tuple(sorted(set(cpus)))


@pytest.mark.parametrize(
    ("mask", "cpus"), [("3", (0, 1)), ("1,00000003", (0, 1, 32)), ("00000000,80000000", (31,)), ("0", ())]
)
def test_masks_are_read(mask: str, cpus: tuple[int, ...]) -> None:
    assert cpu_mask(mask) == cpus


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(f"{text}\n")


@pytest.mark.parametrize(
    ("online", "offline", "present", "mask"),
    [("0-1", "", "0-15", "4-5"), ("0-3", None, "0-3", "8"), ("0-1", "", "0-15", "1,5")],
)
def test_where_a_container_narrows_the_list_of_online_cpus_the_mask_counts(
    online: str, offline: str | None, present: str, mask: str, tmp_path: Path
) -> None:
    """lxcfs shows CPUs 0 to n - 1 in /sys, whichever the container may use."""
    cpu = tmp_path / "sys/devices/system/cpu"
    cpu.mkdir(parents=True)
    for name, text in (("online", online), ("offline", offline), ("present", present)):
        if text is not None:
            (cpu / name).write_text(f"{text}\n")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/status").write_text(f"Cpus_allowed_list:\t{mask}\n")
    narrowed = topology(tmp_path)
    assert [c.cpu for c in narrowed.cpus if c.allowed] == list(cpu_list(mask))
    assert any("container's view" in note for note in narrowed.notes)


@pytest.mark.parametrize("offline", ["", "4-127"])
def test_a_mask_may_name_cpus_that_are_not_there(offline: str, tmp_path: Path) -> None:
    cpu = tmp_path / "sys/devices/system/cpu"
    cpu.mkdir(parents=True)
    for name, text in (("online", "0-3"), ("offline", offline), ("present", "0-3")):
        (cpu / name).write_text(f"{text}\n")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/status").write_text("Cpus_allowed_list:\t0-127\n")
    assert [c.cpu for c in topology(tmp_path).online] == [0, 1, 2, 3]


def test_a_recorded_machine_may_lie_below_directories(tmp_path: Path) -> None:
    inner = tmp_path / "dump" / "machine"
    shutil.copytree(golden("ec2-c4-4xlarge"), inner)
    with opened(tmp_path / "dump") as root:
        assert len(topology(root).online) == 16
    packed = shutil.make_archive(str(tmp_path / "m"), "gztar", tmp_path, "dump")
    with opened(Path(packed)) as root:
        assert len(topology(root).online) == 16
