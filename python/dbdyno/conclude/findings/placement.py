"""Sessions that were started together (driver.rounds): alike or in groups, and whether a core was shared."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.findings.context import Case, Row, at, ids
from dbdyno.model.claim import Claim

LONGER = 1.1
"""Calls that all share a core are told to take longer than one alone from this ratio on."""
SETTLED = 0.05
"""Calls stay on their CPUs where no more than this part is moved under way."""
_TABLES = "tables placements, placed"


def groups(case: Case) -> Iterator[Claim]:
    """Of each cause the rung where it is seen first."""
    parted = [r for r in _rows(case) if r["groups"]]
    for cause in ("core", "cpu", None):
        found = [r for r in parted if r["shared"] == cause]
        if found:
            yield _groups(case, found[0], cause, found)


def _groups(case: Case, row: Row, cause: str | None, found: list[Row]) -> Claim:
    return claim(
        "placement-groups" if cause is None else f"placement-shared-{cause}",
        {
            "slow": row["slow_sessions"],
            "sessions": row["sessions"],
            "ratio": row["ratio"],
            "place": at(row, case),
            "group_rounds": row["group_rounds"],
            "rounds": row["rounds"],
            "p": row["p_groups"],
            "where": _places(row),
        },
        row["ratio"],
        low=row["ratio_low"],
        high=row["ratio_high"],
        cells=ids(found),
    )


def _places(row: Row) -> str:
    """Slow and others against shared and not."""
    fast = row["known"] - row["slow_known"]
    if not row["known"]:
        return "where the calls ran is unknown"
    parts = [
        f"{row[f'slow_{kind}']} of {row['slow_known']} slow calls and {row[f'fast_{kind}']} of {fast} others "
        f"shared a {word}{_chance(row[f'p_{kind}'])}"
        for kind, word in (("core", "core"), ("cpu", "CPU"))
        if row[f"slow_{kind}"] + row[f"fast_{kind}"]
    ]
    return "; ".join(parts) or f"none of {row['known']} calls shared a core or a CPU"


def _chance(p: float | None) -> str:
    return "" if p is None else f" (p = {p:.2g})"


def all_share(case: Case) -> Iterator[Claim]:
    """No groups, for all share: then one session alone is what to compare with."""
    for row in _rows(case):
        alone, share = row["alone_ns"], row["all_core"]
        if row["groups"] or not alone or row["all_known"] < row["calls"] / 2:
            continue
        ratio = row["median_ns"] / alone
        if share >= 0.9 * row["all_known"] and ratio >= LONGER:
            yield claim(
                "placement-all-share",
                {"place": at(row, case), "ratio": ratio, "shared": share, "calls": row["all_known"]},
                ratio,
                cells=(row["cell"],),
            )
            return


def alike(case: Case) -> Iterator[Claim]:
    """How far up the ladder all sessions are served alike."""
    rows = [r for r in _rows(case) if r["sessions"] > 1]
    tested = [r for r in rows if r["p_groups"] is not None]
    first = min((r["sessions"] for r in tested if r["groups"]), default=None)
    below = [r for r in tested if first is None or r["sessions"] < first]
    if not below:
        return
    top = max(below, key=lambda r: r["sessions"])
    yield claim(
        "placement-alike",
        {
            "sessions": top["sessions"],
            "ratio": top["max_over_min"],
            "rounds": sum(r["rounds"] for r in below),
            "p": min(r["p_groups"] for r in below),
        },
        top["max_over_min"],
        cells=ids(below),
    )


def settled(case: Case) -> Iterator[Claim]:
    """Whether a call stays on the CPU that it began on: then it keeps a bad place to its end."""
    known = [r for r in _rows(case) if r["moved"] is not None and r["sessions"] > 1]
    calls = sum(r["calls"] for r in known)
    if not calls:
        return
    moved = sum(r["moved"] for r in known)
    share = moved / calls
    yield claim(
        "placement-settled" if share <= SETTLED else "placement-moved",
        {"moved": share, "stayed": 1 - share, "calls": calls},
        share,
        cells=ids(known),
    )


def _rows(case: Case) -> list[Row]:
    """Of the cells that can be used, by rung and repeat."""
    placements = case.tables.get("placements")
    if placements is None or placements.is_empty():
        return []
    usable = [c["cell"] for c in case.usable()]
    kept = placements.filter(pl.col("cell").is_in(usable))
    return kept.sort("sessions", "repeat", "cell").to_dicts()
