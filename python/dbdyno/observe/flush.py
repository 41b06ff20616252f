"""Measures the cost of a flush in a directory: 8 kB overwritten and flushed by fdatasync(2), many times.

As a server writes its log: into a file of full size, so that no metadata are written. The file is unlinked
at once, so that nothing is left behind in any case.
"""

from __future__ import annotations

import os
import re
import statistics
import time
from pathlib import Path

from dbdyno.model.engine.machine_facts import Flush
from dbdyno.model.units import NS_PER_S
from dbdyno.observe.cpus import text

_PAGE, _PAGES = 8192, 128
_MOST_WRITES, _MOST_NS = 500, 2 * NS_PER_S
_NO_BARRIER = re.compile(r"(?:^|,)(nobarrier|barrier=0|barrier=none)(?:,|$)")
_OCTAL = re.compile(r"\\(\d{3})")


def flush_probe(directory: Path, root: Path = Path("/")) -> Flush:
    """Probes for at most 2 s. If the directory is not writable, ``trouble`` has the reason."""
    system, source, options = mounted_at(text(root, "proc/self/mountinfo") or "", directory.resolve())
    barrier = _NO_BARRIER.search(options)
    try:
        device = _device(directory.stat().st_dev, source, root)
        times = _times(directory)
    except OSError as e:
        why = f"cannot write in {directory}: {e.strerror}"
        return Flush(str(directory), system, "", "", None, 0, trouble=why)
    return Flush(
        str(directory),
        system,
        device,
        text(root, f"sys/block/{device}/queue/write_cache") or "" if device else "",
        statistics.median(times),
        len(times),
        barrier[1] if barrier else "",
    )


def _times(directory: Path) -> list[int]:
    """Returns the nanoseconds of each write with its flush. Raises :class:`OSError`."""
    path = directory / f"dbdyno-flush-{os.getpid()}"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        path.unlink()
        page = b"\1" * _PAGE
        os.pwrite(file, page * _PAGES, 0)
        os.fsync(file)
        times: list[int] = []
        end_ns = time.monotonic_ns() + _MOST_NS
        while len(times) < _MOST_WRITES and (begin := time.monotonic_ns()) < end_ns:
            os.pwrite(file, page, len(times) % _PAGES * _PAGE)
            os.fdatasync(file)
            times.append(time.monotonic_ns() - begin)
        return times
    finally:
        os.close(file)


def mounted_at(mountinfo: str, directory: Path) -> tuple[str, str, str]:
    """Returns file system, source and options of the mount of ``directory`` (proc_pid_mountinfo(5)); empty
    if there is none. Of several mounts at one point the last covers the others."""
    best, mount_facts = -1, ("", "", "")
    for line in mountinfo.split("\n"):
        mount, _, rest = line.partition(" - ")
        words, system = mount.split(), rest.split()
        if len(words) < 6 or len(system) < 2:
            continue
        point = Path(_OCTAL.sub(lambda m: chr(int(m[1], 8)), words[4]))
        if directory.is_relative_to(point) and len(point.parts) >= best:
            best = len(point.parts)
            mount_facts = (system[0], system[1], ",".join([words[5], *system[2:3]]))
    return mount_facts


def _device(number: int, source: str, root: Path) -> str:
    """Returns the name of the whole disk in /sys/block: by the file system's device number, else by the
    mount's source (btrfs has anonymous device numbers)."""
    listed = root / f"sys/dev/block/{os.major(number)}:{os.minor(number)}"
    place = listed if listed.exists() else root / f"sys/class/block/{Path(source).name}"
    if not place.exists():
        return ""
    real = place.resolve()
    return real.parent.name if (real / "partition").exists() else real.name
