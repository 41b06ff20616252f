"""Converts the columns of a file to the units of a ladder: per second, seconds, CPU seconds per second.

The figures are checked with Little's law for a closed system, N = X (R + Z): load, throughput, response
time and think time. A factor of 60 or 1,000 between the two sides means a wrong unit, and is refused.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from dbdyno.model.errors import UsageError
from dbdyno.model.units import (
    counted,
    format_given,
    format_number,
    format_plain,
    parse_duration_ns,
    quantity,
    significant,
)
from dbdyno.store.ladder_csv.headings import Rate, rate_unit
from dbdyno.store.ladder_csv.reading import Reading, Refused, Values, Way
from dbdyno.store.ladder_csv.vocabulary import TIMES
from dbdyno.store.table_cells import EITHER, UNKNOWN, in_two_ways
from dbdyno.store.table_text import Line

MOST_PRESENT = 3.0
"""Calls in progress per session above which a unit is wrong. Above 1, R may include calls that X does not."""
LEAST_PRESENT = 1 / 30
"""Share of a session's time in calls below which figures are doubtful, if no think time is known."""
LONG_S = 10_000
"""A duration without a unit above this is probably in milliseconds."""
MANY_CPUS = 5.0
"""CPUs per session above which a figure is probably a percentage."""


def quantities(reading: Reading) -> tuple[dict[str, Values], str]:
    """Returns the columns of ``Ladder.points`` without ``repeat``, and the unit of throughput."""
    rate = _rate(reading)
    columns: dict[str, Values] = {"load": reading.column("load"), "throughput": _throughput(reading, rate)}
    for role in ("response_s", "response_p95_s"):
        if role in reading.by_role:
            columns[role] = _seconds(reading, role, columns)
    _sign(reading, columns)
    if "response_s" in columns:
        _little(reading, columns, rate)
    for role in ("cpu", "cpu_user", "cpu_system", "cpu_wait"):
        values = _cpu(reading, role, columns["throughput"])
        if values is not None:
            columns[role] = values
    return columns, f"{rate.counted or 'units'}/s"


def _sign(reading: Reading, columns: dict[str, Values]) -> None:
    """Raises UsageError if load or throughput have the form 1.234 and only other columns show the decimal
    sign.

    It does not if Little's law confirms the sign. Other figures are compared with these two.
    """
    if reading.options.decimal is not None:
        return
    for role in ("load", "throughput"):
        notes = reading.table.signed([reading.by_role[role].index]).notes
        reading.notes += [n for n in notes if n not in (*reading.table.notes, *reading.notes)]
    present = _present(columns, columns["response_s"], reading.think_s) if _has_law(reading) else []
    if present and LEAST_PRESENT <= statistics.median(present) <= MOST_PRESENT:
        return
    for role in ("load", "throughput"):
        for line in _ambiguous_lines(reading, role)[:1]:
            index = reading.by_role[role].index
            raise UsageError(*in_two_ways(line.fields[index], reading.table.where(line, index)))


def _has_law(reading: Reading) -> bool:
    if "response_s" not in reading.by_role or not reading.kind("load").closed:
        return False
    return (reading.kind("response_s").unit) in TIMES


def _ambiguous_lines(reading: Reading, role: str) -> list[Line]:
    """Returns lines whose figure was read with the decimal sign of other columns, and is ambiguous by
    itself."""
    table, index = reading.table, reading.by_role[role].index
    if table.decimal == UNKNOWN or table.signed([index]).decimal != UNKNOWN:
        return []
    signs = ((line, EITHER.match(line.fields[index].strip())) for line in table.lines)
    return [line for line, match in signs if match and match[1] == table.decimal]


# -- throughput --


def _rate(reading: Reading) -> Rate:
    """Returns the unit of throughput: that of the option, completed by the heading."""
    kind, option = reading.kind("throughput"), reading.options.throughput_unit
    own = Rate(kind.unit.removesuffix("/s"), kind.factor * TIMES[kind.per or "s"], kind.per)
    if option is None:
        return own
    unit = rate_unit(option)
    if unit is None:
        raise UsageError(
            f"--throughput-unit {option!r}: not a unit of throughput", "orders/s, k tx/h, MB/s, orders"
        )
    if not unit.per:
        return Rate(unit.counted or own.counted, own.scale * unit.scale, own.per)
    if own.per not in ("", unit.per):
        reading.notes.append(f"{reading.heading('throughput')} was read as {option}, by --throughput-unit")
    return Rate(unit.counted or own.counted, unit.scale, unit.per)


