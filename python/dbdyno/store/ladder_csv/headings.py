"""What a column of a ladder is, and in what unit, by its heading."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0, "d": 86400.0}
"""Units of time in seconds."""
_TIME_WORDS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("ms", "msec", "msecs", "millis", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("us", "usec", "usecs", "micros", "microsecond", "microseconds"), "us"),
    **dict.fromkeys(("ns", "nsec", "nsecs", "nanos", "nanosecond", "nanoseconds"), "ns"),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), "min"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("d", "day", "days"), "d"),
}
_PER_WORDS = _TIME_WORDS | {"m": "min"}
_LETTERS = {"s": "s", "m": "min", "h": "h", "d": "d"}  # of tps, tpm, tph
_PERCENT = ("%", "pct", "percent")

_SESSIONS = {
    "session": "sessions", "client": "clients", "thread": "threads", "thd": "threads", "user": "users",
    "vuser": "users",
    "vu": "users", "connection": "connections", "conn": "connections", "worker": "workers",
    "process": "processes", "proc": "processes", "backend": "backends", "terminal": "terminals",
    "stream": "streams", "job": "jobs", "load": "", "n": "", "concurrency": "", "mpl": "",
    "multiprogramming": "", "aas": "active sessions", "level": "", "size": "", "agent": "agents",
}  # fmt: skip
"""Words of loads that count what has one call at a time."""
_OTHERS = {
    "node": "nodes", "instance": "instances", "servers": "servers", "machines": "machines",
    "hosts": "hosts", "shard": "shards", "replica": "replicas", "processor": "processors",
    "core": "cores", "cpu": "cpus", "vcpu": "vcpus", "p": "", "dop": "parallel workers",
    "degree": "parallel workers", "degreeparallelism": "parallel workers", "parallelism": "",
    "queuedepth": "I/Os in flight", "iodepth": "I/Os in flight", "qd": "I/Os in flight",
    "depth": "I/Os in flight",
}  # fmt: skip
"""And of loads each of which has any number of calls at a time, or a share of one."""
_FILLERS = frozenset(
    {"num", "number", "no", "nr", "of", "count", "concurrent", "active", "db", "virtual", "the", "average"}
    | {"avg", "parallel", "simultaneous", "in", "io", "total"}
)

_COUNTED = {
    "calls": "call", "requests": "request req reqs", "transactions": "transaction trans trx tx txn txns xact",
    "queries": "query", "operations": "operation op ops", "statements": "statement stmt stmts",
    "orders": "order", "rows": "row", "events": "event", "commits": "commit", "inserts": "insert",
    "selects": "select", "updates": "update", "reads": "read", "writes": "write",
    "messages": "message msg msgs",
    "I/Os": "io ios", "executions": "execution exec execs", "iterations": "iteration", "records": "record",
    "documents": "document doc docs", "hits": "", "pages": "page", "units": "unit", "jobs": "",
}  # fmt: skip
_THINGS = {word: name for name, words in _COUNTED.items() for word in (name.lower(), *words.split())}
"""Word of a heading -> what is counted."""
_INITIALS = {
    "t": "transactions", "q": "queries", "r": "requests", "o": "operations", "op": "operations",
    "io": "I/Os", "nop": "orders", "c": "calls",
}  # fmt: skip
_RATES = frozenset(
    {"rate", "throughput", "tput", "thruput", "xput", "x", "performance", "capacity", "speed"} | {"bandwidth"}
)
_SCALES = {
    "k": 1e3, "thousand": 1e3, "thousands": 1e3, "m": 1e6, "mio": 1e6, "million": 1e6, "millions": 1e6,
    "g": 1e9, "billion": 1e9, "billions": 1e9,
}  # fmt: skip
_FAILED = frozenset(
    f"{word}{s}"
    for word in ("error", "err", "failure", "failed", "retry", "retrie", "abort", "rollback", "deadlock")
    for s in ("", "s")
)
_LONGEST = 200  # characters of a heading
_BYTES = re.compile(r"[kmgt]?i?(b|bit|bits|byte|bytes)\Z")
_AVERAGE = frozenset({"mean", "avg", "average"})
_RESPONSE = frozenset({"response", "latency", "lat", "rt", "resp", "responsetime", "r", "residence"})
_P95 = frozenset({"p95", "95th", "95", "q95", "pct95", "perc95", "p95th"})
_OF_CPU = frozenset({"time", "used", "usage", "util", "utilization", "utilisation", "busy", "total", "aas"})
_CPUS: dict[frozenset[str], str] = {
    frozenset({"cpu"}): "cpu",
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
    """A column: ``role`` is one of Ladder.points' columns, ``duration`` or ``cpu_per_unit``."""

    role: str
    rank: int = 1
    """Of several columns that may have the role, those with the lowest rank have it."""
    unit: str = ""
    """Of a time a key of :data:`TIMES`; of CPU also ``%``; of load what is counted; of throughput the same,
    per second. Empty: the heading does not say."""
    factor: float = 1.0
    """Turns throughput into units per second."""
    per: str = ""
    """The time that the heading divides throughput by, a key of :data:`TIMES`; empty: it names none."""
    is_count: bool = False
    """Throughput as a number of calls in a measurement, not as a rate."""
    closed: bool = True
    """A unit of load has one call at a time, so that Little's law holds."""


