"""The throughput of a run by load, small enough for a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dbdyno.model.errors import StoreError
from dbdyno.model.results.raw import LEFT_OUT
from dbdyno.model.units import counted, format_rate
from dbdyno.store import Run

_MOST_LINES, _MOST_POINTS = 4, 24
Names = tuple[str, str]
"""A workload and a variant."""
_COLUMNS = ("workload", "variant", "sessions", "rate_per_s", "work_per_s", "calls_per_s", "status")


class Curve(NamedTuple):
    """``lines``: one for each workload and variant, of pairs of load and throughput. The load is a number of
    sessions, or a rate if it was paced. ``text``: the ends of the highest line in words, which line that is,
    and how many are drawn if not all."""

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
    return curve_of(rungs.select(_COLUMNS).to_dicts(), short)


def curve_of(rows: Sequence[Mapping[str, Any]], short: str) -> Curve | None:
    """Returns the curve of load levels. ``short``: the unit of work."""
    paced = any(row["rate_per_s"] for row in rows)
    figure = "work_per_s" if all(row["work_per_s"] for row in rows) else "calls_per_s"
    lines: dict[Names, dict[float, float]] = {}
    for row in rows:
        load, value = row["rate_per_s" if paced else "sessions"], row[figure]
        if load is not None and value is not None and row["status"] not in LEFT_OUT:
            lines.setdefault((row["workload"], row["variant"]), {})[load] = value
    all_lines = {names: sorted(line.items()) for names, line in lines.items() if len(line) > 1}
    if not all_lines:
        return None
    unit = f"{short}/s" if figure == "work_per_s" else "calls/s"
    highest = sorted(all_lines, key=lambda names: -_top(all_lines[names]))[:_MOST_LINES]
    drawn = [_thinned(line) for names, line in all_lines.items() if names in highest]
    words = _words(all_lines[highest[0]], unit, paced)
    return Curve(drawn, words if len(all_lines) == 1 else _of_several(words, highest, list(all_lines)))


def _top(line: Sequence[tuple[float, float]]) -> float:
    return max(value for _, value in line)


def _of_several(words: str, highest: Sequence[Names], every: Sequence[Names]) -> str:
    """Returns the words with what tells the highest line from the others: workload, variant, or both."""
    workload, variant = highest[0]
    names = [workload] if len({w for w, _ in every}) > 1 else []
    names += [f"variant {variant}"] if len({v for _, v in every}) > 1 else []
    some = f", of which {len(highest)} are drawn" if len(highest) < len(every) else ""
    return f"{' '.join(names)}: {words}; the highest of {len(every)} lines{some}"


def _thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """Leaves out points evenly, where there are more than a small drawing can show; the last one stays."""
    step = -(-len(points) // _MOST_POINTS)
    return points[::-1][::step][::-1]


def _words(line: Sequence[tuple[float, float]], unit: str, paced: bool) -> str:
    return " to ".join(
        f"{format_rate(value)} {unit} at {f'{format_rate(load)}/s' if paced else counted(load, 'session')}"
        for load, value in (line[0], line[-1])
    )
