"""The host a run is made on: hardware, kernel, limits, and what its kernel will not tell."""

from __future__ import annotations

import os
from pathlib import Path

from dbdyno.model.environment import Host
from dbdyno.observe.limits import limits
from dbdyno.observe.topology import cpu, siblings
from dbdyno.observe.tree import fields, text
from dbdyno.observe.virtualisation import container, virtualisation

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
