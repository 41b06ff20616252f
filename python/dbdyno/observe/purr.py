"""PURR and SPURR of a POWER machine: pure parsers of what its kernel prints, and a thin reader.

- ``/sys/devices/system/cpu/cpuN/{purr,spurr,idle_purr,idle_spurr}``: hexadecimal without ``0x``
  (Documentation/ABI/testing/sysfs-devices-system-cpu; arch/powerpc/kernel/sysfs.c). The idle ones since 5.8,
  on logical partitions only; all are readable by root alone on some kernels.
- ``timebase`` of ``/proc/cpuinfo``: ticks a second.
- ``/proc/powerpc/lparcfg``: ``key=value`` lines; ``purr`` there is the sum over CPUs, in decimal
  (arch/powerpc/platforms/pseries/lparcfg.c).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dbdyno.model.power import REGISTERS, Purr, PurrRead
from dbdyno.observe.places import CPU, online_cpus
from dbdyno.observe.tree import fields, text


@dataclass(frozen=True)
class Partition:
    """What /proc/powerpc/lparcfg says of the partition. ``None``: it does not tell."""

    shared: bool | None
    capped: bool | None
    entitled_cores: float | None
    """partition_entitled_capacity counts in hundredths of a core."""
    virtual_cores: int | None
    """partition_active_processors."""
    purr: int | None


def register(printed: str) -> int | None:
    """A register as sysfs prints it: ``1a2b3c`` -> 1715004; None: not a number."""
    try:
        return int(printed.strip(), 16)
    except ValueError:
        return None


def timebase_hz(cpuinfo: str) -> int | None:
    """Of the line ``timebase : 512000000``."""
    found = fields(cpuinfo).get("timebase", "")
    return int(found) if found.isdecimal() else None


def partition(lparcfg: str) -> Partition:
    """Of /proc/powerpc/lparcfg. Unknown lines are passed over."""
    said = fields(lparcfg, "=")
    hundredths = _whole(said, "partition_entitled_capacity")
    shared, capped = _whole(said, "shared_processor_mode"), _whole(said, "capped")
    return Partition(
        shared=None if shared is None else bool(shared),
        capped=None if capped is None else bool(capped),
        entitled_cores=None if hundredths is None else hundredths / 100,
        virtual_cores=_whole(said, "partition_active_processors"),
        purr=_whole(said, "purr"),
    )


def read(root: Path, at_s: float) -> PurrRead | None:
    """All online CPUs below ``root``. None: this is no POWER machine, or the registers may not be read."""
    ticks = timebase_hz(text(root, "proc/cpuinfo") or "")
    cpus = {n: found for n in online_cpus(root) if (found := _of_cpu(root, n)) is not None}
    return PurrRead(at_s, ticks, cpus) if ticks and cpus else None


def _of_cpu(root: Path, n: int) -> Purr | None:
    found = Purr.of({name: register(text(root, f"{CPU}/cpu{n}/{name}") or "") for name in REGISTERS})
    return None if found.purr is None else found


def _whole(said: Mapping[str, str], key: str) -> int | None:
    value = said.get(key, "").strip()
    return int(value) if value.isdecimal() else None
