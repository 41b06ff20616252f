"""The live view without a terminal: keys, order, filter, and the lines of its screen."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from dbdyno.cli.observe_state import ORDERS, Row, View, parse
from dbdyno.cli.observe_view import Header, Screen
from dbdyno.conduct import MemoryBeside
from dbdyno.model.errors import ServerLost
from dbdyno.model.results.memory_now import MemoryNow
from dbdyno.model.schema.tables import empty, rows
from dbdyno.model.sources.wait_families import Family
from dbdyno.observe.blocking import Blocked, blocking
from dbdyno.observe.glance import EventLine, Glance, SessionLine


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


def pids(view: View) -> list[int]:
    return [r.line.pid for r in view.rows(ROWS)]


def press(view: View, *keys: str) -> View:
    for key in keys:
        view.press(key, view.rows(ROWS))
    return view


def draw(view: View, height: int = 40, width: int = 100, **header: object) -> str:
    glance = Glance(4.0, "scheduler trace", 40, tuple(r.line for r in ROWS), ROWS[0].line.events)
    screen = Screen(Header(server="postgres 18.4", **header), glance, view, view.rows(ROWS))  # type: ignore[arg-type]
    lines = screen.lines(width, height)
    assert len(lines) == height
    assert all(line.cell_len <= width for line in lines)
    return "\n".join(line.plain for line in lines)


def test_bytes_of_a_terminal_become_names_of_keys() -> None:
    assert parse(b"jk\x1b[A\x1b[B\x1bOA\r\x1b[5~\x7f ") == [
        "j", "k", "up", "down", "up", "enter", "page up", "backspace", " ",
    ]  # fmt: skip
    assert parse(b"\x1b") == ["escape"]
    assert parse(b"\x1b[1;5Cq") == ["q"]  # a sequence without a meaning here


@given(st.binary(max_size=40))
def test_any_bytes_end_as_keys(data: bytes) -> None:
    assert all(parse(data))


def test_orders_put_the_greatest_first_and_the_unknown_last() -> None:
    assert pids(press(View(), "c")) == [2, 3, 1, 4]
    assert pids(press(View(), "w")) == [1, 2, 3, 4]
    assert pids(press(View(), "p")) == [1, 2, 3, 4]
    assert pids(press(View(), "u")) == [1, 3, 4, 2]
    view, orders = View(), []
    for _ in ORDERS:
        orders.append(press(view, "s").order)
    assert sorted(orders) == sorted(ORDERS)


def test_a_filter_is_typed_and_taken_back() -> None:
    view = press(View(), "f", "b", "o", "x", "backspace", "b")
    assert view.typing
    assert "filter: bob" in draw(view)
    press(view, "enter", "q")  # q is a letter in the filter, and the key after it
    assert (pids(view), view.ended) == ([2], True)
    assert pids(press(view, "escape")) == [1, 2, 3, 4] or view.filter == ""


def test_a_chosen_session_is_drilled_into_and_left_again() -> None:
    view = press(View(order="p"), "down", "down", "k", "down")
    assert view.chosen == 2
    assert "its events" not in draw(view)
    text = draw(press(view, "enter"))
    assert "process 2" in text
    assert "IO/DataFileRead" in text.split("its events")[1]
    assert "query id 42" in text
    assert "its events" not in draw(press(view, "escape"))
    assert press(View(order="p"), "up").chosen == 4
    assert press(View(order="p"), *["down"] * 9).chosen == 4


def test_a_chosen_session_that_ended_is_named_as_ended() -> None:
    view = View(chosen=77, alone=True)
    assert "session 77 has ended" in draw(view)


def test_the_view_freezes_helps_shows_notices_and_fits_small_terminals() -> None:
    assert "FROZEN" in draw(press(View(), " "))
    assert "the next order" in draw(press(View(), "h"))
    assert "server is away" in draw(View(), notice="the server is away")
    for height, width in ((5, 20), (10, 60), (24, 80)):
        draw(View(), height, width)
        draw(View(chosen=1, alone=True), height, width)


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
        screen = Screen(Header(server="postgres 18.4"), glance, press(View(), "b"), (), tree)
        text = [line.plain.rstrip() for line in screen.lines(width, 24)]
        assert all(len(line) <= width for line in text)
        assert any("blocks 3: idle in transaction" in line for line in text)
        assert any("bob@prod shop  query id 7" in line for line in text)
        assert any(
            ("`- Lock/transactionid t row (0,1)" in line and "1m" in line.replace(" ", "")) or "61" in line
            for line in text
        )
    assert not press(View(), "b", "escape").tree


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
    screen = Screen(Header(), None, view, ROWS, memory=lines)
    return "\n".join(line.plain for line in screen.lines(80, height))


def test_the_view_of_memory_takes_the_place_of_sessions_and_scrolls() -> None:
    view = press(View(), "m")
    assert "line 0" in draw_memory(view) and "m back" in draw_memory(view)
    assert view.chosen is None
    press(view, "j", "j", "page down")
    assert "line 12" in draw_memory(view) and "line 11" not in draw_memory(view)
    press(view, "escape")
    assert not view.memory and "line" not in draw_memory(view)
    assert not press(View(), "m", "m").memory


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
