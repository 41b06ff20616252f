"""Sessions that were started together: a row for each rung and repeat, then each session's calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from dbdyno.model import cpu_lists
from dbdyno.model.results import Results
from dbdyno.model.units import format_ns
from dbdyno.present import placement_plot
from dbdyno.present.document import (
    Cell,
    Column,
    Section,
    known,
    remarks,
    table,
    word,
)

Record = Mapping[str, Any]

STRIP = 32
MOST_SESSIONS = 24
"""Of more the slowest are shown, and it is said so."""
_SHARES = {"core": "a core", "cpu": "a CPU", None: ""}


def section(results: Results) -> Section | None:
    """``None``: the run was not in rounds."""
    found = placements(results)
    if not found:
        return None
    return Section(
        "Sessions started together", [table("", _RUNG, found), _sessions(results, chosen(found))], "placement"
    )


def placements(results: Results) -> list[Record]:
    """Rows of table ``placements``, by rung and repeat; none where there are none."""
    found = results.tables.get("placements")
    return [] if found is None else list(found.sort("variant", "sessions", "repeat").to_dicts())


def chosen(found: Sequence[Record]) -> Record:
    """The one worth a closer look: the first whose groups have a cause, else with groups, else the top."""
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


def _ratio(value: float | None) -> Cell:
    return known(value, lambda v: f"{v:.2f}")


def _of(n: int | None, whole: int) -> Cell:
    return known(n if whole else None, lambda v: f"{v:g} of {whole}")


def _shared(r: Record) -> Cell:
    return word(_SHARES[r["shared"]] or ("?" if r["groups"] else "-"))


def _number(head: str, rank: int = 0) -> Column:
    return Column(head, number=True, rank=rank)


Text = Callable[[Record], Cell]
_NONE = word("-")
_RUNG: tuple[tuple[Column, Text], ...] = (
    (_number("sessions"), lambda r: known(r["sessions"], str)),
    (_number("repeat"), lambda r: known(r["repeat"], str)),
    (_number("rounds", 6), lambda r: known(r["rounds"], str)),
    (_number("median"), lambda r: known(r["median_ns"], format_ns, "ns")),
    (_number("/alone"), lambda r: _ratio(r["median_ns"] / r["alone_ns"] if r["alone_ns"] else None)),
    (_number("max/min", 2), lambda r: _ratio(r["max_over_min"])),
    (_number("CV", 4), lambda r: known(r["cv"], lambda v: f"{100 * v:.1f} %")),
    (_number("p groups", 3), lambda r: known(r["p_groups"], lambda v: f"{v:.2g}")),
    (_number("slow"), lambda r: _of(r["slow_sessions"], r["sessions"]) if r["groups"] else _NONE),
    (_number("longer", 1), lambda r: _ratio(r["ratio"]) if r["groups"] else _NONE),
    (_number("shared"), _shared),
    (_number("moved", 5), lambda r: _of(r["moved"], r["calls"])),
)
_SESSION: tuple[tuple[Column, Text], ...] = (
    (_number("session"), lambda r: known(r["session"], str)),
    (_number("median"), lambda r: known(round(r["median_ns"]), format_ns, "ns")),
    (_number("slow"), lambda r: _of(r["slow"], r["rounds"])),
    (_number("CPUs", 2), lambda r: word(cpu_lists.text(r["cpus"]) or "?")),
    (_number("core", 3), lambda r: _of(r["core"], r["known"])),
    (_number("CPU", 4), lambda r: _of(r["cpu"], r["known"])),
    (_number("moved", 5), lambda r: known(r["moved"], str)),
)
_NOTES = (
    "/alone: the median over that of one session by itself. p groups: probability of such a split if all "
    "sessions were alike; below 0.05 there are two groups. core, CPU: calls that shared one, among those "
    "whose CPU is known. moved: calls that changed CPU."
)


def _sessions(results: Results, row: Record) -> Section:
    """Each session of one measurement: figures, and its calls from the fastest to the slowest of all."""
    every = of_sessions(results, row["cell"])
    calls = results.tables["placed"].filter(pl.col("cell") == row["cell"])
    shown = every.sort("median_ns", descending=True).head(MOST_SESSIONS).sort("session").to_dicts()
    low, high = (float(v) for v in (every["min_ns"].min(), every["max_ns"].max()))  # type: ignore[arg-type]
    ends = f"calls: from {format_ns(round(low))} to {format_ns(round(high))}; o: in the slower group."
    sketch = Column("calls", rank=1, sketch=True), lambda r: word(_strip(calls, r["session"], low, high))
    title = f"{row['sessions']} sessions, repeat {row['repeat']}"
    if every.height > len(shown):
        title += f": the slowest {len(shown)}"
    drawing = placement_plot.drawing(calls, row["rounds"], [r["session"] for r in shown], title)
    return Section(title, [drawing, table("", (*_SESSION, sketch), shown), *remarks([f"{ends} {_NOTES}"])])


def _strip(calls: pl.DataFrame, session: int, low: float, high: float) -> str:
    """Its calls from the fastest to the slowest of all, linear."""
    line = [" "] * STRIP
    mine = calls.filter(pl.col("session") == session).sort("slow")
    for duration, slow in mine.select("duration_ns", "slow").rows():
        at = 0 if high <= low else round((duration - low) / (high - low) * (STRIP - 1))
        line[at] = "o" if slow else "." if line[at] != "o" else "o"
    return f"|{''.join(line)}|"
