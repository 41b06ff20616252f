"""What of the machine is read only where a window begins and ends: CPU by CPU, and files of counters.

Of each CPU its busy time, and on POWER its utilization registers. Rows of the table ``host``; what the watch
reads there every second is the sum over CPUs.

PURR and SPURR of a POWER machine: pure parsers of what its kernel prints, and a thin reader.

- ``/sys/devices/system/cpu/cpuN/{purr,spurr,idle_purr,idle_spurr}``: hexadecimal without ``0x``
  (Documentation/ABI/testing/sysfs-devices-system-cpu; arch/powerpc/kernel/sysfs.c). The idle ones since 5.8,
  on logical partitions only; all are readable by root alone on some kernels.
- ``timebase`` of ``/proc/cpuinfo``: ticks a second.
- ``/proc/powerpc/lparcfg``: ``key=value`` lines; ``purr`` there is the sum over CPUs, in decimal
  (arch/powerpc/platforms/pseries/lparcfg.c).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from dbdyno import _core
from dbdyno.model.data_source import CounterFile
from dbdyno.model.data_sources import files
from dbdyno.model.tables import empty, rows
from dbdyno.model.topology import REGISTERS, Purr, PurrRead
from dbdyno.model.units import NS_PER_S, TICK_NS
from dbdyno.observe.cpus import CPU, online_cpus
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


_BUSY = (0, 1, 2, 5, 6)
"""user nice system, without idle and iowait, irq softirq, without steal (proc(5)); guest is in user."""


def per_cpu(root: Path = Path("/")) -> pl.DataFrame:
    """``cpuN.busy_ns`` of every CPU online, read now; on POWER its registers (``cpuN.purr_ticks``, ...) and
    ``timebase_hz``, too. Empty where /proc/stat cannot be read."""
    before_ns = _core.now_ns()
    stat = text(root, "proc/stat")
    values = dict(_values(busy_ns(stat or ""), read(root, before_ns / NS_PER_S)))
    bracket = {"before_ns": before_ns, "after_ns": _core.now_ns(), "status": "ok"}
    return rows("host", [bracket | {"key": key, "value": value} for key, value in values.items()])


def counter_files(root: Path = Path("/")) -> pl.DataFrame:
    """``KEY.COUNTER`` of the registered files (:mod:`dbdyno.model.data_sources`), read now."""
    return pl.concat([empty("host"), *(rows("host", _read(root, file)) for file in files().values())])


def _read(root: Path, file: CounterFile) -> list[dict[str, object]]:
    """One row a counter; where the file cannot be read, or lacks a counter, the status says so."""
    before_ns = _core.now_ns()
    status, values = "not supported", dict[str, int]()
    try:
        values = dict(file.parse((root / file.path.lstrip("/")).read_text(errors="replace")))
    except PermissionError:
        status = "not permitted"
    except (OSError, ValueError):  # no such file in this kernel, or in another form
        pass
    bracket = {"before_ns": before_ns, "after_ns": _core.now_ns()}
    made = ((f"{file.key}.{c.name}", values.get(c.name)) for c in file.counters)
    return [bracket | {"key": k, "value": v, "status": status if v is None else "ok"} for k, v in made]


def busy_ns(stat: str) -> dict[int, int]:
    """Busy time of each CPU since boot, of /proc/stat (proc(5)); ticks of 10 ms."""
    found = {}
    for line in stat.splitlines():
        word, *numbers = line.split()
        cpu = word.removeprefix("cpu")
        if word != cpu and cpu.isdecimal():
            found[int(cpu)] = TICK_NS * sum(int(numbers[i]) for i in _BUSY if i < len(numbers))
    return found


def _values(busy: Mapping[int, int], registers: PurrRead | None) -> Iterator[tuple[str, int]]:
    yield from ((f"cpu{n}.busy_ns", ns) for n, ns in busy.items())
    if registers is None:
        return
    yield "timebase_hz", registers.timebase_hz
    for n, found in registers.cpus.items():
        told = ((name, getattr(found, name)) for name in REGISTERS)
        yield from ((f"cpu{n}.{name}_ticks", value) for name, value in told if value is not None)
