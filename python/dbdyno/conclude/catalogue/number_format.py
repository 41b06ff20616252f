"""Numbers in the words of a sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dbdyno.model.results.analyses import Estimate
from dbdyno.model.schema.tables import fewest_calls
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
    """``6.21 M LIO/s``."""
    return f"{format_rate(value)} {unit_of(unit)}"


def tail_ns(q: float, value: float | None) -> str:
    """A quantile, or how many calls it needs: ``1.23 ms``, ``unknown (of fewer than 1,000 calls)``."""
    return f"unknown (of fewer than {fewest_calls(q):,} calls)" if value is None else format_ns(value)


def seconds(value: float) -> str:
    """``1.23 ms``."""
    return format_ns(value * NS_PER_S)


def load(n: float, unit: str = "sessions") -> str:
    """``1 session``, ``8 sessions``, ``5.3 sessions``; units are plural nouns. Sessions are called what the
    kind of run calls them: ``8 jobs at once``."""
    text = load_number(n)
    if unit == "sessions":
        return at_once(text)
    return f"{text} {one_of(unit) if text == '1' else unit}"


def at_load(n: float, unit: str = "sessions") -> str:
    """``at 8 sessions``, ``with 8 jobs at once``."""
    return f"{noun('at')} {load(n, unit)}"


def load_number(n: float) -> str:
    """``8``, ``5.3``, ``0.125``."""
    return f"{n:,.0f}" if abs(n) >= 100 or abs(n - round(n)) < 0.005 * min(abs(n), 1.0) else f"{n:.3g}"


def rate_of_load(rate_per_s: float) -> str:
    """``500/s``, ``12,500/s``: a rate that was set."""
    return f"{format_given(rate_per_s)}/s"


def loads(low: float, high: float, unit: str = "sessions") -> str:
    """``16 to 32 sessions``, ``8 sessions``."""
    return load(high, unit) if low == high else f"{load_number(low)} to {load(high, unit)}"


def load_spread(found: Estimate) -> str:
    """As :func:`spread`, of loads: `` (4 to 16)``."""
    low, high = (None if v is None else load_number(v) for v in (found.low, found.high))
    return _spread(low, high)


def one_of(unit: str) -> str:
    """``sessions`` -> ``session``, ``queries`` -> ``query``, ``processes`` -> ``process``."""
    if unit.endswith("ies"):
        return f"{unit[:-3]}y"
    if unit.endswith(("sses", "xes", "ches", "shes")):
        return unit[:-2]
    return unit if unit.endswith("ss") else unit.removesuffix("s")


percent = format_percent


def signed(share: float) -> str:
    """``+5 %``, ``-0.3 %``, ``0 %``."""
    text = percent(share)
    return f"+{text}" if share > 0 and not text.startswith("0.0") else text


def apart(first: float, second: float) -> tuple[str, str]:
    """Two shares in percent, with a decimal more where they would look the same."""
    texts = percent(first), percent(second)
    return texts if texts[0] != texts[1] else (f"{100 * first:.1f} %", f"{100 * second:.1f} %")


def at_least(share: float) -> str:
    """``1.3 %``, ``below 0.1 %``."""
    return "below 0.1 %" if share < 0.001 else percent(share)


def p_value(p: float) -> str:
    """``p = 0.023``, ``p < 0.001``."""
    return f"p = {format_p(p)}" if p >= 0.001 else "p < 0.001"


plain = format_plain


def unit_of_work(throughput_unit: str) -> str:
    """``calls/s`` -> ``call``, ``LIO/s`` -> ``LIO``, ``queries/s`` -> ``query``."""
    unit, per, _ = unit_of(throughput_unit.strip()).partition("/")
    return (one_of(unit) if per else unit) or "work unit"


def whole(value: float) -> float:
    """A count as ``4``, of a quota ``1.5``."""
    return int(value) if value == int(value) else round(value, 2)


def spread(found: Estimate) -> str:
    """`` (5.9 to 6.4)``, `` (at least 5.9)``; empty where there is no interval."""
    low, high = (None if v is None else plain(v) for v in (found.low, found.high))
    return _spread(low, high)


def _spread(low: str | None, high: str | None) -> str:
    if low is not None and high is not None:
        return "" if low == high else f" ({low} to {high})"
    if low is None and high is None:
        return ""
    return f" (at least {low})" if low is not None else f" (at most {high})"


def changes(ratio: Estimate) -> str:
    """Both ends of a ratio's interval, where it has one: ``8.2 times less and 14 times more``."""
    return " and ".join(_change(end) for end in (ratio.low, ratio.high) if end is not None)


def _change(ratio: float) -> str:
    direction = "less" if ratio < 1 else "more"
    if 0.5 < ratio < 2:
        return f"{percent(abs(ratio - 1))} {direction}"
    return f"{significant(max(ratio, 1 / ratio), 2)} times {direction}" if ratio > 0 else "any factor less"


def rate_spread(found: Estimate) -> str:
    """As :func:`spread`, of rates: ``(5.90 M to 6.41 M)``."""
    return _ends(found, format_rate)


def percent_spread(found: Estimate) -> str:
    return _ends(found, percent)


def _ends(found: Estimate, text: Callable[[float], str]) -> str:
    """Both ends, where they are known and do not look the same."""
    if found.low is None or found.high is None:
        return ""
    low, high = text(found.low), text(found.high)
    return "" if low == high else f" ({low} to {high})"


def estimate(
    name: str, values: Iterable[float | None], unit: str = "", *, share: bool = False
) -> Estimate | None:
    """Mean of the known values, which are 0 or more, with Student's interval on the scale of logarithms; of a
    ``share`` on that of log odds. ``None`` without any."""
    mean = Mean.of(v for v in values if v is not None)
    if not mean.n:
        return None
    low, high = (mean.share95 if share else mean.positive95) or (None, None)
    method = REPEATS if low is not None else ""
    return Estimate(name, mean.value, unit, low, high, method, mean.std_err)
