"""How much memory there is for the server, and what shared_buffers follows from it."""

from __future__ import annotations

from pathlib import Path

_MB = 1 << 20
_LEAST, _MOST = 128 * _MB, 1024 * _MB


def shared_buffers() -> str:
    """A quarter of the memory limit, at least 128 MB, at most 1 GB."""
    chosen = min(_MOST, max(_LEAST, memory_limit_bytes() // 4))
    return f"{chosen // _MB}MB"


def memory_limit_bytes() -> int:
    """The machine's memory, or the tightest cgroup limit above us where that is less."""
    text = Path("/proc/meminfo").read_text()
    total = next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("MemTotal:"))
    return min([total, *_cgroup_limits()])


def _cgroup_limits() -> list[int]:
    """cgroup v2 memory.max and v1 memory.limit_in_bytes of our group and of all above it."""
    limits = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            root, file = Path("/sys/fs/cgroup"), "memory.max"
        elif "memory" in controllers.split(","):
            root, file = Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
        else:
            continue
        own = root / group.lstrip("/")
        limits += [_read(p / file) for p in (own, *own.parents) if p.is_relative_to(root)]
    return [limit for limit in limits if limit is not None]


def _read(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # no such file; "max"
        return None
