"""The host on recorded machines, and on this one. Expected figures are those of the machines' makers."""

import os
from pathlib import Path

import pytest
from tests.unit.observe_trees import BIG, golden, unpack

from dbdyno.model.engine.environment import Cpu, Host
from dbdyno.observe import host
from dbdyno.observe.cpus import cpu_list


def test_a_machine_of_eight_nodes_and_160_cpus_is_read() -> None:
    result = host(golden(BIG))
    assert result.cpu == Cpu(
        model="Intel(R) Xeon(R) CPU E7- 4850  @ 2.00GHz",
        logical=160,
        cores=80,
        sockets=8,
        numa_nodes=8,
        threads_per_core=2,
    )
    # bound to node 0: "1-10,41-50"
    assert result.limits.affinity == (*range(1, 11), *range(41, 51))
    assert result.limits.usable_cpus == 20


def test_a_container_with_cgroup_v2_is_read() -> None:
    result = host(golden("v2-container"))
    assert (result.cpu.logical, result.cpu.cores, result.cpu.sockets, result.cpu.threads_per_core) == (
        8,
        4,
        1,
        2,
    )
    assert result.virtualisation == "podman container on a virtual machine (Amazon EC2)"
    assert (result.kernel, result.distribution) == ("Linux 6.8.0-1015-aws", "Alpine Linux v3.20")
    limits = result.limits
    assert (limits.quota_cpus, limits.usable_cpus, limits.cgroup_version) == (1.5, 1.5, 2)
    assert limits.quota_where == str(golden("v2-container") / "sys/fs/cgroup")
    assert (limits.memory_bytes, limits.open_files) == (512 << 20, 1048576)
    assert result.memory_bytes == 32427436 * 1024
    assert _subjects(result) == ["task_delayacct off", "in a container"]


def test_with_cgroup_v1_the_tighter_quota_above_counts() -> None:
    result = host(golden("v1-box"))
    assert (result.cpu.logical, result.cpu.cores, result.cpu.sockets, result.cpu.numa_nodes) == (4, 2, 2, 2)
    assert result.cpu.max_mhz == 3200
    assert result.virtualisation is None
    limits = result.limits
    assert limits.affinity == (1, 2, 3), "the mask names CPUs that are not online"
    assert (limits.quota_cpus, limits.usable_cpus, limits.cgroup_version) == (2.0, 2.0, 1)
    assert limits.quota_where is not None
    assert limits.quota_where.endswith("cpu,cpuacct/oracle")
    assert limits.memory_bytes == 8 << 30
    assert limits.open_files == (1 << 63) - 1
    expected = [
        "no PSI",
        "task_delayacct off",
        "no scheduler statistics",
        "/proc is mounted with hidepid",
    ]
    assert _subjects(result) == expected


def test_without_sys_the_topology_is_that_of_cpuinfo() -> None:
    result = host(golden("no-sys"))
    assert result.cpu == Cpu(
        model="Intel(R) Xeon(R) Gold 6338",
        logical=4,
        cores=4,
        sockets=2,
        numa_nodes=None,
        threads_per_core=1,
    )
    assert result.limits.cgroup_version is None
    assert "no /sys" in _subjects(result)


def test_what_no_source_has_is_unknown() -> None:
    result = host(golden("arm-board")).cpu
    assert result == Cpu(
        model=None, logical=2, cores=None, sockets=None, numa_nodes=None, threads_per_core=None
    )


@pytest.mark.parametrize(
    ("file", "content", "name"),
    [
        ("sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc kvm-clock", "(KVM)"),
        ("proc/device-tree/hypervisor/compatible", "linux,kvm", "(KVM)"),
        ("proc/device-tree/compatible", "qemu,pseries", "(KVM)"),
        ("proc/device-tree/hypervisor/compatible", "xen,xen-4.17", "(Xen)"),
    ],
)
def test_a_hypervisor_is_known_by_its_clock_or_the_device_tree(
    file: str, content: str, name: str, tmp_path: Path
) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(content)
    assert host(tmp_path).virtualisation == f"virtual machine {name}"


@pytest.mark.parametrize(
    ("cpuinfo", "vendor", "pci", "name"),
    [
        ("flags: fpu vme", "Dell Inc.", "0008\t80867000\t0", None),
        ("flags: fpu vme", "Amazon EC2", "", None),  # a whole machine, rented
        ("flags: fpu hypervisor", "Amazon EC2", "", "virtual machine (Amazon EC2)"),
        ("flags: fpu vme", "QEMU", "", "virtual machine (QEMU)"),  # the flag is hidden
        ("flags: fpu vme", "", "0010\t80eebeef\t0", "virtual machine (VirtualBox)"),
        ("flags: fpu hypervisor", "", "", "virtual machine (unnamed hypervisor)"),
        ("platform: PowerNV", "", "", None),
    ],
)
def test_a_guest_has_the_name_of_its_hypervisor(
    cpuinfo: str, vendor: str, pci: str, name: str | None, tmp_path: Path
) -> None:
    for path, content in {
        "proc/cpuinfo": f"processor: 0\n{cpuinfo}\n",
        "sys/class/dmi/id/sys_vendor": vendor,
        "proc/bus/pci/devices": pci,
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content)
    assert host(tmp_path).virtualisation == name


def test_an_arm_cpu_without_a_name_is_named_by_its_numbers(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor: 0\nCPU implementer: 0x61\nCPU part: 0x022\n")
    assert host(tmp_path).cpu.model == "ARM CPU, implementer 0x61, part 0x022"


def test_the_clock_source_is_read(tmp_path: Path) -> None:
    assert host(tmp_path).clocksource is None
    assert host(unpack("ec2-c4-4xlarge", tmp_path)).clocksource == "xen"


def test_an_empty_tree_is_no_error(tmp_path: Path) -> None:
    result = host(tmp_path)
    assert (result.cpu.cores, result.cpu.model, result.distribution) == (None, None, None)
    assert result.limits.usable_cpus >= 1


def test_this_machine_agrees_with_the_c_library() -> None:
    result = host()
    assert result.limits.affinity == tuple(sorted(os.sched_getaffinity(0)))
    assert result.cpu.logical == os.sysconf("SC_NPROCESSORS_ONLN")
    assert result.kernel == f"Linux {os.uname().release}"
    assert result.clock_ticks_per_s == os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0", (0,)), ("0-2,5", (0, 1, 2, 5)), ("1-10,41-42\n", (*range(1, 11), 41, 42)), ("", ())],
)
def test_a_list_of_cpus_is_read_from_sys(text: str, cpus: tuple[int, ...]) -> None:
    assert cpu_list(text) == cpus


def _subjects(machine: Host) -> list[str]:
    return [note.partition(":")[0] for note in machine.notes]
