"""Sessions that start their calls together: on which CPUs calls ran, whether all were equally fast, and if
not, whether a shared CPU or core explains it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dbdyno.account.making import makes
from dbdyno.model.engine.environment import Environment
from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.tables import conform, empty, rows
from dbdyno.stats.significance import Marks, coincidence, fisher
from dbdyno.stats.two_groups import Floats, Groups, groups, median_interval

Share = Literal["cpu", "core", "none"]


def core_of(siblings: Sequence[Sequence[int]] | None) -> Mapping[int, int]:
    """Returns the number of the core of each CPU, from the CPUs of each core; empty if unknown."""
    return {cpu: core for core, cpus in enumerate(siblings or ()) for cpu in cpus}


def shares(cpus: Sequence[int | None], cores: Mapping[int, int]) -> list[Share | None]:
    """Returns whether each session of a round shared a CPU or core with another, from the CPUs they ran
    on. A CPU is None if it is unknown or the session ran on several."""
    on_cpu = Counter(c for c in cpus if c is not None)
    on_core = Counter(cores[c] for c in cpus if c is not None and c in cores)

    def share(cpu: int | None) -> Share | None:
        if cpu is None:
            return None
        if on_cpu[cpu] > 1:
            return "cpu"
        if cpu in cores and on_core[cores[cpu]] > 1:
            return "core"
        # A session on an unknown CPU may have been on the same one. If no core is known, only CPUs count.
        return None if None in cpus or (cores and cpu not in cores) else "none"

    return [share(cpu) for cpu in cpus]


Row = dict[str, Any]
Places = NDArray[np.str_]  # of Share; empty: unknown
_KEY = [c.name for c in CELL]
_RUNG = ("workload", "variant", "sessions")

SLOW_SHARED, FAST_SHARED = 0.8, 0.5
"""Least share of slow calls, and largest share of fast calls, that shared a CPU or core if that is the
cause."""
CHANCE = 0.05


@makes("placed", "placements", stage="run")
def placed_and_placements(
    rounds: pl.DataFrame, environment: Environment
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns tables ``placed`` and ``placements``."""
    return placement(rounds, environment.host.siblings)


