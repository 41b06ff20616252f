"""Infers role and unit of a column of a ladder from its heading."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from dbdyno.store.ladder_csv.vocabulary import (
    AVERAGE,
    AVERAGE_OF,
    BRACKETS,
    BYTES,
    CONNECTING,
    COUNTED,
    CPUS,
    DURATIONS,
    FILLERS,
    INITIALS,
    LETTERS,
    LONGEST,
    NO_WORK,
    OF_CPU,
    OTHERS,
    P95,
    PER_WORDS,
    PERCENT,
    RATES,
    REPEATS,
    RESPONSE,
    SCALES,
    SESSIONS,
    THINGS,
    TIME_WORDS,
    TIMES,
)


@dataclass(frozen=True)
class Named:
    """Meaning of a heading: ``role`` is a column of Ladder.points, ``duration`` or ``cpu_per_unit``."""

    role: str
    rank: int = 1
    """Among several columns with the same role, the lowest rank is preferred."""
    unit: str = ""
    """Unit in the heading, empty without one. For a time it is a key of :data:`TIMES`, for CPU also ``%``,
    for load the thing that is counted, for throughput that thing per second."""
    factor: float = 1.0
    """Factor from throughput to units per second."""
    per: str = ""
    """The time in the denominator of throughput, a key of :data:`TIMES`; empty without one."""
    is_count: bool = False
    """Whether throughput is a number of calls in a measurement, not a rate."""
    closed: bool = True
    """Whether a unit of load has one call at a time, so that Little's law applies."""


@dataclass(frozen=True)
class Rate:
    """A unit of throughput: ``k tx/h`` -> transactions, 1000, h. Absent parts are empty."""

    counted: str = ""
    scale: float = 1.0
    per: str = ""

    @property
    def factor(self) -> float:
        return self.scale / TIMES[self.per or "s"]


def named(heading: str) -> Named | None:
    """Interprets a heading: ``response_ms`` -> response_s, unit ms; ``Users`` -> load. None without a
    role.

    Words in brackets count like the others: ``Latency (p99)`` is as little the mean as ``p99_latency``.
    """
    words, parts = _words(heading)
    rate = _throughput(words, parts)
    if rate is not None:
        return rate
    rest, unit = _time(words, parts)
    load = None if unit else _load(words, parts)
    return load or _cpu(rest, unit) or _response(rest, unit) or _other(rest, unit)


def chosen(heading: str, role: str) -> Named:
    """Interprets the heading of a column whose role the user names: ``tpm (peak)`` as tpm."""
    kind = named(heading)
    if kind is None or kind.role != role:
        words, parts = _words(heading)
        kind = named(" ".join(w for w in (*words, *_split(parts)) if _is_known(w)))
    if kind is not None and kind.role == role:
        return kind
    return Named(role, unit=_time(*_words(heading))[1] if role not in ("load", "throughput") else "")


def _is_known(word: str) -> bool:
    """Returns whether a word says which unit or thing a column has, rather than which statistic."""
    return bool(
        word in PER_WORDS
        or _counted_load([word])
        or word in ("per", "/", *RATES)
        or _size(word)
        or _short(word)
        or _thing(word)
    )


def is_time_unit(text: str) -> str | None:
    return TIME_WORDS.get(_folded(text).strip().lower())


@cache
def rate_unit(text: str) -> Rate | None:
    """Parses a unit such as ``Mtx/h``, ``requests per minute``, ``k``, ``ktps``, ``MB/s``, ``1000
    orders``."""
    words = re.findall(r"[^\W\d_]+|\d+|/|%", re.sub(r"(000)s\b", r"\1", _folded(text).strip()))
    per = ""
    cut = next((i for i, w in enumerate(words) if w.lower() in ("per", "/")), len(words))
    if cut < len(words):
        if cut != len(words) - 2 or (per := PER_WORDS.get(words[-1].lower(), "")) == "":
            return None
        words = words[:cut]
    scale, counted = _scaled([w for w in words if w not in ("x", "in")])
    if len(counted) == 1 and (short := _short(counted[0])):
        if short.counted != "operations" and per not in ("", short.per):
            return None  # tps/hour is ambiguous; ops/hour means operations
        return Rate(short.counted, scale * short.scale, per or short.per)
    if len(counted) == 1 and not BYTES.match(counted[0].lower()):
        thing = _thing(counted[0])
        return Rate(thing.counted, scale * thing.scale, per) if thing else Rate(counted[0], scale, per)
    return Rate(" ".join(w.upper() if BYTES.match(w) and len(w) == 2 else w for w in counted), scale, per)


