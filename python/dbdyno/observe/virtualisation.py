"""Whether this is a virtual machine, a container, or both: hints that any user may read."""

from __future__ import annotations

import re
from pathlib import Path

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
    """``virtual machine (KVM)`` and the like; None on bare metal, as far as one can see.

    An x86 CPU without the flag ``hypervisor`` is bare metal, whatever its firmware is called (clouds rent
    out whole machines too).
    """
    xen = text(root, "sys/hypervisor/type")
    flags = fields(text(root, "proc/cpuinfo")).get("flags", "").split()
    if flags and "hypervisor" not in flags and not xen:
        return None
    firmware = " ".join(text(root, f"sys/class/dmi/id/{name}") or "" for name in _DMI)
    kind = next((kind for sign, kind in _FIRMWARE.items() if sign in firmware), None)
    if kind is None and xen:
        kind = xen.capitalize()
    if kind is None and not flags:
        return None
    return f"virtual machine ({kind or 'unnamed hypervisor'})"
