"""The ladders of a run as points: one a workload and variant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from dbdyno.conclude.answers.machine import machine_of
from dbdyno.conclude.catalogue import sentence
from dbdyno.conclude.number_format import load
from dbdyno.model.bycell import ByCell
from dbdyno.model.client_limit import is_limit
from dbdyno.model.ledger_rows import account_rows
from dbdyno.model.results import Results
from dbdyno.model.scaling import POINTS, Ladder
from dbdyno.model.units import NS_PER_S

_ACCOUNTS = {"cpu": "run", "cpu_user": "run.user", "cpu_system": "run.system", "cpu_wait": "runq"}

Figures = Mapping[str, float | None]
Row = dict[str, Any]


def ladders_of(results: Results) -> tuple[Ladder, ...]:
    """One :class:`Ladder` a workload and variant, in the order of the plan; an observation has none.

    Throughput is in the workload's units of work where every usable cell has counted them, else in calls;
    times are per the same unit. CPU and CPU WAIT are the ledger's, in seconds per second; NULL: not known.
    Cells that are invalid, or of which the driver was starved, are left out, and a note says so.
    """
    parts = ByCell({name: results.tables[name] for name in ("rates", "ledger")})
    windows = results.tables["windows"].filter(pl.col("sessions") > 0)
    groups = list(windows.group_by("workload", "variant", maintain_order=True))
    many = len(groups) > 1
    return tuple(_ladder(results, parts, str(k[0]), str(k[1]), cells, many=many) for k, cells in groups)


def _ladder(
    results: Results, parts: ByCell, workload: str, variant: str, cells: pl.DataFrame, *, many: bool
) -> Ladder:
    figures = {c: figures_of(parts, c) for c in cells["cell"]}
    why = {r["cell"]: _unusable(r, figures[r["cell"]]) for r in cells.to_dicts()}
    usable = [r for r in cells.to_dicts() if why[r["cell"]] is None]
    known = results.info.workloads.get(workload)
    by_work = bool(usable) and all((figures[r["cell"]].get("work_per_s") or 0) > 0 for r in usable)
    constant = known is not None and known.work_constant
    points = [_point(r, figures[r["cell"]], parts, by_work=by_work, constant=constant) for r in usable]
    notes = [_note(r, case) for r in cells.to_dicts() if (case := why[r["cell"]])]
    short = [_note(r, "short") for r in usable if r["status"] == "short"]
    machine, about = machine_of(results, variant)
    unit = known.work_short if by_work and known is not None else "calls"
    return Ladder(
        name=f"{workload}, variant {variant}" if many else workload,
        points=pl.DataFrame(points, schema=POINTS).sort("load", "repeat"),
        throughput_unit=f"{unit}/s",
        machine=machine,
        think_s=_think_s(results, workload, variant),
        notes=(*notes, *short, *about),
        workload=workload,
        variant=variant,
    )


def figures_of(parts: ByCell, cell: str) -> Figures:
    """The rung's rates of a cell, by name."""
    mine = parts.table("rates", cell).filter(pl.col("scope") == "rung")
    return dict(mine.select("name", "value").rows())


def figures_of_cell(parts: Mapping[str, pl.DataFrame]) -> Figures:
    """The same of a cell's own tables."""
    return dict(parts["rates"].filter(pl.col("scope") == "rung").select("name", "value").rows())


def account(ledger: pl.DataFrame, name: str) -> float | None:
    """Sum over the account's rows of a cell's rung; ``None`` where one of them is unknown."""
    values = account_rows(ledger, name)["aas"]
    return float(values.sum()) if len(values) and not values.null_count() else None


def _unusable(window: Row, figures: Figures) -> str | None:
    """Why, as the case of the catalogue's entry; ``None``: it is usable."""
    if window["status"] == "invalid":
        return "left-out"
    if is_limit(figures):
        return "client"
    return None if (figures.get("calls_per_s") or 0) > 0 else "no-calls"


def _point(window: Row, figures: Figures, parts: ByCell, *, by_work: bool, constant: bool) -> Row:
    ledger = parts.table("ledger", window["cell"])
    per_call = (figures.get("work_per_call") or 1.0) if by_work else 1.0
    mean, p95 = figures.get("response_mean_ns"), figures.get("response_p95_ns")
    whole = not by_work or constant  # a percentile of calls is one of their units if all have as many
    return {
        "load": float(window["sessions"]),
        "repeat": window["repeat"],
        "throughput": figures["work_per_s" if by_work else "calls_per_s"],
        "response_s": None if mean is None else mean / NS_PER_S / per_call,
        "response_p95_s": None if p95 is None or not whole else p95 / NS_PER_S / per_call,
        **{column: account(ledger, name) for column, name in _ACCOUNTS.items()},
    }


def _think_s(results: Results, workload: str, variant: str) -> float | None:
    paused = {c.think_ns for c in results.plan.cells if c.workload == workload and c.variant == variant}
    return paused.pop() / NS_PER_S if len(paused) == 1 else None


def _note(window: Row, case: str) -> str:
    said = {"load": load(window["sessions"]), "repeat": window["repeat"]}
    return sentence("ladder-note", said | {"reason": window["reason"] or "invalid"}, case=case)


def cells_of(results: Results, ladder: Ladder) -> Iterator[tuple[Row, dict[str, pl.DataFrame]]]:
    """The usable windows of a ladder of a run with their rates, ledger and cores, by load and repeat."""
    names = ("rates", "ledger", "cores", "witnesses")
    parts = ByCell({name: results.tables[name] for name in names if name in results.tables})
    mine = (pl.col("workload") == ladder.workload) & (pl.col("variant") == ladder.variant)
    for window in results.tables["windows"].filter(mine).sort("sessions", "repeat").to_dicts():
        if _unusable(window, figures_of(parts, window["cell"])) is None:
            yield window, parts.of(window["cell"])