def _scaled(words: list[str]) -> tuple[float, list[str]]:
    """Strips words of size at both ends, and returns their product and the rest: ``k``, ``1000``,
    ``millions``."""
    scale, left = 1.0, list(words)
    for place in (0, -1):
        while left and (size := _size(left[place])):
            scale *= size
            left.pop(place)
    return scale, left


def _size(word: str) -> float | None:
    if re.fullmatch(r"1(000)*", word):
        return float(word)
    return 1e3 if word == "000" else SCALES.get(word.lower())


def _short(word: str) -> Rate | None:
    """Parses an abbreviated rate: ``tps``, ``ktps``, ``tpmC``, ``NOPM``, ``QphH``, ``MIOPS``."""
    match = re.fullmatch(r"([kmg]?)(nop|op|(?:io|[tqroc])(?=p))p?([smhd])[ceh]?", word.lower())
    return Rate(INITIALS[match[2]], SCALES.get(match[1], 1.0), LETTERS[match[3]]) if match else None


def _thing(word: str) -> Rate | None:
    """Parses a counted thing: ``tx`` -> transactions; ``Mtx`` -> a million of them."""
    low = word.lower()
    if low in THINGS:
        return Rate(THINGS[low])
    if low[:1] in SCALES and low[1:] in THINGS:
        return Rate(THINGS[low[1:]], SCALES[low[0]])
    return None


def _folded(text: str) -> str:
    return text.replace("µ", "u").replace("μ", "u")


def _words(heading: str) -> tuple[list[str], list[str]]:
    """Splits ``avgLatency (p95, ms)`` into words outside brackets and parts inside: [avg, latency], [p95,
    ms]."""
    text = CONNECTING.sub("", _folded(heading.strip()[:LONGEST]))
    text = AVERAGE_OF.sub(r"\1", re.sub(r"\+/?-", "±", re.sub(r"\bp\((\d+)\)", r"p\1", text)))
    parts = [p.strip() for b in BRACKETS.findall(text) for p in re.split(r"[,;|]", b)]
    return _split([BRACKETS.sub(" ", text)]), [p for p in parts if p.lower() not in ("", "n", "#")]


def _split(texts: Iterable[str]) -> list[str]:
    split = (re.sub(r"(?<=[a-z])(?=[A-Z])", "_", t).lower() for t in texts)
    return [w for t in split for w in re.findall(r"[^\W_]+|[%/±]", t)]


def _throughput(words: list[str], parts: list[str]) -> Named | None:
    """Parses ``tps``, ``calls_per_s``, ``throughput (MB/s)``, ``queries/min``, ``tps (k)``, ``calls``."""
    rates = {p: r for p in parts if (r := _bracketed(p))}
    others = _split(p for p in parts if p not in rates)
    rest = [w for w in (*words, *others) if w not in AVERAGE | {"total"}]
    if "cpu" in rest or "cpus" in rest or not rest or len(rates) > 1:
        return None
    base = _base(rest)
    if base is None or any(is_time_unit(p) or p.lower() in PERCENT for p in parts):
        return None
    unit = next(iter(rates.values()), Rate())
    per, known = unit.per or base.per, unit.counted
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


def _bracketed(part: str) -> Rate | None:
    """Returns the unit of throughput in brackets: ``k``, ``tx/h``, ``MB``. None for others, such as
    ``max``, ``x``."""
    rate = rate_unit(part)
    if rate is None or is_time_unit(part) or part.lower() in ("x", "in") or not _counts_work(rate.counted):
        return None
    known = not rate.counted or rate.counted in COUNTED or BYTES.match(rate.counted.lower())
    return rate if known or rate.per else None


def _counts_work(counted: str) -> bool:
    """Returns whether the words count work: no failures, maximum, quantile or ratio."""
    return not any(NO_WORK.fullmatch(w) for w in _split([counted]))


def _base(rest: list[str]) -> Named | None:
    """Parses words without average and bracket; ``factor`` is only their scale."""
    if len(rest) >= 3 and rest[-2] in ("per", "/"):
        unit = rate_unit(" ".join(rest))
        counted = unit.counted if unit else ""
        if unit is None or not counted or not _counts_work(counted):
            return None
        label = "" if counted in RATES else counted
        known = not label or label in COUNTED or BYTES.match(label.lower()) is not None
        return Named("throughput", 0 if known else 1, label, unit.scale, unit.per)
    scale, words = _scaled(rest) if len(rest) > 1 else (1.0, rest)
    if not words:
        return None
    joined = "".join(words)
    if joined in RATES or (len(words) == 2 and words[0] in RATES and words[1] in RATES):
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


