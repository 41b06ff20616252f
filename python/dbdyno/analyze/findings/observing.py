"""Whether an observation saw what it was asked to see."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from dbdyno.analyze.findings.brief import unseen
from dbdyno.analyze.findings.case import Case, Row, ids, listed
from dbdyno.model.finding import Finding
from dbdyno.model.units import NS_PER_S, format_ns

GAP_NS = NS_PER_S // 100
"""Windows follow one another without a hole; one that is longer than this is no rounding."""


def nobody(case: Case) -> Iterator[Finding]:
    """Windows in which no session matched the filter, or nobody was connected."""
    if not case.observed:
        return
    usable = case.usable()
    empty = [c for c in usable if not case.wall(c["cell"]) and (case.chosen or not unseen(case, c))]
    if empty:
        whom = _whom(case)
        which = "every window" if len(empty) == len(usable) else case.many(len(empty))
        yield Finding(
            id="nobody-observed",
            severity="warning" if whom else "note",
            claim=f"In {which} " + (f"no session matched {whom}." if whom else "nobody else was connected."),
            value=len(empty),
            unit="windows",
            evidence="table tasks",
            cure="see who was connected: column user, database and application of table backends",
            cells=ids(empty),
        )


def gaps(case: Case) -> Iterator[Finding]:
    """Time between two windows, in which the server was away."""
    cells: list[Row] = sorted(case.cells(), key=lambda c: int(c["t0_ns"])) if case.observed else []
    found = [(b["t0_ns"] - a["t1_ns"], a) for a, b in pairwise(cells) if b["t0_ns"] - a["t1_ns"] > GAP_NS]
    if found:
        where = listed([f"{format_ns(ns)} after window {a['repeat']}" for ns, a in found])
        yield Finding(
            id="observation-gap",
            severity="warning",
            claim=f"Nothing was observed for {format_ns(sum(ns for ns, _ in found))}: {where}.",
            value=sum(ns for ns, _ in found) / NS_PER_S,
            unit="s",
            evidence="table windows",
            cure="the server was away, or it could not be reached: see its log",
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
