"""Resource limits of a process: affinity, the tightest control-group quota, memory, files. Also records
machines in a tar file, so that their topology and limits can be read elsewhere."""

from __future__ import annotations

import errno
import gzip
import io
import lzma
import os
import re
import resource
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, cast

from dbdyno.kernel.machine import groups_of, machine_of
from dbdyno.kernel.processes import cpus_allowed
from dbdyno.model.engine.environment import Limits
from dbdyno.model.engine.topology import CpuQuota, Cpuset, Why
from dbdyno.model.errors import StoreError, UsageError
from dbdyno.observe.cpus import cpu_list, cpus_listed, fields, integer, kernel_online, text
from dbdyno.store.files import read_limited

_UNLIMITED_BYTES = 1 << 60  # v1 has a number near 2^63 for "no limit"


class Quota(NamedTuple):
    cpus: float
    where: str  # the group's directory


def limits(root: Path) -> Limits:
    """Returns the limits of this process. Groups above those mounted here are not visible; they may be
    tighter."""
    may_use = affinity(root)
    groups = find_groups(root, "cpu")
    quota = tightest_quota(groups)
    return Limits(
        affinity=may_use,
        quota_cpus=None if quota is None else quota.cpus,
        quota_where=None if quota is None else quota.where,
        cgroup_version=groups[0][0] if groups else None,
        usable_cpus=len(may_use) if quota is None else min(len(may_use), quota.cpus),
        memory_bytes=next(iter(memory_limit(find_groups(root, "memory")) or ()), None),
        open_files=_open_files(root),
    )


def server_limits(main_pid: int, root: Path) -> dict[str, Any]:
    """Returns the fields of :class:`ServerFacts` for the CPUs that the server may use."""
    mask, online = cpus_allowed(main_pid, root), kernel_online(root)
    tightest = tightest_quota(groups_of(main_pid, root, ["cpu"]))
    return {
        "allowed_cpus": len(mask.intersection(online) if online else mask) or None,
        "quota_cpus": None if tightest is None else tightest.cpus,
        "quota_where": None if tightest is None else own_path(root, tightest.where),
    }


def affinity(root: Path) -> tuple[int, ...]:
    """Returns the online CPUs of the affinity mask; for a recorded tree without a mask those of this
    process."""
    return online_affinity(root) or (
        () if machine_of(root).reached else tuple(sorted(os.sched_getaffinity(0)))
    )


def online_affinity(root: Path) -> tuple[int, ...] | None:
    """Returns the online CPUs of the affinity mask, which may contain absent CPUs; None for a recorded
    tree without a mask."""
    listed = fields(text(root, "proc/self/status")).get("Cpus_allowed_list")
    if not listed and not _is_here(root):
        return None
    allowed = set(cpu_list(listed)) if listed else os.sched_getaffinity(0)
    return tuple(sorted(allowed.intersection(kernel_online(root)) or allowed))


def _is_here(root: Path) -> bool:
    """Returns whether ``root`` is neither a recorded tree nor another machine."""
    return root == Path("/") and machine_of(root).reached is None


def tightest_quota(groups: Sequence[tuple[int, Path]]) -> Quota | None:
    return min(_quotas(groups), default=None)


def find_groups(root: Path, controller: str) -> Sequence[tuple[int, Path]]:
    """Returns (version, directory) of our groups with ``controller``, innermost first; empty if none is
    visible."""
    return groups_of(None, root, [controller])


def _quotas(groups: Sequence[tuple[int, Path]]) -> Iterator[Quota]:
    for version, group in groups:
        limit, period = _v1_quota(group) if version == 1 else _v2_quota(group)
        if limit is not None and limit > 0 and period:
            yield Quota(limit / period, str(group))


def _v1_quota(group: Path) -> tuple[int | None, int | None]:
    """Returns (quota, period) in microseconds; a quota of -1 means none (scheduler/sched-bwc.rst)."""
    return integer(group, "cpu.cfs_quota_us"), integer(group, "cpu.cfs_period_us")


def _v2_quota(group: Path) -> tuple[int | None, int | None]:
    """Parses ``max 100000`` or ``150000 100000`` (cgroup-v2.rst, "cpu.max")."""
    limit, _, period = (text(group, "cpu.max") or "max").partition(" ")
    return (int(limit), int(period)) if limit.isdigit() and period.isdigit() else (None, None)


def memory_limit(groups: Sequence[tuple[int, Path]]) -> tuple[int, str] | None:
    """Returns the tightest limit in bytes, and the group's directory."""
    return min(_memory_limits(groups), default=None)


