"""Shows an observation in progress: session time by account over time, and its newest window.

All figures are those of the derived tables; the blocks are those of the page of a finished observation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import polars as pl

from dbdyno.model.plan.kinds import kind_of, speaking_of
from dbdyno.model.results.results import Results
from dbdyno.model.sources.wait_families import WaitFamilies, families_of
from dbdyno.model.text.nouns import fill
from dbdyno.model.units import NS_PER_S, format_percent, format_rate, significant
from dbdyno.present.document.document import (
    Block,
    Cell,
    Column,
    KeyFigure,
    Paragraph,
    Section,
    Table,
    known,
    numeric,
    remarks,
    table,
    word,
)
from dbdyno.present.document.palette import account_colours
from dbdyno.present.figures import accounts, figures, headline, profile, selection
from dbdyno.present.figures.selection import Pick, rows_of
from dbdyno.present.metrics import window
from dbdyno.present.run import chains, statements

TABLES = (
    *window.TABLES,
    *("top_events", "statements", "statement_ledger", "statement_texts", "wait_chains"),
)
"""Derived tables that the newest window is shown from."""
STACKED = ("windows", "ledger", "wait_families", "statement_texts")
"""Tables that the stack over time is drawn from, and the texts, which only the first window has."""
DRAWN = 720
"""Most stretches of time in a chart; more windows are merged, weighted by their length."""
_MOST_TEXT, _MOST_TEXTS = 2_000, 2_000
"""Most characters of a statement, and most statements whose texts are kept."""


class Moment(NamedTuple):
    """A window, or several as one: seconds since 1970, and seconds per second by segment of the stack."""

    start_s: float
    end_s: float
    values: Mapping[str, float]


def moments(results: Results) -> list[Moment]:
    """Returns the windows of ``results`` in the order of time. Time at the client is left out."""
    windows = figures.windows(results).filter(pl.col("status") != "invalid")
    places = windows.select("cell", place=pl.int_range(pl.len()), weight="wall_s")
    rows = accounts.stack(results, places).filter(pl.col("key") != "client")
    values: list[dict[str, float]] = [{} for _ in range(windows.height)]
    for place, key, aas in rows.select("place", "key", "aas").iter_rows():
        if short := round(aas, 5):
            values[place][key] = short
    start_s = results.info.started.timestamp() - results.info.started_monotonic_ns / NS_PER_S
    ends = windows.select("t0_ns", "t1_ns").iter_rows()
    return [
        Moment(round(start_s + t0 / NS_PER_S, 3), round(start_s + t1 / NS_PER_S, 3), v)
        for (t0, t1), v in zip(ends, values, strict=True)
    ]


def chart(every: Sequence[Moment], families: WaitFamilies, cpus: float | None) -> dict[str, Any]:
    """Returns the stack over time for timeline.js, with its gaps, and the line of CPUs."""
    drawn = _merged(every)
    times: list[float] = []
    taken: list[Moment | None] = []
    for before, one in zip((None, *drawn), drawn, strict=False):
        if before is not None and one.start_s - before.end_s > figures.GAP_S:
            times.append(before.end_s)
            taken.append(None)
        times.append(one.start_s)
        taken.append(one)
    if drawn:
        times.append(drawn[-1].end_s)
        taken.append(None)
    series = [
        {**segment, "values": [None if m is None else m.values.get(segment["key"], 0.0) for m in taken]}
        for segment in named({key for m in drawn for key in m.values}, families)
    ]
    lines = [] if cpus is None else [{"name": "CPUs", "colour": "muted", "value": cpus}]
    return {"times": times, "series": series, "lines": lines}


def named(keys: Iterable[str], families: WaitFamilies) -> list[dict[str, str]]:
    """Returns key, name and colour of each segment, the lowest first."""
    rows = pl.DataFrame(
        [(key, key.partition(":")[0]) for key in sorted(keys)],
        schema={"key": pl.String, "account": pl.String},
        orient="row",
    )
    segments = accounts.segments(rows, families)
    paint = account_colours(sorted({s.family for s in segments}))
    return [{"key": s.key, "name": s.label, "colour": paint[s.family]} for s in segments]


def _merged(every: Sequence[Moment]) -> Sequence[Moment]:
    """Returns at most about :data:`DRAWN` stretches, none of which spans a gap."""
    size = -(-len(every) // DRAWN)
    if size < 2:
        return every
    merged: list[Moment] = []
    few: list[Moment] = []
    for one in every:
        if few and (len(few) == size or one.start_s - few[-1].end_s > figures.GAP_S):
            merged.append(_as_one(few))
            few = []
        few.append(one)
    return [*merged, _as_one(few)]


def _as_one(few: Sequence[Moment]) -> Moment:
    sums: dict[str, float] = {}
    for one in few:
        for key, value in one.values.items():
            sums[key] = sums.get(key, 0.0) + value * (one.end_s - one.start_s)
    whole_s = sum(one.end_s - one.start_s for one in few)
    values = {key: round(total / whole_s, 5) for key, total in sums.items()}
    return Moment(few[0].start_s, few[-1].end_s, values)


def texts(known: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """Returns the texts of statements so far, the newest last: cut, and not without end."""
    cut = new.with_columns(pl.col("text").str.slice(0, _MOST_TEXT))
    return pl.concat([known, cut]).unique("query_id", keep="first", maintain_order=True).tail(_MOST_TEXTS)


def cpus_of(results: Results) -> float | None:
    return figures.usable_cpus(results)


def families_in(results: Results) -> WaitFamilies:
    return families_of(results.tables)


# The newest window.


def figures_of(results: Results, cell: str) -> list[KeyFigure]:
    with speaking_of(kind_of(results.plan)):
        pick = selection.pick_of(results, cell)
        per_s = {} if pick is None else dict(rows_of(results, "profile", pick).select("name", "per_s").rows())
        cpus = figures.usable_cpus(results)
        of_cpus = "" if cpus is None else f"of {figures.cpus_text(cpus)}"
        shown = [
            KeyFigure("Active sessions", known(per_s.get("DB time"), significant), "on average"),
            KeyFigure("CPU", known(per_s.get("DB CPU"), significant), of_cpus),
            KeyFigure("CPU WAIT", known(per_s.get("CPU WAIT"), significant), "sessions, on average"),
        ]
        late = 0.0 if pick is None else profile.transactions_error(results, pick)
        if (rate := per_s.get(headline.TRANSACTIONS)) is not None:
            about = f"errs by up to {format_percent(late)}: some count in the next window"
            known_rate = known(rate, format_rate)
            shown.append(
                KeyFigure("Transactions/s", known_rate._replace(text=f"~{known_rate.text}"), about)
                if late >= profile.LEAST_ERROR
                else KeyFigure("Transactions/s", known_rate)
            )
        if (rate := per_s.get(headline.STATEMENTS)) is not None:
            shown.append(KeyFigure("Statements/s", known(rate, format_rate)))
        return shown


def blocks(results: Results, cell: str) -> list[Section]:
    """Returns the sections below the chart, all of the newest window."""
    with speaking_of(kind_of(results.plan)):
        pick = selection.pick_of(results, cell)
        if pick is None:
            return []
        sql = statements.brief(results, pick, statements.SHOWN) or statements.top_sql(results, pick)[:1]
        samples = next(
            (w.samples for w in window.windows(results.tables, 0) if w.cell == cell),
            (),
        )
        return [
            Section("Top SQL", [*map(_short, sql)], "top-sql"),
            Section(fill("{~top_events:capital}"), _narrow(profile.top_events(results, pick)), "events"),
            Section("Sessions by state", _states(samples, pick), "states"),
            Section("Wait chains", _narrow(_chains(results, pick, samples)), "chains"),
            Section("Cost of observing", _cost(samples), "cost"),
        ]


def _chains(results: Results, pick: Pick, samples: Sequence[window.Sample]) -> list[Block]:
    """Returns activities of the roots and the chains, without the method, which the page of the run has."""
    blocks = chains.wait_chains(results, pick)
    tables = [b for b in blocks if isinstance(b, Table)]
    if not tables and profile.nothing_was_active(results, pick):
        return [Paragraph(f"No lock waits {pick.at}: no session was active.", "muted")]
    if not tables and not _by_state(samples):
        return [Paragraph(f"Lock waits unknown {pick.at}: sessions were not sampled.", "muted")]
    return [*tables[:2]] if tables else blocks


def _by_state(samples: Sequence[window.Sample]) -> list[tuple[str, float]]:
    """Returns the states with their average sessions, the most frequent first; empty without samples."""
    states = ((s.labels[0], s.value) for s in samples if s.name == "dbdyno_sessions")
    return sorted(states, key=lambda s: -s[1])


def _narrow(blocks: Sequence[Block], most_rank: int = 1) -> list[Block]:
    """Returns tables with the columns that matter most, and remarks."""
    return [_columns(b, most_rank) if isinstance(b, Table) else b for b in blocks]


def _columns(shown: Table, most_rank: int) -> Table:
    kept = [n for n, c in enumerate(shown.columns) if c.rank <= most_rank]
    rows = [r._replace(cells=[r.cells[n] for n in kept]) for r in shown.rows]
    return replace(shown, columns=[shown.columns[n] for n in kept], rows=rows)


def _short(block: Block) -> Block:
    if not isinstance(block, Table):
        return block
    rows = [
        r._replace(cells=[c._replace(whole=c.whole[:_MOST_TEXT], note=c.note[:_MOST_TEXT]) for c in r.cells])
        for r in block.rows
    ]
    return replace(block, rows=rows)


_STATES = (
    "The state is what the server shows. Active sessions above are those on a CPU, waiting for one or "
    "waiting in the database, whatever the server shows: the sums may differ."
)


def _states(samples: Sequence[window.Sample], pick: Pick) -> list[Block]:
    """Returns the sessions in each state of the server."""
    states = _by_state(samples)
    if not states:
        return [Paragraph(f"Sessions by state: unknown {pick.at}: they were not sampled.", "muted")]
    columns = (
        (Column("state"), lambda s: word(s[0])),
        (numeric("sessions", 0), lambda s: known(s[1], significant)),
    )
    shown = table(f"Sessions on average {pick.at}", columns, states)
    return [shown, *remarks([_STATES])]


def _cost(samples: Sequence[window.Sample]) -> list[Block]:
    by_name = {s.name: s.value for s in samples}
    used, wall_s = by_name.get("dbdyno_observer_cpu_seconds"), by_name.get("dbdyno_window_length_seconds")
    if used is None or not wall_s:
        return [Paragraph("What dbdyno used in this window is unknown.", "muted")]
    return [Paragraph(f"In this window dbdyno used {format_percent(used / wall_s)} of one CPU.")]


def empty_figures() -> list[KeyFigure]:
    """Returns the figures of an observation without a window so far."""
    return [KeyFigure(name, Cell("?")) for name in ("Active sessions", "CPU", "CPU WAIT")]
