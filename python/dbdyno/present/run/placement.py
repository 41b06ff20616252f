"""Shows sessions that started together: a row per rung and repeat, then the calls of each session."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from dbdyno.model.results.results import Results
from dbdyno.model.text import cpu_lists
from dbdyno.model.units import counted, format_ns, format_p, format_percent, significant
from dbdyno.present.document.document import (
    Cell,
    Column,
    Drawing,
    Section,
    known,
    numeric,
    remarks,
    table,
    word,
)
from dbdyno.present.document.page import Html, el
from dbdyno.present.document.palette import var

# The picture, plain SVG: each call is a dot on the line of its session.
_LEFT, _WIDTH, _LINE, _TOP, _RIGHT = 80, 560, 16, 24, 90
_MOST_DOTS = 60  # most dots of a session: of more rounds every n-th is drawn
_SLOW = f"fill:{var('runq')};stroke:{var('runq')}"
_FAST = f"fill:none;stroke:{var('stat-p50')}"
_WORDS = {"core": "shared a core", "cpu": "shared a CPU", "none": "alone on its core", None: "place unknown"}


def plot(calls: pl.DataFrame, rounds: int, sessions: list[int], title: str) -> Drawing:
    """Returns a picture of the calls of some sessions in one measurement."""
    step = max(1, rounds // _MOST_DOTS)
    numbers = calls["round"].unique().sort().to_list()[::step]
    drawn = pl.col("session").is_in(sessions) & pl.col("round").is_in(numbers)
    calls = calls.filter(drawn).sort("session", "round")
    high = float(calls["duration_ns"].max() or 1)  # type: ignore[arg-type]
    key = "Elapsed time of each call, one line per session; filled: in the slower group of its round"
    some = f", {len(numbers)} of {rounds} rounds" if step > 1 else ""
    caption = f"{title}. {key}{some}. Right: the CPU that most of its calls ran on."
    return Drawing(_svg(calls, sessions, high, f"{title}: {key}"), caption)


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
        yield _text(text, x, _TOP - 10, "middle", "muted")


def _line(calls: pl.DataFrame, session: int, y: int, high: float) -> Iterator[Html]:
    own = calls.filter(pl.col("session") == session)
    yield _text(f"session {session}", _LEFT - 8, y + 4, "end", "text")
    for call in own.to_dicts():
        where = "CPU unknown" if call["cpu"] is None else f"CPU {call['cpu']}"
        tip = f"round {call['round']}: {format_ns(call['duration_ns'])}, {where}, {_WORDS[call['shares']]}"
        yield el(
            "circle",
            el("title", tip),
            cx=round(_LEFT + _WIDTH * call["duration_ns"] / high, 1),
            cy=y,
            r=3.5,
            style=_SLOW if call["slow"] else _FAST,
        )
    most = own["cpu"].drop_nulls().mode().sort()
    text = f"CPU {most[0]}" if len(most) else "CPU ?"
    yield _text(text, _LEFT + _WIDTH + 8, y + 4, "start", "muted")


def _text(text: str, x: float, y: float, anchor: str, colour: str) -> Html:
    return el("text", text, x=x, y=y, style=f"text-anchor:{anchor};font-size:11px;fill:{var(colour)}")


Record = Mapping[str, Any]

STRIP = 32
MOST_SESSIONS = 24
"""Most sessions that are shown; of more, the slowest are, and the title says so."""
_SHARES = {"core": "a core", "cpu": "a CPU", None: ""}


def section(results: Results) -> Section | None:
    """Returns the part of a page on sessions that started together; None if the run was not in rounds."""
    rows = placements(results)
    if not rows:
        return None
    return Section(
        "Sessions started together",
        [table("", _RUNG, rows, along_axis=True), _sessions(results, chosen(rows))],
        "placement",
    )


def placements(results: Results) -> list[Record]:
    """Returns the rows of table ``placements`` by rung and repeat; empty without any."""
    frame = results.tables.get("placements")
    return [] if frame is None else list(frame.sort("variant", "sessions", "repeat").to_dicts())


def chosen(rows: Sequence[Record]) -> Record:
    """Returns the row worth a closer look: the first whose groups have a cause, else with groups, else the
    top."""
    causes = [r for r in rows if r["shared"] is not None]
    parted = causes or [r for r in rows if r["groups"]]
    return parted[0] if parted else max(rows, key=lambda r: r["sessions"])


def of_sessions(results: Results, cell: str) -> pl.DataFrame:
    """Returns one row per session: durations, slow calls, CPUs, calls that shared a core or CPU, and
    moves."""
    shares = pl.col("shares")
    return (
        results.tables["placed"]
        .filter(pl.col("cell") == cell)
        .group_by("session")
        .agg(
            median_ns=pl.col("duration_ns").median(),
            min_ns=pl.col("duration_ns").min(),
            max_ns=pl.col("duration_ns").max(),
            slow=pl.col("slow").sum(),
            rounds=pl.len(),
            cpus=pl.col("cpu").drop_nulls().unique().sort(),
            core=(shares == "core").sum(),
            cpu=(shares == "cpu").sum(),
            known=shares.count(),
            moved=pl.when(pl.col("migrations").count() > 0).then((pl.col("migrations") > 0).sum()),
        )
        .sort("session")
    )


def _ratio(value: float | None) -> Cell:
    return known(value, significant)


def _count_of(n: int | None, whole: int) -> Cell:
    return known(n if whole else None, lambda v: f"{v:g} of {whole}")


def _shared(r: Record) -> Cell:
    return word(_SHARES[r["shared"]] or ("?" if r["groups"] else "-"))


Text = Callable[[Record], Cell]
_NONE = word("-")
_RUNG: tuple[tuple[Column, Text], ...] = (
    (numeric("sessions"), lambda r: known(r["sessions"], str)),
    (numeric("repeat"), lambda r: known(r["repeat"], str)),
    (numeric("rounds", 6), lambda r: known(r["rounds"], str)),
    (numeric("median"), lambda r: known(r["median_ns"], format_ns, "ns")),
    (numeric("/alone"), lambda r: _ratio(r["median_ns"] / r["alone_ns"] if r["alone_ns"] else None)),
    (numeric("max/min", 2), lambda r: _ratio(r["max_over_min"])),
    (numeric("CV", 4), lambda r: known(r["cv"], format_percent)),
    (numeric("p groups", 3), lambda r: known(r["p_groups"], format_p)),
    (numeric("slow"), lambda r: _count_of(r["slow_sessions"], r["sessions"]) if r["groups"] else _NONE),
    (numeric("longer", 1), lambda r: _ratio(r["ratio"]) if r["groups"] else _NONE),
    (numeric("shared"), _shared),
    (numeric("moved", 5), lambda r: _count_of(r["moved"], r["calls"])),
)
_SESSION: tuple[tuple[Column, Text], ...] = (
    (numeric("session"), lambda r: known(r["session"], str)),
    (numeric("median"), lambda r: known(round(r["median_ns"]), format_ns, "ns")),
    (numeric("slow"), lambda r: _count_of(r["slow"], r["rounds"])),
    (numeric("CPUs", 2), lambda r: word(cpu_lists.text(r["cpus"]) or "?")),
    (numeric("core", 3), lambda r: _count_of(r["core"], r["known"])),
    (numeric("CPU", 4), lambda r: _count_of(r["cpu"], r["known"])),
    (numeric("moved", 5), lambda r: known(r["moved"], str)),
)
_NOTES = (
    "/alone: the median over that of one session by itself. p groups: probability of such a split if all "
    "sessions were alike; below 0.05 there are two groups. core, CPU: calls that shared one, among those "
    "whose CPU is known. moved: calls that changed CPU."
)


def _sessions(results: Results, row: Record) -> Section:
    """Returns figures and calls of the sessions of one measurement."""
    every = of_sessions(results, row["cell"])
    calls = results.tables["placed"].filter(pl.col("cell") == row["cell"])
    shown = every.sort("median_ns", descending=True).head(MOST_SESSIONS).sort("session").to_dicts()
    low, high = (float(v) for v in (every["min_ns"].min(), every["max_ns"].max()))  # type: ignore[arg-type]
    ends = f"calls: from {format_ns(round(low))} to {format_ns(round(high))}; o: in the slower group."
    sketch = Column("calls", rank=1, sketch=True), lambda r: word(_strip(calls, r["session"], low, high))
    title = f"{counted(row['sessions'], 'session')}, repeat {row['repeat']}"
    if every.height > len(shown):
        title += f": the slowest {len(shown)}"
    drawing = plot(calls, row["rounds"], [r["session"] for r in shown], title)
    return Section(title, [drawing, table("", (*_SESSION, sketch), shown), *remarks([f"{ends} {_NOTES}"])])


def _strip(calls: pl.DataFrame, session: int, low: float, high: float) -> str:
    """Draws the calls of a session with characters, on a linear scale shared by all sessions."""
    line = [" "] * STRIP
    own = calls.filter(pl.col("session") == session).sort("slow")
    for duration, slow in own.select("duration_ns", "slow").rows():
        at = 0 if high <= low else round((duration - low) / (high - low) * (STRIP - 1))
        line[at] = "o" if slow else "." if line[at] != "o" else "o"
    return f"|{''.join(line)}|"
