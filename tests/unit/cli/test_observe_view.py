"""The live view without a terminal: keys, order, filter, and the lines of its screen."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text
from tests.fakery import made_cell

from dbdyno.cli import observe_listeners
from dbdyno.cli.observe_listeners import line_parts
from dbdyno.cli.observe_sheets import (
    SESSION_COLUMNS,
    Row,
    StatementRow,
    session_sheet,
    statement_sheet,
    top_statements,
)
from dbdyno.cli.observe_state import BUILT_IN, KEYS, LOCKS, SESSIONS, STATEMENTS, View, parse
from dbdyno.cli.observe_table import Order, Sheet, engine_sheet
from dbdyno.cli.observe_view import MARKS, PLAIN_MARKS, Header, Screen
from dbdyno.conduct import LiveBeside, MemoryBeside
from dbdyno.model.engine.live import (
    LiveAnswer,
    LiveColumn,
    LiveFigures,
    LiveRequest,
    LiveRows,
    LiveScreen,
    LiveStatement,
)
from dbdyno.model.errors import ServerLost
from dbdyno.model.plan.plan import Observation
from dbdyno.model.results.memory_now import MemoryNow
from dbdyno.model.schema.tables import empty, rows
from dbdyno.model.sources.wait_families import Family, WaitFamilies
from dbdyno.observe.blocking import Blocked, blocking
from dbdyno.observe.glance import Brief, EventLine, Glance, Machine, SessionLine
from dbdyno.observe.glance_devices import DevicesNow


def row(pid: int, run: float | None, runq: float | None, user: str = "app", event: str = "") -> Row:
    sleep = None if run is None or runq is None else 1 - run - runq
    events = (EventLine("IO", "DataFileRead", sleep, 0.01, 0.0, Family.IO),)
    line = SessionLine(pid, 0, "active", event or None, 42, run, runq, sleep, 0.0, 1.0, events)
    return Row(line, {"user": user, "database": "prod", "application": "shop"})


ROWS = [
    row(1, 0.1, 0.6),
    row(2, 0.5, 0.2, "bob"),
    row(3, 0.3, 0.1, event="IO/DataFileRead"),
    row(4, None, None),
]


SHEET = session_sheet(ROWS)


def pids(view: View) -> list[int]:
    return [r.line.pid for r in view.rows(SHEET)]


def press(view: View, *keys: str, sheet: Sheet = SHEET, text: Sequence[str] = ()) -> View:
    for key in keys:
        view.press(key, sheet, text)
    return view


def draw(
    view: View,
    height: int = 40,
    width: int = 100,
    sheet: Sheet = SHEET,
    blocked: Sequence[Blocked] = (),
    marks: str = MARKS,
    **header: object,
) -> str:
    glance = Glance(4.0, "scheduler trace", 40, tuple(r.line for r in ROWS), ROWS[0].line.events)
    screen = Screen(Header(server="postgres 18.4", **header), glance, view, sheet, blocked, marks=marks)  # type: ignore[arg-type]
    lines = screen.lines(width, height)
    assert len(lines) == height
    assert all(line.cell_len <= width for line in lines)
    return "\n".join(line.plain for line in lines)


def test_bytes_of_a_terminal_become_names_of_keys() -> None:
    assert parse(b"jk\x1b[A\x1b[B\x1bOA\r\x1b[5~\x7f \x1b[C\x1b[D") == [
        "j", "k", "up", "down", "up", "enter", "page up", "backspace", " ", "right", "left",
    ]  # fmt: skip
    assert parse(b"\x1b") == ["escape"]
    assert parse(b"\x1b[1;5Cq") == ["q"]  # a sequence without a meaning here


@given(st.binary(max_size=40))
def test_any_bytes_end_as_keys(data: bytes) -> None:
    assert all(parse(data))


def test_orders_put_the_greatest_first_and_the_unknown_last() -> None:
    assert pids(press(View(), "c")) == [2, 3, 1, 4]
    assert pids(press(View(), "c", "r")) == [1, 3, 2, 4]
    assert pids(press(View(), "w")) == [1, 2, 3, 4]
    assert pids(press(View(), "u")) == [1, 3, 4, 2]
    view, orders = View(), []
    for _ in SESSION_COLUMNS:
        orders.append(press(view, "right").order(SHEET).column)
    assert sorted(orders) == sorted(c.name for c in SESSION_COLUMNS)
    assert view.order(SHEET).column == View().order(SHEET).column
    assert press(view, "left").order(SHEET).column == orders[-2]


@pytest.mark.parametrize(("height", "width"), [(24, 80), (40, 120), (15, 50)])
def test_a_table_shows_what_it_is_sorted_by_at_any_size(height: int, width: int) -> None:
    view = View()
    for _ in SESSION_COLUMNS:
        head = SHEET.column(press(view, "right").order(SHEET).column).head
        text = draw(view, height, width)
        marked = [word for word in text.replace(MARKS[1], MARKS[0]).split() if word.endswith(MARKS[0])]
        assert marked == ["s/s" + MARKS[0], head + MARKS[0]]
        assert any(line.split()[:1] == ["1"] for line in text.splitlines())
    assert f"pid{PLAIN_MARKS[0]}" in draw(View(orders={SHEET.name: Order("pid")}), marks=PLAIN_MARKS)


@pytest.mark.parametrize(("height", "width"), [(24, 80), (40, 120), (15, 50)])
def test_cpu_wait_is_in_the_header_and_texts_differ_at_any_size(height: int, width: int) -> None:
    assert "+ CPU WAIT 0.9" in draw(View(), height, width)
    texts = [f"UPDATE pgbench_{name} SET balance = $1" for name in ("accounts", "branches", "tellers")]
    sheet = statement_sheet(
        [StatementRow(n, 0.5, 0.3, 1.0, "Lock/x", LiveStatement(text)) for n, text in enumerate(texts)]
    )
    lines = {line for line in draw(View(STATEMENTS), height, width, sheet).splitlines() if "UPDATE" in line}
    assert len({line[line.index("UPDATE") :] for line in lines}) == 3


def test_figures_that_are_kept_have_their_age() -> None:
    assert "ago" not in draw(View())
    for width in (50, 120):
        assert "6 s ago" in draw(View(), 24, width, age_s=6.0)


def test_q_ends_but_closes_only_the_help_if_that_is_open() -> None:
    view = press(View(), "h", "q")
    assert not view.help and not view.ended
    assert press(view, "q").ended


def test_statements_and_locks_are_waited_for_until_something_was_read() -> None:
    for name in (STATEMENTS, LOCKS):
        for server in ("", "postgres 18.4 at db1:5432"):
            lines = Screen(Header(server), None, View(name), statement_sheet([])).lines(100, 24)
            text = "\n".join(line.plain for line in lines)
            waiting = name == LOCKS or server
            assert ("waiting for the first readings" if waiting else "connecting ...") in text
            assert "?" not in text, "nothing was asked yet"
    assert "no statement was seen" in draw(View(STATEMENTS), sheet=statement_sheet([]))


def test_a_filter_is_typed_and_taken_back() -> None:
    view = press(View(), "f", "b", "o", "x", "backspace", "b")
    assert view.typing
    assert "filter: bob" in draw(view)
    press(view, "enter", "q")  # q is a letter in the filter, and the key after it
    assert (pids(view), view.ended) == ([2], True)
    assert "only 'bob'" in draw(view)
    assert pids(press(view, "escape")) == pids(View())


def test_a_search_goes_from_one_row_to_the_next_that_has_the_text() -> None:
    view = press(View(orders={SHEET.name: Order("pid", reverse=True)}), "/", *"shop")
    assert "search: shop" in draw(view)
    assert press(view, "enter").chosen[SHEET.name] == 1
    assert press(view, "n").chosen[SHEET.name] == 2
    assert press(view, "/", *"datafile", "enter").chosen[SHEET.name] == 3
    assert press(view, "n").chosen[SHEET.name] == 3  # the only one
    assert press(view, "/", *"nowhere", "enter").chosen[SHEET.name] == 3
    text = ["one", "two", "three", "two"]
    assert press(View(help=True), "/", *"two", "enter", text=text).line == 1
    assert press(View(help=True), "/", *"two", "enter", "n", text=text).line == 3


LONG = "select *\nfrom orders\nwhere " + " and ".join(f"column_{n} = {n}" for n in range(200))


def test_a_statement_is_one_line_in_the_list_and_whole_alone() -> None:
    sheet = session_sheet([replace(ROWS[0], statement=LONG), *ROWS[1:]])
    view = press(View(), "t", sheet=sheet)
    assert "select * from orders where" in draw(view, 40, 160, sheet)
    press(view, "down", "enter", sheet=sheet)
    seen = ""
    while "column_199 = 199" not in seen:
        before = view.line
        seen += draw(view, 24, 80, sheet)
        press(view, "page down", sheet=sheet)
        assert view.line > before
    words = seen.split()
    assert all(f"column_{n}" in words for n in range(200))
    assert "find me" not in draw(press(view, "escape"), 40, 100, sheet)


def test_a_chosen_session_is_drilled_into_and_left_again() -> None:
    by_pid = {SHEET.name: Order("pid", reverse=True)}
    view = press(View(orders=by_pid), "down", "down", "k", "down")
    assert view.chosen[SHEET.name] == 2
    assert "its events" not in draw(view)
    text = draw(press(view, "enter"))
    assert "process 2" in text
    assert "IO/DataFileRead" in text.split("its events")[1]
    assert "query id 42" in text
    assert "its events" not in draw(press(view, "escape"))
    assert press(View(orders=by_pid), "up").chosen[SHEET.name] == 4
    assert press(View(orders=by_pid), *["down"] * 9).chosen[SHEET.name] == 4


def test_a_chosen_session_that_ended_is_named_as_ended() -> None:
    view = View(chosen={SHEET.name: 77}, alone=True)
    assert "session 77 has ended" in draw(view)


def test_the_view_pauses_shows_notices_and_fits_small_terminals() -> None:
    assert "PAUSED, measuring goes on" in draw(press(View(), "p"))
    assert "PAUSED" not in draw(press(View(), "p", " "))
    assert "server is away" in draw(View(), notice="the server is away")
    for height, width in ((5, 20), (10, 60), (24, 80), (15, 50), (40, 120)):
        for view in (View(), View(help=True), View(chosen={SHEET.name: 1}, alone=True), View(LOCKS)):
            draw(view, height, width)


def test_help_explains_every_column_and_key_of_the_screen() -> None:
    text = draw(press(View(), "h"), 80, 120)
    assert all(c.head in text and c.explains in text for c in SESSION_COLUMNS)
    assert all(keys in text and words in text for keys, words in KEYS)
    engine = draw(press(View(SCREEN.name), "h"), 80, 120, engine_sheet(SCREEN, None))
    assert "depth of the hole" in engine and SESSION_COLUMNS[0].explains not in engine
    why = ("statements/s: no extension: CREATE EXTENSION x;",)
    assert why[0] in draw(View(help=True), 80, 120, figures=LiveFigures(notes=why))


def test_the_header_shows_rates_and_sessions_and_nothing_unknown_as_zero() -> None:
    known = LiveFigures(1234.0, 5678.0, False, 50, 100, 3, 1)
    for width, words in (
        (120, "1.23 k transactions/s  5.68 k statements/s"),
        (50, "1.23 k tx/s  5.68 k stmt/s"),
    ):
        assert words in draw(View(), 24, width, figures=known)
    assert "sessions 50 of 100: 3 active, 1 idle in transaction" in draw(View(), 24, 120, figures=known)
    head = draw(View(), 24, 120).splitlines()[1:3]
    assert head[0].count("?") == 6 and not any(c.isdigit() for c in head[0])
    assert "CPUs   ?: ? |" in head[1] and "devices ?" in head[1]


@pytest.mark.parametrize("width", [60, 80, 100, 140])
@pytest.mark.parametrize("paused", [False, True])
def test_no_line_of_the_header_is_cut(width: int, paused: bool) -> None:
    """Large figures; what there is no room for is left out from the end of a list of priorities."""
    cpu = {"user": 118.3, "system": 21.2, "iowait": 4.21, "steal": 1.02, "softirq": 3.1}
    devices = DevicesNow(123_456.0, 98_765.0, 1e9, 1_234_567.0, 212.5)
    machine = Machine(
        192, cpu, {"checkpointer": 0.512, "walwriter": 0.253}, 101.4, 0.37, 0.01, 0.004, devices
    )
    sessions = [row(n, 0.5, 0.4).line for n in range(400)]
    glance = Glance(4.0, "scheduler trace", 12_345, tuple(sessions), sessions[0].events, machine=machine)
    place = "PostgreSQL 18.4 at socket /var/run/postgresql, port 5432"
    header = Header(
        place, 7265.0, 12.0, 3600.0, 1234, figures=LiveFigures(12_345.0, 98_765.0, True, 400, 500, 380, 3)
    )
    view = View(paused=paused)
    saved = Screen(header, glance, view, SHEET).plain_text(width).splitlines()  # nothing of it is cut
    heads = ("dbdyno", "PAUSED", "load", "CPUs", "time", "12 s ago", "DB time", "waits")
    text = [line for line in saved if line.startswith(heads)]
    assert max(map(len, text)) <= width
    assert len(text) == 5
    title, load, cpus, time_line, _ = text
    assert "2:01:05, 1:00:00 left" in title and "12.3 k tx/s" in load.replace(" transactions/s", " tx/s")
    assert "| server 101" in cpus and "DB time 400" in time_line and "CPU WAIT 160" in time_line
    if width >= 80:
        assert "PostgreSQL 18.4" in title or paused
        assert "222 k/s 1.23 ms" in cpus or "devices 123 k r/s" in cpus
        assert "asleep" in time_line and "380 active" in load


def test_remarks_of_the_header_are_wrapped_and_all_tabs_fit_80_columns() -> None:
    brief = Brief(run=0.001, runq=0.004, processes=12)
    glance = Glance(4.0, "activity samples", 40, tuple(r.line for r in ROWS), brief=brief)
    screens = (*BUILT_IN, "transactions", "progress", "replication", "temp")
    view = View()
    view.screens = screens
    lines = [line.plain for line in Screen(Header("p"), glance, view, SHEET).lines(80, 24)]
    assert lines[-2].rstrip().endswith("8 temp")
    narrow = Screen(Header("p"), glance, view, SHEET).lines(60, 24)
    text = " ".join(" ".join(line.plain for line in narrow).split())
    assert "12 sessions too brief to be sampled: CPU 0.001, CPU WAIT 0.004" in text
    assert "1 sessions 1-8 other screens" in text


@pytest.mark.parametrize(
    ("devices", "shown"),
    [
        (DevicesNow(300.0, 108.0, 2_760_000.0, 1_800_000.0, 0.7), "  I/O 408/s 2.76 MB/s 1.80 ms"),
        (DevicesNow(0.0, 0.0, 0.0, None, 0.0), "  I/O 0/s 0 MB/s"),
        (None, ""),
    ],
)
def test_the_line_of_a_window_has_the_devices(
    devices: DevicesNow | None, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Glance(10.0, "scheduler trace", 40, machine=Machine(devices=devices))
    monkeypatch.setattr(observe_listeners, "glance", lambda *_, **__: seen)
    assert line_parts(made_cell({}), {"run": 8})[2] == shown


@pytest.mark.parametrize(
    ("run", "logons", "shown"),
    [
        (0.002, 3, ""),
        (0.02, 3, "  3 sessions too brief to be sampled: CPU 0.020, CPU WAIT 0.001"),
        (0.02, None, "  1 session too brief to be sampled: CPU 0.020, CPU WAIT 0.001"),
        (0.02, 0, ""),
    ],
)
def test_the_line_of_a_window_has_brief_sessions_that_matter_as_the_server_counted_them(
    run: float, logons: int | None, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Glance(10.0, "scheduler trace", 40, brief=Brief(run, 0.001, processes=1))
    monkeypatch.setattr(observe_listeners, "glance", lambda *_, **__: seen)
    counter = {"scope": "server", "name": "logons", "kind": "counter", "unit": "count", "status": "ok"}
    reads = [
        counter | {"phase": phase, "before_ns": 1, "after_ns": 1, "value": value}
        for phase, value in (("t0", 5.0), ("t1", 5.0 + (logons or 0)))
    ]
    cell = made_cell({"counters": [] if logons is None else reads})
    assert line_parts(cell, {"run": 8})[2] == shown


def test_the_line_of_a_window_ranks_waits_by_time_asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    events = (
        EventLine("IO", "WALSync", 0.02, 0.17, 0.0, Family.OTHER, None),
        EventLine("Lock", "transactionid", 0.05, 0.01, 0.0, Family.OTHER, None),
    )
    seen = Glance(10.0, "scheduler trace", 40, events=events)
    monkeypatch.setattr(observe_listeners, "glance", lambda *_, **__: seen)
    assert line_parts(made_cell({}), {"run": 8})[2] == "Lock/transactionid 0.050 (0.010)"


SCREEN = LiveScreen(
    "holes",
    "Holes, deepest first.",
    (
        LiveColumn("pid", "pid", "who digs", "count", 8),
        LiveColumn("depth", "depth", "depth of the hole", "bytes"),
        LiveColumn("rate", "speed", "how fast", "per_s", 9, 1),
        LiveColumn("why", "reason", "the reason", "text", 0),
    ),
    ("pid",),
    "depth",
    "no hole",
    "text",
)


def test_a_screen_of_an_engine_is_drawn_from_data_alone() -> None:
    view = View(screens=(*BUILT_IN, SCREEN.name))
    assert press(view, "5").screen == SCREEN.name
    assert "reading ..." in draw(view, sheet=engine_sheet(SCREEN, None))
    assert "no hole" in draw(view, sheet=engine_sheet(SCREEN, LiveRows()))
    rows_ = [
        {"pid": 7, "depth": 1024, "rate": 2.5, "why": "water", "text": "dig a well"},
        {"pid": 8, "depth": 4096, "rate": None, "why": "oil", "text": "drill\nhere"},
    ]
    sheet = engine_sheet(SCREEN, LiveRows(rows_, ["missing: GRANT digger"]))
    lines = draw(view, 24, 80, sheet).splitlines()
    shown = [line.split() for line in lines if line.split()[:1] in (["7"], ["8"])]
    assert shown == [["8", "4.00", "KiB", "?", "oil"], ["7", "1.00", "KiB", "2.50", "water"]]
    assert "missing: GRANT digger" in lines
    press(view, "down", "enter", sheet=sheet)
    assert "drill" in draw(view, 24, 80, sheet) and "water" not in draw(view, 24, 80, sheet)
    assert press(view, "escape", "escape", sheet=sheet).screen == SESSIONS


def test_a_saved_screen_has_all_rows_and_no_control_characters() -> None:
    many = session_sheet([replace(ROWS[0], line=replace(ROWS[0].line, pid=n)) for n in range(1, 301)])
    steering = session_sheet([*many.rows, replace(ROWS[1], statement="\x1b[2J\x07")])
    text = Screen(Header(), Glance(4.0, "scheduler trace", 40), View(), steering).plain_text(160)
    pids_ = {line.split()[0] for line in text.splitlines() if line.split()}
    assert {str(n) for n in range(1, 301)} <= pids_
    assert not [c for c in text if c != "\n" and not c.isprintable()]


def test_top_statements_share_db_time_by_the_samples_of_active_sessions() -> None:
    columns = ("sample", "state", "query_id", "wait_class", "wait_event")
    samples = [(n, "active", 10, "IO", "DataFileRead") for n in range(6)]
    samples += [(n, "active", 20, None, None) for n in range(3)]  # type: ignore[misc]
    samples += [(8, "active", None, None, None), (9, "idle", 20, None, None)]  # type: ignore[list-item]
    always = {"role": pl.lit("session"), "via": pl.lit("sql"), "status": pl.lit("ok")}
    frame = pl.DataFrame(samples, columns, orient="row").with_columns(**always)
    recent = {"samples": frame, "sampler": frame.unique("sample")}
    top = top_statements(recent, WaitFamilies({}), 2.0)
    assert [(r.query_id, r.part, r.db_time) for r in top] == [(10, 0.6, 1.2), (20, 0.3, 0.6)]
    assert top[0].event == "IO/DataFileRead"


def test_cpu_wait_is_a_ranked_row_and_events_show_their_part_in_the_queue() -> None:
    text = draw(View())
    assert text.index("CPU WAIT") < text.index("top events")
    ranked = text.split("top events")[1]
    assert "DB CPU" in ranked
    assert "CPU WAIT" in ranked
    assert "IO/DataFileRead" in ranked
    assert "0.010" in ranked  # in the run queue under that label


def _waits(pid: int, blocker: int | None, waited_s: float, **more: object) -> dict[str, object]:
    sample = {
        "sample": 1,
        "before_ns": 0,
        "after_ns": 10,
        "pid": pid,
        "wait_class": "Lock",
        "blocker": blocker,
    }
    lock = {"wait_event": "transactionid", "object": "row (0,1)", "relation": "t", "status": "ok"}
    return sample | lock | {"waited_ns": round(waited_s * 1e9)} | more


def _tree(*rows_: dict[str, object]) -> list[Blocked]:
    return blocking({"blocked": rows("blocked", rows_), "samples": empty("samples")})


def test_blocked_sessions_are_a_tree_under_their_blocker_with_durations() -> None:
    idle = {
        "state": "idle in transaction",
        "blocker_wait_class": "Client",
        "blocker_wait_event": "ClientRead",
    }
    root = idle | {"user": "bob", "database": "prod", "application": "shop", "query_id": 7, "task_state": "S"}
    tree = _tree(_waits(12, 11, 0.5, wait_event="tuple"), _waits(11, 9, 61.0, **root), _waits(13, 11, 2.0))
    assert [(b.depth, b.pid, b.waited_s) for b in tree] == [
        (0, 9, None),
        (1, 11, 61.0),
        (2, 13, 2.0),
        (2, 12, 0.5),
    ]
    assert (tree[0].waiters, tree[0].who, tree[0].query_id) == (3, "bob@prod shop", 7)
    glance = Glance(4.0, "scheduler trace", 40, ())
    for width in (80, 120):
        screen = Screen(Header(server="postgres 18.4"), glance, press(View(), "b"), SHEET, tree)
        text = [line.plain.rstrip() for line in screen.lines(width, 24)]
        assert all(len(line) <= width for line in text)
        assert any("blocks 3: idle in transaction" in line for line in text)
        assert any("bob@prod shop  query id 7" in line for line in text)
        known = replace(screen, texts={9: "lock table\n  t"})
        assert any("bob@prod shop  lock table t" in line.plain for line in known.lines(width, 24))
        assert any(
            ("`- Lock/transactionid t row (0,1)" in line and "1m" in line.replace(" ", "")) or "61" in line
            for line in text
        )
    assert press(View(), "b", "escape").screen == SESSIONS


def test_a_circle_of_waits_is_a_deadlock_and_roots_may_have_no_process() -> None:
    circle = _tree(_waits(1, 2, 1.0), _waits(2, 1, 1.0))
    assert [b.pid for b in circle] == [None, 1, 2] and circle[0].doing.startswith("deadlock")
    prepared = _tree(_waits(1, 0, 1.0, application="gid", state="prepared transaction"), _waits(2, None, 0.0))
    assert [b.doing for b in prepared if not b.depth] == [
        "prepared transaction gid", "no blocker found: the lock was released in between",
    ]  # fmt: skip
    assert _tree() == []


# -- where the memory is ----------------------------------------------------------------------------


def draw_memory(view: View, height: int = 12) -> str:
    lines = [Text(f"line {n}") for n in range(40)]
    screen = Screen(Header(), None, view, SHEET, memory=lambda _width: lines)
    return "\n".join(line.plain for line in screen.lines(80, height))


def test_the_view_of_memory_takes_the_place_of_sessions_and_scrolls() -> None:
    view = press(View(), "m")
    assert "line 0" in draw_memory(view)
    press(view, "j", "j", "page down")
    assert view.chosen == {}
    assert "line 12" in draw_memory(view) and "line 11" not in draw_memory(view)
    press(view, "escape")
    assert view.screen == SESSIONS and "line 12" not in draw_memory(view)
    assert press(View(), "m", "m").screen == SESSIONS


def test_memory_is_read_beside_by_one_connection() -> None:
    memory = MemoryNow(datetime.now(UTC), 0.1, "server", {}, ())
    opened: list[str] = []
    answers: list[MemoryNow | ServerLost] = [memory, ServerLost("gone"), memory]

    @contextmanager
    def reading() -> Iterator[Callable[[], MemoryNow]]:
        opened.append("open")
        yield answer
        opened.append("closed")

    def answer() -> MemoryNow:
        reply = answers.pop(0)
        if isinstance(reply, ServerLost):
            raise reply
        return reply

    beside = MemoryBeside(reading)
    for latest, trouble in ((memory, ""), (memory, "gone"), (memory, "")):
        beside.ask()
        wait_until(lambda: not beside.reading)
        assert (beside.latest, beside.trouble) == (latest, trouble)
    assert opened == ["open", "closed", "open"]  # opened again after it was lost
    beside.ask_if_due()
    assert not beside.reading  # 10 s have not gone by
    beside.close()
    assert opened[-1] == "closed"


def wait_until(done: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not done() and time.monotonic() < end:
        time.sleep(0.01)
    assert done()


def test_live_figures_are_unknown_once_reading_fails() -> None:
    class Viewing:
        screens = (SCREEN,)

        @contextmanager
        def opened(self, _chosen: Observation) -> Iterator[Viewing]:
            yield self

        def read(self, request: LiveRequest) -> LiveAnswer:
            if request.screen == "lost":
                raise ServerLost("gone")
            if request.screen == "faulty":
                raise ZeroDivisionError("a fault of ours")
            return LiveAnswer(LiveFigures(1.0), request.screen)

    beside = LiveBeside(Viewing(), Observation())
    answers = []
    for screen in ("one", "lost", "two", "faulty", "three"):
        beside.request = LiveRequest(screen)
        beside.ask()
        wait_until(lambda: not beside.reading)
        answers.append(beside.current and beside.current.screen)
        assert ("a fault of ours" in beside.trouble) == (screen == "faulty")
    assert answers == ["one", None, "two", None, "three"]
    beside.close()
