"""Formats numbers for sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dbdyno.model.results.analyses import Estimate
from dbdyno.model.schema.quantiles import fewest_calls
from dbdyno.model.text.nouns import at_once, noun, unit_of
from dbdyno.model.units import (
    NS_PER_S,
    format_given,
    format_ns,
    format_p,
    format_percent,
    format_plain,
    format_rate,
    significant,
)
from dbdyno.stats.estimates import Mean

REPEATS = "Student's t over repeats"


def rate(value: float, unit: str) -> str:
    """Formats a rate with its unit: ``6.21 M LIO/s``."""
    return f"{format_rate(value)} {unit_of(unit)}"


def tail_ns(q: float, value: float | None) -> str:
    """Formats a quantile, or states how many calls it needs: ``1.23 ms``, ``unknown, from fewer than 1,000
    calls``."""
    return f"unknown, from fewer than {fewest_calls(q):,} calls" if value is None else format_ns(value)


def seconds(value: float) -> str:
    """Formats a time given in seconds: ``1.23 ms``."""
    return format_ns(value * NS_PER_S)


def load(n: float, unit: str = "sessions") -> str:
    """Formats a load with its unit, a plural noun: ``1 session``, ``8 sessions``, ``5.3 sessions``. Sessions
    have the noun of the kind of run: ``8 jobs at once``."""
    text = load_number(n)
    if unit == "sessions":
        return at_once(text)
    return f"{text} {one_of(unit) if text == '1' else unit}"


def at_load(n: float, unit: str = "sessions") -> str:
    """Formats a load with its preposition: ``at 8 sessions``, ``with 8 jobs at once``."""
    return f"{noun('at')} {load(n, unit)}"


def load_number(n: float) -> str:
    """Formats the number of a load: ``8``, ``5.3``, ``0.125``."""
    return f"{n:,.0f}" if abs(n) >= 100 or abs(n - round(n)) < 0.005 * min(abs(n), 1.0) else f"{n:.3g}"


def rate_of_load(rate_per_s: float) -> str:
    """Formats a rate that the user set: ``500/s``, ``12,500/s``."""
    return f"{format_given(rate_per_s)}/s"


def loads(low: float, high: float, unit: str = "sessions") -> str:
    """Formats a range of loads: ``16 to 32 sessions``, or ``8 sessions`` if both ends are equal."""
    return load(high, unit) if low == high else f"{load_number(low)} to {load(high, unit)}"


def loads_joined(loads: Sequence[float], unit: str = "sessions") -> str:
    """Formats several loads: ``1, 2 and 8 sessions``."""
    *first, last = loads
    before = f"{', '.join(map(load_number, first))} and " if first else ""
    return (
        before + load(last, unit) if not first or unit != "sessions" else at_once(before + load_number(last))
    )


def load_spread(load: Estimate) -> str:
    """Formats the interval of a load as :func:`spread` does: `` (4 to 16)``."""
    low, high = (None if v is None else load_number(v) for v in (load.low, load.high))
    return _spread(low, high)


def one_of(unit: str) -> str:
    """Returns the singular of a unit: ``sessions`` -> ``session``, ``queries`` -> ``query``, ``processes`` ->
    ``process``."""
    if unit.endswith("ies"):
        return f"{unit[:-3]}y"
    if unit.endswith(("sses", "xes", "ches", "shes")):
        return unit[:-2]
    return unit if unit.endswith("ss") else unit.removesuffix("s")


percent = format_percent


def signed(share: float) -> str:
    """Formats a share with its sign: ``+5 %``, ``-0.3 %``, ``0 %``."""
    text = percent(share)
    return f"+{text}" if share > 0 and not text.startswith("0.0") else text


def apart(first: float, second: float) -> tuple[str, str]:
    """Formats two shares in percent, with one more decimal if they would look equal."""
    texts = percent(first), percent(second)
    return texts if texts[0] != texts[1] else (f"{100 * first:.1f} %", f"{100 * second:.1f} %")


def at_least(share: float) -> str:
    """Formats a share with a lower limit of what is shown: ``1.3 %``, ``below 0.1 %``."""
    return "below 0.1 %" if share < 0.001 else percent(share)


def p_value(p: float) -> str:
    """Formats a p value: ``p = 0.023``, ``p < 0.001``."""
    return f"p = {format_p(p)}" if p >= 0.001 else "p < 0.001"


plain = format_plain


def unit_of_work(throughput_unit: str) -> str:
    """Returns one unit of work of a throughput: ``calls/s`` -> ``call``, ``LIO/s`` -> ``LIO``, ``queries/s``
    -> ``query``."""
    unit, per, _ = unit_of(throughput_unit.strip()).partition("/")
    return (one_of(unit) if per else unit) or "work unit"


def whole(value: float) -> float:
    """Returns a count as an integer if it is one (``4``), else rounded to two decimals (a quota of
    ``1.5``)."""
    return int(value) if value == int(value) else round(value, 2)


def spread(value: Estimate) -> str:
    """Formats the interval of an estimate: `` (5.9 to 6.4)``, `` (at least 5.9)``; "" without one."""
    low, high = (None if v is None else plain(v) for v in (value.low, value.high))
    return _spread(low, high)


def _spread(low: str | None, high: str | None) -> str:
    if low is not None and high is not None:
        return "" if low == high else f" ({low} to {high})"
    if low is None and high is None:
        return ""
    return f" (at least {low})" if low is not None else f" (at most {high})"


def changes(ratio: Estimate) -> str:
    """Formats both ends of a ratio's interval: ``8.2 times less and 14 times more``. An unknown end is left
    out."""
    return " and ".join(_change(end) for end in (ratio.low, ratio.high) if end is not None)


def _change(ratio: float) -> str:
    direction = "less" if ratio < 1 else "more"
    if 0.5 < ratio < 2:
        return f"{percent(abs(ratio - 1))} {direction}"
    return f"{significant(max(ratio, 1 / ratio), 2)} times {direction}" if ratio > 0 else "any factor less"


def rate_spread(rate: Estimate) -> str:
    """Formats the interval of a rate as :func:`spread` does: `` (5.90 M to 6.41 M)``."""
    return _interval(rate, format_rate)


def percent_spread(share: Estimate) -> str:
    return _interval(share, percent)


def _interval(value: Estimate, text: Callable[[float], str]) -> str:
    """Formats both ends of an interval; "" if one is unknown or both look equal."""
    if value.low is None or value.high is None:
        return ""
    low, high = text(value.low), text(value.high)
    return "" if low == high else f" ({low} to {high})"


def estimate(
    name: str, values: Iterable[float | None], unit: str = "", *, share: bool = False
) -> Estimate | None:
    """Returns the mean of the known values, which are at least 0, with Student's interval on the scale of
    logarithms, or on that of log odds for a ``share``. None if no value is known."""
    mean = Mean.of(v for v in values if v is not None)
    if not mean.n:
        return None
    low, high = (mean.share95 if share else mean.positive95) or (None, None)
    method = REPEATS if low is not None else ""
    return Estimate(name, mean.value, unit, low, high, method, mean.std_err)
