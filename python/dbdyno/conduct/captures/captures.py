"""The triggers that fired in a run and their captures: tables, and captures as runs of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import polars as pl

from dbdyno.conduct.captures.trigger_actions import CAPTURES
from dbdyno.model.errors import DbdynoError, UsageError
from dbdyno.model.plan.triggers import Fired
from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import empty, rows
from dbdyno.model.units import NS_PER_S
from dbdyno.plan.trigger_conditions import value_words
from dbdyno.store import Run, read_fired

MOST = 5
"""Most rows of each kind that the run itself has; the capture has all."""


Derived = Callable[[Run, Callable[[str], None]], Results]
"""Returns what is derived of a stored run, and reports progress."""


def fired_tables(record: Run, derived: Derived) -> dict[str, pl.DataFrame]:
    """Returns the tables ``triggers_fired`` and ``captured`` of a run; derives captures that are not derived
    yet."""
    fired = read_fired(record)
    if not fired:
        return {name: empty(name) for name in ("triggers_fired", "captured")}
    spans = [
        (meta.t0_ns, meta.t1_ns, meta.cell.id, meta.cell.sessions)
        for meta in (cell.meta for cell in record.each_cell([]))
    ]
    of_triggers = [_row(f, spans, running=record.info.status == "running") for f in fired]
    parts = [part for f in fired for part in _parts(record, f, derived)]
    return {"triggers_fired": rows("triggers_fired", of_triggers), "captured": rows("captured", parts)}


def _row(fired: Fired, spans: list[tuple[int, int, str, int]], *, running: bool) -> dict[str, Any]:
    row = fired.model_dump(exclude={"values", "lines"})
    at = next((s for s in spans if s[0] <= fired.at_ns < s[1]), None)
    row |= {
        "measured": ", ".join(value_words(k, v) for k, v in fired.values.items()),
        "lines": "\n".join(fired.lines),
        "cell": None if at is None else at[2],
        "sessions": None if at is None else at[3],
    }
    if fired.status == "under way" and not running:
        row["detail"] = "dbdyno ended before the action did"
    return row


def _parts(record: Run, fired: Fired, derived: Derived) -> Iterator[dict[str, Any]]:
    """Returns the largest parts of a capture."""
    if fired.capture is None:
        return
    with contextlib.suppress(DbdynoError):
        results = derived(Run(record.path / CAPTURES / fired.capture), lambda _words: None)
        for kind, read in _KINDS.items():
            shares = read(results)
            whole = sum(v for _, v in shares if v is not None)
            largest = sorted((r for r in shares if r[1]), key=lambda r: -(r[1] or 0.0))
            for name, value in largest[:MOST]:
                share = value / whole if value is not None and whole > 0 else None
                yield {"number": fired.number, "kind": kind, "name": name, "value": value, "share": share}


_Parts = list[tuple[str, float | None]]


def _profile(table: str, by: str) -> Callable[[Results], _Parts]:
    def read(results: Results) -> _Parts:
        frame = results.tables[table].filter(
            (pl.col("by") == by) & (pl.col("scope") == "rung") & (pl.col("cell") != "all")
        )
        return [(str(n), v) for n, v in frame.select("name", "aas").iter_rows()]

    return read


def _calls(results: Results) -> _Parts:
    frame = results.tables["system_calls"].filter((pl.col("who") == "rung") & (pl.col("cell") != "all"))
    walls: Mapping[str, float] = dict(results.tables["windows"].select("cell", "wall_s").iter_rows())
    return [
        (str(n), t / NS_PER_S / walls[c]) for c, n, t in frame.select("cell", "name", "time_ns").iter_rows()
    ]


def _memory(results: Results) -> _Parts:
    frame = results.tables["memory"].filter(
        (pl.col("scope") == "host") & pl.col("node").is_null() & pl.col("key").is_in(_MEMORY)
    )
    return [(_MEMORY[k], v) for k, v in frame.select("key", "value").iter_rows()]


_MEMORY = {
    "free_bytes": "free",
    "anonymous_bytes": "anonymous",
    "shared_bytes": "shared",
    "page_cache_bytes": "page cache",
    "kernel_bytes": "kernel",
}
_KINDS: dict[str, Callable[[Results], _Parts]] = {
    "CPU time by function": _profile("cpu_profile", "function"),
    "sleep by wait event": _profile("sleep_profile", "wait"),
    "system calls by time": _calls,
    "memory of the machine": _memory,
}


def capture_of(record: Run, number: int) -> Run:
    """Returns the capture of the action with this number as a run. Raises :class:`UsageError`."""
    fired = {f.number: f for f in read_fired(record)}
    if number not in fired:
        numbers = ", ".join(map(str, fired)) or "none"
        raise UsageError(f"the run has no action {number} of a trigger", f"there are {numbers}: --captures")
    chosen = fired[number]
    if chosen.capture is None:
        why = chosen.detail or chosen.status
        raise UsageError(
            f"action {number} ({chosen.action}) captured nothing that can be shown: {why}", "--captures"
        )
    return Run(record.path / CAPTURES / chosen.capture)