def _throughput(reading: Reading, rate: Rate) -> Values:
    values, heading = reading.column("throughput"), reading.heading("throughput")
    unit = f"{rate.counted or 'units'}/s"
    if reading.kind("throughput").is_count and not rate.per:
        lasted = durations(reading)
        if lasted is not None:
            reading.notes.append(f"{heading} was divided by the duration")
            return [v * rate.scale / d for v, d in zip(values, lasted, strict=True) if v is not None]
        reading.notes.append(
            f"{heading} was taken as {unit}; if it is a count: --duration 60s, or a column duration_s"
        )
    if rate.factor != 1:
        reading.notes.append(f"{heading}: 1 in the file is {format_given(rate.factor)} {unit}")
    return [None if v is None else v * rate.factor for v in values]


def durations(reading: Reading) -> list[float] | None:
    """Returns the seconds of each line; None if the file does not state them. Raises UsageError if one has
    none."""
    option = reading.options.duration
    if "duration" not in reading.by_role:
        return (
            None if option is None else [parse_duration_ns(option, "--duration") / 1e9] * len(reading.records)
        )
    raw, column = reading.column("duration"), reading.by_role["duration"]
    heading, index, unit = column.heading, column.index, column.kind.unit
    if not unit:
        longest = max((v for v in raw if v is not None), default=0.0)
        if longest > LONG_S:
            raise UsageError(
                f"{reading.table.source}: {heading} {longest:g} has no unit",
                "--duration-unit ms, or name the column duration_ms",
            )
        unit = "s"
    for record, value in zip(reading.records, raw, strict=True):
        if value is None:
            raise UsageError(
                f"{reading.table.where(record.line, index)}: no value",
                "counts need the time they were made in",
            )
    return [v * TIMES[unit] for v in raw if v is not None]


# -- response times, and Little's law --


def _seconds(reading: Reading, role: str, columns: dict[str, Values]) -> Values:
    raw, heading = reading.column(role), reading.heading(role)
    unit = reading.kind(role).unit
    if unit not in TIMES:
        fitting = _fitting_units(reading, role, columns)
        if len(fitting) != 1:
            raise reading.refused(
                role,
                f": {heading} has no unit, and {'none agrees' if not fitting else 'several agree'} "
                "with sessions / throughput",
                [Way("--response-unit", u) for u in _CLOCK],
            )
        unit = fitting[0]
        reading.notes.append(f"{heading} has no unit: taken for {unit}, as sessions / throughput has it")
    seconds: Values = [None if v is None else v * TIMES[unit] for v in raw]
    if role == "response_p95_s":
        _above_the_mean(reading, columns, seconds)
    return seconds


def _fitting_units(reading: Reading, role: str, columns: dict[str, Values]) -> list[str]:
    """Returns units with which Little's law holds.

    For a closed system R X <= N, and not below a thirtieth of it unless sessions think 30 times longer
    than they wait. A 95th percentile must be near the mean, if that is known.
    """
    raw = reading.column(role)
    if role == "response_p95_s" and "response_s" in columns:
        ratio = _median_ratio(raw, columns["response_s"])
        return [u for u in _CLOCK if ratio is not None and 1 / 3 <= ratio * TIMES[u] < 1000 / 3]
    if not reading.kind("load").closed:
        return []
    fitting = []
    for unit in _CLOCK:
        scaled: Values = [None if v is None else v * TIMES[unit] for v in raw]
        present = _present(columns, scaled, reading.think_s)
        if present and LEAST_PRESENT <= statistics.median(present) <= MOST_PRESENT:
            fitting.append(unit)
    return fitting


_CLOCK = ("s", "ms", "us", "ns")


