"""Machines recorded in a tar file: what the topology is read from, for others to look at elsewhere."""

from __future__ import annotations

import io
import re
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from dbdyno.model.errors import StoreError, UsageError
from dbdyno.observe.limits import find_groups

_CPU = "sys/devices/system/cpu"
_FILES = (
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
# of these only lines that the topology needs: the rest is nobody's business elsewhere
_LINES = {
    "proc/self/status": re.compile(r"Cpus_allowed"),
    "proc/self/mountinfo": re.compile(r" - (cgroup2?|proc) "),
    "proc/meminfo": re.compile(r"MemTotal"),
}
_GROUP_FILES = ("cpuset.*", "cpu.max", "cpu.cfs_*_us")
_LARGEST_BYTES = 16 << 20


def record(into: Path, root: Path = Path("/")) -> int:
    """Writes the machine below ``root`` as a tar file (compressed where it ends in gz or xz); files in it.

    What may not be read is left out. Raises StoreError where the file cannot be written.
    """
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
    """A recorded machine as a directory: itself, or a tar file unpacked for as long as it is needed.

    Raises UsageError where that is no tar file.
    """
    if tree.is_dir():
        yield tree
        return
    with tempfile.TemporaryDirectory(prefix="dbdyno-tree-") as folder:
        try:
            with tarfile.open(tree) as tar:
                _unpack(tar, Path(folder))
        except (OSError, EOFError, tarfile.TarError) as e:
            raise UsageError(f"{tree} is no recorded machine: {e}", "--record FILE writes one") from None
        yield Path(folder)


def _contents(root: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted({p for pattern in _FILES for p in root.glob(pattern)} | set(_group_files(root))):
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
                yield from Path(directory).glob(pattern)


def _read(path: Path) -> bytes | None:
    """Files of /sys do not know their size: read to the end."""
    try:
        return path.read_bytes() if path.is_file() else None
    except OSError:
        return None


def _unpack(tar: tarfile.TarFile, into: Path) -> None:
    """Ordinary files below ``into``, nothing else: a tree from elsewhere is not to be trusted."""
    for member in tar:
        name = PurePosixPath(member.name)
        if not member.isfile() or name.is_absolute() or ".." in name.parts or member.size > _LARGEST_BYTES:
            continue
        source = tar.extractfile(member)
        if source is None:
            continue
        path = into / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source.read())
