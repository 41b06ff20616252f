"""The headline, the accounts, the reasons for unknown figures: pure functions of tables."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import report_results as made

from dbdyno.model import tables
from dbdyno.model.ledger_rows import with_parents
from dbdyno.present import accounts, figures, headline, methods, missing_values


def only(results: object) -> figures.Series:
    (series,) = figures.series_of(results)  # type: ignore[arg-type]
    return series


def test_the_headline_names_peak_limit_and_where_the_time_goes() -> None:
    (text,) = headline.sentences(made.results())
    assert "Peak 12.4 M LIO/s at 2 sessions, 1.95 times the rate of 1 session" in text
    assert "does not scale beyond 2 sessions; efficiency 21 % at 8 sessions" in text
    assert "68 % waiting for a CPU (CPU WAIT)" in text


def test_the_title_leaves_out_cpus_that_are_not_the_servers() -> None:
    assert headline.title(made.results()) == "lio on PostgreSQL 18.4, 1 to 8 sessions on 2 CPUs"
    assert headline.title(made.results(made.REMOTE)) == "lio on PostgreSQL 18.4, 1 to 8 sessions"


def test_a_ladder_that_scales_to_its_top_says_so() -> None:
    (text,) = headline.sentences(made.results(made.World(rungs=(1, 2))))
    assert "scales to 2 sessions, the highest load measured (efficiency 97 %)" in text


def test_a_plateau_below_the_peak_is_told() -> None:
    results = made.results()
    flat = pl.when(pl.col("sessions") == 8).then(12_500_000.0).otherwise("work_per_s").alias("work_per_s")
    rungs = results.tables["rungs"].with_columns(flat)
    (text,) = headline.sentences(replace(results, tables={**results.tables, "rungs": rungs}))
    assert (
        "Peak 12.5 M LIO/s at 8 sessions, 1.96 times the rate of 1 session (99 % of it already at 2" in text
    )


def test_time_that_nobody_measured_is_unknown_not_unaccounted() -> None:
    results = made.results()
    gone = [pl.lit(None, pl.Float64).alias(f"{a}_aas") for a in ("run", "runq", "sleep", "client")]
    rungs = results.tables["rungs"].with_columns(
        *gone, pl.col("sessions").cast(pl.Float64).alias("unaccounted_aas")
    )
    (text,) = headline.sentences(replace(results, tables={**results.tables, "rungs": rungs}))
    assert text.endswith("Where the time goes is unknown.")


def test_words_and_findings_agree_on_what_scales() -> None:
    from dbdyno.conclude.findings import scaling

    assert headline.stops_scaling is scaling.stops_scaling


def test_an_invalid_rung_is_not_the_peak() -> None:
    results = made.results()
    rungs = results.tables["rungs"]
    best = pl.when(pl.col("sessions") == 2).then(pl.lit("invalid")).otherwise("status").alias("status")
    spoilt = replace(results, tables={**results.tables, "rungs": rungs.with_columns(best)})
    found = headline.answer(spoilt, only(spoilt))
    assert found is not None and found.peak is not None
    assert found.peak["sessions"] == 3


def test_an_unknown_rate_is_no_peak_of_zero() -> None:
    results = made.results(made.World(rungs=(1,)))
    rungs = results.tables["rungs"].with_columns(
        pl.lit(None, pl.Float64).alias("calls_per_s"), pl.lit(None, pl.Float64).alias("work_per_s")
    )
    assert headline.sentences(replace(results, tables={**results.tables, "rungs": rungs})) == [
        "the throughput is unknown."
    ]


def test_a_run_without_rungs_says_that_nothing_was_measured() -> None:
    results = made.results()
    empty = replace(results, tables={n: t.clear() for n, t in results.tables.items()})
    assert headline.sentences(empty) == ["No rung was measured."]


def ledger(*rows: dict[str, object]) -> pl.DataFrame:
    base = {
        "cell": "c", "workload": "w", "variant": "v", "sessions": 1, "repeat": 1, "scope": "rung",
        "who": "rung", "status": "ok", "source": "s",
    }  # fmt: skip
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


def test_reasons_are_said_once_for_columns_that_share_them() -> None:
    results = made.results(made.REMOTE)
    groups = missing_values.grouped(missing_values.reasons(results, ("run_aas", "runq_aas", "calls_per_s")))
    ((why, cure), columns), *rest = groups.items()
    assert not rest
    assert columns == ["run_aas", "runq_aas"]
    assert "not seen from here" in why
    assert "run dbdyno there" in cure


def test_methods_say_which_source_and_what_is_unknown_in_this_run() -> None:
    here = {m.figure: m for m in methods.of(made.results())}
    there = {m.figure: m for m in methods.of(made.results(made.REMOTE))}
    assert here["CPU WAIT"].sources == ("os tasks",)
    assert here["CPU WAIT"].status == "known"
    assert there["CPU WAIT"].status == "unknown in 6 of 6: the server's processes are not seen from here"
