"""The host of a run: hardware, kernel, limits; and figures that are read only at the begin and end of a
window.

These are busy time by CPU, on POWER the utilization registers, and files of counters.

- ``/sys/devices/system/cpu/cpuN/{purr,spurr,idle_purr,idle_spurr}``: hexadecimal without ``0x``
(Documentation/ABI/testing/sysfs-devices-system-cpu; arch/powerpc/kernel/sysfs.c). The idle ones since 5.8,
on logical partitions only; all are readable by root alone on some kernels. - ``timebase`` of
``/proc/cpuinfo``: ticks a second. - ``/proc/powerpc/lparcfg``: ``key=value`` lines; ``purr`` there is the
sum over CPUs, in decimal (arch/powerpc/platforms/pseries/lparcfg.c)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from dbdyno import _core
from dbdyno.kernel.numbers import first_number
from dbdyno.model.engine.environment import Host
from dbdyno.model.engine.machine import Machine
from dbdyno.model.engine.topology import REGISTERS, Purr, PurrRead
from dbdyno.model.schema.data_source import CounterFile
from dbdyno.model.schema.data_sources import files
from dbdyno.model.schema.tables import empty, rows
from dbdyno.model.units import NS_PER_S, TICK_NS
from dbdyno.observe import cpus
from dbdyno.observe.cpus import CPU, cpu, fields, online_cpus, siblings, text
from dbdyno.observe.limits import limits

# Name in the firmware -> hypervisor; after systemd's src/basic/virt.c, dmi_vendor_table.
_FIRMWARE = {
    "KVM": "KVM",
    "OpenStack": "KVM",
    "Amazon EC2": "Amazon EC2",
    "QEMU": "QEMU",
    "VMware": "VMware",
    "VMW": "VMware",
    "innotek GmbH": "VirtualBox",
    "VirtualBox": "VirtualBox",
    "Xen": "Xen",
    "Bochs": "Bochs",
    "Parallels": "Parallels",
    "BHYVE": "bhyve",
    "Hyper-V": "Hyper-V",
    "Microsoft Corporation Virtual Machine": "Hyper-V",
    "Google Compute Engine": "Google Compute Engine",
}
_CLOUDS_WITH_METAL = ("Amazon EC2", "Google Compute Engine", "KVM")  # OpenStack is mapped to KVM above
# vendor and device in hexadecimal; after util-linux's sys-utils/lscpu-virt.c
_DEVICES = {"80eebeef": "VirtualBox", "80eecafe": "VirtualBox", "15ad0405": "VMware", "58530001": "Xen"}
_PCI = "proc/bus/pci/devices"
_CLOCKS = {"kvm-clock": "KVM", "hyperv": "Hyper-V", "xen": "Xen"}
_DMI = ("sys_vendor", "product_name", "board_vendor", "bios_vendor", "product_version")
_GROUP = re.compile(r"/(docker|kubepods|lxc|libpod|containerd|garden)\b")


def virtualisation(root: Path) -> str | None:
    """Returns a text such as ``docker container on a virtual machine (KVM)``; None without a hint of
    either."""
    hints = [h for h in (container(root), machine(root)) if h]
    return " on a ".join(hints) if hints else None


def container(root: Path) -> str | None:
    """Returns a text such as ``docker container``, or None."""
    if (root / ".dockerenv").exists():
        return "docker container"
    if (root / "run/.containerenv").exists():
        return "podman container"
    if named := text(root, "run/systemd/container"):
        return f"{named} container"
    if in_group := _GROUP.search(text(root, "proc/self/cgroup") or ""):
        return f"{in_group[1]} container"
    return None


def machine(root: Path) -> str | None:
    """Returns a text such as ``virtual machine (KVM)``; None on bare metal, as far as visible."""
    if bare_metal(root):
        return None
    xen = text(root, "sys/hypervisor/type")
    known = (_firmware(root), _by_device(root), _device_tree(root), xen and xen.capitalize(), _by_clock(root))
    kind = next(filter(None, known), None)
    if kind is None and not cpus.flags(root):
        return None
    return f"virtual machine ({kind or 'unnamed hypervisor'})"


def bare_metal(root: Path) -> bool:
    """Returns whether there is certainly no hypervisor; False also means unknown.

    An x86 CPU without the flag ``hypervisor`` is bare metal, even if its firmware has the name of a cloud
    (clouds rent out whole machines, too), but not if the firmware has the name of a hypervisor that hides
    the flag.
    """
    flags = cpus.flags(root)
    if not flags:
        return any(block.get("platform") == "PowerNV" for block in cpus.blocks(root))
    hidden = _firmware(root) not in (None, *_CLOUDS_WITH_METAL) or _by_device(root)
    return "hypervisor" not in flags and not text(root, "sys/hypervisor/type") and not hidden


def _firmware(root: Path) -> str | None:
    named = " ".join(text(root, f"sys/class/dmi/id/{name}") or "" for name in _DMI)
    return next((kind for sign, kind in _FIRMWARE.items() if sign in named), None)


def _by_device(root: Path) -> str | None:
    """Returns the hypervisor by a device that only it has."""
    devices = {line.split("\t")[1] for line in (text(root, _PCI) or "").splitlines() if "\t" in line}
    return next((kind for id_, kind in _DEVICES.items() if id_ in devices), None)


def _by_clock(root: Path) -> str | None:
    """Returns the hypervisor whose clock the guest kernel offers."""
    clocks = text(root, "sys/devices/system/clocksource/clocksource0/available_clocksource") or ""
    return next((kind for sign, kind in _CLOCKS.items() if sign in clocks), None)


def _device_tree(root: Path) -> str | None:
    """Returns the hypervisor of POWER and ARM; after util-linux's sys-utils/lscpu-virt.c and systemd's
    src/basic/virt.c."""
    tree = root / "proc/device-tree"
    if (tree / "ibm,partition-name").exists() and (tree / "hmc-managed?").exists():
        return "PowerVM"
    compatible = text(tree, "compatible") or ""
    hypervisor = text(tree, "hypervisor/compatible") or ""
    if "qemu,pseries" in compatible or "linux,dummy-virt" in compatible or "linux,kvm" in hypervisor:
        return "KVM"
    return "Xen" if "xen" in hypervisor else None


CLOCKSOURCE = "sys/devices/system/clocksource/clocksource0/current_clocksource"


def host(root: Path = Path("/")) -> Host:
    """Returns the machine below ``root`` (``/``, or a recorded tree). Needs no rights; raises nothing."""
    memory_kb = first_number(fields(text(root, "proc/meminfo")).get("MemTotal", ""))
    return Host(
        kernel=f"Linux {text(root, 'proc/sys/kernel/osrelease') or os.uname().release}",
        distribution=_distribution(root),
        virtualisation=virtualisation(root),
        clock_ticks_per_s=os.sysconf("SC_CLK_TCK"),
        cpu=cpu(root),
        limits=limits(root),
        memory_bytes=None if memory_kb is None else memory_kb * 1024,
        clocksource=text(root, CLOCKSOURCE),
        siblings=siblings(root),
        notes=tuple(_notes(root)),
    )


def _distribution(root: Path) -> str | None:
    """Returns PRETTY_NAME of os-release(5)."""
    release = fields(text(root, "etc/os-release") or text(root, "usr/lib/os-release"), "=")
    return release.get("PRETTY_NAME", "").strip("\"'") or None


def _notes(root: Path) -> list[str]:
    """Returns what will be unknown here, with cures."""
    notes = []
    if not (root / "proc/pressure/cpu").exists():
        notes.append(
            "no PSI: pressure stall times unknown; needs CONFIG_PSI and, on some kernels, psi=1 at boot"
        )
    if text(root, "proc/sys/kernel/task_delayacct") != "1":
        notes.append(
            "task_delayacct off: block I/O delay unknown; "
            "sysctl kernel.task_delayacct=1 makes it known for processes that start afterwards"
        )
    if (text(root, "proc/self/schedstat") or "0 0 0").split()[2:] == ["0"]:
        notes.append("no scheduler statistics: run-queue time unknown; needs a kernel with CONFIG_SCHED_INFO")
    if "hidepid=" in _proc_options(root):
        notes.append(
            "/proc is mounted with hidepid: tasks of other users are not seen; run as the server's user"
        )
    if container(root):
        notes.append("in a container: limits set on groups above it cannot be seen; they may be tighter")
    if not (root / "sys/devices/system/cpu").exists():
        notes.append("no /sys: topology from /proc/cpuinfo alone")
    return notes


def _proc_options(root: Path) -> str:
    """Returns the super-block options of the mount at /proc (proc_pid_mountinfo(5))."""
    for line in (text(root, "proc/self/mountinfo") or "").split("\n"):
        mount, _, filesystem = line.partition(" - ")
        if filesystem.startswith("proc ") and mount.split()[4:5] == ["/proc"]:
            return filesystem
    return ""


@dataclass(frozen=True)
class Partition:
    """The POWER partition by /proc/powerpc/lparcfg; None for figures that are not in it."""

    shared: bool | None
    capped: bool | None
    entitled_cores: float | None
    """From partition_entitled_capacity, which is in hundredths of a core."""
    virtual_cores: int | None
    """From partition_active_processors."""
    purr: int | None


def register(printed: str) -> int | None:
    """Parses a register as sysfs prints it: ``1a2b3c`` -> 1715004; None for other text."""
    try:
        return int(printed.strip(), 16)
    except ValueError:
        return None


def timebase_hz(cpuinfo: str) -> int | None:
    """Returns the frequency in the line ``timebase : 512000000``."""
    ticks = fields(cpuinfo).get("timebase", "")
    return int(ticks) if ticks.isdecimal() else None


def partition(lparcfg: str) -> Partition:
    """Parses /proc/powerpc/lparcfg. Unknown lines are ignored."""
    by_key = fields(lparcfg, "=")
    hundredths = _integer_of(by_key, "partition_entitled_capacity")
    shared, capped = _integer_of(by_key, "shared_processor_mode"), _integer_of(by_key, "capped")
    return Partition(
        shared=None if shared is None else bool(shared),
        capped=None if capped is None else bool(capped),
        entitled_cores=None if hundredths is None else hundredths / 100,
        virtual_cores=_integer_of(by_key, "partition_active_processors"),
        purr=_integer_of(by_key, "purr"),
    )


def read(root: Path, at_s: float) -> PurrRead | None:
    """Reads the registers of all online CPUs below ``root``; None if this is not a POWER machine, or they
    are not readable."""
    ticks = timebase_hz(text(root, "proc/cpuinfo") or "")
    cpus = {n: purr for n in online_cpus(root) if (purr := _of_cpu(root, n)) is not None}
    return PurrRead(at_s, ticks, cpus) if ticks and cpus else None


def _of_cpu(root: Path, n: int) -> Purr | None:
    purr = Purr.of({name: register(text(root, f"{CPU}/cpu{n}/{name}") or "") for name in REGISTERS})
    return None if purr.purr is None else purr


def _integer_of(by_key: Mapping[str, str], key: str) -> int | None:
    value = by_key.get(key, "").strip()
    return int(value) if value.isdecimal() else None


_BUSY = (0, 1, 2, 5, 6)
"""Columns of /proc/stat that are busy time: user, nice, system, irq, softirq (proc_stat(5)); guest is part
of user."""


def per_cpu(root: Path = Path("/")) -> pl.DataFrame:
    """Reads ``cpuN.busy_ns`` of every online CPU; on POWER also its registers (``cpuN.purr_ticks``, ...)
    and ``timebase_hz``. Empty if /proc/stat is not readable."""
    before_ns = _core.now_ns()
    stat = text(root, "proc/stat")
    values = dict(_values(busy_ns(stat or ""), read(root, before_ns / NS_PER_S)))
    bracket = {"before_ns": before_ns, "after_ns": _core.now_ns(), "status": "ok"}
    return rows("host", [bracket | {"key": key, "value": value} for key, value in values.items()])


def at_end(machine: Machine) -> pl.DataFrame:
    """Reads :func:`per_cpu` and :func:`counter_files` at the end of a window."""
    root = machine.root
    with machine.ahead([root / "proc/stat", *(root / f.path.lstrip("/") for f in files().values())]):
        return pl.concat([per_cpu(root), counter_files(root)])


def counter_files(root: Path = Path("/")) -> pl.DataFrame:
    """Reads ``KEY.COUNTER`` of the registered files (:mod:`dbdyno.model.schema.data_sources`)."""
    return pl.concat([empty("host"), *(rows("host", _read(root, file)) for file in files().values())])


def _read(root: Path, file: CounterFile) -> list[dict[str, object]]:
    """Returns one row per counter. The status says if the file is not readable or lacks the counter."""
    before_ns = _core.now_ns()
    status, values = "not supported", dict[str, int]()
    try:
        values = dict(file.parse((root / file.path.lstrip("/")).read_text(errors="replace")))
    except PermissionError:
        status = "not permitted"
    except (OSError, ValueError):  # no such file in this kernel, or in another form
        pass
    bracket = {"before_ns": before_ns, "after_ns": _core.now_ns()}
    values_ = ((f"{file.key}.{c.name}", values.get(c.name)) for c in file.counters)
    return [bracket | {"key": k, "value": v, "status": status if v is None else "ok"} for k, v in values_]


def busy_ns(stat: str) -> dict[int, int]:
    """Returns the busy time of each CPU since boot, from /proc/stat (proc_stat(5)); it counts in ticks of
    10 ms."""
    by_cpu = {}
    for line in stat.splitlines():
        word, *numbers = line.split()
        cpu = word.removeprefix("cpu")
        if word != cpu and cpu.isdecimal():
            by_cpu[int(cpu)] = TICK_NS * sum(int(numbers[i]) for i in _BUSY if i < len(numbers))
    return by_cpu


def _values(busy: Mapping[int, int], registers: PurrRead | None) -> Iterator[tuple[str, int]]:
    yield from ((f"cpu{n}.busy_ns", ns) for n, ns in busy.items())
    if registers is None:
        return
    yield "timebase_hz", registers.timebase_hz
    for n, purr in registers.cpus.items():
        values_ = ((name, getattr(purr, name)) for name in REGISTERS)
        yield from ((f"cpu{n}.{name}_ticks", value) for name, value in values_ if value is not None)
