"""Somebody else's load: windows in time, no word of rungs."""

from __future__ import annotations

import io
import json
import re
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl
import pytest
from rich.console import Console
from tests.unit import report_observation, report_results
from tests.unit.shown import as_text

from dbdyno import present
from dbdyno.account import load_profile
from dbdyno.conclude.run.activity import activity
from dbdyno.model.plan.plan import Observation
from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import rows
from dbdyno.model.units import format_rate
from dbdyno.present import report
from dbdyno.present.document.document import KeyFigure, Paragraph, Table, walk
from dbdyno.present.figures import accounts, figures, headline, profile, selection
from dbdyno.present.figures import selection as combine
from dbdyno.present.observation import rates
from dbdyno.present.run import processes
from dbdyno.present.show_options import SHOW_OPTIONS

pytestmark = pytest.mark.queries

FORBIDDEN = re.compile(r"\b(rungs?|ladder|throughput|scaling|calibration)\b", re.IGNORECASE)


def visible_words(page: str) -> str:
    """The page's words, without scripts and styles."""
    page = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return re.sub(r"<[^>]+>", " ", page)


def test_the_headline_has_load_and_its_largest_part() -> None:
    results = report_observation.results()
    assert headline.title(results) == "Observation of PostgreSQL 18.4: 60.0 s in 6 windows"
    (text,) = headline.sentences(results)
    mean = sum(map(report_observation.db_time, report_observation.BUSY)) / 6
    assert f"On average {mean:.2f} sessions were active (DB time) on 2 CPUs" in text
    assert "1.40 on a CPU (DB CPU)" in text
    assert "12 sessions seen" in text
    assert "Longest waits: IO/DataFileRead" in text
    assert "Nothing was measured for 12 s (1 gap)." in text


def with_rates(results: Results, reset: str = "") -> Results:
    """Returns the results with 1,000 transactions and 7,000 statements in window 1, twice as many in window
    2, and so on. The counters of ``reset`` were reset in window 2."""
    profile = results.tables["profile"].filter(pl.col("cell") != "all")
    cell = ("cell", "workload", "variant", "sessions", "repeat")
    counted = [
        {
            **{c: row[c] for c in cell},
            "name": name,
            "unit": "count",
            "total": None if (name, row["repeat"]) == (reset, 2) else each * row["repeat"],
            "status": "reset" if (name, row["repeat"]) == (reset, 2) else "ok",
            "source": "engine counters",
        }
        for row in results.tables["windows"].to_dicts()
        for name, each in (("transactions", 1000.0), ("executions", 7000.0))
    ]
    others = profile.filter(~pl.col("name").is_in(["transactions", "executions"]))
    profile = pl.concat([others, rows("profile", counted)])
    together = load_profile.profile_total(results.tables["windows"], profile)
    counting = replace(results, tables={**results.tables, "profile": pl.concat([profile, together])})
    return replace(counting, answers=(activity(counting),))


def test_means_over_some_windows_say_so() -> None:
    results = with_rates(report_observation.results())
    frame = results.tables["profile"].filter(pl.col("cell") != "all")
    hidden = (pl.col("repeat") == 2) & (pl.col("name") == "DB time")
    frame = frame.with_columns(
        total=pl.when(~hidden).then("total"), status=pl.when(hidden).then(pl.lit("?")).otherwise("status")
    )
    total = load_profile.profile_total(results.tables["windows"], frame)
    results = replace(results, tables={**results.tables, "profile": pl.concat([frame, total])})
    results = replace(results, answers=(activity(results),))
    (text,) = headline.sentences(results)
    assert "sessions were active (DB time) in 5 of 6 windows on 2 CPUs:" in text
    tile = tiles(results)
    assert tile["Active sessions"].note.startswith("DB time, on average in 5 of 6 windows;")
    assert {tile[n].note for n in ("DB CPU", "CPU WAIT")} == {"on average in 5 of 6 windows"}
    shown = " ".join(as_text(profile.load_profile(results, selection.picks(results).shown[0])).split())
    assert "DB time, DB CPU, CPU WAIT: known in 5 of 6 windows." in shown
    top = as_text(profile.top_events(results, selection.picks(results).shown[0]))
    assert "over 5 of 6 windows by total time" in top


