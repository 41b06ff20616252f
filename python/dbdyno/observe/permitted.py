"""Which CPUs this process may use, and what stands in the way of the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from dbdyno.model.topology import CpuQuota, Cpuset, Why
from dbdyno.observe.limits import find_groups, tightest_quota
from dbdyno.observe.tree import cpus_listed

# version of control groups -> (CPUs, memory nodes); effective: what is left of the wish by the groups above
_FILES = {
    1: (("cpuset.effective_cpus", "cpuset.cpus"), ("cpuset.effective_mems", "cpuset.mems")),
    2: (("cpuset.cpus.effective",), ("cpuset.mems.effective",)),
}


def cpuset(root: Path) -> Cpuset | None:
    """Of the innermost group that tells; None: none can be seen (its effect is in the affinity mask)."""
    for version, directory in find_groups(root, "cpuset"):
        cpus, mems = (cpus_listed(Path(directory), *names) for names in _FILES[version])
        if cpus:
            return Cpuset(version=version, directory=own_path(root, directory), cpus=cpus, mems=mems or None)
    return None


def quota(root: Path) -> CpuQuota | None:
    found = tightest_quota(find_groups(root, "cpu"))
    return None if found is None else CpuQuota(cpus=found.cpus, directory=own_path(root, found.where))


def verdicts(
    present: Iterable[int], online: Iterable[int], group: Cpuset | None, affinity: Iterable[int] | None
) -> Mapping[int, tuple[bool | None, Why | None]]:
    """CPU -> (whether we may run there, what forbids it). The first reason in the kernel's order counts."""
    running, mask = frozenset(online), None if affinity is None else frozenset(affinity)
    inside = None if group is None or group.cpus is None else frozenset(group.cpus)
    return {n: _verdict(n, running, inside, mask) for n in present}


def _verdict(
    n: int, running: frozenset[int], inside: frozenset[int] | None, mask: frozenset[int] | None
) -> tuple[bool | None, Why | None]:
    if n not in running:
        return False, "offline"
    if inside is not None and n not in inside:
        return False, "cpuset"
    if mask is None:
        return None, None
    return (True, None) if n in mask else (False, "affinity")


def own_path(root: Path, directory: str) -> str:
    """As the machine itself names a directory below ``root``."""
    path = Path(directory)
    return f"/{path.relative_to(root)}" if path.is_relative_to(root) else directory
