"""Shows a span of an observation: what a report shows of all windows together, of these windows alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dbdyno.model.plan.kinds import kind_of, speaking_of
from dbdyno.model.results.ledger_rows import TOGETHER
from dbdyno.model.results.results import Results
from dbdyno.model.text.nouns import fill
from dbdyno.model.units import NS_PER_S, counted, format_ns
from dbdyno.present.document.document import Block, Paragraph, Section
from dbdyno.present.figures import figures, headline, profile
from dbdyno.present.figures.selection import Pick
from dbdyno.present.parts import has_rows
from dbdyno.present.run import chains, devices, processes, statements, waiting

_Details = Callable[[Results, Pick], list[Block]]


class _Part(NamedTuple):
    """A section. One that takes long is ``late``: its blocks are asked for one by one."""

    id: str
    title: str
    details: tuple[_Details, ...]
    applies: Callable[[Results], bool] = lambda _: True
    late: bool = False


def _texts(results: Results, pick: Pick) -> list[Block]:
    return statements.texts(results, [pick])


_PARTS = (
    _Part("events", "{~top_events:capital}", (profile.top_events,)),
    _Part("statements", "Top SQL", (statements.top_sql, _texts), statements.observed),
    _Part("profile", "Load profile", (profile.load_profile,)),
    _Part("devices", devices.TITLE, (devices.blocks,), has_rows("device_io")),
    _Part("chains", "Wait chains", (chains.wait_chains,), chains.sampled),
    _Part("sessions", "{~at_once:capital} and processes", (processes.tables,), late=True),
    _Part("waits", "Every {~wait_event}", (profile.wait_events, waiting.durations), late=True),
    _Part(
        "statement-time",
        "Where the time of statements went",
        (waiting.statement_ledger,),
        has_rows("statement_ledger"),
        late=True,
    ),
)
LATE = tuple(p.id for p in _PARTS if p.late)
"""Sections whose blocks :func:`late` returns."""
_WAIT = "Read when it is opened."


def sections(results: Results, *, complete: bool = False) -> list[Section]:
    """Returns the sections of the span whose results these are; late ones without their blocks, unless
    ``complete``."""
    with speaking_of(kind_of(results.plan)):
        pick = _pick(results)
        return [
            Section(
                fill(p.title),
                _blocks(p, results, pick) if complete or not p.late else [Paragraph(_WAIT, "muted")],
                p.id,
                folded=p.late,
            )
            for p in _PARTS
            if p.applies(results)
        ]


def title(results: Results) -> str:
    """Returns the title of the page of an observation over time."""
    with speaking_of(kind_of(results.plan)):
        return f"Over time: {headline.title(results)}"


def late(results: Results, id: str) -> Sequence[Block]:
    """Returns the blocks of a late section; empty if there is none of that id."""
    with speaking_of(kind_of(results.plan)):
        pick = _pick(results)
        return [b for p in _PARTS if p.id == id and p.late for b in _blocks(p, results, pick)]


def _blocks(part: _Part, results: Results, pick: Pick) -> list[Block]:
    return [b for make in part.details for b in make(results, pick)]


def _pick(results: Results) -> Pick:
    row = results.tables["windows"].row(0, named=True)
    return Pick(TOGETHER, label(results), None, (row["workload"], row["variant"], row["sessions"]))


def label(results: Results) -> str:
    """Returns when the windows began and ended: ``21 Nov 10:45:31 to 10:47:01``."""
    windows = results.tables["windows"]
    begin, end = (
        figures.moment(results, int(v))  # type: ignore[arg-type]
        for v in (windows["t0_ns"].min(), windows["t1_ns"].max())
    )
    day = "" if begin.date() == end.date() else "%-d %b "
    return f"{begin:%-d %b %H:%M:%S} to {end:{day}%H:%M:%S}"


def clock(results: Results, seconds: float) -> str:
    """Returns a time in seconds since 1970 as the pages show it, for a field of a form."""
    return f"{figures.shown_moment(results, seconds):%Y-%m-%dT%H:%M:%S}"


def times(results: Results, start_s: float, end_s: float) -> str:
    """Returns two times since 1970 in words: ``2026-11-21 10:45:31 to 2026-11-21 10:47:01 CET``."""
    begin, end = (f"{figures.shown_moment(results, s):%Y-%m-%d %H:%M:%S}" for s in (start_s, end_s))
    return f"{begin} to {end} {figures.zone(results)}"


def extent(results: Results) -> str:
    """Returns the span in words: when, how long, and how many windows of how many sessions."""
    windows = results.tables["windows"]
    measured = format_ns(float(windows["wall_s"].sum()) * NS_PER_S)
    count = counted(windows.height, "whole window")
    return f"{label(results)} {figures.zone(results)}: {count}, {measured} measured"
