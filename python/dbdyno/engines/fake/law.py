"""The law of a fake server: what every call costs, on what machine, and what goes wrong when.

Written as a DSN: ``fake:cpus=4,cpu=10ms,wait=IO/DataFileRead:5ms,lock=LWLock/WALWrite:1ms,think=2ms``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from dbdyno.model.errors import UsageError
from dbdyno.model.nearest import did_you_mean
from dbdyno.model.units import NS_PER_S, parse_duration_ns


class Wait(NamedTuple):
    """A named sleep of a call."""

    wait_class: str
    wait_event: str
    ns: int


class Helper(NamedTuple):
    """A process of the server that takes ``share`` of a CPU; ``other`` is somebody else's backend."""

    name: str
    share: float


@dataclass(frozen=True)
class Law:
    """All durations in nanoseconds. The instants of faults count from the barrier."""

    cpus: int = 4
    cpu: int = 1_000_000  # CPU time of one unit of a call's size
    waits: tuple[Wait, ...] = ()  # after the CPU part, one after the other
    lock: Wait | None = (
        None  # the last part of a call: this much CPU time under one lock that all sessions share
    )
    think: int = 0  # between two calls of a session
    driver_cpu: int = 0  # of the driver's one thread, before each call
    system: float = 0.25  # part of the CPU time that is kernel time
    spread: float = 0.0  # CPU and waits of a call vary evenly by this part, up and down
    quantum: int = 4_000_000  # time slice
    quota: float | None = None  # CPUs for sessions and helpers together, in periods of 100 ms
    helpers: tuple[Helper, ...] = ()
    steal: float = 0.0  # CPUs; told in /proc/stat only
    skew: int = 50_000  # from a sample's wait event to its task state
    maximum: int = 10_000  # connections
    seed: int = 1
    # faults
    lose: tuple[tuple[int, int], ...] = ()  # (session, instant)
    down: int | None = None  # the server goes away
    error_every: int = 0  # every n-th call of a session fails
    reset: int | None = None  # counters of the group and the server start again at 0
    reuse: int | None = None  # helpers end and others get their pids
    gap: tuple[int, int] | None = None  # samples in between are lost


def parse_law(dsn: str | None) -> Law:
    """Raises :class:`UsageError` naming the wrong key or value."""
    text = (dsn or "").removeprefix("fake").removeprefix(":")
    values: dict[str, Any] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        key, _, value = item.partition("=")
        field, parse = _KEYS.get(key, (None, None))
        if field is None or parse is None:
            raise UsageError(f"fake server: unknown key {key!r}", did_you_mean(key, _KEYS))
        try:
            values[field] = parse(value)
        except (ValueError, UsageError) as error:
            raise UsageError(f"fake server: {key}={value} cannot be read", _EXAMPLE) from error
    return Law(**values)


def describe(law: Law) -> dict[str, str]:
    """The law as settings: name -> value."""
    return {f.name: str(getattr(law, f.name)) for f in dataclasses.fields(law)}


_EXAMPLE = (
    "as in fake:cpus=4,cpu=10ms,wait=IO/DataFileRead:5ms+Lock/tuple:1ms,lock=LWLock/WALWrite:1ms,"
    "helper=checkpointer:0.1,quota=1.5,lose=2@5s,gap=3s+2s"
)


def _wait(text: str) -> Wait:
    name, _, duration = text.rpartition(":")
    wait_class, _, event = name.partition("/")
    if not (wait_class and event):
        raise ValueError(text)
    return Wait(wait_class, event, parse_duration_ns(duration))


def _helper(text: str) -> Helper:
    name, _, share = text.partition(":")
    if not 0 < float(share) < 1:
        raise ValueError(text)
    return Helper(name, float(share))


def _lost(text: str) -> tuple[int, int]:
    session, _, instant = text.partition("@")
    return int(session), parse_duration_ns(instant)


def _gap(text: str) -> tuple[int, int]:
    start, _, length = text.partition("+")
    return parse_duration_ns(start), parse_duration_ns(start) + parse_duration_ns(length)


def _positive(text: str) -> int:
    if int(text) < 1:
        raise ValueError(text)
    return int(text)


def _quota(text: str) -> float:
    if not 0.01 <= float(text) <= NS_PER_S:
        raise ValueError(text)
    return float(text)


def _part(text: str) -> float:
    if not 0 <= float(text) < 1:
        raise ValueError(text)
    return float(text)


def _several(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: tuple(parse(item) for item in text.split("+"))


_KEYS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "cpus": ("cpus", _positive),
    "cpu": ("cpu", parse_duration_ns),
    "wait": ("waits", _several(_wait)),
    "lock": ("lock", _wait),
    "think": ("think", parse_duration_ns),
    "driver": ("driver_cpu", parse_duration_ns),
    "system": ("system", _part),
    "spread": ("spread", _part),
    "quantum": ("quantum", parse_duration_ns),
    "quota": ("quota", _quota),
    "helper": ("helpers", _several(_helper)),
    "steal": ("steal", float),
    "skew": ("skew", parse_duration_ns),
    "maximum": ("maximum", _positive),
    "seed": ("seed", int),
    "lose": ("lose", _several(_lost)),
    "down": ("down", parse_duration_ns),
    "error_every": ("error_every", _positive),
    "reset": ("reset", parse_duration_ns),
    "reuse": ("reuse", parse_duration_ns),
    "gap": ("gap", _gap),
}
