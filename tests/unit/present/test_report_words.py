"""The headline, the accounts, the reasons for unknown figures: pure functions of tables."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from tests.unit import report_results

from dbdyno.model.results.claim import Claim
from dbdyno.model.results.ledger_rows import with_parents
from dbdyno.model.results.results import Results
from dbdyno.model.schema import tables
from dbdyno.present import report
from dbdyno.present.figures import accounts, figures, headline, sources_used
from dbdyno.present.run import run_facts


def only_series(results: object) -> figures.Series:
    (series,) = figures.series_of(results)  # type: ignore[arg-type]
    return series


def claims_by_id(results: Results) -> dict[str, Claim]:
    return {f.id: f for f in results.findings}


def test_the_headline_names_peak_limit_and_where_the_time_goes() -> None:
    claims = claims_by_id(report_results.results())
    assert (claims["peak"].case, claims["peak"].slots["sessions"]) == ("times", 2)
    assert claims["peak"].slots["times"] == pytest.approx(1.95, abs=0.005)
    assert claims["peak"].slots["calls"] == pytest.approx(93.6, abs=0.05)
    assert claims["peak"].value is not None and claims["peak"].value.value == pytest.approx(12.4e6, rel=0.004)
    limit = claims["scales-to"]
    assert (limit.case, limit.value.value, limit.slots["top"]) == ("limit", 2, "8")  # type: ignore[union-attr]
    assert limit.slots["top_share"] == pytest.approx(0.21, abs=0.005)
    assert claims["session-time"].slots["sessions"] == 8
    assert claims["session-time"].slots["shares"]["runq_aas"] == pytest.approx(0.68, abs=0.005)
    (text,) = headline.sentences(report_results.results())
    assert text.startswith(claims["peak"].text)
    assert limit.text in text and claims["session-time"].text in text


def test_the_title_leaves_out_cpus_that_are_not_the_servers() -> None:
    whole = "Logical I/O (lio) on PostgreSQL 18.4, 1 to 8 sessions on 2 CPUs"
    assert headline.title(report_results.results()) == whole
    assert (
        headline.title(report_results.results(report_results.REMOTE))
        == "Logical I/O (lio) on PostgreSQL 18.4, 1 to 8 sessions"
    )


def test_a_ladder_that_scales_to_its_top_is_claimed_as_such() -> None:
    claim = claims_by_id(report_results.results(report_results.World(rungs=(1, 2))))["scales-to"]
    assert (claim.case, claim.slots["load"], claim.severity) == ("top", "2 sessions", "good")
    assert claim.slots["top_share"] == pytest.approx(0.97, abs=0.01)


def test_a_plateau_below_the_peak_is_claimed() -> None:
    results = report_results.results()
    flat = (pl.col("sessions") == 8) & (pl.col("name") == "work_per_s") & (pl.col("scope") == "rung")
    value = pl.when(flat).then(12_500_000.0).otherwise("value").alias("value")
    rates = results.tables["rates"].with_columns(value)
    peak = claims_by_id(report_results.answered(replace(results, tables={**results.tables, "rates": rates})))[
        "peak"
    ]
    assert (peak.slots["sessions"], peak.slots["reached"]) == (8, "2 sessions")
    assert "From 2 to 8 sessions it is the same within noise" in peak.text


def test_time_that_nobody_measured_is_unknown_not_unaccounted() -> None:
    results = report_results.results()
    gone = [pl.lit(None, pl.Float64).alias(f"{a}_aas") for a in ("run", "runq", "sleep", "client")]
    rungs = results.tables["rungs"].with_columns(
        *gone, pl.col("sessions").cast(pl.Float64).alias("unaccounted_aas")
    )
    claims = claims_by_id(
        report_results.answered(replace(results, tables={**results.tables, "rungs": rungs}))
    )
    assert (claims["session-time"].case, claims["session-time"].slots["shares"]) == ("unknown", {})


def test_an_invalid_rung_is_not_the_peak() -> None:
    results = report_results.results()
    rungs = results.tables["rungs"]
    best = pl.when(pl.col("sessions") == 2).then(pl.lit("invalid")).otherwise("status").alias("status")
    spoilt = replace(results, tables={**results.tables, "rungs": rungs.with_columns(best)})
    answer = headline.answer(spoilt, only_series(spoilt))
    assert answer is not None and answer.peak is not None
    assert answer.peak["sessions"] == 3


def test_an_unknown_rate_is_no_peak_of_zero() -> None:
    results = report_results.results(report_results.World(rungs=(1,)))
    rates = results.tables["rates"].with_columns(pl.lit(None, pl.Float64).alias("value"))
    claims = claims_by_id(
        report_results.answered(replace(results, tables={**results.tables, "rates": rates}))
    )
    assert claims["nothing-measured"].case == "no-rate" and "peak" not in claims


def test_the_headline_of_a_run_without_rungs_is_that_nothing_was_measured() -> None:
    results = report_results.results()
    empty = replace(results, tables={n: t.clear() for n, t in results.tables.items()})
    assert headline.sentences(report_results.answered(empty)) == ["No load was measured."]


def ledger(*rows: dict[str, object]) -> pl.DataFrame:
    base = {
        "cell": "c",
        "workload": "w",
        "variant": "v",
        "sessions": 1,
        "repeat": 1,
        "scope": "rung",
        "who": "rung",
        "status": "ok",
        "source": "s",
    }
    return with_parents(tables.rows("ledger", [{**base, **r} for r in rows]))


def test_the_total_stays_where_a_part_is_unknown() -> None:
    frame = ledger(
        {"account": "run", "aas": 1.0},
        {"account": "run.user", "aas": None},
        {"account": "run.system", "aas": 0.2},
    )
    assert accounts.leaves(frame, "rung")["account"].to_list() == ["run"]


def test_the_parts_stay_where_both_are_known() -> None:
    frame = ledger(
        {"account": "run", "aas": 1.0},
        {"account": "run.user", "aas": 0.8},
        {"account": "run.system", "aas": 0.2},
    )
    assert accounts.leaves(frame, "rung")["account"].to_list() == ["run.user", "run.system"]


def test_the_throttle_bracket_is_never_added() -> None:
    frame = ledger(
        {"account": "runq", "aas": 1.0},
        {"account": "runq.throttled_bracket", "aas": None, "low": 0.0, "high": 0.7},
    )
    assert accounts.leaves(frame, "rung")["account"].to_list() == ["runq"]


def test_a_sleep_that_no_sample_saw_is_a_leaf_beside_its_events() -> None:
    frame = ledger(
        {"account": "sleep", "detail": "IO/Read", "aas": 0.6},
        {"account": "sleep", "detail": None, "aas": 0.1},
        {"account": "block_io", "aas": 0.3},
    )
    assert accounts.leaves(frame, "rung")["aas"].to_list() == [0.6, 0.1]


def test_columns_that_share_a_reason_are_named_together() -> None:
    results = report_results.results(report_results.REMOTE)
    unknowns = sources_used.reasons(results, ("run_aas", "runq_aas", "calls_per_s"))
    groups = figures.grouped(((u.why, u.cure), u.column) for u in unknowns)
    ((why, cure), columns), *rest = groups.items()
    assert not rest
    assert columns == ["run_aas", "runq_aas"]
    assert "not visible from here" in why
    assert "run dbdyno there" in cure


def test_methods_name_the_source_and_what_is_unknown_in_this_run() -> None:
    here = {m.figure: m for m in run_facts.methods_of(report_results.results())}
    methods = {m.figure: m for m in run_facts.methods_of(report_results.results(report_results.REMOTE))}
    assert here["CPU WAIT"].sources == ("os tasks",)
    assert here["CPU WAIT"].status == "known"
    assert methods["CPU WAIT"].status == "unknown in 6 of 6: the server's processes are not visible from here"


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("connection refused: accepting TCP/IP connections?", "accepting TCP/IP connections? It contains"),
        ("the server is lost", "the server is lost. It contains"),
        ("it was asked to end.", "asked to end. It contains"),
    ],
)
def test_the_servers_words_are_followed_by_one_mark(reason: str, shown: str) -> None:
    results = report_results.results()
    info = results.info.model_copy(update={"status": "invalid", "reason": reason})
    first = report.lead(replace(results, info=info))[0].text
    assert shown in first
