"""A table written as text: its lines, separators, header the way its numbers are written,
and what a column is, by its heading."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dbdyno.model.errors import UsageError
from dbdyno.store.files import read_limited

MOST_BYTES = 16 << 20
MOST_LINES = 20_000
"""A ladder has tens of rungs: a file beyond this is a log, and a fit of it would take hours."""

FORM = "a header and a line a rung: sessions,throughput (docs/analyze.md)"
_MISSING = frozenset({"", "na", "n/a", "null", "none", "-", "?", "."})
_NOT_FINITE = re.compile(r"[-+]?(nan|inf|infinity)\Z", re.IGNORECASE)
_GROUPS = " '’_\u00a0\u202f\u2009"  # what parts thousands besides a comma or a dot
_RULE = re.compile(r"[-+|:=\s]*[-=]{2}[-+|:=\s]*\Z")  # ----+---- under a header
_FOOT = re.compile(r"\(\d+ rows?\)\Z")


class Line(NamedTuple):
    number: int  # in the file, from 1
    fields: tuple[str, ...]


@dataclass(frozen=True)
class Sheet:
    """``header`` None: the first line holds numbers; ``comment``: the last one before the first line."""

    source: str
    header: tuple[str, ...] | None
    lines: tuple[Line, ...]
    comment: tuple[str, ...] | None
    decimal: str
    notes: tuple[str, ...] = ()


def read_text(path: str | Path) -> str:
    """The text of a file, or of standard input for ``-``. Raises UsageError: missing, too large, binary."""
    name = source_name(path)
    try:
        if str(path) == "-":
            content = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            content = read_limited(Path(path), MOST_BYTES)
    except OSError as e:
        raise UsageError(
            f"cannot read {name}: {e.strerror or e}", "name a file of text, or - for input"
        ) from e
    if len(content) > MOST_BYTES:
        raise UsageError(
            f"{name} is larger than {MOST_BYTES >> 20} MiB: not a ladder", "one line per load and repeat"
        )
    return _decoded(content, name)


def source_name(path: str | Path) -> str:
    return "standard input" if str(path) == "-" else str(path)


def _decoded(content: bytes, name: str) -> str:
    """UTF-8, UTF-16 with its mark, else Windows' code page, which spreadsheets write."""
    try:
        if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
            text = content.decode("utf-16")
        else:
            text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("cp1252", errors="replace")
    if any(c < " " and c not in "\t\n\r\f" for c in text) or "\ufffd" in text:
        raise UsageError(f"{name} is binary, not text", FORM)
    return text


def sheet(text: str, source: str, decimal: str | None = None) -> Sheet:
    """Lines as fields. Raises UsageError: empty, too long, one column, lines of different lengths."""
    numbered, comment = _content(text)
    if not numbered:
        raise UsageError(f"{source} is empty: no line with numbers", FORM)
    if len(numbered) > MOST_LINES:
        raise UsageError(
            f"{source} has {len(numbered):,} lines: a log, not a ladder (at most {MOST_LINES:,})",
            "sum it up: one line per load and repeat",
        )
    separator = _separator([line for _, line in numbered])
    lines = _split(numbered, separator, source)
    above = _fields(comment, separator) if comment else None
    first = lines[0]
    header = None if any(is_number(f) for f in first.fields) else first.fields
    rest = lines if header is None else lines[1:]
    sign, notes = (decimal, ()) if decimal else _decimal((f for n in rest for f in n.fields), separator)
    return Sheet(source, header, tuple(rest), above, sign, notes)


def is_missing(text: str) -> bool:
    return text.strip().lower() in _MISSING


def is_number(text: str) -> bool:
    return any(number(text, sign) is not None for sign in ".,")


