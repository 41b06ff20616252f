"""The stack: everything once, CPU WAIT split out of every class, its parts adding up to it."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from tests.unit import report_results

from dbdyno.model.results.results import Results
from dbdyno.model.schema import tables
from dbdyno.present.charts.charts_time import fills
from dbdyno.present.document import palette
from dbdyno.present.figures import accounts, figures


def segments(results: Results, series: figures.Series | None = None, *, divided: bool = True) -> pl.DataFrame:
    places = accounts.at_rungs(results, series or figures.series_of(results)[0])
    return accounts.stack(results, places, divided=divided)


def with_ledger(*rows: dict[str, object]) -> tuple[Results, pl.DataFrame]:
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
    results = report_results.results(report_results.World(rungs=(1,)))
    frame = tables.rows("ledger", [{**base, **r} for r in rows])
    places = frame.select("cell", place="sessions", weight=pl.lit(1.0)).unique("cell", maintain_order=True)
    return replace(results, tables={**results.tables, "ledger": frame}), places


def label(detail: str | None, aas: float, **more: object) -> dict[str, object]:
    return {"account": "runq", "parent": "runq", "detail": detail, "aas": aas, **more}


@pytest.mark.parametrize("world", [report_results.SMALL, report_results.REPEATED])
@pytest.mark.parametrize("divided", [False, True])
def test_the_segments_add_up_to_the_sessions(world: report_results.World, divided: bool) -> None:
    results = report_results.results(world)
    for series in figures.series_of(results):
        sums = segments(results, series, divided=divided).group_by("place").agg(pl.col("aas").sum())
        for sessions, aas in sums.rows():
            assert aas == pytest.approx(sessions)


def test_cpu_wait_is_the_sum_of_its_parts() -> None:
    results = report_results.results()
    rungs = dict(results.tables["rungs"].select("sessions", "runq_aas").rows())
    rows = segments(results).filter(pl.col("account") == "runq")
    for sessions, runq, parts in (
        rows.group_by("place").agg(pl.col("runq").first(), pl.col("aas").sum()).rows()
    ):
        assert parts == pytest.approx(runq) == pytest.approx(rungs[sessions])


def test_cpu_wait_is_one_segment_unless_it_is_divided() -> None:
    results = report_results.results()
    whole = segments(results, divided=False)
    assert whole.filter(pl.col("account") == "runq")["key"].unique().to_list() == ["runq"]
    assert not whole["waiting"].any()
    rungs = dict(results.tables["rungs"].select("sessions", "runq_aas").rows())
    for sessions, aas in whole.filter(pl.col("key") == "runq").select("place", "aas").rows():
        assert aas == pytest.approx(rungs[sessions])


def test_every_class_has_its_run_queue_beside_its_sleep() -> None:
    rows = segments(report_results.results()).filter(pl.col("place") == 8)
    assert rows["key"].to_list() == [
        "run.user", "run.system", "runq:no wait event", "runq:IO", "sleep:IO", "runq:LWLock", "sleep:LWLock",
        "sleep:Lock", "runq:Client", "client", "unaccounted",
    ]  # fmt: skip
    striped = rows.filter("waiting").select("key", "family").rows()
    assert striped == [("runq:IO", "io"), ("runq:LWLock", "latch"), ("runq:Client", "client")]


def test_segments_lie_on_one_another_and_a_negative_remainder_below_zero() -> None:
    rows = segments(report_results.results()).filter(pl.col("place") == 2)  # whose remainder is negative
    above = rows.filter(pl.col("aas") > 0)
    assert above["y0"].to_list() == pytest.approx([0.0, *above["y1"].to_list()[:-1]])
    (below,) = rows.filter(pl.col("aas") < 0).to_dicts()
    assert below["key"] == "unaccounted"
    assert (below["y0"], below["y1"]) == (0.0, below["aas"])


def test_without_labels_cpu_wait_stays_whole() -> None:
    results, places = with_ledger({"account": "runq", "aas": 0.4})
    assert accounts.stack(results, places)["key"].to_list() == ["runq"]


def test_time_without_a_label_is_a_part_of_its_own() -> None:
    results, places = with_ledger({"account": "runq", "aas": 0.4}, label("IO/Read", 0.3), label(None, 0.1))
    rows = accounts.stack(results, places, divided=True)
    assert dict(rows.select("key", "aas").rows()) == pytest.approx({"runq": 0.1, "runq:IO": 0.3})
    assert rows["label"].to_list() == ["CPU WAIT, not divided", "CPU WAIT under IO"]


def test_cpu_wait_that_only_some_cells_divide_has_a_part_for_the_rest() -> None:
    results, places = with_ledger(
        {"account": "runq", "aas": 0.4},
        label("IO/Read", 0.4),
        {"cell": "d", "sessions": 2, "account": "runq", "aas": 1},
    )
    labels = accounts.stack(results, places, divided=True)["label"].to_list()
    assert labels == ["CPU WAIT under IO", "CPU WAIT, not divided"]


def test_cpu_that_only_some_cells_divide_is_told_from_its_parts() -> None:
    results, places = with_ledger(
        {"account": "run", "aas": 0.5},
        {"account": "run.user", "parent": "run", "aas": 0.4},
        {"account": "run.system", "parent": "run", "aas": 0.1},
        {"cell": "d", "sessions": 2, "account": "run", "aas": 1},
    )
    rows = accounts.stack(results, places)
    assert rows["label"].to_list() == ["CPU, user", "CPU, kernel", "CPU, not divided"]
    names = [name for name, _ in fills(rows).values()]
    assert len({palette.light(n) for n in names}) == len({palette.dark(n) for n in names}) == 3


def test_a_wait_that_one_repeat_did_not_see_took_no_time_there() -> None:
    results, places = with_ledger(
        {"account": "sleep", "detail": "IO/Read", "aas": 0.6},
        {"cell": "d", "repeat": 2, "account": "client", "aas": 0.5},
        {"cell": "d", "repeat": 2, "account": "runq", "aas": None},
        {"account": "runq", "aas": 0.4},
    )
    means = dict(accounts.means(results, places).select("key", "aas").rows())
    assert means["sleep:IO"] == pytest.approx(0.3)
    assert means["runq"] == pytest.approx(0.4)  # the repeat that does not know is left out
    assert accounts.missing_parts(results, places) == []


def test_without_words_the_figures_are_the_same() -> None:
    results = report_results.results(report_results.REPEATED)
    places = accounts.at_rungs(results, figures.series_of(results)[0])
    full, bare = (
        accounts.every_mean(results, places, words=w).drop("events", "source").sort("place", "key")
        for w in (True, False)
    )
    assert_frame_equal(full, bare)


def test_cells_count_by_their_weight() -> None:
    results, places = with_ledger(
        {"account": "runq", "aas": 0.4}, {"cell": "d", "repeat": 2, "account": "runq", "aas": 1.0}
    )
    weighted = places.with_columns(weight=pl.Series([3.0, 1.0]))
    assert accounts.stack(results, weighted)["aas"].to_list() == pytest.approx([0.55])


def test_a_class_has_the_interval_of_its_events_together_and_names_the_longest() -> None:
    results, places = with_ledger(
        {"account": "sleep", "detail": "IO/Read", "aas": 0.5, "low": 0.4, "high": 0.7},
        {"account": "sleep", "detail": "IO/Write", "aas": 0.1, "low": 0.0, "high": 0.2},
        {"account": "sleep", "detail": "Lock/x", "aas": 0.1, "low": None, "high": 0.2},
    )
    io, lock = accounts.stack(results, places).to_dicts()
    assert (io["low"], io["high"], io["events"]) == (
        pytest.approx(0.4),
        pytest.approx(0.9),
        "Read 0.5, Write 0.1",
    )
    assert lock["low"] is None and lock["high"] == pytest.approx(0.2)


def test_unknown_accounts_are_named_and_not_drawn() -> None:
    results, places = with_ledger(
        {"account": "runq", "aas": None, "status": "off"}, {"account": "client", "aas": 1.0}
    )
    assert accounts.stack(results, places)["key"].to_list() == ["client"]
    assert accounts.missing_parts(results, places) == ["CPU WAIT"]


def with_classes(amounts: list[list[float]]) -> pl.DataFrame:
    """The stack of one place per list: CPU first, then a wait class per amount."""
    cells = [
        [
            {"cell": f"c{place}", "sessions": place, "account": "run", "aas": some[0]},
            *(
                {
                    "cell": f"c{place}",
                    "sessions": place,
                    "account": "sleep",
                    "detail": f"W{n:02d}/x",
                    "aas": aas,
                }
                for n, aas in enumerate(some[1:])
            ),
        ]
        for place, some in enumerate(amounts, start=1)
    ]
    return accounts.stack(*with_ledger(*(row for rows in cells for row in rows)))


shares = st.lists(st.floats(0.001, 1.0), min_size=2, max_size=16)


@given(shares.flatmap(lambda one: st.lists(st.permutations(one), min_size=1, max_size=4)))
@settings(max_examples=60, deadline=None)
def test_what_is_merged_is_never_larger_than_what_is_named(amounts: list[list[float]]) -> None:
    before = with_classes(amounts)
    after = accounts.merge_small(before)
    for place in before["place"].unique():
        here = pl.col("place") == place
        assert after.filter(here)["aas"].sum() == pytest.approx(before.filter(here)["aas"].sum())
    sums = dict(after.group_by("key").agg(pl.col("aas").sum()).rows())
    rest = sums.pop("rest", 0.0)
    unseen = 0.005 * before["aas"].sum()
    assert all(rest <= max(aas, unseen) + 1e-9 for aas in sums.values())
    most = after.with_columns(share=pl.col("aas") / pl.col("aas").sum().over("place"))
    most_by_key = dict(most.group_by("key").agg(pl.col("share").max()).rows())
    most_rest = most_by_key.pop("rest", 0.0)
    assert all(most_rest <= max(share, 0.005) + 1e-9 for share in most_by_key.values())


def test_many_alike_classes_all_keep_their_names() -> None:
    """Ten classes of the same size: any two of them together would be the largest."""
    after = accounts.merge_small(with_classes([[0.5, *[0.1] * 10]]))
    assert "rest" not in after["key"].to_list() and after.height == 11


def test_classes_too_small_to_be_seen_are_merged_and_named_on_hovering() -> None:
    after = accounts.merge_small(with_classes([[1.0, 0.4, 0.002, 0.001]]))
    rest = after.filter(pl.col("key") == "rest").to_dicts()[0]
    assert (rest["label"], rest["aas"]) == ("other (2)", pytest.approx(0.003))
    assert rest["events"] == "asleep in W01 0.002, asleep in W02 0.001"