def totals(results: Results, name: str) -> list[float]:
    """Totals of the windows in the load profile."""
    rows = results.tables["profile"].filter((pl.col("name") == name) & (pl.col("cell") != "all"))
    return rows.sort("repeat")["total"].to_list()


def rows_of_all(results: Results, name: str) -> list[dict[str, Any]]:
    """Rows of the load profile of all windows together."""
    profile = results.tables["profile"]
    return profile.filter((pl.col("name") == name) & (pl.col("cell") == "all")).to_dicts()


def tiles(results: Results) -> dict[str, KeyFigure]:
    return {f.name: f for f in present.run_document(results).figures}


def test_figures_per_transaction_of_short_windows_are_marked() -> None:
    """A second of 10 s may be counted in the neighbouring window: 10 %; of 60 s it is under 2 %."""
    results = with_rates(report_observation.results())
    each = pl.when(pl.col("name") == "executions").then(7.0).otherwise("per_transaction")
    counted = results.tables["profile"].with_columns(per_transaction=each)
    results = replace(results, tables={**results.tables, "profile": counted})
    whole, first, *_ = selection.picks(results).shown
    short, long = (as_text(profile.load_profile(results, pick)) for pick in (first, whole))
    assert re.search(r"^executions .*~", short, re.MULTILINE)
    assert "per transaction err by up to 10 % here" in " ".join(short.split())
    assert "~" not in long


def test_tile_chart_sentence_and_profile_have_the_same_rates() -> None:
    results = with_rates(report_observation.results())
    for name, tile, what in (
        ("transactions", "Transactions/s", "transactions"),
        ("executions", "Statements/s", "statements"),
    ):
        windows = totals(results, name)
        assert len(windows) == 6
        mean = sum(windows) / 60
        assert tiles(results)[tile].cell.value == pytest.approx(mean)
        assert tiles(results)[tile].note == f"{sum(windows):,.0f} in 60.0 s"
        (chart,) = [c for c in report_results.charts_of(results) if c.id == f"rate-{what}"]
        drawn = [r for d in chart.spec["datasets"].values() for r in d if "per_s" in r]
        assert [r["per_s"] for r in drawn] == pytest.approx([t / 10 for t in windows])
        assert f"{sum(windows):,.0f} {what} ({format_rate(mean)}/s)" in headline.sentences(results)[0]
        assert [r["per_s"] for r in rows_of_all(results, name)] == pytest.approx([mean])


def test_a_window_whose_counters_were_reset_is_unknown_and_left_out_of_the_rate() -> None:
    results = with_rates(report_observation.results(), reset="transactions")
    windows = totals(results, "transactions")
    assert windows[1] is None
    known = [t for t in windows if t is not None]
    tile = tiles(results)["Transactions/s"]
    assert tile.cell.value == pytest.approx(sum(known) / 50)
    assert tile.note == f"{sum(known):,.0f} in 5 of 6 windows"
    assert rates.by_stretch(results, "transactions")["per_s"].to_list() == [
        None if t is None else pytest.approx(t / 10) for t in windows
    ]
    (chart,) = [c for c in report_results.charts_of(results) if c.id == "rate-transactions"]
    (grey,) = [r for d in chart.spec["datasets"].values() for r in d if "why" in r and "per_s" not in r]
    assert grey["why"] == "the server's counters were reset"
    assert (grey["to_ms"] - grey["from_ms"]) == 10_000


def test_a_reset_window_merged_with_others_takes_no_part_of_their_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    results = with_rates(report_observation.results(), reset="transactions")
    monkeypatch.setattr(figures, "MAX_STRETCHES", 3)
    first = rates.by_stretch(results, "transactions").row(0, named=True)  # windows 1 and 2
    assert first["per_s"] == pytest.approx(totals(results, "transactions")[0] / 10)