def _time(words: list[str], parts: list[str]) -> tuple[list[str], str]:
    """Splits off the unit of time or ``%``; the unit is empty without one."""
    unit, rest = "", list(words)
    for part in parts:
        if not unit and (unit := _unit(part, words)):
            continue
        if not unit and len(split := _split([part])) > 1 and (unit := _last_unit([*words, *split])):
            split = split[:-1]
        else:
            split = _split([part])
        rest += split
    if not unit and (unit := _last_unit(words)):
        del rest[len(words) - 1]
    return rest, unit


def _unit(part: str, words: Sequence[str]) -> str:
    """Returns the unit in a bracket that has nothing else: ``ms``, ``%``; for response times also
    ``ms/call``."""
    if RESPONSE.intersection(words):
        part = re.sub(r"\s*(/|\bper\b)\s*(\w+)\Z", lambda m: "" if _thing(m[2]) else m[0], part)
    if part.lower() in PERCENT:
        return "%"
    return "" if part.lower() == "min" and not _in_minutes(words) else is_time_unit(part) or ""


def _last_unit(words: Sequence[str]) -> str:
    if len(words) < 2:
        return ""
    *others, last = words
    if last in PERCENT:
        return "%" if others[-1] != "95" else ""
    return "" if last == "min" and not _in_minutes(others) else TIME_WORDS.get(last, "")


def _in_minutes(words: Sequence[str]) -> bool:
    """Returns whether ``min`` after these words is minutes; otherwise it is a minimum (``latency_min``)."""
    return bool({"time", *DURATIONS}.intersection(words)) and not RESPONSE.intersection(words)


def _load(words: list[str], parts: list[str]) -> Named | None:
    """Parses ``Users``, ``Concurrency (threads)``. A bracket must itself name a load."""
    load, inner = _counted_load(words), [w for w in _split(parts) if w not in FILLERS]
    if load is None or not inner:
        return load
    other = _counted_load(inner)
    return other and replace(load, unit=load.unit or other.unit, closed=load.closed and other.closed)


def _counted_load(words: list[str]) -> Named | None:
    rest = [w for w in words if w not in FILLERS] or words
    word = "".join(rest if len(rest) < 2 else (w for w in rest if w != "n"))
    if word == "cpu":
        return None
    for kinds, closed in ((SESSIONS, True), (OTHERS, False)):
        for stem in (
            word,
            word.removesuffix("s"),
            word.removesuffix("es"),
            word[1:-1] if word[:1] == "n" else "",
        ):
            if stem in kinds:
                return Named("load", unit=kinds[stem], closed=closed)
    return None


def _cpu(words: list[str], unit: str) -> Named | None:
    if words[:2] == ["cpu", "per"] and len(words) == 3 and words[2] != "work" and unit in TIMES:
        return Named("cpu_per_unit", unit=unit)
    if len(words) > 2 and words[-1] in ("per", "/") and unit == "s":
        words, unit = [w for w in words[:-1] if TIME_WORDS.get(w) != "s"], ""  # CPU seconds per second
    kept = frozenset(words) - OF_CPU - AVERAGE
    role = CPUS.get(kept)
    if role is None or (kept == frozenset({"run"}) and "aas" not in words):
        return None
    return Named(role, 0 if unit == "" else 1, unit)


def _response(words: list[str], unit: str) -> Named | None:
    rest = [w for w in words if w not in {"time", "times", "the", "in"}]
    plain = [w for w in rest if w not in AVERAGE]
    if plain and RESPONSE.issuperset(plain):
        return Named("response_s", 0 if len(plain) == len(rest) else 1, unit)
    if not plain and rest and unit in TIMES:
        return Named("response_s", 2, unit)
    others = set(rest) - P95 - RESPONSE - {"percentile", "pct", "ile", "th", "%"}
    if set(rest) & P95 and not others:
        return Named("response_p95_s", 1, unit)
    return None


def _other(words: list[str], unit: str) -> Named | None:
    rest = [w for w in words if w not in FILLERS | {"id", "time"}]
    if len(rest) != 1:
        return None
    if rest[0] in REPEATS and not unit:
        return Named("repeat")
    return Named("duration", unit=unit) if rest[0] in DURATIONS and unit != "%" else None
