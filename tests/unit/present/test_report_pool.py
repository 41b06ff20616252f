"""A pool's queue in tables, words and charts: there where a pooler was, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from tests.unit import report_results
from tests.unit.shown import tables

from dbdyno.model.results.results import Results
from dbdyno.present.figures import accounts, figures, sources_used
from dbdyno.present.figures import sources_used as missing_values
from dbdyno.present.run import rungs


def with_pool(share: float = 0.6) -> Results:
    """Results in which ``share`` of the sessions' time at every rung is in the queue, taken from the rest."""
    results = report_results.results(report_results.World(rungs=(1, 4)))
    queued = pl.col("sessions") * share
    shrunk = {n: pl.col(n) * (1 - share) for n in ("run_aas", "runq_aas", "sleep_aas", "client_aas")}
    rungs = results.tables["rungs"].with_columns(**shrunk, pool_queue_aas=queued)
    ledger = results.tables["ledger"]
    rung = ledger.filter(pl.col("scope") == "rung").unique("cell", keep="first", maintain_order=True)
    rows = rung.with_columns(
        account=pl.lit("pool.queue"),
        detail=None,
        aas=queued,
        low=queued,
        high=queued,
        source=pl.lit("pooler"),
    )
    tables = {**results.tables, "rungs": rungs, "ledger": pl.concat([ledger, rows.select(ledger.columns)])}
    return replace(results, tables=tables)


def heads(results: Results) -> dict[str, list[str]]:
    """Heads of the table of rungs and their cells."""
    (table,) = tables(rungs.tables(results))
    return {c.head: [r.cells[n].text for r in table.rows] for n, c in enumerate(table.columns)}


def test_there_is_a_column_only_with_a_pool() -> None:
    assert heads(with_pool())["pool%"] == ["60", "60"]
    assert "pool%" not in heads(report_results.results(report_results.World(rungs=(1, 4))))


def test_the_stack_has_a_segment_of_its_own() -> None:
    results = with_pool()
    drawn = accounts.stack(results, accounts.at_rungs(results, figures.series_of(results)[0]))
    segment = drawn.filter(key="pool.queue").sort("place")
    assert segment.select("label", "family").unique().rows() == [("pool queue", "pool.queue")]
    assert segment["aas"].to_list() == [0.6, 2.4]


def test_the_headline_names_the_largest_part_of_session_time() -> None:
    results = with_pool()
    (claim,) = (f for f in report_results.answered(results).findings if f.id == "session-time")
    assert claim.slots["shares"]["pool_queue_aas"] == pytest.approx(0.6)
    assert claim.slots["accounts"].startswith("pool queue 60 %")


def test_a_rung_without_a_pooler_is_not_unknown() -> None:
    results = with_pool()
    rungs = results.tables["rungs"].with_columns(
        pool_queue_aas=pl.when(pl.col("sessions") == 1).then(None).otherwise("pool_queue_aas")
    )
    results = replace(results, tables={**results.tables, "rungs": rungs})
    assert missing_values.reasons(results, ("pool_queue_aas",)) == []
    lost = pl.when(pl.col("account") == "pool.queue").then(None).otherwise("aas").alias("aas")
    ledger = results.tables["ledger"].with_columns(
        lost, status=pl.when(pl.col("account") == "pool.queue").then(pl.lit("lost")).otherwise("status")
    )
    results = replace(results, tables={**results.tables, "ledger": ledger})
    (reason,) = missing_values.reasons(results, ("pool_queue_aas",))
    assert reason.why == "pooler: the source broke off"


def test_the_queues_witness_is_no_tier() -> None:
    results = with_pool()
    events = results.tables["events"]
    queue = events.head(1).with_columns(source=pl.lit("pooler"), scope=pl.lit("rung"), status=pl.lit("ok"))
    results = replace(results, tables={**results.tables, "events": pl.concat([events, queue])})
    assert "pooler" not in {t.source for t in sources_used.tiers(results)}
