"""Units: parses durations, formats durations and rates. Internally, time is in integer nanoseconds
(``*_ns``)."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import datetime

from dbdyno.model.errors import UsageError

NS_PER_S = 1_000_000_000
TICK_NS = 10_000_000
"""Length of a tick. USER_HZ is 100 on every relevant architecture, so utime, stime and start times count 10
ms."""
FACTORS_NS = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": NS_PER_S,
    "min": 60 * NS_PER_S,
    "h": 3600 * NS_PER_S,
    "d": 24 * 3600 * NS_PER_S,
}
LONGEST_DAYS = 36_500
"""Maximum of a duration. A longer one is probably a typing error, and sums in ns could exceed 64 bits."""
_DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ns|us|ms|s|min|h|d)?\s*\Z")


def parse_duration_ns(text: str, option: str = "") -> int:
    """Returns a duration in ns: ``'300ms'`` -> 300000000. A bare number is in seconds. Raises
    :class:`UsageError`, with the name of the ``option``."""
    match = _DURATION.match(text)
    if match is None:
        named = f"{option}: " if option else ""
        meant = _meant(text)
        offered = f"did you mean {meant!r}? " if meant else ""
        raise UsageError(
            f"{named}not a duration: {text!r}",
            f"{offered}write a number and a unit: 10s, 300ms, 50us, 2min",
        )
    value_ns = float(match[1]) * FACTORS_NS[match[2] or "s"]
    if value_ns > LONGEST_DAYS * FACTORS_NS["d"]:
        raise UsageError(f"{option or 'duration'}: longer than {LONGEST_DAYS} days", "write a shorter time")
    return round(value_ns)


_OTHER_UNITS = {
    "ns": "nsec nanosecond nanoseconds nanos", "us": "µs μs usec usecs microsecond microseconds micros",
    "ms": "msec msecs millisecond milliseconds millis", "s": "sec secs second seconds",
    "min": "m mins minute minutes", "h": "hr hrs hour hours", "d": "day days",
}  # fmt: skip
_UNITS = {word: unit for unit, words in _OTHER_UNITS.items() for word in (unit, *words.split())}


def _meant(text: str) -> str:
    """Returns the probable intention: ``5m`` -> 5min, ``1h30m`` -> 90min; empty if unknown."""
    parts = re.findall(r"([0-9]+(?:\.[0-9]+)?)\s*([^\W\d_]+)", text.lower())
    units = [_UNITS.get(unit) for _, unit in parts]
    rest = re.sub(r"[0-9]+(?:\.[0-9]+)?\s*[^\W\d_]+", "", text).strip()
    if not parts or rest or None in units:
        return ""
    least = min((u for u in units if u), key=lambda u: FACTORS_NS[u])
    total = sum(float(n) * FACTORS_NS[u] for (n, _), u in zip(parts, units, strict=True) if u)
    return f"{total / FACTORS_NS[least]:.15g}{least}"


def format_ns(value_ns: float) -> str:
    """Formats nanoseconds with three significant digits in a suitable unit: ``1.23 ms``."""
    if value_ns == 0:
        return "0 s"
    for unit, factor in (("s", NS_PER_S), ("ms", 1_000_000), ("us", 1_000), ("ns", 1), ("ps", 0.001)):
        if _rounded(value_ns / factor, 3) >= 1:
            return f"{significant(value_ns / factor)} {unit}"
    return "< 1 ps" if value_ns > 0 else "> -1 ps" if value_ns < 0 else "? s"


def format_duration(value_ns: float) -> str:
    """Formats a long time in two units: ``2 min 57 s``, ``1 h 5 min``; below two minutes like
    :func:`format_ns`."""
    seconds = round(value_ns / NS_PER_S)
    if seconds < 120:
        return format_ns(value_ns)
    minutes, hours = divmod(seconds, 60), divmod(round(seconds / 60), 60)
    (many, rest), units = (minutes, ("min", "s")) if seconds < 3600 else (hours, ("h", "min"))
    return f"{many:,} {units[0]}" + (f" {rest} {units[1]}" if rest else "")


def significant(value: float, digits: int = 3) -> str:
    """Formats ``value`` with at least ``digits`` significant digits and thousands separators, as a power of
    ten below 0.0000001, and as ``?`` if it is not finite."""
    if not math.isfinite(value):
        return "?"
    if value == 0:
        return "0"
    if abs(value) < 1e-7:
        return f"{value:.{digits - 1}e}"
    # The exponent is that of the rounded value: 99.96 has the digits of 100, not one more.
    decimals = digits - 1 - math.floor(math.log10(_rounded(value, digits)))
    return f"{value:,.{max(0, min(decimals, 12))}f}"


def _rounded(value: float, digits: int) -> float:
    """Returns the magnitude of ``value``, rounded to this number of significant digits."""
    return abs(float(f"{value:.{digits - 1}e}"))


def format_number(value: float, digits: int = 4) -> str:
    """Formats any number with ``digits`` significant digits and thousands separators. Whole numbers are
    written in full, very small and very large ones as a power of ten."""
    if not math.isfinite(value):
        return "?"
    if value == round(value) and abs(value) < 1e7:
        return f"{value:,.0f}"
    return significant(value, digits) if abs(value) < 1e15 else f"{value:.{digits - 1}e}"


def format_apart(one: float, other: float, digits: int = 4) -> tuple[str, str]:
    """Formats two numbers like :func:`format_number`, with enough digits to show that they differ, unless
    they differ by rounding only."""
    alike = math.isclose(one, other, rel_tol=1e-13)
    texts = format_number(one, digits), format_number(other, digits)
    return texts if alike or texts[0] != texts[1] or digits > 15 else format_apart(one, other, digits + 1)


def format_p(p: float) -> str:
    """Formats a probability with two digits: ``0.023``, ``1.2e-05``, ``<1e-9``."""
    return "<1e-9" if p < 1e-9 else f"{p:.2g}"


def format_average(value: float) -> str:
    """Formats seconds per second with at most three digits and decimals: ``10.6``, ``0.012``, ``< 0.001``."""
    if 0 < abs(value) < 0.0005:
        return "< 0.001" if value > 0 else "> -0.001"
    return significant(value) if abs(value) >= 0.1 or value == 0 else f"{value:.3f}"


def shown_duration(text: str) -> str:
    """Returns a duration as the user wrote it, with the unit added to a bare number: ``2`` -> ``2s``."""
    return f"{text}s" if re.fullmatch(r"\s*[0-9.]+\s*", text) else text


def in_minutes(value_ns: float) -> str:
    """Returns ``45 s``, ``3.5 min`` or ``2.1 h``: a waiting time."""
    for unit, factor in (("h", 3600e9), ("min", 60e9)):
        if value_ns >= 2 * factor:
            return f"{significant(value_ns / factor, 2)} {unit}"
    return f"{value_ns / 1e9:.0f} s"


def quantity(value: float, unit: str) -> str:
    """Formats a figure with its unit: ``5.40 us``, ``12.3 LIO/s``, ``5.40 us of CPU/LIO``, ``12 % of DB
    time``."""
    seconds, _, work = unit.partition("CPU seconds/")
    if unit == "s":
        return format_ns(value * NS_PER_S)
    if work not in ("", "s") and not seconds:
        return f"{format_ns(value * NS_PER_S)} of CPU/{work}"
    if unit.startswith("of "):
        return f"{format_percent(value)} {unit}"
    return f"{significant(value)} {unit}".rstrip()


def between(low: float, high: float, unit: str) -> str:
    """Formats an interval, with the unit once if both ends have it: ``12.0 to 12.1 s``."""
    first, last = quantity(low, unit).split(), quantity(high, unit).split()
    if first == last:
        return " ".join(last)
    common = 0
    while common < min(len(first), len(last)) - 1 and first[-1 - common] == last[-1 - common]:
        common += 1
    return f"{' '.join(first[: len(first) - common])} to {' '.join(last)}"


def format_plain(value: float) -> str:
    """Formats a ratio or a count with three significant digits. Whole numbers are written in full, without
    exponent."""
    rounded = float(f"{value:.3g}") if abs(value) < 100 else value
    return f"{rounded:,.0f}" if rounded == round(rounded) else significant(rounded)


def format_given(value: float) -> str:
    """Writes a number as it was given, with thousands separators: ``0.5``, ``12,500``, ``2,000,000``."""
    return f"{value:,.0f}" if value == round(value) and abs(value) < 1e15 else f"{value:,.6g}"


def format_percent(share: float) -> str:
    """Formats a share: ``12 %``, ``3.4 %``, ``0.0 %``; ``? %`` if it is not finite."""
    value = 100 * share
    if not math.isfinite(value):
        return "? %"
    # + 0.0 turns -0.0 into 0.0
    return f"{value:,.0f} %" if abs(value) >= 9.5 else f"{round(value, 1) + 0.0:.1f} %"


def fine_percent(share: float) -> str:
    """Formats a small share with two digits: ``2 %``, ``0.83 %``, ``0.051 %``."""
    return f"{float(f'{100 * share:.2g}'):.6g} %"


def format_rate(value: float, digits: int = 3) -> str:
    """Formats a rate with a magnitude letter: ``6.21 M``, ``312 k``, ``41.3``."""
    for letter, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if _rounded(value / factor, digits) >= 1:
            return f"{significant(value / factor, digits)} {letter}"
    return significant(value, digits)


def format_size(size_bytes: float) -> str:
    """Formats a size in bytes: ``24 MiB``, ``1.23 GiB``, ``812 B``."""
    for unit, factor in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(size_bytes) >= factor:
            return f"{significant(size_bytes / factor)} {unit}"
    return f"{significant(size_bytes)} B"


_TINY = 0.001
"""Amount of a call below which its inverse is easier to read."""


def format_amount(value: float, unit: str) -> str:
    """Formats an amount of a call or unit of work: a time, a size, or a count, which has no unit. Of a tiny
    one it names the number of calls for one: ``1 in 12.3 k``, ``1 B in 1.01 M``."""
    if unit == "ns":
        return format_ns(value)
    if 0 < value < _TINY:
        return f"1 {'B ' if unit == 'bytes' else ''}in {format_rate(1 / value)}"
    return format_size(value) if unit == "bytes" else format_rate(value)


def format_count(value: float) -> str:
    """Formats a number of things: ``90``, ``3.21 k``. A mean of several numbers may have a fraction."""
    return f"{value:.0f}" if abs(value) < 1e3 and value == round(value) else format_rate(value)


def repeats(number: int) -> str:
    """Returns the number of repeats, and that one has no intervals."""
    return str(number) if number > 1 else "1 (no intervals)"


def whole_second(seconds: float) -> int:
    """Returns the second by which a moment is shown and written: the nearest one.

    The only rule for it, so that a moment is the same in texts, fields, links and charts. Scripts have times
    to the millisecond and do the same (``Math.round``).
    """
    return math.floor(round(seconds, 3) + 0.5)


def shown_second(moment: datetime) -> datetime:
    """Returns a moment as it is shown: to :func:`whole_second`."""
    return datetime.fromtimestamp(whole_second(moment.timestamp()), moment.tzinfo)


def joined(names: Sequence[str], last: str = "and") -> str:
    """Returns ``a, b and c``; ``a, b, c`` if ``last`` is empty."""
    if not last or len(names) < 2:
        return ", ".join(names)
    return f"{', '.join(names[:-1])} {last} {names[-1]}"


def counted(number: float, what: str) -> str:
    """Returns a number with its noun: ``1 session``, ``3 sessions``, ``1.5 CPUs``, ``2,050 sessions``, ``2
    processes``, ``2 queries``."""
    if number == 1:
        return f"1 {what}"
    many = f"{what[:-1]}ies" if what.endswith("ry") else f"{what}{'es' if what.endswith('ss') else 's'}"
    return f"{format_given(number)} {many}"