def _memory_limits(groups: Sequence[tuple[int, Path]]) -> Iterator[tuple[int, str]]:
    for version, group in groups:
        limit = integer(group, "memory.limit_in_bytes" if version == 1 else "memory.max")
        if limit is not None and limit < _UNLIMITED_BYTES:
            yield limit, str(group)


def _open_files(root: Path) -> int:
    """Returns the soft limit of open files; unlimited is 2^63 - 1."""
    for line in (text(root, "proc/self/limits") or "").splitlines():
        if line.startswith("Max open files"):
            soft = line.split()[3]
            return int(soft) if soft.isdigit() else (1 << 63) - 1
    soft_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (1 << 63) - 1 if soft_limit == resource.RLIM_INFINITY else soft_limit


# Version of control groups -> (CPUs, memory nodes). "effective" is the list within that of the groups above.
_FILES = {
    1: (("cpuset.effective_cpus", "cpuset.cpus"), ("cpuset.effective_mems", "cpuset.mems")),
    2: (("cpuset.cpus.effective",), ("cpuset.mems.effective",)),
}


def cpuset(root: Path) -> Cpuset | None:
    """Returns the cpuset of the innermost group with one; None if none is visible (its effect is in the
    affinity mask)."""
    for version, directory in find_groups(root, "cpuset"):
        cpus, mems = (cpus_listed(directory, *names) for names in _FILES[version])
        if cpus:
            named = own_path(root, str(directory))
            return Cpuset(version=version, directory=named, cpus=cpus, mems=mems or None)
    return None


def quota(root: Path) -> CpuQuota | None:
    tightest = tightest_quota(find_groups(root, "cpu"))
    return (
        None if tightest is None else CpuQuota(cpus=tightest.cpus, directory=own_path(root, tightest.where))
    )


def verdicts(
    present: Iterable[int], online: Iterable[int], group: Cpuset | None, affinity: Iterable[int] | None
) -> Mapping[int, tuple[bool | None, Why | None]]:
    """Returns CPU -> (whether we may run there, what forbids it). The first reason in the kernel's order
    counts."""
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
    """Returns the machine's own name of a directory below ``root``."""
    path = Path(directory)
    return f"/{path.relative_to(root)}" if path.is_relative_to(root) else directory


_TOPS, _MOST_ABOVE = frozenset({"proc", "sys", "etc", "run"}), 5
_CPU = "sys/devices/system/cpu"
_RECORDED = (
    "proc/cpuinfo",
    "proc/sys/kernel/osrelease",
    "proc/self/cgroup",
    "etc/os-release",
    ".dockerenv",
    "run/.containerenv",
    "run/systemd/container",
    "sys/hypervisor/type",
    "proc/bus/pci/devices",
    *(f"sys/class/dmi/id/{n}" for n in ("sys_vendor", "product_name", "board_vendor", "bios_vendor")),
    "sys/class/dmi/id/product_version",
    "proc/device-tree/compatible",
    "proc/device-tree/hypervisor/compatible",
    "proc/device-tree/ibm,partition-name",
    "proc/device-tree/hmc-managed?",
    "sys/devices/system/clocksource/clocksource0/*_clocksource",
    *(f"{_CPU}/{n}" for n in ("kernel_max", "online", "offline", "present", "possible", "isolated", "smt/*")),
    *(f"{_CPU}/cpu[0-9]*/{n}" for n in ("online", "topology/*", "cache/index*/[!u]*")),
    *(f"{_CPU}/cpu[0-9]*/cpufreq/{n}" for n in ("scaling_governor", "cpuinfo_*_freq")),
    "sys/devices/system/node/online",
    *(f"sys/devices/system/node/node[0-9]*/{n}" for n in ("cpulist", "cpumap", "distance", "meminfo")),
)
# Only lines that the topology needs are recorded of these files, as the rest is private.
_LINES = {
    "proc/self/status": re.compile(r"Cpus_allowed"),
    "proc/self/mountinfo": re.compile(r" - (cgroup2?|proc) "),
    "proc/meminfo": re.compile(r"MemTotal"),
}
_GROUP_FILES = ("cpuset.*", "cpu.max", "cpu.cfs_*_us")
_LARGEST_BYTES = 16 << 20
# There are 30 files per CPU, most of them a header and a block of 512 bytes: 17 MiB for 512 CPUs.
_MOST_TREE_BYTES, _MOST_FILES = 256 << 20, 200_000