@dataclass(frozen=True)
class Rate:
    """A unit of throughput: ``k tx/h`` -> transactions, 1000, h. Parts not named are empty."""

    counted: str = ""
    scale: float = 1.0
    per: str = ""

    @property
    def factor(self) -> float:
        return self.scale / TIMES[self.per or "s"]


def named(heading: str) -> Named | None:
    """``None``: nothing that a ladder has. ``response_ms`` -> response_s, unit ms; ``Users`` -> load."""
    words, bracket = _words(heading)
    rate = _throughput(words, bracket)
    if rate is not None:
        return rate
    found, unit = _time(words, bracket)
    return _load(found, unit) or _cpu(words, found, unit) or _response(found, unit) or _other(found, unit)


def is_time_unit(text: str) -> str | None:
    return _TIME_WORDS.get(_folded(text).strip().lower())


def unit_of(heading: str) -> str:
    """The unit of time, or ``%``, that any heading ends with: ``what_it_took_ms``; empty: none."""
    return _time(*_words(heading))[1]


@cache
def rate_unit(text: str) -> Rate | None:
    """A unit as in ``Mtx/h``, ``requests per minute``, ``k``, ``ktps``, ``MB/s``, ``1000 orders``."""
    words = re.findall(r"[^\W\d_]+|\d+|/|%", re.sub(r"(000)s\b", r"\1", _folded(text).strip()))
    per = ""
    cut = next((i for i, w in enumerate(words) if w.lower() in ("per", "/")), len(words))
    if cut < len(words):
        if cut != len(words) - 2 or (per := _PER_WORDS.get(words[-1].lower(), "")) == "":
            return None
        words = words[:cut]
    scale, counted = _scaled([w for w in words if w not in ("x", "in")])
    if len(counted) == 1 and (short := _short(counted[0])):
        if short.counted != "operations" and per not in ("", short.per):
            return None  # tps/hour: per second, or per hour? ops/hour: operations
        return Rate(short.counted, scale * short.scale, per or short.per)
    if len(counted) == 1 and not _BYTES.match(counted[0].lower()):
        thing = _thing(counted[0])
        return Rate(thing.counted, scale * thing.scale, per) if thing else Rate(counted[0], scale, per)
    return Rate(" ".join(w.upper() if _BYTES.match(w) and len(w) == 2 else w for w in counted), scale, per)


def _scaled(words: list[str]) -> tuple[float, list[str]]:
    """Without the words of size before and behind, and their product: ``k``, ``1000``, ``millions``."""
    scale, left = 1.0, list(words)
    for place in (0, -1):
        while left and (size := _size(left[place])):
            scale *= size
            left.pop(place)
    return scale, left


def _size(word: str) -> float | None:
    if re.fullmatch(r"1(000)*", word):
        return float(word)
    return 1e3 if word == "000" else _SCALES.get(word.lower())


def _short(word: str) -> Rate | None:
    """``tps``, ``ktps``, ``tpmC``, ``NOPM``, ``QphH``, ``MIOPS``."""
    match = re.fullmatch(r"(k|m|g)?(iops|ops|(?:nop|op|io|[tqroc])p?([smhd]))(c|e|h)?", word.lower())
    if match is None:
        return None
    letter, core = match[1], match[2]
    if core in ("iops", "ops"):
        return Rate("I/Os" if core == "iops" else "operations", _SCALES.get(letter or "", 1.0), "s")
    stem = re.fullmatch(r"(nop|op|io|[tqroc])(p?)([smhd])", core)
    if stem is None or not (stem[2] or stem[1] in ("nop", "op")):
        return None
    return Rate(_INITIALS[stem[1]], _SCALES.get(letter or "", 1.0), _LETTERS[stem[3]])


def _thing(word: str) -> Rate | None:
    """``tx`` -> transactions; ``Mtx`` -> a million of them."""
    low = word.lower()
    if low in _THINGS:
        return Rate(_THINGS[low])
    if low[:1] in _SCALES and low[1:] in _THINGS:
        return Rate(_THINGS[low[1:]], _SCALES[low[0]])
    return None


def _folded(text: str) -> str:
    return text.replace("µ", "u").replace("μ", "u")