def number(text: str, decimal: str) -> float | None:
    """``1 234,5`` with a decimal comma -> 1234.5; ``nan`` and ``inf`` as such; None: it is no number."""
    word = text.strip()
    if _NOT_FINITE.match(word):
        return float(word.lower().replace("infinity", "inf"))
    other = "," if decimal == "." else "."
    whole = rf"(?:\d{{1,3}}(?:[{re.escape(other)}{_GROUPS}]\d{{3}})+|\d+)"
    if not re.fullmatch(
        rf"[-+]?(?:{whole}(?:[{decimal}]\d+)?|[{decimal}]\d+)(?:[eE][-+]?\d+)?", word, re.ASCII
    ):
        # a dot at the end is Fortran's and R's way
        return float(word) if decimal == "." and re.fullmatch(r"[-+]?\d+\.", word, re.ASCII) else None
    plain = re.sub(rf"[{re.escape(other)}{_GROUPS}]", "", word).replace(decimal, ".")
    return float(plain)


def _content(text: str) -> tuple[list[tuple[int, str]], str | None]:
    """Numbered lines without comments, rules and blank ones, and the comment right before them."""
    found: list[tuple[int, str]] = []
    comment = None
    for n, raw in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        line = raw.strip(" \f\u00a0").rstrip()
        if line.startswith("#"):
            comment = line.lstrip("# ") if not found else comment
            continue
        line = re.split(r"\s#", line, maxsplit=1)[0].rstrip()
        if line.strip() and not (_RULE.match(line) or _FOOT.match(line) or line.lower().startswith("sep=")):
            found.append((n, line))
    return found, comment


def _separator(lines: Sequence[str]) -> str:
    """A character, or a pattern for white space."""
    first = lines[0]
    for sign in "\t;|":
        if sign in first:
            return sign
    words = first.split()
    decimals = len(words) > 1 and all(re.fullmatch(r"[-+]?\d+(,\d+)?", w, re.ASCII) for w in words)
    if "," in first and not decimals:
        return ","
    wide = [re.split(r"\s{2,}|\t", line.strip()) for line in lines[:50]]
    return r"\s{2,}|\t" if len(wide[0]) > 1 and len({len(w) for w in wide}) == 1 else r"\s+"


def _split(numbered: Iterable[tuple[int, str]], separator: str, source: str) -> list[Line]:
    made: list[Line] = []
    for n, line in numbered:
        fields = _fields(line, separator)
        wide = len(made[0].fields) if made else len(fields)
        while len(fields) > wide and not fields[-1]:  # a separator at the end of the line
            fields = fields[:-1]
        if len(fields) < 2 and not made:
            raise UsageError(f"{source}, line {n}: one column, two are needed: sessions and throughput", FORM)
        if len(fields) > wide:
            raise UsageError(
                f"{source}, line {n} has {len(fields)} fields, the first line {wide}",
                'quote numbers with commas between thousands: 8,"12,345"',
            )
        made.append(Line(n, fields + ("",) * (wide - len(fields))))
    return made


def _fields(line: str, separator: str) -> tuple[str, ...]:
    if len(separator) > 1:
        return tuple(f.strip("\"'") for f in re.split(separator, line.strip()))
    if separator == "|":
        line = line.strip("| ")
    try:
        record = next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])
    except csv.Error:  # a field of more than 128 KiB
        record = line.split(separator)
    return tuple(f.strip() for f in record)


def _decimal(fields: Iterable[str], separator: str) -> tuple[str, tuple[str, ...]]:
    """The decimal sign that all numbers agree with; where both may be, by the separator, and said so."""
    with_comma = [f for f in fields if "," in f and is_number(f)]
    if not with_comma:
        return ".", ()
    as_dot, as_comma = ([number(f, sign) is not None for f in with_comma] for sign in ".,")
    if not all(as_dot):
        return ",", ()
    if not all(as_comma) or any("." in f for f in with_comma):
        return ".", ()
    sign = "," if separator == ";" else "."
    shown = with_comma[0]
    value = number(shown, sign)
    other = "." if sign == "," else ","
    return sign, (f"{shown} was read as {value:g}; if that is wrong: --decimal '{other}'",)


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
