"""One rung at a time: which are shown, its waits, processes, load profile, strip, and who saw it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl
import pytest
from tests.unit import report_results
from tests.unit.shown import tables

from dbdyno import present
from dbdyno.model.errors import UsageError
from dbdyno.model.results.ledger_rows import account_rows
from dbdyno.model.results.results import Results
from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.tables import rows
from dbdyno.present.charts import charts_time, strips
from dbdyno.present.document.document import Block, Cell, Chart, Paragraph, Section, Table, Verbatim
from dbdyno.present.figures import figures, profile, selection, sources_used
from dbdyno.present.run import processes, statements
from dbdyno.present.show_options import CLAIMS, SHOW_OPTIONS

pytestmark = pytest.mark.queries


def top_pick(results: Results) -> selection.Pick:
    pick = selection.pick_of(results)
    assert pick is not None
    return pick


def table_of(blocks: Sequence[Block], number: int = 0) -> Table:
    return tables(blocks)[number]


def notes(blocks: Sequence[Block]) -> list[str]:
    return [b.text for b in blocks if isinstance(b, Paragraph)]


def row(table: Table, name: str) -> dict[str, Cell]:
    """The cells by their heads; of those with one head the first."""
    found_row = next(r for r in table.rows if r.cells[0].text == name)
    return {c.head: cell for c, cell in reversed(list(zip(table.columns, found_row.cells, strict=True)))}


def column(table: Table, head: str) -> list[str]:
    at = [c.head for c in table.columns].index(head)
    return [r.cells[at].text for r in table.rows]


def with_table(results: Results, name: str, frame: pl.DataFrame) -> Results:
    return replace(results, tables={**results.tables, name: frame})


def test_a_small_run_shows_every_rung_from_the_top_down() -> None:
    picks = selection.picks(report_results.results())
    assert [p.label for p in picks.shown] == [
        "8 sessions", "6 sessions", "4 sessions", "3 sessions", "2 sessions", "1 session",
    ]  # fmt: skip
    assert picks.note == ""


def test_a_large_run_shows_the_rungs_that_have_room_and_counts_the_others() -> None:
    picks = selection.picks(report_results.results(report_results.LARGE))
    assert [picks.shown[0].label, picks.shown[-1].label] == ["50 sessions", "1 session"]
    assert 3 <= len(picks.shown) < 50
    assert picks.note.startswith(f"{50 - len(picks.shown)} of 50 rungs are left out")


def test_an_invalid_repeat_is_shown_only_where_there_is_no_other() -> None:
    results = report_results.results(report_results.REPEATED)
    first = top_pick(results).cell
    bad = pl.when(pl.col("cell") == first).then(pl.lit("invalid")).otherwise("status").alias("status")
    spoilt = with_table(results, "windows", results.tables["windows"].with_columns(bad))
    assert top_pick(spoilt).cell != first
    assert top_pick(spoilt).rung == top_pick(results).rung


def test_a_missing_cell_is_an_error_with_a_cure() -> None:
    with pytest.raises(UsageError) as error:
        present.details(report_results.results(), "profile", "no-such-cell")
    assert error.value.cure


def test_waits_have_sleep_and_run_queue_apart_with_intervals() -> None:
    results = report_results.results()
    table = table_of(profile.wait_events(results, top_pick(results)))
    waits = [
        c.text for c in table.rows[[r.cells[0].text for r in table.rows].index("LWLock/BufferMapping")].cells
    ]
    of_top = (pl.col("cell") == top_pick(results).cell) & (pl.col("scope") == "rung")
    named = pl.col("wait_event") == "BufferMapping"
    (expected,) = results.tables["events"].filter(of_top & named).to_dicts()
    assert waits[4:7] == [
        f"{expected['sleep']:.3f}",
        f"{expected['sleep_low']:.3f} to {expected['sleep_high']:.3f}",
        f"{expected['runq']:.3g}",
    ]
    total = row(table, "all")["CPU WAIT"].text
    assert float(total) == pytest.approx(results.tables["rungs"]["runq_aas"][-1], rel=0.005)


def test_the_trace_does_not_divide_cpu_time_by_label_and_a_note_explains_it() -> None:
    results = report_results.results()
    exact = results.tables["events"].with_columns(
        source=pl.lit("scheduler trace"), run=pl.lit(None, pl.Float64)
    )
    blocks = profile.wait_events(with_table(results, "events", exact), top_pick(results))
    *parts, whole = column(table_of(blocks), "CPU")
    assert set(parts) == {"-"}
    assert float(whole) == pytest.approx(results.tables["rungs"]["run_aas"][-1], abs=0.001)
    assert any("does not divide CPU time by label" in n for n in notes(blocks))


def test_the_remainder_is_shown_signed_and_throttled_time_as_a_bracket() -> None:
    results = report_results.results()
    limit = account_rows(results.tables["ledger"], "runq")
    bracket = {"account": pl.lit("runq.throttled_bracket"), "parent": pl.lit("runq")}
    limit = limit.with_columns(**bracket, aas=None, low=0.5, high=0.75)
    limited = with_table(results, "ledger", pl.concat([results.tables["ledger"], limit]))
    sentences = notes(profile.wait_events(limited, top_pick(results)))
    assert "unaccounted: +0.111 s per second, signed: session time less all accounts." in sentences
    assert any(n.startswith("throttled by a CPU limit: 0.500 to 0.750 s per second") for n in sentences)


def test_unknown_waits_have_a_reason() -> None:
    results = report_results.results(report_results.REMOTE)
    blocks = profile.wait_events(results, top_pick(results))
    cells = {r.cells[2][0:4:3] for r in table_of(blocks).rows[:-1]}
    assert cells == {("?", "the server's processes are not visible from here")}
    assert "? CPU, CPU WAIT: the server's processes are not visible from here." in notes(blocks)


def test_processes_are_sorted_and_workers_stand_below_their_leader() -> None:
    results = report_results.results()
    frame = results.tables["microstates"]
    first_one = (pl.col("session") == 0) & ~pl.col("worker")
    states = {
        "usr": 0.9,
        "cpu_wait": 0.1,
        **dict.fromkeys(("sys", "lock", "client", "sleep", "unaccounted"), 0.0),
    }
    busy = [pl.when(first_one).then(v).otherwise(c).alias(c) for c, v in states.items()]
    sections = tables(
        processes.tables(with_table(results, "microstates", frame.with_columns(busy)), top_pick(results))
    )
    assert [t.title.split(",")[0] for t in sections] == ["Sessions", "Server processes"]
    names = column(sections[0], "process")
    assert names[0].startswith("dbdyno 0,") and column(sections[0], "USR")[0] == "90.0"
    assert names[1].endswith(" parallel worker")
    assert column(sections[0], "of session CPU")[1] == "25 %"  # 0.3 of 0.3 and 0.9
    assert column(sections[1], "process") == ["io worker", "wal writer", "checkpointer"]


def test_the_states_of_a_process_add_up_to_its_time() -> None:
    results = report_results.results()
    for table in tables(processes.tables(results, top_pick(results))):
        for process in table.rows:
            assert sum(float(c.text) for c in process.cells[2:9]) == pytest.approx(100, abs=0.4)


def test_an_unknown_state_is_a_dash_with_its_reason() -> None:
    results = report_results.results()
    first = table_of(processes.tables(results, top_pick(results)))
    cell = row(first, first.rows[0].cells[0].text)["BLKIO"]
    assert (cell.text, cell.value) == ("-", None)
    assert cell.note == (
        "block I/O delay: it was switched off; sysctl kernel.task_delayacct=1 before the server starts"
    )
    remote = report_results.results(report_results.REMOTE)
    assert any(
        n.startswith("- USR, SYS, WAIT") and n.endswith("the server's processes are not visible from here.")
        for n in processes.unknown(remote, top_pick(remote))
    )


def test_a_process_that_came_late_has_shares_of_its_own_time() -> None:
    results = report_results.results()
    states = ["usr", "sys", "cpu_wait", "lock", "client", "sleep", "unaccounted", "voluntary_per_s"]
    late = results.tables["microstates"].with_columns([pl.col(c) / 4 for c in states], wall_s=pl.lit(2.5))
    late_row = table_of(processes.tables(with_table(results, "microstates", late), top_pick(results))).rows[0]
    expected = table_of(processes.tables(results, top_pick(results))).rows[0]
    assert [c.text for c in late_row.cells[2:11]] == [c.text for c in expected.cells[2:11]]


def test_an_unknown_state_does_not_stretch_the_others() -> None:
    results = report_results.results()
    frame = results.tables["microstates"].with_columns(
        usr=pl.lit(None, pl.Float64), client=pl.lit(0.97), wall_s=pl.lit(9.0)
    )
    table = table_of(processes.tables(with_table(results, "microstates", frame), top_pick(results)))
    assert column(table, "CLNT")[0] == "97.0"


def test_threads_of_one_process_are_one_row() -> None:
    results = report_results.results()
    frame = results.tables["microstates"].filter(pl.col("cell") == top_pick(results).cell)
    one = frame.filter(pl.col("pid") == 4701).with_columns(role=pl.lit("dbdyno"), name=pl.lit("dbdyno"))
    other = one.with_columns(start_ticks=pl.lit(78, pl.Int64), usr=pl.lit(0.25), sys=pl.lit(None, pl.Float64))
    threads = with_table(results, "microstates", pl.concat([frame, one, other]))
    together = row(table_of(processes.tables(threads, top_pick(threads)), 2), "dbdyno: 2 threads, their mean")
    assert together["USR"].text == f"{100 * (0.25 + one['usr'][0]) / 2:.1f}"
    assert together["VCX/s"].text == "240"  # their sum


def test_the_profile_divides_by_known_figures_alone() -> None:
    results = report_results.results()
    blocks = profile.load_profile(results, top_pick(results))
    table = table_of(blocks)
    assert [c.head for c in table.columns[1:-1]] == ["per second", "per transaction", "per call"]
    assert row(table, "logical reads, blocks")["per call"].text == "132 k"
    assert "? executions: off: load a statement counter" in " ".join(notes(blocks))
    assert row(table, "cache hit ratio")["per second"].text == "100.00 %"


def test_the_top_events_are_ranked_with_their_run_queue_beside() -> None:
    results = report_results.results()
    table = table_of(profile.top_events(results, top_pick(results)))
    assert column(table, "event")[:3] == ["CPU WAIT", "DB CPU", "LWLock/BufferMapping"]
    assert column(table, "CPU WAIT")[0] == ""
    assert (column(table, "time")[2], column(table, "CPU WAIT")[2]) == ("2.52 s", "10.9 s")
    assert sum(map(float, column(table, "% DB time"))) == pytest.approx(100, abs=0.5)


def test_the_profile_of_a_repeated_rung_is_that_of_all_repeats_where_the_run_has_it() -> None:
    results = report_results.results(report_results.REPEATED)
    pick = top_pick(results)
    of_cell = results.tables["profile"].filter(pl.col("cell") == pick.cell)
    of_all = of_cell.with_columns(cell=pl.lit("all"), per_s=pl.lit(7.0))
    added = with_table(results, "profile", pl.concat([results.tables["profile"], of_all]))
    table = table_of(profile.load_profile(added, pick))
    *figures_, _ratio = column(table, "per second")
    assert set(figures_) == {"7.00", "7.00 s", "7.00 B"}
    assert "all 5 repeats together" in table.title


def with_statements(results: Results) -> Results:
    """The same, with four statements in each cell; of one something was lost."""
    windows = results.tables["windows"].select(c.name for c in CELL).to_dicts()
    each = [
        {
            "rank": n,
            "query_id": n,
            "toplevel": n < 4,
            "calls": 10**n,
            "exec_ns": 7 * 10**9 // n,
            "rows": n,
            "shared_blks_hit": 5 * 10**n,
            "shared_blks_read": 0,
            "local_blks_hit": 0,
            "local_blks_read": 0,
            "share": 0.4 / n,
            "status": "ok" if n < 4 else "lower bound: reset",
            "source": "statement counters",
        }
        for n in range(1, 5)
    ]
    texts = [{"query_id": n, "text": f"select '{'<b>' * 40}'\n from t{n}"} for n in range(1, 5)]
    by_table = {
        "statements": rows("statements", [{**window, **row} for window in windows for row in each]),
        "statement_texts": rows("statement_texts", texts),
    }
    return replace(results, tables={**results.tables, **by_table})


def test_top_sql_is_by_time_per_call_and_marks_lower_bounds() -> None:
    results = with_statements(report_results.results())
    by_time, by_calls, *_ = statements.top_sql(results, top_pick(results))
    assert isinstance(by_time, Table)
    assert isinstance(by_calls, Table)
    at = {c.head: [r.cells[n].text for r in by_time.rows] for n, c in enumerate(by_time.columns)}
    assert at["calls"][3] == ">= 10.0 k"
    # Time and calls of the last are lower bounds; their quotient holds for the calls that were counted.
    assert at["mean"] == ["700 ms", "35.0 ms", "2.33 ms", "175 us"]
    assert at["LIO/call"] == ["5.00", "5.00", "5.00", "5.00"]
    assert all("\n" not in text for text in at["statement"])
    assert [r.cells[1].text for r in by_calls.rows] == [">= 50.0 k", "5.00 k", "500", "50.0"]  # by LIO
    (whole,) = statements.texts(results, [top_pick(results)] * 2)  # each text once
    assert isinstance(whole, Section)
    assert len([b for b in whole.blocks if isinstance(b, Verbatim)]) == 4


def test_a_chart_over_time_says_which_part_of_a_measurement_it_draws() -> None:
    results = report_results.results()
    pick = top_pick(results)
    whole = [b.caption for b in charts_time.within(results, pick) if isinstance(b, Chart)]
    looks = results.tables["over_time"]
    last = looks.filter(pl.col("cell") == pick.cell)["end_s"].max()
    shorter = with_table(
        results, "over_time", looks.filter((pl.col("start_s") >= 1) & (pl.col("end_s") < last))
    )
    part = [b.caption for b in charts_time.within(shorter, pick) if isinstance(b, Chart)]
    end_s = shorter.of_cell("over_time", pick.cell)["end_s"].max()
    assert len(whole) == len(part) == 2
    assert all(f"1.0 to {end_s:.1f} s of {last:.1f} s" in caption for caption in part)
    assert not any(f" s of {last:.1f} s" in caption for caption in whole)


def test_a_terminal_has_the_first_statements_with_the_columns_that_matter() -> None:
    results = with_statements(report_results.results())
    (whole, *_), (brief,) = (
        make(results, top_pick(results)) for make in (statements.top_sql, statements.brief)
    )
    assert isinstance(whole, Table) and isinstance(brief, Table)
    assert [c.head for c in brief.columns] == ["statement", "calls", "exec time", "%", "mean"]
    shown = [r.cells[0].text for r in brief.rows]
    assert shown == [r.cells[0].text for r in whole.rows][: statements.FEWER]
    assert statements.brief(report_results.results(), top_pick(results)) == []


def test_top_sql_ranks_by_db_time_where_the_ledger_has_it() -> None:
    """The executor knows nothing of a commit's flush: the ledger has it first, the executor's clock last.

    Shares are of the whole DB time, 8 s, of which 0.25 s were in no statement: a row of its own.
    """
    results = with_statements(report_results.results())
    times = pl.col("rank").replace_strict({1: 1.0, 2: 0.5, 3: 6.0, 4: 0.25}, return_dtype=pl.Float64)
    counted = results.tables["statements"].with_columns(db_time_s=times, db_time_share=times / 7.5)
    db_time = pl.when(pl.col("name") == "DB time").then(8.0).otherwise("total").alias("total")
    profile = results.tables["profile"].with_columns(db_time)
    timed = replace(results, tables={**results.tables, "statements": counted, "profile": profile})
    table = statements.top_sql(timed, top_pick(timed))[0]
    assert isinstance(table, Table)
    assert "by DB time" in table.title
    at = {c.name or c.head: [r.cells[n].text for r in table.rows] for n, c in enumerate(table.columns)}
    assert at["DB time"] == ["6.00 s", "1.00 s", "500 ms", "250 ms", "250 ms"]
    assert at["% of DB time"] == ["75.0", "12.5", "6.2", "3.1", "3.1"]
    assert at["exec time"][0] == "2.33 s"
    (without,) = (t for t in statements.top_sql(results, top_pick(results))[:1] if isinstance(t, Table))
    assert "by execution time" in without.title


def test_a_statement_without_text_and_time_is_no_row() -> None:
    """A sampler can meet an id that no counter knows, between two readings of no length."""
    results = with_statements(report_results.results())
    unknown = results.tables["statements"].with_columns(
        exec_ns=pl.when(pl.col("rank") < 3).then("exec_ns"),
        db_time_s=pl.when(pl.col("rank") != 3).then(pl.col("rank") % 2 * 1.0),
    )
    without_text = results.tables["statement_texts"].filter(pl.col("query_id") < 4)
    tables = {**results.tables, "statements": unknown, "statement_texts": without_text}
    pick = top_pick(results)
    changed = replace(results, tables=tables)
    frame = statements.rows_of(changed, "statements", pick)
    kept = statements.ranked(frame, "calls", statements.texts_of(changed))
    assert [row["query_id"] for row in kept] == [3, 2, 1]


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_no_line_of_the_finer_tables_is_wider_than_the_terminal(width: int) -> None:
    import io

    from rich.console import Console

    results = with_statements(report_results.results())
    # each has a test of its own
    apart = {"syscalls", "chains", "scripts", "memory", "captures", "costs", "devices", "heat"}
    for name in {*SHOW_OPTIONS} - {CLAIMS, *apart}:
        console = Console(file=io.StringIO(), width=width)
        console.print(present.details(results, name))
        lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
        assert len(lines) > 3
        assert max(map(len, lines)) <= width
        assert not [line for line in lines if "\x1b" in line]


def test_the_strip_holds_the_shares_of_every_session_and_second() -> None:
    results = report_results.results()
    parts = strips.parts(results)
    strip = strips.strip(results, top_pick(results).cell, parts)
    assert strip is not None
    assert parts == ["run", "runq", "IO", "LWLock", "Lock", "Client"]
    assert strip.names == [f"session {n}" for n in range(8)]
    assert (strip.start_s, strip.end_s, strip.left_out) == (0, 10, 0)
    rows = results.tables["strips"].filter(
        (pl.col("cell") == top_pick(results).cell) & (pl.col("session") == 3) & (pl.col("start_s") == 4)
    )
    shares = dict(rows.select("part", "share").rows())
    assert strip.pieces[3][4] == [round(100 * shares.get(p, 0)) for p in parts]


def test_a_piece_of_a_strip_holds_the_part_of_time_that_reaches_into_it() -> None:
    results = report_results.results()
    row = results.tables["strips"].filter(pl.col("cell") == top_pick(results).cell).head(1)
    rows = [(0.0, 1.5, "run"), (1.5, 3.0, "runq"), (3.0, 4.0, "run")]
    frame = pl.concat(
        row.with_columns(start_s=a, end_s=b, part=pl.lit(p), share=pl.lit(1.0)) for a, b, p in rows
    )
    strip = strips.strip(with_table(results, "strips", frame), top_pick(results).cell, ["run", "runq"])
    assert strip is not None
    assert strip.pieces == [[[100, 0], [12, 88], [75, 25]]]  # of 4/3 s each: 0-1.33, 1.33-2.67, 2.67-4


def test_a_strip_of_many_sessions_keeps_the_most_active(monkeypatch: pytest.MonkeyPatch) -> None:
    results = report_results.results()
    monkeypatch.setattr(strips, "MAX_ROWS", 2)
    client = (
        pl.when(pl.col("session").is_in([2, 5]).not_()).then(pl.lit("Client")).otherwise("part").alias("part")
    )
    idle = with_table(results, "strips", results.tables["strips"].with_columns(client))
    strip = strips.strip(idle, top_pick(idle).cell, strips.parts(idle))
    assert strip is not None
    assert (strip.names, strip.left_out) == (["session 2", "session 5"], 6)


def test_a_fine_strip_is_drawn_in_pieces_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    results = report_results.results()
    monkeypatch.setattr(strips, "MAX_PIECES", 5)
    strip = strips.strip(results, top_pick(results).cell, strips.parts(results))
    assert strip is not None
    assert len(strip.pieces[0]) == 5
    assert sum(strip.pieces[0][0]) == pytest.approx(100, abs=2)


def test_the_tier_is_named_with_its_source() -> None:
    (words,) = sources_used.wait_methods(report_results.results())
    assert "sampled from the server's memory at 100 Hz" in words
    assert sources_used.caption(report_results.results()) == "Waits: sampled (wait event word)."


def test_the_exact_tier_needs_no_cure() -> None:
    results = report_results.results()
    exact = with_table(
        results, "events", results.tables["events"].with_columns(source=pl.lit("scheduler trace"))
    )
    (words,) = sources_used.wait_methods(exact)
    assert words.startswith("Waits: exact")
    assert sources_used.caption(exact) == "Waits: exact (scheduler trace)."


def test_mixed_tiers_are_counted() -> None:
    results = report_results.results()
    cell = top_pick(results).cell
    source = (
        pl.when(pl.col("cell") == cell).then(pl.lit("scheduler trace")).otherwise("source").alias("source")
    )
    mixed = with_table(results, "events", results.tables["events"].with_columns(source))
    assert [(t.source, t.cells) for t in sources_used.tiers(mixed)] == [
        ("wait event word, estimated", 5),
        ("scheduler trace", 1),
    ]
    assert "(5 of 6 measurements)" in sources_used.wait_methods(mixed)[0]
    assert sources_used.caption(mixed, cell) == "Waits: exact (scheduler trace)."
    both = "Waits: exact (scheduler trace) in 1 measurement and sampled (wait event word) in 5 measurements."
    assert sources_used.caption(mixed) == both


def test_a_source_read_in_two_ways_is_named_once() -> None:
    results = report_results.results()
    ways = pl.lit("wait event word, estimated; wait event word, the server's word alone")
    twice = with_table(results, "events", results.tables["events"].with_columns(source=ways))
    assert sources_used.caption(twice) == "Waits: sampled (wait event word)."


def test_waits_of_no_source_are_unknown_everywhere() -> None:
    results = report_results.results()
    none = with_table(results, "events", results.tables["events"].clear())
    assert sources_used.caption(none) == "Waits: unknown."
    assert sources_used.wait_methods(none)[0].startswith("Waits: unknown. No data source")
    ledger = results.tables["ledger"].with_columns(status=pl.lit("hidden from this role"))
    hidden = with_table(none, "ledger", ledger)
    assert sources_used.wait_methods(hidden) == ["Waits: unknown. They are hidden from this role."]


def test_every_quantity_has_a_name() -> None:
    assert figures.quantity("cpu_used") == "CPU used"
    assert figures.quantity("some_new_one") == "some new one"
