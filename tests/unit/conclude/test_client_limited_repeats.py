"""The limit by the client: in how many measurements, and which of them the figures are of."""

from __future__ import annotations

import polars as pl
import pytest
from tests.unit.report_results import World, results

from dbdyno.conclude.run.case import Case
from dbdyno.conclude.run.quality import client_limits


@pytest.mark.parametrize(
    ("limited", "begin"),
    [
        ("second-s4-r3", "Limited by the client at 4 sessions (second), in 1 of 3 measurements: "),
        ("second-s4", "Limited by the client at 4 sessions (second): "),
    ],
)
def test_a_limit_in_some_repeats_says_in_how_many(limited: str, begin: str) -> None:
    run = results(World(rungs=(1, 4), repeats=3, variants=("base", "second")))
    names = ("client_limits", "driver_delay", "driver_threads", "driver_cpus", "driver_runq")
    cells = run.tables["windows"].filter(pl.col("cell").str.contains(limited))["cell"]
    head = run.tables["rates"].filter((pl.col("scope") == "rung") & pl.col("cell").is_in(cells.implode()))
    head = head.unique("cell", maintain_order=True)
    rates = run.tables["rates"].filter(~pl.col("name").is_in(names))
    made = [
        head.with_columns(name=pl.lit(n), value=pl.lit(1.0 if n != "driver_delay" else 0.4)) for n in names
    ]
    tables = {**run.tables, "rates": pl.concat([rates, *made])}
    (claim,) = client_limits(Case(run.plan, run.environment, tables, {}))
    assert claim.text.startswith(begin)
    assert "for 40 % of their time in repeat 3." in claim.text or "), repeat 1." in claim.text
