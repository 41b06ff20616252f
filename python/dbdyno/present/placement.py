"""Sessions that were started together, on a terminal: a line a rung, then each session's calls on a strip."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl
from rich.console import Group, RenderableType
from rich.text import Text

from dbdyno.model import cpu_lists
from dbdyno.model.results import Results
from dbdyno.model.units import format_ns
from dbdyno.present.figures import UNKNOWN

Row = Mapping[str, Any]

STRIP = 32
MOST_SESSIONS = 24
"""Of more the slowest are shown, and it is said so."""
_SHARES = {"core": "a core", "cpu": "a CPU", None: ""}


def placement_text(results: Results) -> RenderableType:
    """Empty for a run that was not in rounds."""
    found = placements(results)
    if not found:
        return Group()
    worth = chosen(found)
    parts: list[RenderableType] = [Text("Sessions started together", style="bold"), *_rungs(found)]
    return Group(*parts, Text(""), *_sessions(results, worth))


def placements(results: Results) -> list[Row]:
    """Rows of table ``placements``, by rung and repeat; none where there are none."""
    table = results.tables.get("placements")
    return [] if table is None else list(table.sort("variant", "sessions", "repeat").to_dicts())


def chosen(found: Sequence[Row]) -> Row:
    """The cell worth a closer look: the first whose groups have a cause, the first with groups, or top."""
    causes = [r for r in found if r["shared"] is not None]
    parted = causes or [r for r in found if r["groups"]]
    return parted[0] if parted else max(found, key=lambda r: r["sessions"])


def of_sessions(results: Results, cell: str) -> pl.DataFrame:
    """A row a session: durations, slow calls, CPUs, shared, moved."""
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


Cell = Callable[[Row], str]
RUNG: tuple[tuple[str, Cell], ...] = (
    ("sess", lambda r: str(r["sessions"])),
    ("rep", lambda r: str(r["repeat"])),
    ("rounds", lambda r: str(r["rounds"])),
    ("median", lambda r: format_ns(r["median_ns"])),
    ("/alone", lambda r: _ratio(r["median_ns"] / r["alone_ns"] if r["alone_ns"] else None)),
    ("max/min", lambda r: _ratio(r["max_over_min"])),
    ("CV", lambda r: _percent(r["cv"])),
    ("p groups", lambda r: UNKNOWN if r["p_groups"] is None else f"{r['p_groups']:.2g}"),
    ("slow", lambda r: f"{r['slow_sessions']} of {r['sessions']}" if r["groups"] else "-"),
    ("longer", lambda r: _ratio(r["ratio"]) if r["groups"] else "-"),
    ("shared", lambda r: _SHARES[r["shared"]] or ("-" if not r["groups"] else UNKNOWN)),
    ("moved", lambda r: UNKNOWN if r["moved"] is None else f"{r['moved']} of {r['calls']}"),
)
"""Heading and text of each column of the table of rungs."""
SESSION: tuple[tuple[str, Cell], ...] = (
    ("session", lambda r: str(r["session"])),
    ("median", lambda r: format_ns(round(r["median_ns"]))),
    ("slow", lambda r: f"{r['slow']} of {r['rounds']}"),
    ("CPUs", lambda r: cpu_lists.text(r["cpus"]) or UNKNOWN),
    ("core", lambda r: _of(r["core"], r["known"])),
    ("CPU", lambda r: _of(r["cpu"], r["known"])),
    ("moved", lambda r: UNKNOWN if r["moved"] is None else str(r["moved"])),
)
"""The same of the sessions of one cell."""
FOOTNOTE = (
    "/alone: of one session by itself. p groups: chance that one population falls apart so; below 0.05 there "
    "are two groups. core, CPU: calls that shared one, of those whose place is known. moved: to another CPU "
    "under way."
)


def _rungs(found: Sequence[Row]) -> Iterator[RenderableType]:
    yield from _aligned([h for h, _ in RUNG], [[cell(r) for _, cell in RUNG] for r in found])


def _sessions(results: Results, row: Row) -> Iterator[RenderableType]:
    table = of_sessions(results, row["cell"])
    calls = results.tables["placed"].filter(pl.col("cell") == row["cell"])
    shown = table.sort("median_ns", descending=True).head(MOST_SESSIONS).sort("session").to_dicts()
    low, high = (float(v) for v in (table["min_ns"].min(), table["max_ns"].max()))  # type: ignore[arg-type]
    yield Text(
        f"{row['sessions']} sessions, repeat {row['repeat']}: each call, {format_ns(round(low))} to "
        f"{format_ns(round(high))}; o: in the slower group",
        style="bold",
    )
    heads = [*(h for h, _ in SESSION), "calls"]
    lines = [[*(c(r) for _, c in SESSION), _strip(calls, r["session"], low, high)] for r in shown]
    yield from _aligned(heads, lines)
    if table.height > MOST_SESSIONS:
        yield Text(f"The slowest {MOST_SESSIONS} of {table.height} sessions.", style="dim")
    yield Text(FOOTNOTE, style="dim")


def _strip(calls: pl.DataFrame, session: int, low: float, high: float) -> str:
    """Its calls from the fastest to the slowest of all, linear."""
    line = [" "] * STRIP
    mine = calls.filter(pl.col("session") == session).sort("slow")
    for duration, slow in mine.select("duration_ns", "slow").rows():
        at = 0 if high <= low else round((duration - low) / (high - low) * (STRIP - 1))
        line[at] = "o" if slow else "." if line[at] != "o" else "o"
    return f"|{''.join(line)}|"


def _aligned(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> Iterator[Text]:
    widths = [max(len(t) for t in column) for column in zip(heads, *lines, strict=True)]
    for number, line in enumerate([heads, *lines]):
        text = "  ".join(t.rjust(w) for t, w in zip(line, widths, strict=True))
        yield Text(text, style="bold" if number == 0 else "", no_wrap=True, overflow="crop")


def _ratio(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{100 * value:.1f} %"


def _of(n: int, known: int) -> str:
    return f"{n} of {known}" if known else UNKNOWN
