"""What a column of a ladder is, and in what unit, by its heading."""

from __future__ import annotations

import re
from dataclasses import dataclass

TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""Units of time in seconds."""
_TIME_WORDS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("ms", "msec", "msecs", "millis", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("us", "usec", "usecs", "micros", "microsecond", "microseconds"), "us"),
    **dict.fromkeys(("ns", "nsec", "nsecs", "nanos", "nanosecond", "nanoseconds"), "ns"),
}
_SECOND = ("s", "sec", "secs", "second", "seconds")
_MINUTE = ("m", "min", "mins", "minute", "minutes")

LOADS = {
    "sessions": 0, "load": 0,
    "clients": 1, "threads": 1, "users": 1, "n": 1, "concurrency": 1, "connections": 1, "workers": 1,
    "processors": 1, "procs": 1, "processes": 1, "backends": 1, "terminals": 1, "streams": 1, "jobs": 1,
    "vus": 1, "conns": 1, "parallelism": 1, "mpl": 1, "size": 1, "level": 1, "p": 2, "cores": 2, "cpus": 2,
}  # fmt: skip
"""Heading -> rank: of two that may be the load the lower rank is it."""
_UNITS_OF_LOAD = {"procs": "processes", "conns": "connections", "vus": "users", "terminals": "terminals"}
_NO_UNIT = frozenset({"load", "n", "concurrency", "parallelism", "mpl", "size", "level", "p"})
_FILLERS = frozenset(
    {"num", "number", "no", "nr", "of", "count", "concurrent", "active", "db", "virtual", "the"}
)

_RATES = {
    "tps": "transactions/s", "qps": "queries/s", "rps": "requests/s", "ops": "operations/s", "iops": "I/Os/s",
    "rate": "", "throughput": "", "tput": "", "thruput": "", "xput": "", "x": "", "performance": "",
    "capacity": "", "tpm": "transactions/s", "tpmc": "transactions/s",
}  # fmt: skip
_AVERAGE = frozenset({"mean", "avg", "average"})
_RESPONSE = frozenset({"response", "latency", "lat", "rt", "resp", "responsetime", "r", "residence"})
_P95 = frozenset({"p95", "95th", "95", "q95", "pct95", "perc95", "p95th"})
_OF_CPU = frozenset({"time", "used", "usage", "util", "utilization", "utilisation", "busy", "total", "aas"})
_CPUS: dict[frozenset[str], str] = {
    frozenset({"cpu"}): "cpu",
    frozenset({"cpus"}): "cpu",
    frozenset({"run"}): "cpu",
    **{frozenset({c, w}): "cpu_user" for c in ("cpu", "run") for w in ("user", "usr")},
    **{frozenset({c, w}): "cpu_system" for c in ("cpu", "run") for w in ("system", "sys", "kernel")},
    **{frozenset({"cpu", w}): "cpu_wait" for w in ("wait", "waiting", "delay", "runq")},
    frozenset({"runq"}): "cpu_wait",
    frozenset({"run", "queue"}): "cpu_wait",
}
_DURATIONS = frozenset({"duration", "elapsed", "measured", "measure", "window", "runtime", "interval"})
_REPEATS = frozenset(
    {"repeat", "run", "rep", "replicate", "replication", "iteration", "iter", "round", "trial", "repetition"}
    | {"block", "pass", "sample"}
)


@dataclass(frozen=True)
class Named:
    """A column: ``role`` is one of Ladder.points' columns, ``duration`` or ``cpu_per_unit``.

    ``unit``: of a time s, ms, us, ns; of CPU also ``%``; of load and throughput what is counted; empty: the
    heading does not say. ``factor`` turns throughput into one per second.
    """

    role: str
    rank: int = 1
    unit: str = ""
    factor: float = 1.0


def named(heading: str) -> Named | None:
    """``None``: nothing that a ladder has. ``response_ms`` -> response_s, unit ms; ``Users`` -> load."""
    words, bracket = _words(heading)
    rate = _rate(words, bracket)
    if rate is not None:
        return rate
    found, unit = _time(words, bracket)
    return _load(found, unit) or _cpu(words, found, unit) or _response(found, unit) or _other(found, unit)


def is_time_unit(text: str) -> str | None:
    return _TIME_WORDS.get(text.strip().lower().replace("µ", "u").replace("μ", "u"))


def _words(heading: str) -> tuple[list[str], str]:
    """``avgLatency (ms)`` -> ["avg", "latency"], "ms"."""
    text = heading.strip().replace("µ", "u").replace("μ", "u")
    match = re.search(r"[(\[]\s*([^)\]]*?)\s*[)\]]\s*\Z", text)
    bracket = match[1] if match else ""
    base = text[: match.start()] if match else text
    base = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", base).lower()
    return re.findall(r"[^\W_]+|[%/]", base), bracket


def _rate(words: list[str], bracket: str) -> Named | None:
    """``tps``, ``calls_per_s``, ``throughput (MB/s)``, ``queries/min``."""
    unit, per = bracket, re.split(r"\s*(?:/|\bper\b)\s*", bracket.lower())
    factor, rank = 1.0, 1
    rest = [w for w in words if w not in _AVERAGE | {"total"}]
    if len(rest) >= 3 and rest[-2] in ("per", "/") and rest[-1] in _SECOND + _MINUTE:
        factor = 1 / 60 if rest[-1] in _MINUTE else 1.0
        rest, counted = rest[:-2], " ".join(rest[:-2])
        if "cpu" in rest:
            return None
        unit = "" if counted in _RATES else f"{counted}/s"
        return Named("throughput", 1 if counted == "work" else 0, unit or _RATES[counted], factor)
    rest = ["".join(rest)]  # tpmC, thru-put
    if rest[0] not in _RATES:
        return None
    if len(per) == 2 and per[1] in _MINUTE:
        factor, unit = 1 / 60, f"{bracket.split('/')[0].strip()}/s"
    elif len(per) != 2:
        unit = ""
    if rest[0] in ("tpm", "tpmc"):
        factor = 1 / 60
    rank = 0 if rest[0] in ("throughput", "tput", "thruput", "xput") else 1
    return Named("throughput", rank, unit or _RATES[rest[0]], factor)


def _time(words: list[str], bracket: str) -> tuple[list[str], str]:
    """Words without the unit, and the unit."""
    unit = is_time_unit(bracket) or ("%" if bracket.strip() in ("%", "percent", "pct") else "")
    if unit or len(words) < 2:
        return words, unit
    last = words[-1]
    if last in _TIME_WORDS:
        return words[:-1], _TIME_WORDS[last]
    return (words[:-1], "%") if last in ("%", "pct", "percent") and words[0] != "95" else (words, "")


def _load(words: list[str], unit: str) -> Named | None:
    rest = [w for w in words if w not in _FILLERS] or words
    if unit or len(rest) != 1 or rest[0] == "cpu":
        return None
    word = rest[0] if rest[0] in LOADS else f"{rest[0]}s"
    if word not in LOADS and f"{rest[0]}es" in LOADS:
        word = f"{rest[0]}es"
    if word not in LOADS:
        return None
    counted = "" if word in _NO_UNIT else _UNITS_OF_LOAD.get(word, word)
    return Named("load", LOADS[word], counted)


def _cpu(words: list[str], found: list[str], unit: str) -> Named | None:
    if found[:2] == ["cpu", "per"] and len(found) == 3 and found[2] != "work" and unit in TIMES:
        return Named("cpu_per_unit", unit=unit)
    if len(words) > 2 and words[-2] in ("per", "/") and words[-1] in _SECOND:  # CPU seconds per second
        found, unit = [w for w in words[:-2] if w not in _SECOND], ""
    kept = frozenset(found) - _OF_CPU - _AVERAGE
    role = _CPUS.get(kept)
    if role is None or (kept == frozenset({"run"}) and "aas" not in found):
        return None
    return Named(role, 0 if unit == "" else 1, unit)


def _response(words: list[str], unit: str) -> Named | None:
    rest = [w for w in words if w not in {"time", "times", "the", "in"}]
    plain = [w for w in rest if w not in _AVERAGE]
    if len(plain) == 1 and plain[0] in _RESPONSE:
        return Named("response_s", 0 if len(plain) == len(rest) else 1, unit)
    if not plain and rest and unit in TIMES:
        return Named("response_s", 2, unit)
    others = set(rest) - _P95 - _RESPONSE - {"percentile", "pct", "ile", "th", "%"}
    if set(rest) & _P95 and not others:
        return Named("response_p95_s", 1, unit)
    return None


def _other(words: list[str], unit: str) -> Named | None:
    rest = [w for w in words if w not in _FILLERS | {"id", "time"}]
    if len(rest) != 1:
        return None
    if rest[0] in _REPEATS and not unit:
        return Named("repeat")
    return Named("duration", unit=unit or "s") if rest[0] in _DURATIONS and unit != "%" else None
