"""Memory that programs can still take without swapping: of the machine, and of a process's control groups.

``MemAvailable`` is the kernel's own estimate (proc_meminfo(5)). A group can take what its limit leaves
above its usage, and its page cache (cgroup-v1/memory.rst, cgroup-v2.rst).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dbdyno.kernel.machine import groups_of
from dbdyno.observe.cpus import fields, integer, text

_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
    2: ("memory.max", "memory.current", ("inactive_file", "active_file")),
}
"""By version: files of limit and usage, and the lines of memory.stat with page cache."""


class Free(NamedTuple):
    """Free memory. ``where``: the source of the bound."""

    bytes: int
    where: str


def free_memory(pid: int | None = None, root: Path = Path("/")) -> Free | None:
    """Returns the least of the machine and the groups of a process (None: this one); None if unknown."""
    available = fields(text(root, "proc/meminfo")).get("MemAvailable", "").split()
    machine = [Free(int(available[0]) * 1024, "MemAvailable")] if available else []
    return min([*machine, *_of_groups(pid, root)], default=None)


def _of_groups(pid: int | None, root: Path) -> Iterator[Free]:
    for version, group in groups_of(pid, root, ["memory"]):
        limit_file, usage_file, parts = _FILES[version]
        limit, usage = integer(group, limit_file), integer(group, usage_file)
        if limit is None or usage is None:
            continue  # "max", or not readable
        listed = fields(text(group, "memory.stat"), " ")
        pages = sum(int(listed.get(name, 0)) for name in parts)
        yield Free(max(0, limit - usage + pages), f"limit of {group}")
