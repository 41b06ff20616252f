"""Reports conditions of machine and server, found before the run, that affect what it measured."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.checking import check
from dbdyno.conclude.run.case import Case, at, of_cell
from dbdyno.model.results.claim import Claim, Severity
from dbdyno.model.units import NS_PER_S

LOG = "WAL"
"""The row of WAL in the table ``profile``."""
LOG_BYTES_PER_CALL = 100
"""Bytes of WAL per call from which on calls write: a commit with one changed row writes more."""
LOG_BYTES_PER_S = 100_000
"""The same per second, for an observation, which has no calls: more than an idle server writes."""
SHORT_NS = 0.1 * NS_PER_S
"""Mean time below which a statement is short: its compilation takes about as long."""
COMPILING = 0.1
"""Share of a statement's time from which on compilation is reported."""


@check("condition", of="whole")
def conditions(case: Case) -> Iterator[Claim]:
    """Yields one claim per condition; a bad one is a warning."""
    for c in case.environment.conditions:
        if c.touches == "every run" or (c.touches == "writes" and _writes(case)):
            values = {"title": c.title, "value": c.value, "why": c.why, "cure": c.cure}
            severity: Severity = "warning" if c.state == "bad" else "note"
            yield claim("condition", values, each=c.id, severity=severity, subject=c.variant)


def _writes(case: Case) -> bool:
    """Returns whether the log grew by more than the server's own housekeeping in any measurement."""
    return any(_written(case, cell["cell"]) for cell in case.valid)


@of_cell
def _written(case: Case, cell: str) -> bool:
    log = case.table("profile", cell).filter(pl.col("name") == LOG)
    column, least = ("per_s", LOG_BYTES_PER_S) if case.observed else ("per_call", LOG_BYTES_PER_CALL)
    return not log.filter(pl.col(column) >= least).is_empty()


@check("short-compiled")
def short_compiled(case: Case) -> Iterator[Claim]:
    """Yields short statements with a large share of just-in-time compilation."""
    candidates = []
    for cell in case.valid:
        compiled_ns, spent_ns, calls = _compiled(case, cell["cell"])
        if spent_ns and compiled_ns / spent_ns >= COMPILING:
            values = {"share": compiled_ns / spent_ns, "mean": spent_ns / calls, "place": at(cell, case)}
            candidates.append((values, cell))
    yield from case.worst("short-compiled", candidates, "share")


@of_cell
def _compiled(case: Case, cell: str) -> tuple[float, float, float]:
    """Returns ns of compilation, ns of execution, and executions of the short statements that were
    compiled."""
    short = (pl.col("calls") > 0) & (pl.col("exec_ns") < SHORT_NS * pl.col("calls")) & (pl.col("jit_ns") > 0)
    table = case.table("statements", cell).filter(pl.col("toplevel") & short)
    return float(table["jit_ns"].sum()), float(table["exec_ns"].sum()), float(table["calls"].sum())
