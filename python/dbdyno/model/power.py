"""What a POWER machine's utilization registers said at an instant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

REGISTERS = ("purr", "idle_purr", "spurr", "idle_spurr")


@dataclass(frozen=True)
class Purr:
    """Registers of one hardware thread, in ticks of the time base. ``None``: the kernel does not tell."""

    purr: int | None
    idle_purr: int | None = None
    spurr: int | None = None
    idle_spurr: int | None = None

    @staticmethod
    def of(values: Mapping[str, float | None]) -> Purr:
        """By the registers' names."""
        return Purr(*(None if (v := values.get(name)) is None else int(v) for name in REGISTERS))


@dataclass(frozen=True)
class PurrRead:
    """One reading of all CPUs."""

    at_s: float
    timebase_hz: int
    """Ticks of the time base a second: ``timebase`` of /proc/cpuinfo; 512 MHz since POWER6."""
    cpus: Mapping[int, Purr]
