"""Sessions that were started together (driver.rounds): alike or in groups, and whether a core was shared."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from dbdyno.conclude.claims import claim
from dbdyno.conclude.findings.context import Case, Row, at, ids, percent, sentence
from dbdyno.conclude.findings.context import sessions as counted
from dbdyno.model.claim import Claim
from dbdyno.model.units import significant

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
    why = {
        "core": " because they shared a core",
        "cpu": " because they shared a CPU, and waited for it",
        None: "",
    }
    text = (
        f"{sentence(at(row, case))}, {row['slow_sessions']} of {counted(row['sessions'])} ran "
        f"{row['ratio']:.2g} times longer than the others{why[cause]}, in {row['group_rounds']} of "
        f"{row['rounds']} rounds"
    )
    return claim(
        id="placement-groups" if cause is None else f"placement-shared-{cause}",
        severity="warning",
        text=f"{text}." if cause else f"{text}; why cannot be told.",
        value=row["ratio"],
        unit="slower over faster",
        low=row["ratio_low"],
        high=row["ratio_high"],
        evidence=f"{_TABLES}: one population looks so with a chance of {row['p_groups']:.2g}; {_places(row)}",
        advice=_CURES[cause],
        cells=ids(found),
    )


_CURES = {
    "core": "bind = spread puts sessions on cores first; a call takes as long as its core is shared",
    "cpu": "no more sessions than CPUs, or bind = spread",
    None: "table placed has each call's CPU; something else may have run on some of them (see the other "
    "findings), and a virtual machine may hide which CPUs are threads of one core",
}


def _places(row: Row) -> str:
    """Slow and others against shared and not."""
    fast = row["known"] - row["slow_known"]
    if not row["known"]:
        return "where the calls ran is unknown"
    parts = [
        f"of the slow calls {row[f'slow_{kind}']} of {row['slow_known']} shared a {word}, of the others "
        f"{row[f'fast_{kind}']} of {fast}{_chance(row[f'p_{kind}'])}"
        for kind, word in (("core", "core"), ("cpu", "CPU"))
        if row[f"slow_{kind}"] + row[f"fast_{kind}"]
    ]
    return "; ".join(parts) or f"none of {row['known']} calls shared a core or a CPU"


def _chance(p: float | None) -> str:
    return "" if p is None else f" (by chance: {p:.2g})"


def all_share(case: Case) -> Iterator[Claim]:
    """No groups, for all share: then one session alone is what to compare with."""
    for row in _rows(case):
        alone, share = row["alone_ns"], row["all_core"]
        if row["groups"] or not alone or row["all_known"] < row["calls"] / 2:
            continue
        ratio = row["median_ns"] / alone
        if share >= 0.9 * row["all_known"] and ratio >= LONGER:
            yield claim(
                id="placement-all-share",
                severity="note",
                text=f"{sentence(at(row, case))} all shared their cores, and took {significant(ratio)} "
                "times as long as one session alone.",
                value=ratio,
                unit="of one session alone",
                evidence=f"{_TABLES}: {share} of {row['all_known']} calls",
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
        id="placement-alike",
        severity="good",
        text=f"Up to {counted(top['sessions'])} that were started together fell into no groups; the slowest "
        f"call of a round took {top['max_over_min']:.2f} times as long as its fastest.",
        value=top["max_over_min"],
        unit="slowest over fastest call of a round",
        evidence=f"{_TABLES}: {sum(r['rounds'] for r in below)} rounds, p from "
        f"{min(r['p_groups'] for r in below):.2g}",
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
    words = "stayed on the CPU they began on" if share <= SETTLED else "were moved to another CPU under way"
    part = 1 - share if share <= SETTLED else share
    yield claim(
        id="placement-settled" if share <= SETTLED else "placement-moved",
        severity="note",
        text=f"{percent(part)} of {calls:,} calls {words}.",
        value=share,
        unit="of the calls were moved",
        evidence=f"{_TABLES}: migrations by the kernel's count (se.nr_migrations)",
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