def _words(heading: str) -> tuple[list[str], str]:
    """``avgLatency (ms)`` -> ["avg", "latency"], "ms"."""
    text = _folded(heading.strip()[:_LONGEST])
    match = re.search(r"[(\[{]\s*([^)\]}]*?)\s*[)\]}]\s*\Z", text)
    bracket = match[1] if match else ""
    base = text[: match.start()] if match else text
    base = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", base).lower()
    return re.findall(r"[^\W_]+|[%/]", base), bracket


def _throughput(words: list[str], bracket: str) -> Named | None:
    """``tps``, ``calls_per_s``, ``throughput (MB/s)``, ``queries/min``, ``tps (k)``, ``calls``."""
    rest = [w for w in words if w not in _AVERAGE | {"total"}]
    if "cpu" in rest or "cpus" in rest or not rest:
        return None
    base = _base(rest)
    unit = rate_unit(bracket) if bracket else Rate()
    if base is None or unit is None or (is_time_unit(bracket) and not base.is_count and bracket != "m"):
        return None
    if is_time_unit(bracket) and bracket != "m":
        return None
    per, known = unit.per or base.per, unit.counted if unit.counted.lower() not in ("", "n") else ""
    if unit.per and base.per and unit.per != base.per:
        return None
    label = known or base.unit
    return Named(
        "throughput",
        rank=base.rank if not (base.is_count and per) else 0,
        unit=f"{label}/s" if label else "",
        factor=base.factor * unit.scale / TIMES[per or "s"],
        per=per,
        is_count=base.is_count and not per,
    )


def _base(rest: list[str]) -> Named | None:
    """Of words without average and bracket; ``factor`` is their scale alone."""
    if len(rest) >= 3 and rest[-2] in ("per", "/"):
        found = rate_unit(" ".join(rest))
        counted = found.counted if found else ""
        if found is None or not counted or set(counted.lower().split()) & (_RESPONSE | _FAILED):
            return None
        label = "" if counted in _RATES else counted
        known = not label or label in _COUNTED or _BYTES.match(label.lower()) is not None
        return Named("throughput", 0 if known else 1, label, found.scale, found.per)
    scale, words = _scaled(rest) if len(rest) > 1 else (1.0, rest)
    if not words:
        return None
    joined = "".join(words)
    if joined in _RATES or (len(words) == 2 and words[0] in _RATES and words[1] in _RATES):
        return Named("throughput", 0, "", scale)
    if short := _short(joined):
        return Named("throughput", 0, short.counted, scale * short.scale, short.per)
    if rated := re.fullmatch(r"(.+?)(rate|throughput|tput)", joined):
        thing = _thing(rated[1])
        return Named("throughput", 0, thing.counted, scale * thing.scale) if thing else None
    thing = _thing(" ".join(w for w in words if w not in {"num", "number", "no", "nr", "of", "count", "n"}))
    if thing is None or thing.counted in ("iterations", "jobs", "units"):
        return None
    return Named("throughput", 1, thing.counted, scale * thing.scale, is_count=True)


def _time(words: list[str], bracket: str) -> tuple[list[str], str]:
    """Words without the unit, and the unit."""
    unit = is_time_unit(bracket) or ("%" if bracket.strip().lower() in _PERCENT else "")
    if unit or len(words) < 2:
        return words, unit
    last = words[-1]
    if last in _TIME_WORDS and not (last == "min" and set(words) & _RESPONSE):  # latency_min: the least
        return words[:-1], _TIME_WORDS[last]
    return (words[:-1], "%") if last in _PERCENT and words[0] != "95" else (words, "")


def _load(words: list[str], unit: str) -> Named | None:
    rest = [w for w in words if w not in _FILLERS] or words
    word = "".join(rest if len(rest) < 2 else (w for w in rest if w != "n"))
    if unit or word == "cpu":
        return None
    for kinds, closed in ((_SESSIONS, True), (_OTHERS, False)):
        for stem in (
            word,
            word.removesuffix("s"),
            word.removesuffix("es"),
            word[1:-1] if word[:1] == "n" else "",
        ):
            if stem in kinds:
                return Named("load", unit=kinds[stem], closed=closed)
    return None


def _cpu(words: list[str], found: list[str], unit: str) -> Named | None:
    if found[:2] == ["cpu", "per"] and len(found) == 3 and found[2] != "work" and unit in TIMES:
        return Named("cpu_per_unit", unit=unit)
    if len(words) > 2 and words[-2] in ("per", "/") and _TIME_WORDS.get(words[-1]) == "s":
        found, unit = [w for w in words[:-2] if _TIME_WORDS.get(w) != "s"], ""  # CPU seconds per second
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
    return Named("duration", unit=unit) if rest[0] in _DURATIONS and unit != "%" else None