def test_rates_that_nobody_counts_are_unknown_with_the_reason() -> None:
    why = "not supported: executions and blocks dirtied are unknown: the library is not loaded"
    results = report_observation.results()
    unknown = pl.col("name") == "executions"
    profile = results.tables["profile"].with_columns(
        *(pl.when(~unknown).then(c).alias(c) for c in ("total", "per_s")),
        status=pl.when(unknown).then(pl.lit(why)).otherwise("status"),
    )
    results = replace(results, tables={**results.tables, "profile": profile})
    tile = tiles(results)["Statements/s"]
    assert (tile.cell.text, tile.cell.value, tile.note) == ("unknown", None, "the library is not loaded")
    assert "rate-statements" not in [c.id for c in report_results.charts_of(results)]
    texts = [b.text for b in walk(report.document(results).blocks) if isinstance(b, Paragraph)]
    assert "Statements per second: unknown: the library is not loaded." in texts


def test_a_rate_that_is_unknown_beside_another_one_has_its_reason() -> None:
    results = with_rates(report_observation.results())
    unknown = pl.col("name") == "transactions"
    profile = results.tables["profile"].with_columns(
        *(pl.when(~unknown).then(c).alias(c) for c in ("total", "per_s")),
        status=pl.when(unknown).then(pl.lit("not all reported")).otherwise("status"),
    )
    results = replace(results, tables={**results.tables, "profile": profile})
    assert "Transactions: unknown (not all reported)." in activity(results).text


def test_the_queue_of_idle_sessions_is_a_part_of_its_own() -> None:
    """The server shows a session that was woken as idle until it runs: its own view has fewer active ones."""
    results = report_observation.results()
    ledger = results.tables["ledger"].filter(pl.col("account") != "state.runq")
    queued = [
        {c: w[c] for c in ("cell", "workload", "variant", "sessions", "repeat")}
        | {"scope": "memo", "who": "rung", "account": "state.runq", "detail": "idle", "aas": 0.6}
        | {"status": "ok", "source": "scheduler trace"}
        for w in results.tables["windows"].to_dicts()
    ]
    with_queue = pl.concat([ledger, rows("ledger", queued)])
    for table, idle in ((with_queue, 0.6), (ledger, 0.0)):
        claimed = activity(replace(results, tables={**results.tables, "ledger": table}))
        assert claimed.slots["idle"] == pytest.approx(idle)
        assert ("0.600" in claimed.text) == bool(idle)


def test_the_chosen_sessions_are_named() -> None:
    asked = Observation(duration="60s", user="app", pids=(7, 9))
    assert (
        headline.sentences(report_observation.results(observation=asked))[1]
        == "Only sessions with user app, pid 7, 9."
    )


def test_counters_of_the_whole_server_are_named_so_beside_the_chosen_sessions() -> None:
    some = with_rates(report_observation.results(observation=Observation(pids=(7,))))
    everybody = with_rates(report_observation.results())
    for results, named in ((some, True), (everybody, False)):
        text = activity(results).text
        assert ("statements (2.45 k/s) on the whole server" in text) is named
        assert ("block reads/s on the whole server" in text) is named
        table = profile.load_profile(results, selection.picks(results).shown[0])[0]
        assert isinstance(table, Table)
        assert ("whole server" in table.title) is named


def test_an_observation_without_a_window_is_marked_in_every_medium(tmp_path: Path) -> None:
    results = report_observation.results(busy=())
    assert headline.sentences(results) == ["No window was measured."]
    assert "No window was measured." in present.write_report(results, tmp_path / "o.html").read_text("utf-8")
    assert as_text(report.details(results, "profile")).strip() == "Nothing was measured."


def test_an_observation_has_no_word_of_rungs(tmp_path: Path) -> None:
    results = report_observation.results()
    page = present.write_report(results, tmp_path / "o.html").read_text("utf-8")
    assert FORBIDDEN.findall(visible_words(page)) == []
    texts = (present.summary(results), *(present.details(results, name) for name in SHOW_OPTIONS))
    console = Console(file=io.StringIO(), width=100)
    console.print(*texts)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "Sessions, microstates over all windows" in text and "Load profile over all windows" in text
    assert FORBIDDEN.findall(text) == []