def placement(
    rounds: pl.DataFrame, siblings: Sequence[Sequence[int]] | None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns tables ``placed`` (each call) and ``placements`` (each cell) from ``rounds``.

    ``siblings``: the CPUs of each core; None if unknown, and then no call is known to share a core.
    """
    cores = core_of(siblings)
    alone = _single_medians(rounds)
    cells = [_cell_placement(part, cores, alone) for part in rounds.partition_by("cell", maintain_order=True)]
    if not cells:
        return empty("placed"), empty("placements")
    records = [row for _, row in cells]
    for row in records:
        row["shared"] = _cause(row, records)
    return pl.concat([calls for calls, _ in cells]), rows("placements", records)


def _single_medians(rounds: pl.DataFrame) -> Mapping[tuple[str, str], int]:
    """Returns the median duration of calls of a single session, by workload and variant."""
    single = rounds.filter(pl.col("sessions") == 1)
    medians = single.group_by("workload", "variant").agg(pl.col("duration_ns").median())
    return {(w, v): round(m) for w, v, m in medians.rows()}


def _cell_placement(
    part: pl.DataFrame, cores: Mapping[int, int], alone: Mapping[tuple[str, str], int]
) -> tuple[pl.DataFrame, Row]:
    """Returns the rows of ``placed`` and the row of ``placements`` of one cell."""
    part = part.sort("round", "session")
    n = int(part["sessions"][0])
    durations = part["duration_ns"].to_numpy().astype(float).reshape(-1, n)
    two_groups = groups(durations)
    shared = _shared(part, n, cores)
    places = pl.Series([place or None for place in shared.ravel().tolist()], dtype=pl.String)
    calls = part.with_columns(slow=pl.Series(two_groups.slow.ravel()), shares=places)
    key = {name: part[name][0] for name in _KEY}
    row = (
        key
        | _spread(part, durations)
        | _group_figures(two_groups)
        | _coincidences(two_groups, shared)
        | _migrations(part, shared)
    )
    row["alone_ns"] = alone.get((key["workload"], key["variant"]))
    return conform("placed", calls), row


def _shared(part: pl.DataFrame, n: int, cores: Mapping[int, int]) -> Places:
    """Returns an array (rounds, sessions) of ``Share``. A call that migrated has no single place."""
    place = pl.when(pl.col("migrations").fill_null(0) == 0).then("cpu")
    cpus = part.select(place=place)["place"].to_list()
    by_round = [[s or "" for s in shares(cpus[i : i + n], cores)] for i in range(0, len(cpus), n)]
    return np.array(by_round, dtype=np.str_)


def _spread(part: pl.DataFrame, durations: Floats) -> Row:
    n = durations.shape[1]
    starts = part["start_ns"].to_numpy().reshape(-1, n)
    several = n > 1
    cv = durations.std(axis=1, ddof=1) / durations.mean(axis=1) if several else None
    ratio = durations.max(axis=1) / durations.min(axis=1) if several else None
    return {
        "rounds": durations.shape[0],
        "median_ns": round(float(np.median(durations))),
        "max_over_min": None if ratio is None else float(np.median(ratio)),
        "cv": None if cv is None else float(np.median(cv)),
        "skew_ns": round(float(np.median(starts.max(axis=1) - starts.min(axis=1)))),
    }


def _group_figures(two_groups: Groups) -> Row:
    low, high = median_interval(two_groups.ratios)
    counts = two_groups.slow.sum(axis=1)
    counts = counts[counts > 0]
    return {
        "p_groups": two_groups.p,
        "groups": two_groups.significant,
        "group_rounds": int(two_groups.ratios.size),
        "slow_sessions": int(np.bincount(counts).argmax()) if counts.size else None,
        "ratio": float(np.median(two_groups.ratios)) if two_groups.ratios.size else None,
        "ratio_low": low,
        "ratio_high": high,
    }


def _coincidences(two_groups: Groups, shared: Places) -> Row:
    """Counts slow and fast calls that shared a place and that did not, over the rounds that have two
    groups."""
    with_groups = two_groups.slow.any(axis=1)
    slow, place = two_groups.slow[with_groups], shared[with_groups]
    known: Marks = place != ""
    row: Row = {"slow_calls": int(slow.sum()), "slow_known": int((slow & known).sum())}
    row["known"] = int(known.sum())
    for kind in ("core", "cpu"):
        sharing: Marks = place == kind
        row |= {f"slow_{kind}": int((slow & sharing).sum()), f"fast_{kind}": int((~slow & sharing).sum())}
        row[f"p_{kind}"] = coincidence(slow & known, sharing)
    return row


def _cause(row: Row, records: Sequence[Row]) -> str | None:
    """Returns the kind of place that explains slow calls: nearly all slow calls shared one, few of the
    others did, and the coincidence is significant over all repeats of the rung that have groups. At least
    half of the places must be known; else None."""
    if not row["groups"]:
        return None
    rung = [r for r in records if r["groups"] and all(r[k] == row[k] for k in _RUNG)]
    slow_known, fast_known = row["slow_known"], row["known"] - row["slow_known"]
    for kind in ("core", "cpu"):
        # Repeats are independent, so Fisher's method combines their p.
        ps = [p for p in (r[f"p_{kind}"] for r in rung) if p is not None]
        if (
            row[f"p_{kind}"] is not None
            and fisher(ps) < CHANCE
            and 2 * slow_known >= row["slow_calls"]
            and row[f"slow_{kind}"] >= SLOW_SHARED * slow_known
            and row[f"fast_{kind}"] <= FAST_SHARED * fast_known
        ):
            return kind
    return None


def _migrations(part: pl.DataFrame, shared: Places) -> Row:
    moved = part["migrations"].drop_nulls()
    before = pl.col("cpu").shift(1).over("session", order_by="round")
    changes = part.select(changed=pl.col("cpu") != before)["changed"].drop_nulls()
    return {
        "calls": part.height,
        "moved": int((moved > 0).sum()) if len(moved) else None,
        "resettled": int(changes.sum()) if len(changes) else None,
        "all_core": int((shared == "core").sum()),
        "all_cpu": int((shared == "cpu").sum()),
        "all_known": int((shared != "").sum()),
    }