def read_of_host() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the files and folders that :func:`dbdyno.observe.host.host` and the topology read, with
    ``*`` for any name."""
    files = (p.replace("[0-9]*", "*").replace("[!u]*", "*") for p in _RECORDED)
    more = ("proc/self/schedstat", "proc/sys/kernel/task_delayacct", "usr/lib/os-release")
    folders = (_CPU, f"{_CPU}/cpu*/cache", "sys/devices/system/node")
    return (*files, *_LINES, *more), folders


def record(into: Path, root: Path = Path("/")) -> int:
    """Writes the machine below ``root`` as a tar file (compressed if the name ends in gz or xz). Returns
    the number of files. Unreadable files are left out. Raises StoreError if the tar file cannot be
    written."""
    mode = {".gz": "w:gz", ".tgz": "w:gz", ".xz": "w:xz"}.get(into.suffix, "w")
    count = 0
    try:
        with tarfile.open(into, mode) as tar:  # type: ignore[call-overload]
            for name, content in _contents(root):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
                count += 1
    except OSError as e:
        raise StoreError(f"cannot write {into}: {e.strerror}", "name a file where you may write") from None
    return count


@contextmanager
def opened(tree: Path) -> Iterator[Path]:
    """Yields a recorded machine as a directory: itself, or a tar file unpacked temporarily. Raises
    UsageError if it is not a tar file."""
    if tree.is_dir():
        yield _top(tree)
        return
    with tempfile.TemporaryDirectory(prefix="dbdyno-tree-") as folder:
        try:
            stream = _Limited(_decompressed(io.BytesIO(read_limited(tree))))
            with tarfile.open(fileobj=cast(IO[bytes], stream), mode="r|") as tar:
                _unpack(tar, Path(folder))
        except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, tarfile.TarError) as e:
            raise UsageError(f"{tree} is not a recorded machine: {e}", "--record FILE writes one") from None
        yield _top(Path(folder))


def _top(folder: Path) -> Path:
    """Returns the begin of a recorded machine: skips directories with a single entry, another directory."""
    for _ in range(_MOST_ABOVE):
        names = [p for p in folder.iterdir() if not p.is_symlink()]
        if len(names) != 1 or not names[0].is_dir() or names[0].name in _TOPS:
            break
        folder = names[0]
    return folder


class _Limited:
    """A stream with a limit of the bytes read, as a compressed file may decompress without end."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._left_bytes = stream, _MOST_TREE_BYTES

    def read(self, size: int) -> bytes:
        """Reads. Raises OSError beyond the limit."""
        content = self._stream.read(size)
        self._left_bytes -= len(content)
        if self._left_bytes < 0:
            raise OSError(errno.EFBIG, f"it is larger than {_MOST_TREE_BYTES >> 20} MiB when unpacked")
        return content


def _decompressed(packed: io.BytesIO) -> IO[bytes]:
    begin = packed.getvalue()[:6]
    if begin.startswith(b"\x1f\x8b"):
        return cast(IO[bytes], gzip.open(packed))
    return cast(IO[bytes], lzma.open(packed)) if begin.startswith(b"\xfd7zXZ") else packed


def _contents(root: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted({p for pattern in _RECORDED for p in root.glob(pattern)} | set(_group_files(root))):
        if (content := _read(path)) is not None:
            yield str(path.relative_to(root)), content
    for name, wanted in _LINES.items():
        lines = (_read(root / name) or b"").splitlines(keepends=True)
        if kept := [line for line in lines if wanted.search(line.decode(errors="replace"))]:
            yield name, b"".join(kept)


def _group_files(root: Path) -> Iterator[Path]:
    for controller in ("cpu", "cpuset"):
        for _, directory in find_groups(root, controller):
            for pattern in _GROUP_FILES:
                yield from directory.glob(pattern)


def _read(path: Path) -> bytes | None:
    """Reads a file to its end, as files of /sys do not know their size; None if it is not readable."""
    try:
        return path.read_bytes() if path.is_file() else None
    except OSError:
        return None


def _unpack(tar: tarfile.TarFile, into: Path) -> None:
    """Unpacks ordinary files below ``into`` and nothing else, as the archive is not trusted."""
    for count, member in enumerate(tar):
        if count >= _MOST_FILES:
            raise OSError(errno.EFBIG, f"it has more than {_MOST_FILES:,} files")
        name = PurePosixPath(member.name)
        plain = member.isfile() and not member.issparse()  # holes take no space in the archive
        if not plain or name.is_absolute() or ".." in name.parts or member.size > _LARGEST_BYTES:
            continue
        source = tar.extractfile(member)
        if source is None:
            continue
        path = into / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source.read())