def test_windows_lie_in_time_and_gaps_stay_open() -> None:
    results = report_observation.results()
    chart, *more = report_results.charts_of(results)
    for one in (chart, *more):
        alt.LayerChart.validate(one.spec)
    rows = [r for d in chart.spec["datasets"].values() for r in d if "label" in r]
    first = round(results.info.started.timestamp() * 1000)
    starts = [first + round(1000 * report_observation.start_s(n)) for n in range(6)]
    assert sorted({(r["from_ms"], r["to_ms"]) for r in rows}) == [(t, t + 10_000) for t in starts]
    (gap,) = [r for d in chart.spec["datasets"].values() for r in d if r.get("what")]
    assert (gap["from_ms"], gap["to_ms"]) == (first + 30_000, first + 42_000)
    assert "client" not in {r["key"] for r in rows}
    assert "sessions on average were at their client" in chart.caption


def test_times_are_those_of_the_local_zone_whatever_the_zone_of_the_browser(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """10:45:01 UTC is 16:30:01 in Nepal. The axis has it as if it were UTC, and its scale shows UTC."""
    monkeypatch.setenv("TZ", "NPT-5:45")
    time.tzset()
    try:
        results = report_observation.results()
        chart, *_ = report_results.charts_of(results)
        assert selection.picks(results).shown[1].label == "window 16:30:01 to 16:30:11"
    finally:
        monkeypatch.undo()
        time.tzset()
    bars = next(x for x in chart.spec["layer"] if x["mark"]["type"] == "bar")
    assert bars["encoding"]["x"]["title"] == "time (NPT)"
    assert bars["encoding"]["x"]["scale"]["type"] == "utc"
    first = chart.spec["datasets"][bars["data"]["name"]][0]
    assert datetime.fromtimestamp(first["from_ms"] / 1000, UTC).strftime("%H:%M:%S") == "16:30:01"
    assert first["from_clock"] == "16:30:01"


def test_a_run_that_went_on_after_its_last_window_has_a_gap_at_the_end() -> None:
    results = report_observation.results()
    last_s = report_observation.start_s(5) + 10
    for more_s, gaps in ((3, 1), (60, 2)):
        ended = results.info.started + timedelta(seconds=last_s + more_s)
        info = results.info.model_copy(update={"ended": ended})
        assert len(figures.gaps(replace(results, info=info))) == gaps


def test_many_windows_are_drawn_in_stretches_that_stop_at_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    results = report_observation.results()
    monkeypatch.setattr(figures, "MAX_STRETCHES", 3)
    places = figures.stretches(results)
    assert places["place"].n_unique() == 4  # 2 + 1, the gap, 2 + 1
    first = accounts.stack(results, places.select("cell", "place", "weight")).filter(pl.col("place") == 0)
    run = first.filter(pl.col("key") == "run.user")["aas"].to_list()
    assert run == pytest.approx([(report_observation.BUSY[0] + report_observation.BUSY[1]) / 2])


def test_processes_over_all_windows_are_means_over_the_time_they_were_seen() -> None:
    results = report_observation.results()
    frame = combine.microstates(results)
    row = frame.filter(pl.col("pid") == 5001).to_dicts()[0]
    assert row["wall_s"] == pytest.approx(60)
    assert row["usr"] == pytest.approx(sum(report_observation.BUSY) / 6 / 12)
    half = results.tables["microstates"].filter(pl.col("repeat") <= 3)
    seen = combine.microstates(replace(results, tables={**results.tables, "microstates": half}))
    assert seen.filter(pl.col("pid") == 5001)["usr"].to_list() == pytest.approx([(1 + 1.1 + 0.9) / 3 / 12])


def test_a_window_that_does_not_know_is_left_out_of_the_mean() -> None:
    results = report_observation.results()
    unknown = pl.when(pl.col("repeat") == 5).then(None).otherwise("usr").alias("usr")
    frame = results.tables["microstates"].with_columns(unknown)
    combined = combine.microstates(replace(results, tables={**results.tables, "microstates": frame}))
    rest = sum(b for i, b in enumerate(report_observation.BUSY) if i != 4)
    assert combined.filter(pl.col("pid") == 5001)["usr"].to_list() == pytest.approx([rest / 5 / 12])


def test_waits_over_all_windows_are_shares_of_the_whole() -> None:
    results = report_observation.results()
    events = results.tables["events"]
    once = events.filter((pl.col("wait_event") != "transactionid") | (pl.col("repeat") == 5))
    combined = combine.events(replace(results, tables={**results.tables, "events": once}))
    (row,) = combined.filter(pl.col("wait_event") == "transactionid").to_dicts()
    assert row["sleep"] == pytest.approx(0.2 * report_observation.BUSY[4] / 6)
    assert row["samples"] == 100


def test_a_processs_rows_of_the_strip_go_through_all_windows() -> None:
    from dbdyno.present.charts import strips

    results = report_observation.results()
    strip = strips.strip(results, None, strips.parts(results))
    assert strip is not None
    assert strip.names[0] == "pid 5000"
    assert (strip.start_s, strip.end_s) == (0, 72)
    assert strip.pieces[0][len(strip.pieces[0]) // 2] is None  # in the gap


def test_a_piece_of_many_windows_holds_all_their_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    from dbdyno.present.charts import strips

    monkeypatch.setattr(strips, "MAX_PIECES", 4)
    results = report_observation.results()
    shown = strips.parts(results)
    strip = strips.strip(results, None, shown)
    assert strip is not None and "up to 2 windows" in strip.caption
    assert (strip.names[0], strip.start_s, strip.end_s) == ("pid 5000", 0, 80)
    of_session = results.tables["strips"].filter((pl.col("session") == 0) & pl.col("repeat").is_in([1, 2]))
    total = of_session["share"].sum()
    for part, percent in zip(shown, strip.pieces[0][0] or (), strict=True):
        assert percent == round(100 * of_session.filter(part=part)["share"].sum() / total)


def test_the_choices_are_windows() -> None:
    shown = selection.picks(report_observation.results()).shown
    assert [p.label for p in shown[:2]] == ["all windows", "window 10:45:01 to 10:45:11"]
    assert len(shown) == 7


def test_the_document_holds_all_windows_together() -> None:
    results = report_observation.results()
    document = present.document(results)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert {r["pid"] for r in document["observation"]["microstates"]} >= {5000, 6000}
    assert {r["cell"] for r in document["profile"]} >= {"all"}


@pytest.mark.parametrize("kind", ["csv", "xlsx", "parquet", "json"])
def test_exports_write(kind: str, tmp_path: Path) -> None:
    assert present.export(report_observation.results(), {}, kind, tmp_path / "out")


def test_sums_over_hidden_sessions_are_unknown_and_the_remainder_names_them() -> None:
    """Some sessions are our role's own, and idle: the known figures are not the sum of all."""
    results = report_observation.results()
    waits_of_all = pl.col("account").is_in(["sleep", "client"]) & (pl.col("scope") == "rung")
    some = pl.when(waits_of_all).then(pl.lit("3 of 12 sessions, others hidden from this role"))
    asleep = (pl.lit(None, pl.Float64).alias(c) for c in ("lock", "client", "sleep"))
    tables = {
        **results.tables,
        "ledger": results.tables["ledger"].with_columns(status=some.otherwise("status")),
        "microstates": results.tables["microstates"].with_columns(*asleep),
        "top_events": results.tables["top_events"].with_columns(share=pl.lit(None, pl.Float64)),
    }
    results = replace(results, tables=tables)
    pick = selection.pick_of(results)
    assert pick is not None
    table, *notes = profile.wait_events(results, pick)
    assert isinstance(table, Table)
    total = [c.text for c in table.rows[-1].cells[2:8:2]]
    assert total[1] == "?" and "?" not in (total[0], total[2])
    (left,) = [n.text for n in notes if isinstance(n, Paragraph) and n.text.startswith("unaccounted")]
    assert left.endswith("What is unknown lies in it: waits of sessions hidden from this role.")
    assert "sessions waited for is unknown" in " ".join(processes.unknown(results, pick))
    assert tiles(results)["Most time"].cell.text == "?"
