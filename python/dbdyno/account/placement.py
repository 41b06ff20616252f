"""Sessions that were started together: where calls ran, whether they were served alike, and if not, why."""

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
    """CPU -> number of its core, from the CPUs of each core; empty where nobody told."""
    return {cpu: core for core, cpus in enumerate(siblings or ()) for cpu in cpus}


def shares(cpus: Sequence[int | None], cores: Mapping[int, int]) -> list[Share | None]:
    """Whether each session of a round shared a CPU or core with another, by the CPUs that they ran on
    (``None``: unknown, or more than one)."""
    there = Counter(c for c in cpus if c is not None)
    busy = Counter(cores[c] for c in cpus if c is not None and c in cores)

    def share(cpu: int | None) -> Share | None:
        if cpu is None:
            return None
        if there[cpu] > 1:
            return "cpu"
        if cpu in cores and busy[cores[cpu]] > 1:
            return "core"
        # Somebody whose place is unknown may have been there. Where no core is known, CPUs are compared.
        return None if None in cpus or (cores and cpu not in cores) else "none"

    return [share(cpu) for cpu in cpus]


Row = dict[str, Any]
Places = NDArray[np.str_]  # of Share; empty: unknown
_KEY = [c.name for c in CELL]
_RUNG = ("workload", "variant", "sessions")

TOLD, OTHERS = 0.8, 0.5
"""The slow ones shared, if this part of them did; and of the others at most that part of it."""
CHANCE = 0.05


@makes("placed", "placements", stage="run")
def placed_and_placements(
    rounds: pl.DataFrame, environment: Environment
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Tables ``placed`` and ``placements``."""
    return placement(rounds, environment.host.siblings)


def placement(
    rounds: pl.DataFrame, siblings: Sequence[Sequence[int]] | None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Tables ``placed`` (each call) and ``placements`` (each cell) from ``rounds``.
    ``siblings``: the CPUs of each core; ``None``: not known, so no sharing of a core is."""
    cores = core_of(siblings)
    alone = _alone(rounds)
    found = [_cell(part, cores, alone) for part in rounds.partition_by("cell", maintain_order=True)]
    if not found:
        return empty("placed"), empty("placements")
    made = [row for _, row in found]
    for row in made:
        row["shared"] = _cause(row, made)
    return pl.concat([calls for calls, _ in found]), rows("placements", made)


def _alone(rounds: pl.DataFrame) -> Mapping[tuple[str, str], int]:
    """Median call of one session by itself, by workload and variant."""
    single = rounds.filter(pl.col("sessions") == 1)
    medians = single.group_by("workload", "variant").agg(pl.col("duration_ns").median())
    return {(w, v): round(m) for w, v, m in medians.rows()}


def _cell(
    part: pl.DataFrame, cores: Mapping[int, int], alone: Mapping[tuple[str, str], int]
) -> tuple[pl.DataFrame, Row]:
    part = part.sort("round", "session")
    n = int(part["sessions"][0])
    durations = part["duration_ns"].to_numpy().astype(float).reshape(-1, n)
    told = groups(durations)
    shared = _shared(part, n, cores)
    places = pl.Series([place or None for place in shared.ravel().tolist()], dtype=pl.String)
    calls = part.with_columns(slow=pl.Series(told.slow.ravel()), shares=places)
    key = {name: part[name][0] for name in _KEY}
    row = key | _spread(part, durations) | _told(told) | _why(told, shared) | _moves(part, shared)
    row["alone_ns"] = alone.get((key["workload"], key["variant"]))
    return conform("placed", calls), row


def _shared(part: pl.DataFrame, n: int, cores: Mapping[int, int]) -> Places:
    """(rounds, N) of ``Share``. A call that was moved ran in more than one place."""
    place = pl.when(pl.col("migrations").fill_null(0) == 0).then("cpu")
    cpus = part.select(place=place)["place"].to_list()
    told = [[s or "" for s in shares(cpus[i : i + n], cores)] for i in range(0, len(cpus), n)]
    return np.array(told, dtype=np.str_)


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


def _told(told: Groups) -> Row:
    low, high = median_interval(told.ratios)
    counts = told.slow.sum(axis=1)
    counts = counts[counts > 0]
    return {
        "p_groups": told.p,
        "groups": told.found,
        "group_rounds": int(told.ratios.size),
        "slow_sessions": int(np.bincount(counts).argmax()) if counts.size else None,
        "ratio": float(np.median(told.ratios)) if told.ratios.size else None,
        "ratio_low": low,
        "ratio_high": high,
    }


def _why(told: Groups, shared: Places) -> Row:
    """Slow and fast against shared and not, in the rounds that have groups."""
    parted = told.slow.any(axis=1)
    slow, place = told.slow[parted], shared[parted]
    known: Marks = place != ""
    row: Row = {"slow_calls": int(slow.sum()), "slow_known": int((slow & known).sum())}
    row["known"] = int(known.sum())
    for kind in ("core", "cpu"):
        here: Marks = place == kind
        row |= {f"slow_{kind}": int((slow & here).sum()), f"fast_{kind}": int((~slow & here).sum())}
        row[f"p_{kind}"] = coincidence(slow & known, here)
    return row


def _cause(row: Row, made: Sequence[Row]) -> str | None:
    """Nearly all slow calls shared, few of the others, and not by chance (over all repeats of the rung that
    have groups). Half of the places must be known."""
    if not row["groups"]:
        return None
    rung = [r for r in made if r["groups"] and all(r[k] == row[k] for k in _RUNG)]
    slow_known, fast_known = row["slow_known"], row["known"] - row["slow_known"]
    for kind in ("core", "cpu"):
        ps = [p for p in (r[f"p_{kind}"] for r in rung) if p is not None]
        if (
            row[f"p_{kind}"] is not None
            and fisher(ps) < CHANCE
            and 2 * slow_known >= row["slow_calls"]
            and row[f"slow_{kind}"] >= TOLD * slow_known
            and row[f"fast_{kind}"] <= OTHERS * fast_known
        ):
            return kind
    return None


def _moves(part: pl.DataFrame, shared: Places) -> Row:
    moved = part["migrations"].drop_nulls()
    before = pl.col("cpu").shift(1).over("session", order_by="round")
    again = part.select(changed=pl.col("cpu") != before)["changed"].drop_nulls()
    return {
        "calls": part.height,
        "moved": int((moved > 0).sum()) if len(moved) else None,
        "resettled": int(again.sum()) if len(again) else None,
        "all_core": int((shared == "core").sum()),
        "all_cpu": int((shared == "cpu").sum()),
        "all_known": int((shared != "").sum()),
    }
