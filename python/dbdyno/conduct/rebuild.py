"""What is shown of a stored run: as it was derived when the run ended, or anew from its raw data.

What derives is loaded when something is derived: most that is shown is only read.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import polars as pl

from dbdyno import present
from dbdyno.conclude.catalogue import claim
from dbdyno.conduct.shown import keep
from dbdyno.engines import helpers, product, wait_families
from dbdyno.model.claim import Claim
from dbdyno.model.environment import Environment
from dbdyno.model.errors import StoreError, UsageError
from dbdyno.model.raw import labelled
from dbdyno.model.results import Results
from dbdyno.model.tables import DERIVED, RAW
from dbdyno.model.wait_families import TABLE as FAMILIES
from dbdyno.store import DamagedCell, Run


def rebuild(record: Run) -> tuple[Results, Path]:
    """Windows, ledger, findings and report anew from raw data; the report's path."""
    results = _concluded(derived_anew(record))
    _keep(record, results)
    keep(record.path, results)
    return results, present.write_html(results, record.path / "report.html")


def results_of(record: Run) -> Results:
    """All that is shown of a stored run, as it was derived when the run ended. What of it is missing in an
    older one is derived now and kept, where the store can be written."""
    results = _read_derived(record)
    if results is None:
        return _concluded(derived_anew(record))
    with contextlib.suppress(StoreError):
        if (drawn := record.read_conclusions()) is not None:
            return replace(results, scaling=drawn.scaling, answers=drawn.answers, comparison=drawn.comparison)
    results = _concluded(results)
    with contextlib.suppress(StoreError):
        _keep(record, results)
    return results


def derived_of(record: Run) -> Results:
    """What was derived when the run ended, or, where that is not there, derived anew from the raw data:
    without fits and comparison."""
    return _read_derived(record) or derived_anew(record)


def _read_derived(record: Run) -> Results | None:
    with contextlib.suppress(StoreError):
        stored = None if record.info.status == "running" else record.read_derived()
        if stored is not None and FAMILIES not in stored[0]:
            stored[0][FAMILIES] = wait_families(record.environment.server.engine).table()
        if stored is not None and stored[0].keys() >= {*DERIVED, "sources", "histogram"}:
            return Results(record.info, record.plan, _environment(record), *stored)
    return None


def _keep(record: Run, results: Results) -> None:
    from dbdyno.model.conclusions import Conclusions

    drawn = Conclusions(scaling=results.scaling, answers=results.answers, comparison=results.comparison)
    record.write_derived(results.tables, results.findings, drawn)


def _concluded(results: Results) -> Results:
    """With what its ladders say of scaling, and its variants compared where there are several."""
    from dbdyno.conclude.answers import observed
    from dbdyno.conclude.compare import compare_variants
    from dbdyno.conclude.scaling.scaled import scalings_of

    results = replace(results, scaling=scalings_of(results), answers=observed(results))
    if len(results.plan.variants) < 2:
        return results
    with contextlib.suppress(UsageError):  # cut short before a second variant was measured
        return replace(results, comparison=compare_variants(results))
    return results


def derived_anew(record: Run) -> Results:
    """Everything derived from the raw data of a stored run."""
    from dbdyno.conduct.derive import derive
    from dbdyno.conduct.schedule import sought

    damaged: list[DamagedCell] = []
    known = wait_families(record.environment.server.engine)
    cells = (labelled(cell, known) for cell in record.each_cell(damaged))
    results = derive(record.info, record.plan, _environment(record), cells)
    found = (*(_damage(d) for d in damaged), *sought(record.plan, results.tables), *results.findings)
    return replace(results, findings=found)


def _environment(record: Run) -> Environment:
    """As it was stored; older runs lack the system's own name, and what its processes are for."""
    found = record.environment
    if found.server.product:
        return found
    engine = found.server.engine
    known = {"product": product(engine), "helpers": helpers(engine)}
    server = found.server.model_copy(update=known)
    return found.model_copy(update={"server": server})


def _damage(damaged: DamagedCell) -> Claim:
    return claim("cell-damaged", {"measurement": damaged.id, "reason": damaged.reason}, cells=(damaged.id,))


def raw_tables(record: Run) -> dict[str, pl.DataFrame]:
    """The raw tables of all readable cells of a run, each row with its cell's id."""
    cells, _ = record.read_cells()
    return {
        name: pl.concat([c.tables[name].insert_column(0, pl.lit(c.id).alias("cell")) for c in cells])
        for name in (RAW if cells else ())
    }
