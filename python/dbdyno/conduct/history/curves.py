"""The throughput of a run by load, small enough for a list."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dbdyno.model.errors import StoreError
from dbdyno.model.results.raw import LEFT_OUT
from dbdyno.model.units import counted, format_rate
from dbdyno.store import Run

_MOST_LINES, _MOST_POINTS = 4, 24
_COLUMNS = ("workload", "variant", "sessions", "rate_per_s", "work_per_s", "calls_per_s", "status")


class Curve(NamedTuple):
    """``lines``: one for each workload and variant, of pairs of load and throughput. The load is a number of
    sessions, or a rate if it was paced. ``text`` has the ends of the first line in words."""

    lines: Sequence[Sequence[tuple[float, float]]]
    text: str


def curve(path: Path) -> Curve | None:
    """Returns the curve of the run at ``path``.

    None if it has fewer than two loads, was not derived, or cannot be read.
    """
    try:
        record = Run(path)
        rungs = None if record.info.status == "running" else record.read_table("rungs")
        if rungs is None:
            return None
        short = next((w.work_short for w in record.info.workloads.values()), "work")
    except StoreError:
        return None
    rows = rungs.select(_COLUMNS).to_dicts()
    paced = any(row["rate_per_s"] for row in rows)
    figure = "work_per_s" if all(row["work_per_s"] for row in rows) else "calls_per_s"
    lines: dict[tuple[str, str], dict[float, float]] = {}
    for row in rows:
        load, value = row["rate_per_s" if paced else "sessions"], row[figure]
        if load is not None and value is not None and row["status"] not in LEFT_OUT:
            lines.setdefault((row["workload"], row["variant"]), {})[load] = value
    drawn = [_thinned(sorted(line.items())) for line in lines.values() if len(line) > 1][:_MOST_LINES]
    unit = f"{short}/s" if figure == "work_per_s" else "calls/s"
    return Curve(drawn, _words(drawn[0], unit, paced)) if drawn else None


def _thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """Leaves out points evenly, where there are more than a small drawing can show; the last one stays."""
    step = -(-len(points) // _MOST_POINTS)
    return points[::-1][::step][::-1]


def _words(line: Sequence[tuple[float, float]], unit: str, paced: bool) -> str:
    return " to ".join(
        f"{format_rate(value)} {unit} at {f'{format_rate(load)}/s' if paced else counted(load, 'session')}"
        for load, value in (line[0], line[-1])
    )