def _present(columns: dict[str, Values], response_s: Values, think_s: float | None) -> list[float]:
    """Returns by line the calls in progress and thinking sessions, divided by the sessions: 1 by Little's
    law."""
    lines = zip(columns["load"], columns["throughput"], response_s, strict=True)
    return [x * (r + (think_s or 0.0)) / n for n, x, r in lines if n and x and r]


def _median_ratio(values: Values, others: Values) -> float | None:
    ratios = [v / w for v, w in zip(values, others, strict=True) if v and w]
    return statistics.median(ratios) if ratios else None


def _above_the_mean(reading: Reading, columns: dict[str, Values], p95_s: Values) -> None:
    ratio = _median_ratio(p95_s, columns["response_s"]) if "response_s" in columns else None
    if ratio is not None and not 1 / 3 < ratio < 300:
        names = f"{reading.heading('response_p95_s')} and {reading.heading('response_s')}"
        raise reading.refused(
            "response_p95_s",
            f": {names}: the 95th percentile is {format_plain(ratio)} times the mean: their units differ",
            [Way("--response-unit", None)] if reading.options.response_unit else [],
        )


def _little(reading: Reading, columns: dict[str, Values], rate: Rate) -> None:
    """Raises UsageError if a unit is wrong.

    It is if there are more calls in progress than sessions, or so few that 60 or 1,000 times as many equal
    the sessions.
    """
    present = _present(columns, columns["response_s"], reading.think_s)
    if not present:
        return
    middle, closed = statistics.median(present), reading.kind("load").closed
    cures = _cures(reading, rate, middle)
    if not closed:  # a node has any number of sessions, so only a clearly better unit counts
        if cures and middle > 300 and reading.options.response_unit is None:
            raise _disagrees(reading, columns, middle, cures)
        return
    if middle > MOST_PRESENT:
        raise _disagrees(reading, columns, middle, cures)
    if middle > 1.1:
        reading.notes.append(
            f"throughput x response time is {significant(middle, 2)} times the {_loads(reading)}: more "
            "calls in progress than one each"
        )
    if middle < LEAST_PRESENT and not reading.think_s:
        always = [u for f, u in cures if sum(0.5 <= s * f <= 1.2 for s in present) >= 0.9 * len(present)]
        if always:
            raise _disagrees(reading, columns, middle, cures)
        reading.notes.append(
            f"the {_loads(reading)} are in calls {significant(100 * middle, 2)} % of the time: if they pause "
            "between calls, --think TIME; if not, a unit is wrong"
        )


def _cures(reading: Reading, rate: Rate, middle: float) -> list[tuple[float, Way]]:
    """Returns other units with which the law may hold, and their factors, the likeliest first."""
    unit = reading.kind("response_s").unit or "s"
    amount, per = rate.counted or "units", rate.per or "s"
    other = [(TIMES[u] / TIMES[unit], Way("--response-unit", u)) for u in _CLOCK if u != unit]
    own = "k " if rate.scale == 1e3 else ""
    other += [
        (TIMES[per] / TIMES[p], Way("--throughput-unit", f"{own}{amount}/{p}"))
        for p in ("s", "min", "h")
        if p != per
    ]
    if rate.scale > 1:
        other.append((1 / rate.scale, Way("--throughput-unit", f"{amount}/{per}")))
    else:
        other.append((1e3, Way("--throughput-unit", f"k {amount}/{per}")))
    fits = [(f, way) for f, way in other if 0.3 <= middle * f <= 1.2]
    return sorted(fits, key=lambda c: abs(c[0] * middle - 1))


def _disagrees(
    reading: Reading, columns: dict[str, Values], middle: float, cures: Sequence[tuple[float, Way]]
) -> Refused:
    lines = zip(reading.records, columns["load"], columns["throughput"], columns["response_s"], strict=True)
    every = [(c, n, x, r) for c, n, x, r in lines if n and x and r]
    record, n, x, r = every[0]
    calls, think = x * (r + (reading.think_s or 0.0)), reading.think_s
    times = f"({quantity(r, 's')} + {quantity(think, 's')})" if think else quantity(r, "s")
    wrong = "many" if middle > 1 else "few"
    problem = (
        f", line {record.line.number}: {format_number(x)}/s x {times} = {format_number(calls)} calls in "
        f"progress, too {wrong} for {format_given(n)} {_loads(reading, n)} (N = X (R + Z), Little's law): "
        "a unit is wrong"
    )
    ways = [way for _, way in cures]
    if any(_ambiguous_lines(reading, role) for role in ("load", "throughput", "response_s")):
        ways.append(Way("--decimal", "," if reading.table.decimal == "." else "."))
    if middle < 1:
        pause = statistics.median(n / x - r for _, n, x, r in every)
        ways.append(Way("--think", "TIME", " if there is a pause between calls", max(pause, 1e-9)))
    return reading.refused("response_s", problem, ways)


