"""The active sessions of an observation, window by window, as data for the lab's chart over time."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from dbdyno.model.plan.kinds import kind_of, speaking_of
from dbdyno.model.results.results import Results
from dbdyno.model.sources.source import HIDDEN_STATUS
from dbdyno.model.units import NS_PER_S, significant
from dbdyno.present.charts import triggers
from dbdyno.present.charts.charts_time import fills
from dbdyno.present.figures import accounts, figures

ROOM = 16
"""Most series of the chart."""
_DIGITS, _LEAST = 4, 0.5e-5
"""Digits of a value, and the least one: a smaller one is 0."""


def data(results: Results, *, by_wait: bool = False) -> dict[str, Any]:
    """Returns what timeline.js draws, and ``notes`` to it. ``by_wait``: CPU WAIT by the wait before it.

    Time at the client is not drawn; a note has its mean.
    """
    with speaking_of(kind_of(results.plan)):
        return _data(results, by_wait)


def _data(results: Results, by_wait: bool) -> dict[str, Any]:
    frame = figures.windows(results)
    places = frame.select("cell", place=pl.int_range(pl.len(), dtype=pl.Int64), weight="wall_s")
    means = accounts.every_mean(results, places, words=False)
    rows = accounts.stack(results, places, divided=by_wait, known_means=means)
    away = rows.filter(pl.col("key") == "client")["aas"].mean()
    rows = accounts.merge_small(rows.filter(pl.col("key") != "client"), ROOM)
    times, columns = _times(results, frame)
    missing = accounts.missing_parts(results, places, means) if _doubtful(results) else []
    notes = [accounts.undrawn(missing, places.height)] if missing else []
    if away is not None:
        sessions = significant(float(away))  # type: ignore[arg-type]
        notes.append(f"Not drawn: {sessions} sessions on average were at their client.")
    cpus = figures.usable_cpus(results)
    line = {"name": "CPUs that may be used", "colour": "text", "value": cpus}
    return {
        "times": times,
        "series": _series(rows, len(times), columns, means.filter(pl.col("aas").is_not_null())["place"]),
        "lines": [line] if cpus else [],
        "marks": [
            {"at": _epoch_s(results, f["at_ns"]), "name": f"{f['fired']}; {f['action']}"}
            for f in triggers.moments(results)
        ],
        "zone": {"offset_s": _offset_s(results), "name": figures.zone(results)},
        "unit": "active sessions",
        "notes": notes,
    }


def _doubtful(results: Results) -> bool:
    """Returns whether a part of the account can be missing; which ones takes longer to find."""
    ledger = results.tables["ledger"].filter(pl.col("scope") == "rung")
    hidden = ledger["status"].unique().str.contains(HIDDEN_STATUS, literal=True).any()
    return bool(ledger["aas"].null_count() or hidden)


def _epoch_s(results: Results, at_ns: int) -> float:
    since_s = (at_ns - results.info.started_monotonic_ns) / NS_PER_S
    return round(results.info.started.timestamp() + since_s, 3)


def _offset_s(results: Results) -> float:
    offset = results.info.started.astimezone().utcoffset()
    return 0.0 if offset is None else offset.total_seconds()


def _times(results: Results, frame: pl.DataFrame) -> tuple[list[float], np.ndarray]:
    """Returns the times at which windows begin, and gaps; and the places of the windows among them."""
    times: list[float] = []
    places = np.zeros(frame.height, dtype=np.int64)
    end = None
    for n, (t0_ns, t1_ns, new) in enumerate(frame.select("t0_ns", "t1_ns", "new").iter_rows()):
        if new and end is not None:
            times.append(_epoch_s(results, end))
        places[n] = len(times)
        times.append(_epoch_s(results, t0_ns))
        end = t1_ns
    return ([*times, _epoch_s(results, end)] if end is not None else times), places


def _series(rows: pl.DataFrame, count: int, columns: np.ndarray, measured: pl.Series) -> list[dict[str, Any]]:
    """Returns a series per segment of the stack that is not 0 throughout; of an idle time, one of zeros.

    ``measured``: the places of windows of which something is known; they have all series, the others none.
    """
    paint = fills(rows)
    known = np.zeros(count, dtype=bool)
    known[columns[measured.unique().to_numpy()]] = True
    gaps = np.flatnonzero(~known)
    series = []
    for key, label in rows.sort("order").select("key", "label").unique(maintain_order=True).rows():
        own = rows.filter(pl.col("key") == key)
        values = np.zeros(count)
        values[columns[own["place"].to_numpy()]] = own["aas"].to_numpy()
        colour, waiting = paint[key]
        short: list[float | None] = [_short(v) for v in values.tolist()]
        if not any(short):
            continue
        for gap in gaps.tolist():
            short[gap] = None
        series.append({"name": label, "colour": f"hatch-{colour}" if waiting else colour, "values": short})
    idle = [0.0 if k else None for k in known.tolist()]
    return series or [{"name": accounts.NAMES["run"], "colour": "run", "values": idle}]


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}") if abs(value) >= _LEAST else 0
