"""Top SQL over several windows: a statement is one row, whether or not each window has counters."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from dbdyno.account.statements import SAMPLED, UNCOUNTED, statements_total
from dbdyno.model.schema.tables import rows

HEAD = {"workload": "observed", "variant": "base", "sessions": 0, "repeat": 1}
WHOSE = {"user": "app", "database": "shop", "toplevel": True, "status": "ok", "source": "counters"}


def _total(*statements: dict[str, Any]) -> list[dict[str, Any]]:
    cells = sorted({s["cell"] for s in statements})
    windows = [
        HEAD | {"cell": c, "repeat": n, "t0_ns": 0, "t1_ns": 10, "wall_s": 10.0, "status": "ok"}
        for n, c in enumerate(cells, 1)
    ]
    ranked = [HEAD | {"rank": n} | s for n, s in enumerate(statements, 1)]
    tables = {"windows": rows("windows", windows), "statements": rows("statements", ranked)}
    return statements_total(tables).sort("rank").to_dicts()


def _counted(cell: str, query: int, calls: int, exec_ns: int, db_s: float, **more: Any) -> dict[str, Any]:
    own = {"cell": cell, "query_id": query, "calls": calls, "exec_ns": exec_ns, "db_time_s": db_s}
    return WHOSE | own | more


def _sampled(cell: str, query: int, db_s: float) -> dict[str, Any]:
    of_none = {"user": None, "database": None, "status": SAMPLED}
    return WHOSE | {"cell": cell, "query_id": query, "db_time_s": db_s} | of_none


def test_a_statement_without_counters_in_one_window_is_one_row() -> None:
    """The last window of an observation that was stopped has samples only."""
    one, other = _total(
        _counted("c1", 7, 100, 1_000_000_000, 3.0),
        _sampled("c2", 7, 2.0),
        _counted("c1", 8, 5, 100_000_000, 1.0),
    )
    assert (one["query_id"], one["db_time_s"], one["calls"]) == (7, pytest.approx(5.0), 100)
    assert one["status"] == other["status"] == UNCOUNTED
    assert sum(r["db_time_share"] for r in (one, other)) == pytest.approx(1.0)


def test_the_time_of_samples_alone_is_divided_among_roles() -> None:
    rows_of_roles = _total(
        _counted("c1", 7, 30, 3_000_000_000, 3.0),
        _counted("c1", 7, 10, 1_000_000_000, 1.0, user="batch"),
        _sampled("c2", 7, 4.0),
    )
    assert {r["user"]: r["db_time_s"] for r in rows_of_roles} == pytest.approx({"app": 6.0, "batch": 2.0})


def test_a_statement_that_no_window_counted_stays_sampled() -> None:
    """With counters in every window, a statement that never ended has none, and theirs are complete."""
    first, second = _total(
        _counted("c1", 7, 1, 1_000_000_000, 9.0),
        _sampled("c1", 8, 1.0),
        _counted("c2", 7, 1, 1_000_000_000, 9.0),
    )
    assert (first["status"], first["calls"]) == ("ok", 2)
    assert (second["status"], second["calls"], second["user"]) == (SAMPLED, None, None)


def test_no_time_is_lost() -> None:
    frame = pl.DataFrame(_total(_counted("c1", 7, 1, 0, 2.5), _sampled("c2", 7, 1.5), _sampled("c2", 9, 1.0)))
    assert frame["db_time_s"].sum() == pytest.approx(5.0)
