"""The host a run is made on: hardware, kernel, limits, and what its kernel will not tell."""

from __future__ import annotations

import os
import re
from pathlib import Path

from dbdyno.model.environment import Host
from dbdyno.observe import cpus
from dbdyno.observe.cpus import cpu, siblings
from dbdyno.observe.limits import limits
from dbdyno.observe.tree import fields, text

# What a firmware calls itself -> what it is; after systemd's src/basic/virt.c, dmi_vendor_table.
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
_RENT_METAL = ("Amazon EC2", "Google Compute Engine", "KVM")  # OpenStack counts as KVM, above
# vendor and device in hexadecimal; after util-linux's sys-utils/lscpu-virt.c
_DEVICES = {"80eebeef": "VirtualBox", "80eecafe": "VirtualBox", "15ad0405": "VMware", "58530001": "Xen"}
_PCI = "proc/bus/pci/devices"
_CLOCKS = {"kvm-clock": "KVM", "hyperv": "Hyper-V", "xen": "Xen"}
_DMI = ("sys_vendor", "product_name", "board_vendor", "bios_vendor", "product_version")
_GROUP = re.compile(r"/(docker|kubepods|lxc|libpod|containerd|garden)\b")


def virtualisation(root: Path) -> str | None:
    """E.g. ``docker container on a virtual machine (KVM)``; None: no hint of either."""
    hints = [h for h in (container(root), machine(root)) if h]
    return " on a ".join(hints) if hints else None


def container(root: Path) -> str | None:
    """``docker container`` and the like, or None."""
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
    """``virtual machine (KVM)`` and the like; None on bare metal, as far as one can see."""
    if bare_metal(root):
        return None
    xen = text(root, "sys/hypervisor/type")
    known = (_firmware(root), _by_device(root), _device_tree(root), xen and xen.capitalize(), _by_clock(root))
    kind = next(filter(None, known), None)
    if kind is None and not cpus.flags(root):
        return None
    return f"virtual machine ({kind or 'unnamed hypervisor'})"


def bare_metal(root: Path) -> bool:
    """Whether there is certainly no hypervisor: False is "there is one, or one cannot see".

    An x86 CPU without the flag ``hypervisor`` is bare metal, even if its firmware has the name of a cloud
    (they rent out whole machines too), but not if that has the name of a hypervisor which hides the flag.
    """
    flags = cpus.flags(root)
    if not flags:
        return any(block.get("platform") == "PowerNV" for block in cpus.blocks(root))
    hidden = _firmware(root) not in (None, *_RENT_METAL) or _by_device(root)
    return "hypervisor" not in flags and not text(root, "sys/hypervisor/type") and not hidden


def _firmware(root: Path) -> str | None:
    named = " ".join(text(root, f"sys/class/dmi/id/{name}") or "" for name in _DMI)
    return next((kind for sign, kind in _FIRMWARE.items() if sign in named), None)


def _by_device(root: Path) -> str | None:
    """By a device that only this hypervisor has."""
    devices = {line.split("\t")[1] for line in (text(root, _PCI) or "").splitlines() if "\t" in line}
    return next((kind for id_, kind in _DEVICES.items() if id_ in devices), None)


def _by_clock(root: Path) -> str | None:
    """A guest kernel that has found its hypervisor offers that one's clock."""
    clocks = text(root, "sys/devices/system/clocksource/clocksource0/available_clocksource") or ""
    return next((kind for sign, kind in _CLOCKS.items() if sign in clocks), None)


def _device_tree(root: Path) -> str | None:
    """POWER and ARM; after util-linux's sys-utils/lscpu-virt.c and systemd's src/basic/virt.c."""
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
    """The machine below ``root`` (``/``, or a recorded tree). Needs no rights; raises nothing."""
    memory = fields(text(root, "proc/meminfo")).get("MemTotal", "").split()
    return Host(
        kernel=f"Linux {text(root, 'proc/sys/kernel/osrelease') or os.uname().release}",
        distribution=_distribution(root),
        virtualisation=virtualisation(root),
        clock_ticks_per_s=os.sysconf("SC_CLK_TCK"),
        cpu=cpu(root),
        limits=limits(root),
        memory_bytes=int(memory[0]) * 1024 if memory else None,
        clocksource=text(root, CLOCKSOURCE),
        siblings=siblings(root),
        notes=tuple(_notes(root)),
    )


def _distribution(root: Path) -> str | None:
    """PRETTY_NAME of os-release(5)."""
    release = fields(text(root, "etc/os-release") or text(root, "usr/lib/os-release"), "=")
    return release.get("PRETTY_NAME", "").strip("\"'") or None


def _notes(root: Path) -> list[str]:
    """What will be unknown here, and what would make it known."""
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
    """Super-block options of the mount at /proc (proc(5), mountinfo)."""
    for line in (text(root, "proc/self/mountinfo") or "").splitlines():
        mount, _, filesystem = line.partition(" - ")
        if filesystem.startswith("proc ") and mount.split()[4:5] == ["/proc"]:
            return filesystem
    return ""
