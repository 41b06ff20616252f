"""Whether an observation saw what it was asked to see, also sessions too brief to be sampled."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.findings.context import SESSION_LEDGER, Case, Row, at, ids, listed, many
from dbdyno.conclude.findings.facts import of_cell
from dbdyno.model.brief import STATUS, met
from dbdyno.model.claim import Claim
from dbdyno.model.session_time import hidden
from dbdyno.model.source import HIDDEN_STATUS
from dbdyno.model.units import NS_PER_S, format_ns

GRAVE = 0.05
"""From this share of DB CPU on it is more than a note."""


def brief_sessions(case: Case) -> Iterator[Claim]:
    """The windows of an observation in which sessions were never, or too seldom, in a sample."""
    if not case.observed or case.chosen:
        return
    found = [(n, cell) for cell in case.usable() if (n := unseen(case, cell)) or _cpu(case, cell) is not None]
    if not found:
        return
    counts = [n for n, _ in found if n is not None]
    cells = [cell for _, cell in found]
    worst = max(cells, key=lambda c: _cpu(case, c) or 0.0)
    used, all_used = _cpu(case, worst), case.aas(worst["cell"], "run")
    share = used / all_used if used and all_used else 0.0
    whole = case.aas(worst["cell"], "runq", scope="brief") if _traced(case, worst) else None
    number = many(sum(counts), "session") if counts else "Some sessions"
    yield claim(
        "brief-sessions",
        {"sessions": number, "used": used, "share": share, "waited": whole, "place": at(worst, case)},
        float(sum(counts)) if counts else None,
        case="unknown" if used is None else "used" if whole is None else "traced",
        severity="warning" if share >= GRAVE else None,
        cells=ids(cells),
    )


@of_cell
def unseen(case: Case, cell: Row) -> int | None:
    """How many sessions were established and have no row of their own; None: the server does not count."""
    levels = case.levels(cell["cell"], "engine")
    rows = levels.filter((pl.col("key") == "logons") & pl.col("delta").is_not_null())
    if rows.is_empty():
        return None
    return max(0, round(rows["delta"].sum()) - met(case.table("cut_tasks", cell["cell"]), cell["t0_ns"]))


@of_cell
def _cpu(case: Case, cell: Row) -> float | None:
    known = case.accounts(cell["cell"], "brief").filter(pl.col("account") == "run")["aas"].drop_nulls()
    return float(known.sum()) if len(known) else None


@of_cell
def _traced(case: Case, cell: Row) -> bool:
    rows = case.accounts(cell["cell"], "brief").filter(pl.col("account") == "runq")
    return rows.height > 0 and rows["status"][0] != STATUS


# -- sessions, gaps --

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
