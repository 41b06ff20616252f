"""Each call of sessions that were started together as a dot on its session's line: plain SVG."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from dbdyno.model.units import format_ns
from dbdyno.present.document import Drawing
from dbdyno.present.markup import Html, el
from dbdyno.present.palette import var

_LEFT, _WIDTH, _LINE, _TOP, _RIGHT = 80, 560, 16, 24, 90
_MOST_DOTS = 60  # a session: of more rounds every n-th
_SLOW = f"fill:{var('runq')};stroke:{var('runq')}"
_FAST = f"fill:none;stroke:{var('stat-p50')}"
_WORDS = {"core": "shared a core", "cpu": "shared a CPU", "none": "alone on its core", None: "place unknown"}


def drawing(calls: pl.DataFrame, rounds: int, sessions: list[int], title: str) -> Drawing:
    """The calls of some sessions of one measurement."""
    step = max(1, rounds // _MOST_DOTS)
    numbers = calls["round"].unique().sort().to_list()[::step]
    mine = pl.col("session").is_in(sessions) & pl.col("round").is_in(numbers)
    calls = calls.filter(mine).sort("session", "round")
    high = float(calls["duration_ns"].max() or 1)  # type: ignore[arg-type]
    words = "Elapsed time of each call, one line per session; filled: in the slower group of its round"
    some = f", {len(numbers)} of {rounds} rounds" if step > 1 else ""
    caption = f"{title}. {words}{some}. Right: the CPU that most of its calls ran on."
    return Drawing(_svg(calls, sessions, high, f"{title}: {words}"), caption)


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
