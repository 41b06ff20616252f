"""Sessions that were started together, on the page: tables, and a strip of each session's calls (SVG)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from dbdyno.model.results import Results
from dbdyno.model.units import format_ns
from dbdyno.present.markup import Html, el, join, table
from dbdyno.present.palette import var
from dbdyno.present.placement import FOOTNOTE, MOST_SESSIONS, RUNG, SESSION, chosen, of_sessions, placements

Row = Mapping[str, Any]
_LEFT, _WIDTH, _LINE, _TOP, _RIGHT = 80, 560, 16, 24, 90
_MOST_DOTS = 60  # a session: of more rounds every n-th
_SLOW = f"fill:{var('runq')};stroke:{var('runq')}"
_FAST = f"fill:none;stroke:{var('stat-p50')}"
_WORDS = {"core": "shared a core", "cpu": "shared a CPU", "none": "alone on its core", None: "place unknown"}


def placement_html(results: Results) -> Html:
    """Empty for a run that was not in rounds."""
    found = placements(results)
    if not found:
        return Html("")
    row = chosen(found)
    heads, cells = [h for h, _ in RUNG], [[c(r) for _, c in RUNG] for r in found]
    sessions = of_sessions(results, row["cell"])
    shown = sessions.sort("median_ns", descending=True).head(MOST_SESSIONS).sort("session")
    title = f"{row['sessions']} sessions, repeat {row['repeat']}"
    if shown.height < sessions.height:
        title += f": the slowest {shown.height}"
    lines = [[c(r) for _, c in SESSION] for r in shown.to_dicts()]
    return join(
        table("Sessions started together, per rung", heads, cells, [True] * len(heads)),
        _figure(results, row, shown["session"].to_list(), title),
        table(title, [h for h, _ in SESSION], lines, [True] * len(SESSION)),
        el("p", FOOTNOTE, class_="foot"),
    )


def _figure(results: Results, row: Row, sessions: list[int], title: str) -> Html:
    calls = results.tables["placed"].filter(
        (pl.col("cell") == row["cell"]) & pl.col("session").is_in(sessions)
    )
    step = max(1, row["rounds"] // _MOST_DOTS)
    numbers = calls["round"].unique().sort().to_list()[::step]
    calls = calls.filter(pl.col("round").is_in(numbers)).sort("session", "round")
    high = float(calls["duration_ns"].max() or 1)  # type: ignore[arg-type]
    words = "Elapsed time of each call, a line a session; filled: in the slower group of its round"
    some = f", {len(numbers)} of {row['rounds']} rounds" if step > 1 else ""
    return el(
        "figure",
        el("figcaption", f"{title}. {words}{some}. Behind each line: the CPU that most of its calls ran on."),
        _svg(calls, sessions, high, f"{title}: {words}"),
    )


def _svg(calls: pl.DataFrame, sessions: list[int], high: float, label: str) -> Html:
    height = _TOP + _LINE * len(sessions) + 6
    rows = [(s, _TOP + _LINE * i + _LINE // 2) for i, s in enumerate(sessions)]
    return el(
        "svg",
        *_axis(high, height),
        *(part for session, y in rows for part in _line(calls, session, y, high)),
        viewBox=f"0 0 {_LEFT + _WIDTH + _RIGHT} {height}",
        role="img",
        aria_label=label,
        style=f"width:100%;max-width:{_LEFT + _WIDTH + _RIGHT}px;height:auto",
    )


def _axis(high: float, height: int) -> Iterator[Html]:
    for part in range(5):
        x = _LEFT + _WIDTH * part / 4
        yield el("line", x1=x, x2=x, y1=_TOP - 6, y2=height, style=f"stroke:{var('line')}")
        text = format_ns(round(high * part / 4)) if part else "0"
        yield _words(text, x, _TOP - 10, "middle", "muted")


def _line(calls: pl.DataFrame, session: int, y: int, high: float) -> Iterator[Html]:
    mine = calls.filter(pl.col("session") == session)
    yield _words(f"session {session}", _LEFT - 8, y + 4, "end", "text")
    for call in mine.to_dicts():
        where = "CPU unknown" if call["cpu"] is None else f"CPU {call['cpu']}"
        words = f"round {call['round']}: {format_ns(call['duration_ns'])}, {where}, {_WORDS[call['shares']]}"
        yield el(
            "circle",
            el("title", words),
            cx=round(_LEFT + _WIDTH * call["duration_ns"] / high, 1),
            cy=y,
            r=3.5,
            style=_SLOW if call["slow"] else _FAST,
        )
    most = mine["cpu"].drop_nulls().mode().sort()
    text = f"CPU {most[0]}" if len(most) else "CPU ?"
    yield _words(text, _LEFT + _WIDTH + 8, y + 4, "start", "muted")


def _words(text: str, x: float, y: float, anchor: str, colour: str) -> Html:
    return el("text", text, x=x, y=y, style=f"text-anchor:{anchor};font-size:11px;fill:{var(colour)}")
