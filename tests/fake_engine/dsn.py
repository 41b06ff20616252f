"""A law written as a DSN: ``fake:cpus=4,cpu=10ms,wait=IO/DataFileRead:5ms,think=2ms``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dbdyno.model.errors import UsageError, did_you_mean
from dbdyno.model.units import NS_PER_S, parse_duration_ns
from tests.fake_engine.law import Burst, Helper, Law, Span, Stalls, Wait

_EXAMPLE = (
    "as in fake:cpus=4,cpu=10ms,wait=IO/DataFileRead:5ms+Lock/tuple:1ms,lock=LWLock/WALWrite:1ms,"
    "helper=checkpointer:0.1,quota=1.5,lose=2@5s,gap=3s+2s, or call=cpu:3ms+IO/DataFileRead:2ms+cpu:1ms"
)


def parse_law(dsn: str | None) -> Law:
    """Returns the law of a DSN. Raises :class:`UsageError` that names the wrong key or value."""
    text = (dsn or "").removeprefix("fake").removeprefix(":")
    values: dict[str, Any] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        key, _, value = item.partition("=")
        field, parse = KEYS.get(key, (None, None))
        if field is None or parse is None:
            raise UsageError(f"fake server: unknown key {key!r}", did_you_mean(key, KEYS))
        try:
            values[field] = parse(value)
        except (ValueError, UsageError) as error:
            raise UsageError(f"fake server: {key}={value} cannot be read", _EXAMPLE) from error
    _check(values)
    return Law(**values)


def _check(values: dict[str, Any]) -> None:
    if "call" in values and values.keys() & {"cpu", "waits"}:
        raise UsageError("fake server: call= says it all", "leave out cpu= and wait=")
    for key, needed in (("hold", "lock"), ("holders", "hold"), ("stay", "foreign")):
        if key in values and needed not in values:
            raise UsageError(f"fake server: {key}= needs {needed}=", _EXAMPLE)


def _wait(text: str) -> Wait:
    name, _, duration = text.rpartition(":")
    wait_class, _, event = name.partition("/")
    if not (wait_class and event):
        raise ValueError(text)
    return Wait(wait_class, event, parse_duration_ns(duration))


def _part_of_call(text: str) -> Wait | Burst:
    if text.startswith("cpu:"):
        return Burst(parse_duration_ns(text.removeprefix("cpu:")))
    return _wait(text)


def _helper(text: str) -> Helper:
    name, _, share = text.partition(":")
    if not 0 < float(share) < 1:
        raise ValueError(text)
    return Helper(name, float(share))


def _lost(text: str) -> tuple[int, int]:
    session, _, instant = text.partition("@")
    return int(session), parse_duration_ns(instant)


def _span(text: str) -> Span:
    start, _, length = text.partition("+")
    return Span(parse_duration_ns(start), parse_duration_ns(length))


def _stalls(text: str) -> Stalls:
    wait, _, every = text.rpartition("/")
    return Stalls(_wait(wait), parse_duration_ns(every))


def _down(text: str) -> Span:
    return _span(text if "+" in text else f"{text}+0s")


def _gap(text: str) -> tuple[int, int]:
    start, length = _span(text)
    return start, start + length


def _positive(text: str) -> int:
    if int(text) < 1:
        raise ValueError(text)
    return int(text)


def _quota(text: str) -> float:
    if not 0.01 <= float(text) <= NS_PER_S:
        raise ValueError(text)
    return float(text)


def _share(text: str) -> float:
    if not 0 <= float(text) < 1:
        raise ValueError(text)
    return float(text)


def _more(text: str) -> float:
    if not 0 <= float(text) <= 1000:
        raise ValueError(text)
    return float(text)


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(text)
        return text

    return parse


def _noise(text: str) -> tuple[float, float]:
    starts, _, loads = text.partition("+")
    return _share(starts), _share(loads or "0")


def _on(text: str) -> bool:
    return _one_of("on", "off")(text) == "on"


def _several(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: tuple(parse(item) for item in text.split("+"))


KEYS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "cpus": ("cpus", _positive),
    "quantum": ("quantum", parse_duration_ns),
    "quota": ("quota", _quota),
    "steal": ("steal", float),
    "stolen": ("stolen", _share),
    "cpu": ("cpu", parse_duration_ns),
    "wait": ("waits", _several(_wait)),
    "call": ("call", _several(_part_of_call)),
    "lock": ("lock", _wait),
    "hold": ("hold", _wait),
    "holders": ("holders", _positive),
    "commit": ("commit", _wait),
    "idle_cpu": ("idle_cpu", _share),
    "io_cpu": ("io_cpu", _share),
    "io_workers": ("io_workers", _positive),
    "workers": ("workers", _positive),
    "system": ("system", _share),
    "think": ("think", parse_duration_ns),
    "driver": ("driver_cpu", parse_duration_ns),
    "spread": ("spread", _share),
    "unequal": ("unequal", _more),
    "drift": ("drift", _more),
    "maximum": ("maximum", _positive),
    "foreign": ("foreign", _positive),
    "stay": ("stay", _span),
    "pids": ("pids", _one_of("new", "reused")),
    "noise": ("noise", _noise),
    "slope": ("slope", float),
    "seed": ("seed", int),
    "helper": ("helpers", _several(_helper)),
    "vacuum": ("vacuum", _span),
    "checkpoint": ("checkpoint", _span),
    "exponential": ("exponential", _on),
    "skew": ("skew", parse_duration_ns),
    "late": ("late", parse_duration_ns),
    "trace": ("trace", _on),
    "word": ("word", _on),
    "delayacct": ("delayacct", _on),
    "lose": ("lose", _several(_lost)),
    "stall": ("stall", _span),
    "stalls": ("stalls", _stalls),
    "down": ("down", _down),
    "error_every": ("error_every", _positive),
    "reset": ("reset", parse_duration_ns),
    "reuse": ("reuse", parse_duration_ns),
    "gap": ("gap", _gap),
}