def _loads(reading: Reading, n: float = 2) -> str:
    unit = reading.options.load_unit or reading.kind("load").unit or "sessions"
    return unit.removesuffix("s") if n == 1 else unit


# -- CPU --


def _cpu(reading: Reading, role: str, throughput: Values) -> Values | None:
    """Returns CPU seconds per second; None if absent or in an unknown unit, which a note states."""
    if role not in reading.by_role:
        if role == "cpu" and "cpu_per_unit" in reading.by_role:
            factor = TIMES[reading.kind("cpu_per_unit").unit]
            pairs = zip(reading.column("cpu_per_unit"), throughput, strict=True)
            return [None if v is None or x is None else v * factor * x for v, x in pairs]
        return None
    unit = reading.kind(role).unit
    if unit == "%":
        return _from_percent(reading, role)
    if unit in TIMES:
        return _from_seconds(reading, role, unit)
    values = reading.column(role)
    _possible(reading, role, values)
    return values


def _possible(reading: Reading, role: str, values: Values) -> None:
    """Raises UsageError for more CPUs than the machine has or sessions can use. CPU WAIT has no bound."""
    if role == "cpu_wait":
        return
    heading, most = reading.heading(role), max((v for v in values if v is not None), default=0.0)
    each = _median_ratio(values, reading.column("load")) or 0.0
    too_many = reading.cpus is not None and most > 1.1 * reading.cpus
    if too_many or (reading.kind("load").closed and each > MANY_CPUS):
        than = (
            f"more than {counted(reading.cpus, 'CPU')}"
            if too_many and reading.cpus is not None
            else f"{format_plain(each)} CPUs per session"
        )
        raise reading.refused(
            role,
            f": {heading} {format_number(most)}, as CPU seconds per second, is {than}",
            [
                Way("--cpu-unit", "%", " if it is per cent"),
                Way("--cpu-unit", "s", " if it is CPU seconds of a measurement"),
            ],
        )


def _from_percent(reading: Reading, role: str) -> Values | None:
    """Converts a percentage: above 100 it is that of one CPU, else of the machine, whose CPUs must be
    known."""
    raw, heading, cpus = reading.column(role), reading.heading(role), reading.cpus
    if max((v for v in raw if v is not None), default=0) > 100:
        reading.notes.append(f"{heading} goes beyond 100 %: taken as per cent of one CPU")
        values: Values = [None if v is None else v / 100 for v in raw]
        _possible(reading, role, values)
        return values
    if cpus is None:
        reading.notes.append(f"{heading} was left out: per cent of how many CPUs? --cpus N")
        return None
    reading.notes.append(f"{heading} was taken as per cent of {format_given(cpus)} CPUs")
    return [None if v is None else v / 100 * cpus for v in raw]


def _from_seconds(reading: Reading, role: str, unit: str) -> Values | None:
    """Divides CPU seconds by the duration of the line; without one they are per second, if sessions can
    use that."""
    heading = reading.heading(role)
    seconds: Values = [None if v is None else v * TIMES[unit] for v in reading.column(role)]
    lasted = durations(reading)
    if lasted is not None:
        values: Values = [None if v is None else v / d for v, d in zip(seconds, lasted, strict=True)]
        _possible(reading, role, values)
        return values
    if any(v is not None and v > 1.5 * n for v, n in zip(seconds, reading.column("load"), strict=True) if n):
        reading.notes.append(f"{heading} was left out: CPU seconds over how long? --duration 60s")
        return None
    reading.notes.append(f"{heading} was taken as CPU seconds per second; if it is not: --duration 60s")
    return seconds
