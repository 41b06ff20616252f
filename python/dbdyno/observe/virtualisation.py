"""Whether this is a virtual machine, a container, or both: hints that any user may read."""

from __future__ import annotations

import re
from pathlib import Path

from dbdyno.observe import cpuinfo
from dbdyno.observe.tree import text

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
    if kind is None and not cpuinfo.flags(root):
        return None
    return f"virtual machine ({kind or 'unnamed hypervisor'})"


def bare_metal(root: Path) -> bool:
    """Whether there is certainly no hypervisor: False is "there is one, or one cannot see".

    An x86 CPU without the flag ``hypervisor`` is bare metal, even if its firmware has the name of a cloud
    (they rent out whole machines too), but not if that has the name of a hypervisor which hides the flag.
    """
    flags = cpuinfo.flags(root)
    if not flags:
        return any(block.get("platform") == "PowerNV" for block in cpuinfo.blocks(root))
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
