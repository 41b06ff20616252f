"""Builds the sections of a document that compare two machines under the same work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import polars as pl

from dbdyno.model.results.analyses import Estimate, Ladder, Machine, Machines, Speed
from dbdyno.model.text.nouns import capital
from dbdyno.model.units import format_given, format_ns, format_plain, format_rate
from dbdyno.present.charts.chart import (
    LETTERS,
    ROUNDED,
    Spec,
    channel,
    chart,
    coloured,
    encoded,
    label,
    layer,
    line_and_points,
    rule,
    series_keys,
    tips,
)
from dbdyno.present.document.document import (
    UNKNOWN,
    Block,
    Cell,
    Chart,
    Column,
    Key,
    Row,
    Section,
    Statement,
    Statements,
    Table,
    known,
    numeric,
    remarks,
    word,
)
from dbdyno.present.document.palette import var
from dbdyno.present.figures.figures import machine_counts


def throughput(pair: Machines, number: int = 0) -> Chart:
    """Returns a chart of throughput over load on logarithmic axes.

    A line goes through the mean at each load of a machine. A crossing is a rule, its interval a band.
    """
    unit, load_unit = pair.a.throughput_unit, pair.a.load_unit
    rows = [r for name, side in zip(pair.names, (pair.a, pair.b), strict=True) for r in _means(name, side)]
    loads = sorted({r["load"] for r in rows})
    ticks = {"values": loads, "format": "~g", "labelOverlap": "greedy", "labelSeparation": 6}
    ends = [loads[0], max(loads[-1], 2 * loads[0])] if loads else [1, 2]
    rates = [r["rate"] for r in rows] or [1.0]
    logarithmic = {"type": "log", "nice": False}
    heights = {**logarithmic, "domain": [min(rates) / 1.2, 1.2 * max(rates)]}
    drawn = line_and_points(
        rows,
        40,
        tips("machine:N", ("load:Q", "", load_unit), ("rate:Q", ROUNDED, unit)),
        x=channel("load:Q", title=load_unit, axis=ticks, scale={**logarithmic, "domain": ends}),
        y=channel("rate:Q", title=unit, axis=LETTERS, scale=heights),
        color=coloured("machine", pair.names),
    )
    crossing = [Key("crossing, 95 % interval", var("muted"), "dash")] if pair.crossings else []
    return chart(
        f"machines-{number}-throughput",
        f"Throughput, {unit}",
        "Both machines under the same work, on logarithmic axes: equal distances are equal ratios.",
        [*_crossings(pair, ends), *drawn],
        f"Throughput in {unit} over {load_unit}, both machines, logarithmic",
        rows,
        legend=[*series_keys(pair.names), *crossing],
        wide=True,
    )


def _means(name: str, ladder: Ladder) -> list[Spec]:
    """Returns the geometric mean of throughput at each load."""
    known = ladder.points.filter(pl.col("throughput") > 0)
    means = known.group_by("load").agg(rate=pl.col("throughput").log().mean().exp()).sort("load")
    return [{"machine": name, **r} for r in means.to_dicts()]


def _crossings(pair: Machines, ends: Sequence[float]) -> Iterator[Spec]:
    """Yields rules and bands of crossings; an unknown end of an interval lies at the edge of the chart."""
    for e in pair.crossings:
        low, high = (end if v is None else v for v, end in zip((e.low, e.high), ends, strict=True))
        data = [{"load": e.value, "from": low, "to": high, "name": f"crossing {format_plain(e.value)}"}]
        if e.method:
            band = layer(data, "rect", color=var("line"), opacity=0.6, clip=True)
            yield encoded(band, x=channel("from:Q"), x2={"field": "to"})
        at = {"x": channel("load:Q")}
        yield rule(data, at, "muted", (4, 3))
        yield label(data, {**at, "y": {"value": 10}}, "muted", align="left", dx=4, fontSize=11)


_NOTHING = Cell("")


def sections(machines: Iterable[Machines]) -> list[Section]:
    """Returns one section per pair of ladders: the answer, the machines, the chart, the table, and notes."""
    return [
        Section(title(pair), _blocks(pair, n), "machines" if n == 0 else f"machines-{n + 1}")
        for n, pair in enumerate(machines)
    ]


def _blocks(pair: Machines, number: int) -> list[Block]:
    sides = ((pair.names[0], pair.a.machine), (pair.names[1], pair.b.machine))
    return [
        Statements([Statement(c.text) for c in pair.claims]),
        *remarks(f"{name}: {about(m)}" for name, m in sides),
        throughput(pair, number),
        Table(pair.a.throughput_unit, _columns(pair), [Row(cells) for cells in rows(pair)], along_axis=True),
        *remarks(notes(pair)),
    ]


def title(pair: Machines) -> str:
    what = f"{pair.a.name}, " if pair.a.name == pair.b.name else ""
    return f"Machines compared: {what}{pair.names[1]} over {pair.names[0]}"


def about(machine: Machine) -> str:
    """Returns the hardware in words: ``4 cores, 8 threads, a model``."""
    counts = machine_counts(machine, "thread")
    return ", ".join([*counts, *([machine.model] if machine.model else [])]) or "hardware unknown"


def _columns(pair: Machines) -> list[Column]:
    a, b = pair.names
    numbers = [numeric(h) for h in (a, b, f"{b}/{a}", "95 % interval")]
    return [Column(""), *numbers, numeric(_time_head(pair), 1), Column("", wraps=True)]


def _time_head(pair: Machines) -> str:
    return pair.a.time_name if pair.a.of_work else "response"


def rows(pair: Machines) -> Iterator[list[Cell]]:
    """Yields the rows for one session, every load, the crossings and the peaks."""
    unit = pair.a.load_unit
    if pair.at_loads[0].load != 1:
        yield _speed(pair.one_session)
    for at in pair.at_loads:
        ratio = at.response.ratio
        response = known(None if ratio is None else ratio.value, format_plain)
        yield _speed(at.throughput, response, "" if at.how == "measured" else at.how)
    for e in pair.crossings:
        cells = (word(f"crossing, {unit}"), word(""), word(""), known(e.value, format_plain, unit))
        yield [*cells, word(_ends(e)), word(""), word(e.note)]
    if not pair.crossings:
        texts = (f"crossing, {unit}", "", "", "none", "", "", "within the common range")
        yield [word(t) for t in texts]
    at_peak = " and ".join(format_given(n) for n in pair.peak_loads)
    yield _speed(pair.peak, note=f"at {at_peak} {unit}")
    yield from map(_speed, (pair.per_core, pair.per_thread, pair.per_cpu_second))


def _speed(speed: Speed, response: Cell = _NOTHING, note: str = "") -> list[Cell]:
    if speed.ratio is None or speed.a is None or speed.b is None:
        unknown = [word(UNKNOWN)] * 3
        return [word(speed.what), *unknown, word(""), response, word(speed.reason)]
    ratio = known(speed.ratio.value, format_plain)
    sides = (_value(speed.a), _value(speed.b))
    return [word(speed.what), *sides, ratio, word(_ends(speed.ratio)), response, word(note)]


def _value(e: Estimate) -> Cell:
    return Cell(format_ns(e.value * 1e9) if e.unit == "s" else format_rate(e.value), e.value, e.unit)


def _ends(e: Estimate) -> str:
    """Returns the interval; a crossing may be bounded on one side only."""
    if not e.method:
        return UNKNOWN
    ends = (UNKNOWN if v is None else format_plain(v) for v in (e.low, e.high))
    return " .. ".join(ends)


def notes(pair: Machines) -> Iterator[str]:
    if any(x.how == "interpolated" for x in pair.at_loads):
        yield "Between measured loads throughput is interpolated: straight on logarithmic axes."
    a, b = pair.names
    head = _time_head(pair)
    yield f"{capital(head)}: mean {pair.a.time_name} of {b} over that of {a}."
    yield from (n.text for n in pair.notes)
