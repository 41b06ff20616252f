"""Two intervals side by side: rates, ratios, new, gone and slower statements, and intervals from blocks."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from tests.unit.snapshot_cases import snapshot

from dbdyno import present
from dbdyno.cli.app import app
from dbdyno.conclude.compare.intervals import compare_intervals, ratio_of
from dbdyno.conduct.history.intervals import side_of
from dbdyno.conduct.history.intervals import trend_of as snapshot_trend
from dbdyno.model.engine.snapshot import Snapshot
from dbdyno.model.errors import UsageError
from dbdyno.model.results.interval import ALL
from dbdyno.model.results.interval_comparison import IntervalComparison, IntervalSide
from dbdyno.present.document.document import Chart, Document, Paragraph, walk
from dbdyno.present.media import html, markdown, text
from dbdyno.store import SnapshotStore

TEXTS = {1: "select old", 2: "select new", 3: "select slow", 4: "select\tsame <b>"}


def take_snapshot(
    at_s: float, commits: int, calls: dict[int, tuple[int, float]], scanned: int = 0
) -> Snapshot:
    """Takes a snapshot. ``calls``: id -> executions and their mean in ms, both since the first snapshot."""
    statements = [
        {
            "user": "u",
            "database": "shop",
            "query_id": i,
            "toplevel": True,
            "calls": n,
            "exec_ns": round(n * ms * 1e6),
        }
        for i, (n, ms) in calls.items()
    ]
    relation = {
        "database_id": 5,
        "relation_id": 9,
        "database": "shop",
        "schema": "public",
        "relation": "orders",
        "kind": "table",
        "seq_rows": scanned,
        "table_blocks_hit": scanned // 10,
    }
    database = {"database_id": 5, "database": "shop", "commits": commits}
    return snapshot(at_s, TEXTS, databases=[database], relations=[relation], statements=statements)


def side_of_snapshots(snapshots: Sequence[Snapshot]) -> IntervalSide:
    return side_of(snapshots[0], snapshots[-1], snapshots[1:-1])


def two_intervals(blocks: int = 1) -> IntervalComparison:
    """A: 10 s, 10 transactions/s; B: 20 s, 20/s. Statement 3 takes 2 ms, then 6; 4 always 5."""
    noise = np.random.default_rng(1).normal(0, 0.02, 4 * blocks)
    sides = []
    both = (0, 10, 10, (1, 3, 4), 2.0, 1000), (60, 20, 20, (2, 3, 4), 6.0, 8000)
    for start, seconds, tps, ids, slow, scans in both:
        state = {i: [0, 0.0] for i in ids}
        snapshots = [take_snapshot(start, 0, {i: (0, 0.0) for i in ids if i > 2})]
        for n in range(1, blocks + 1):
            for i in ids:
                calls = 100 // blocks
                mean = (slow if i == 3 else 5.0) * (1 + noise[n + (i - 1) * blocks - 1])
                state[i][0] += calls
                state[i][1] += calls * mean
            at = seconds * n / blocks
            calls_of = {i: (int(c), t / c) for i, (c, t) in state.items()}
            snapshots.append(take_snapshot(start + at, round(tps * at), calls_of, round(scans * n / blocks)))
        sides.append(side_of_snapshots(snapshots))
    return compare_intervals(*sides)


def by_id(comparison: IntervalComparison) -> dict[int, dict[str, object]]:
    return {row["query_id"]: row for row in comparison.statements.to_dicts()}


def test_two_intervals_have_rates_and_ratios_of_sums() -> None:
    comparison = two_intervals()
    load = comparison.load.filter(
        (pl.col("database") == ALL) & (pl.col("figure") == "transactions")
    ).to_dicts()[0]
    assert (load["per_s_a"], load["per_s_b"], load["per_s_ratio"]) == (10, 20, 2)
    assert load["low"] is None
    statements = by_id(comparison)
    assert {i: row["change"] for i, row in statements.items()} == {1: "gone", 2: "new", 3: "?", 4: "?"}
    assert statements[3]["mean_ns_ratio"] == pytest.approx(3.0, rel=0.1)
    assert statements[3]["low"] is None
    assert statements[4]["calls_per_s_a"] == 10
    assert statements[4]["calls_per_s_b"] == 5
    assert statements[4]["calls_per_transaction_a"] == pytest.approx(1.0)
    assert statements[4]["calls_per_transaction_b"] == pytest.approx(0.25)
    ids = [c.id for c in comparison.claims]
    assert ids[0] == "interval-transactions"
    assert {"interval-statement-1", "interval-statement-2", "interval-spread"} <= set(ids)
    spread = next(c for c in comparison.claims if c.id == "interval-spread")
    assert spread.case == "sums"


def test_largest_change_of_time_is_first() -> None:
    comparison = two_intervals()
    changes = comparison.statements["delta"].abs().to_list()
    assert changes == sorted(changes, reverse=True)
    table = comparison.relations.to_dicts()[0]
    assert (table["name"], table["change"]) == ("public.orders", "both")
    assert table["rows_read_per_s_a"] == 100
    assert table["rows_read_per_s_b"] == 400
    assert table["logical_reads_per_s_ratio"] == 4


def test_blocks_give_each_ratio_an_interval() -> None:
    comparison = two_intervals(blocks=5)
    statements = by_id(comparison)
    assert statements[3]["change"] == "slower"
    assert statements[4]["change"] == "same"
    assert 2.5 < float(str(statements[3]["low"])) < 3 < float(str(statements[3]["high"])) < 3.5
    slower = next(c for c in comparison.claims if c.id == "interval-statement-3")
    assert (slower.case, slower.severity) == ("slower", "warning")
    assert next(c for c in comparison.claims if c.id == "interval-spread").case == "blocks"


def test_other_ids_are_matched_by_text() -> None:
    a = [take_snapshot(0, 0, {}), take_snapshot(10, 10, {3: (10, 1.0)})]
    b = [
        snapshot(60, {}),
        snapshot(
            70,
            {77: TEXTS[3]},
            statements=[
                {
                    "user": "u",
                    "database": "shop",
                    "query_id": 77,
                    "toplevel": True,
                    "calls": 5,
                    "exec_ns": 5_000_000,
                }
            ],
        ),
    ]
    comparison = compare_intervals(side_of_snapshots(a), side_of_snapshots(b))
    assert comparison.statements.select("query_id", "change").rows() == [(3, "?")]


def test_blocks_without_a_difference_seldom_differ() -> None:
    random = np.random.default_rng(5)
    outside = 0
    for _ in range(400):
        a, b = (np.exp(random.normal(0, 0.3, 5)) for _ in range(2))
        ratio = ratio_of(list(a), list(b))
        assert ratio is not None
        outside += not ratio.low <= 1 <= ratio.high
    assert outside <= 0.05 * 400 + 3.1 * (0.05 * 0.95 * 400) ** 0.5


def test_the_document_and_the_record_of_a_comparison_hold_its_statements() -> None:
    comparison = two_intervals(blocks=4)
    record = present.intervals_record(comparison)
    assert record["format"] == 1
    assert [row["query_id"] for row in record["statements"]] == comparison.statements["query_id"].to_list()
    assert record["a"]["blocks"] == 4
    document = present.intervals(comparison)
    assert "<b>" in str(present.printed(document)) or document.blocks


def test_both_intervals_stand_once_on_a_page_and_on_a_screen() -> None:
    shown = present.intervals(two_intervals())
    (a, first), (b, second) = shown.about
    assert (a, b) == ("A", "B") and first != second
    screen = " ".join(line.text for line in text.document(shown, 400))
    for written in (screen, markdown.page(shown), html.page(shown)):
        assert written.count(first.rpartition(" (")[0]) == written.count(second.rpartition(" (")[0]) == 1


def test_a_long_answer_is_a_paragraph_and_a_list() -> None:
    answers = [Paragraph(f"answer {n}.", lead=True) for n in range(5)]
    lead = [Paragraph("doubt", "warning"), *answers, Paragraph("name", "muted")]
    header = html.page(Document("title", [], lead=lead)).partition("</header>")[0]
    assert header.index(">doubt<") < header.index(">answer 0.<") < header.index(">answer 4.<")
    assert header.index(">answer 4.<") < header.index(">name<")
    assert header.count('class="lead"') == 1
    assert all(f"<li>answer {n}.</li>" in header for n in range(1, 5))
    assert "<ul" not in html.page(Document("title", [], lead=answers[:3])).partition("</header>")[0]


def test_charts_draw_both_sides_of_the_largest_statement() -> None:
    comparison = two_intervals()
    drawn = [b for b in walk(present.intervals(comparison).blocks) if isinstance(b, Chart)]
    chart = next(c for c in drawn if c.id == "sides-statements")
    (rows,) = chart.spec["datasets"].values()
    most = max(comparison.statements["time_per_s_a"].fill_null(0).to_list())
    assert most in [r["value"] for r in rows if r["side"] == "A"]
    assert {r["side"] for r in rows} == {"A", "B"} and chart.marks == len(rows)


def test_command_reads_snapshots_of_the_store(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    for name, at_s, mean in (("a", 0, 1.0), ("b", 10, 1.0), ("c", 20, 3.0)):
        one = take_snapshot(at_s, 10 * at_s, {3: (10 * at_s, mean)} if at_s else {})
        store.add(dataclasses.replace(one, info=one.info.model_copy(update={"name": name})))
    command = ["compare", "a..b", "b..c", "--store", str(tmp_path)]
    result = CliRunner().invoke(app, [*command, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert record["kind"] == "intervals"
    assert record["statements"][0]["mean_ns_ratio"] == pytest.approx(5.0)
    for ending in ("html", "md", "xlsx"):
        page = tmp_path / f"page.{ending}"
        assert CliRunner().invoke(app, [*command, "-o", str(page)]).exit_code == 0
        assert page.stat().st_size > 1000
    assert "<b>" not in (tmp_path / "page.html").read_text().partition("select")[2][:40]
    missing = CliRunner().invoke(app, ["compare", "a..b", "b", "--store", str(tmp_path)])
    assert isinstance(missing.exception, UsageError)


def add_history(store: SnapshotStore) -> None:
    """Ten intervals of 60 s, the fifth a gap of 600 s: 600 rows a minute, from the sixth on 1,200."""
    at, rows = 0, 0
    for n in range(11):
        if n:
            seconds = 600 if n == 5 else 60
            at, rows = at + seconds, rows + (20 if n > 5 else 10) * seconds
        counted = rows if n != 9 else 30  # reset
        rows = counted
        relation = {
            "database_id": 5,
            "relation_id": 9,
            "database": "shop",
            "schema": "public",
            "relation": "orders",
            "kind": "table",
            "rows_inserted": counted + n % 2,
        }
        other = {**relation, "relation_id": 10, "schema": "archive", "rows_inserted": 0}
        database = {"database_id": 5, "database": "shop", "commits": counted}
        one = snapshot(at, databases=[database], relations=[relation, other])
        store.add(dataclasses.replace(one, info=one.info.model_copy(update={"id": ""})))


def test_the_trend_of_a_figure_over_snapshots_finds_its_step_gap_and_reset(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    add_history(store)
    trend = snapshot_trend(store, "table", "public.orders", "ins_ps", None, 100)
    values = [p.value for p in trend.points]
    assert values[:5] == pytest.approx([10] * 5, abs=0.05)
    assert values[5:8] == pytest.approx([20] * 3, abs=0.05)
    assert [n for n, p in enumerate(trend.points) if "gap" in p.remark] == [4]
    assert [n for n, p in enumerate(trend.points) if p.flagged] == [8]
    assert [s.at for s in trend.steps] == [5]
    assert trend.claims[0].id == f"trend-change-{trend.points[5].run}"
    assert trend.claims[0].severity == "note"


def test_the_trend_of_a_statement_stays_within_a_major_version(tmp_path: Path) -> None:
    """The same id after an upgrade may be another statement, and the same statement has another id."""
    store = SnapshotStore(tmp_path)
    for n in range(12):
        release = "18.6" if n < 8 else "19.0"
        calls = 100 * n if n < 8 else 5000 * n
        row = {"database": "shop", "user": "app", "query_id": 7 if n != 11 else 8, "toplevel": True}
        row |= {"calls": calls, "exec_ns": 1000 * calls}
        gone = {**row, "query_id": 9}
        one = snapshot(60 * n, statements=[row, gone] if n < 8 else [row])
        store.add(dataclasses.replace(one, info=one.info.model_copy(update={"id": "", "version": release})))
    newest = [info.id for info in store.list()]
    trend = snapshot_trend(store, "statement", "7", "calls_ps", None, 100)
    assert [p.value for p in trend.points] == pytest.approx([5000 / 60] * 2, rel=0.01)
    (left_out,) = trend.left_out
    assert left_out.runs == tuple(newest[:8])
    assert "version 18, where the id is of 19" in left_out.why
    older = snapshot_trend(store, "statement", "9", "calls_ps", None, 100)
    assert len(older.points) == 7
    assert [len(o.runs) for o in older.left_out] == [4]


def test_an_unknown_figure_or_object_is_refused_with_those_there_are(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    add_history(store)
    with pytest.raises(UsageError, match="rows_inserted_per_s"):
        snapshot_trend(store, "table", "public.orders", "inserts", None, 100)
    with pytest.raises(UsageError, match=r"shop\.archive\.orders, shop\.public\.orders"):
        snapshot_trend(store, "table", "orders", None, None, 100)
    with pytest.raises(UsageError, match="no index"):
        snapshot_trend(store, "index", "orders", None, None, 100)
    assert snapshot_trend(store, "database", "shop", None, None, 100).unit == "/s"
    result = CliRunner().invoke(app, ["trend", "--database", "shop", "--store", str(tmp_path), "--json"])
    assert len(json.loads(result.stdout)["runs"]) == 10
