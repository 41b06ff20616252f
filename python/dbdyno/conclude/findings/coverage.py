"""Whether an observation saw what it was asked to see."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.findings.brief import unseen
from dbdyno.conclude.findings.context import SESSION_LEDGER, Case, Row, at, ids, listed
from dbdyno.conclude.findings.facts import of_cell
from dbdyno.model.claim import Claim
from dbdyno.model.session_time import hidden
from dbdyno.model.source import HIDDEN_STATUS
from dbdyno.model.units import NS_PER_S, format_ns

GAP_NS = NS_PER_S // 100
"""Windows follow one another without a hole; one that is longer than this is no rounding."""


def nobody(case: Case) -> Iterator[Claim]:
    """Windows in which no session matched the filter, or nobody was connected."""
    if not case.observed:
        return
    usable = case.usable()
    empty = [c for c in usable if not case.wall(c["cell"]) and (case.chosen or not unseen(case, c))]
    if empty:
        whom = _whom(case)
        which = "all windows" if len(empty) == len(usable) else case.many(len(empty))
        yield claim(
            "nobody-observed",
            {"filter": whom, "windows": which},
            len(empty),
            case="filtered" if whom else "all",
            severity="warning" if whom else None,
            cells=ids(empty),
        )


def hidden_sessions(case: Case) -> Iterator[Claim]:
    """Sessions whose states and wait events our role may not see."""
    found = [(n, c) for c in case.usable() if (n := _hidden(case, c["cell"]))]
    if not found:
        return
    (unseen, sessions), cell = max(found, key=lambda f: f[0])
    told = case.tables["cell_sources"].filter(pl.col("name") == "sessions of other users")
    yield claim(
        "sessions-hidden",
        {"hidden": unseen, "sessions": sessions, "status": HIDDEN_STATUS, "place": at(cell, case)},
        float(unseen),
        advice=str(told["detail"][0]) if told.height else None,
        cells=ids([c for _, c in found]),
    )


@of_cell
def _hidden(case: Case, cell: str) -> tuple[int, int] | None:
    """(hidden, all) sessions of a window whose waits are unknown by that."""
    if not hidden(case.accounts(cell)):
        return None
    rows = case.table(SESSION_LEDGER, cell).filter(
        (pl.col("scope") == "session") & (pl.col("account") == "client")
    )
    return int(rows["status"].str.contains(HIDDEN_STATUS).sum()), rows["session"].n_unique()


def gaps(case: Case) -> Iterator[Claim]:
    """Time between two windows, in which the server was away."""
    cells: list[Row] = sorted(case.cells(), key=lambda c: int(c["t0_ns"])) if case.observed else []
    found = [(b["t0_ns"] - a["t1_ns"], a) for a, b in pairwise(cells) if b["t0_ns"] - a["t1_ns"] > GAP_NS]
    if found:
        where = listed([f"{format_ns(ns)} after window {a['repeat']}" for ns, a in found])
        yield claim(
            "observation-gap",
            {"gap": format_ns(sum(ns for ns, _ in found)), "where": where},
            sum(ns for ns, _ in found) / NS_PER_S,
            cells=ids([a for _, a in found]),
        )


def _whom(case: Case) -> str:
    chosen = case.plan.experiment.observation
    assert chosen is not None
    named = (
        ("user", chosen.user),
        ("database", chosen.database),
        ("application", chosen.application),
        ("process", ", ".join(map(str, chosen.pids))),
    )
    return ", ".join(f"{name} {value}" for name, value in named if value)
