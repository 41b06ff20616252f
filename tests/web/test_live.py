"""What goes on now: the page of a run in progress and its events, read over HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from unittest import mock

import pytest

from dbdyno.conduct.derive.deriving import derive_each
from dbdyno.conduct.measure.announcing import announcing
from dbdyno.conduct.measure.progress import NullProgressListener, Tick
from dbdyno.model.engine.protocols import Progress
from dbdyno.store import Parts, RunStore
from dbdyno.web.address import listening
from dbdyno.web.channel import RING, Channel
from dbdyno.web.serving import server_of
from tests.fakery import climb, recorded
from tests.waiting import eventually
from tests.web.conftest import Lab, Started
from tests.web.running import Observing, Reader, observing, readers

HOSTILE = "<img src=x onerror=alert(1)>\x1b[31m"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dbdyno.web.channel.LOOK_S", 0.05)


@pytest.fixture
def observed(tmp_path: Path) -> Observing:
    return observing(tmp_path / "store")


@pytest.fixture
def lab(start_lab: Started) -> Iterator[Lab]:
    return start_lab().enter()


def data_of(text: str) -> dict[str, object]:
    """Returns what the page's script reads."""
    match = re.search(r'<script type="application/json" id="live">(.*?)</script>', text)
    assert match is not None
    return dict(json.loads(match[1]))


def page_of(lab: Lab, observed: Observing) -> tuple[str, str]:
    """Returns the page and the address of the events after it."""
    text = lab.ask(f"/live/{observed.record.id}").text
    return text, str(data_of(text)["events"])


def test_without_a_run_it_says_how_to_start_one_and_of_one_alone_it_goes_there(
    tmp_path: Path, lab: Lab
) -> None:
    nothing = lab.ask("/live")
    assert nothing.status == 200 and "dbdyno observe" in nothing.text
    assert 'see <a href="/snapshots">' in nothing.text
    first = observing(tmp_path / "store", name=HOSTILE)
    answer = lab.ask("/live")
    assert (answer.status, answer.headers["location"]) == (303, f"/live/{first.record.id}")
    second = observing(tmp_path / "store")
    both = lab.ask("/live").text
    assert f'href="/live/{first.record.id}"' in both and f'href="/live/{second.record.id}"' in both
    assert "<img" not in both and "&lt;img src=x" in both and "\x1b" not in both
    second.end()
    assert lab.ask(f"/live/{second.record.id}").headers["location"] == f"/run/{second.record.id}"


@pytest.mark.parametrize("path", ["/live/..%2f..%2fetc", "/live/%3Cimg%3E", "/live/%3Cimg%3E/events"])
def test_a_run_that_is_not_there_is_a_sentence(lab: Lab, path: str) -> None:
    answer = lab.ask(path)
    assert answer.status == 404 and "<img>" not in answer.text and "Traceback" not in answer.text


def test_events_need_the_cookie(observed: Observing, lab: Lab) -> None:
    lab.cookie = ""
    assert lab.ask(f"/live/{observed.record.id}/events").status == 401


def test_each_window_is_an_event_which_two_readers_share(observed: Observing, lab: Lab) -> None:
    observed.window()
    text, path = page_of(lab, observed)
    chart = data_of(text)["chart"]
    assert isinstance(chart, dict) and len(chart["times"]) == 2
    keys = [s["key"] for s in chart["series"]]
    assert keys[0].startswith("run") and "sleep:IO" in keys and "client" not in keys
    assert chart["lines"] == [{"name": "CPUs", "colour": "muted", "value": 2.0}]
    with (
        readers(lab, path, 2) as two,
        mock.patch.object(Parts, "read_one", autospec=True, side_effect=Parts.read_one) as read,
    ):
        assert all(r.headers["content-type"].startswith("text/event-stream") for r in two)
        cell = observed.window()
        first, second = (r.next("window") for r in two)
        assert first is not None and first == second
        assert [c.args[1] for c in read.call_args_list] == [cell], "read once for both"
    window = first.data["window"]
    assert window["start_s"] == pytest.approx(chart["times"][-1])
    assert sum(window["values"].values()) > 0
    assert {s["id"] for s in first.data["shown"]["blocks"]} == {
        "top-sql", "events", "states", "chains", "cost",
    }  # fmt: skip
    ended = datetime.fromtimestamp(round(window["end_s"])).astimezone()
    assert first.data["headline"].startswith(f"Windows of 10 s; the latest ended {ended:%H:%M:%S}.")
    assert f"to {ended:%H:%M:%S}" in json.dumps(first.data["shown"]), "as tables name the window"
    assert observed.record.is_watched, "so that windows are derived at once"


def test_a_reader_that_comes_back_gets_what_it_missed(observed: Observing, lab: Lab) -> None:
    observed.window()
    _, path = page_of(lab, observed)
    with readers(lab, path) as (reader,):
        observed.window()
        seen = reader.next("window")
    assert seen is not None
    starts = []
    for _ in range(2):
        observed.window()
        lab.ask(f"/live/{observed.record.id}")  # another reader's page finds them
    again = Reader(lab, path, after=seen.id)
    for _ in range(2):
        event = again.next("window")
        assert event is not None
        starts.append(event.data["window"]["start_s"])
    again.close()
    assert starts == [pytest.approx(seen.data["window"]["start_s"] + n, abs=0.1) for n in (10, 20)]
    stranger = Reader(lab, path, after="00000000-1")
    event = stranger.next()
    assert event is not None and event.kind == "reload" and stranger.next() is None


def test_a_slow_reader_takes_no_memory_and_loads_the_page_again(observed: Observing) -> None:
    async def slow() -> tuple[list[bytes], int]:
        channel = Channel(observed.record)
        stream = channel.events(channel.position)
        got = [await anext(stream)]
        for n in range(3 * RING):
            channel._add("note", {"text": str(n)})
        got += [chunk async for chunk in stream]
        return got, len(channel._ring)

    got, kept = asyncio.run(slow())
    assert kept == RING
    assert got[1:] == [b"event: reload\ndata: {}\n\n"]


def test_an_event_that_is_too_long_is_not_kept(observed: Observing) -> None:
    channel = Channel(observed.record)
    channel._add("note", {"text": "x" * (1 << 20)})
    assert len(channel._ring[0].text) < 100 and b"event: reload" in channel._ring[0].text


def test_the_end_is_an_event_and_ends_the_stream(observed: Observing, lab: Lab) -> None:
    observed.window()
    _, path = page_of(lab, observed)
    with readers(lab, path) as (reader,):
        observed.record.finish("complete")
        assert "results are being worked out" in lab.ask(f"/live/{observed.record.id}").text
        observed.record.write_derived({}, ())
        event = reader.next("end")
        assert event is not None
        assert event.data == {"status": "complete", "run": f"/run/{observed.record.id}"}
        assert reader.next() is None


def test_a_damaged_part_is_left_out_with_a_line(observed: Observing, lab: Lab) -> None:
    observed.window()
    _, path = page_of(lab, observed)
    with readers(lab, path) as (reader,):
        with mock.patch.object(Parts, "write", autospec=True, side_effect=_damaged):
            observed.window()
        note = reader.next("note", "window")
        assert note is not None and note.kind == "note" and "left out" in note.data["text"]
        observed.window()
        assert reader.next("note", "window").kind == "window"  # type: ignore[union-attr]


_write = Parts.write


def _damaged(self: Parts, name: str, tables: object, document: object) -> None:
    _write(self, f".{name}", tables, document)  # type: ignore[arg-type]
    file = self.path / f".{name}" / "ledger.parquet"
    file.write_bytes(file.read_bytes()[:-9])
    file.parent.rename(self.path / name)


def test_a_saved_page_has_the_picture_and_no_address(observed: Observing, lab: Lab) -> None:
    observed.window()
    answer = lab.ask(f"/live/{observed.record.id}?last=all&save=1")
    assert answer.headers["content-disposition"].startswith("attachment")
    assert set(data_of(answer.text)) == {"kind", "chart", "last_s"}
    assert (
        "connect-src" not in answer.text
        and "As of " in answer.text
        and "live-pause" not in (answer.text.partition("<script")[0])
    )


def test_the_server_ends_all_readers_when_it_is_stopped(
    observed: Observing, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    running = Lab(listening("127.0.0.1:0", insecure=False, tls=None), tmp_path / "store")
    server = server_of(running.address, running.store, running.printed.append)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [*running.address.sockets]})
    thread.start()
    try:
        _, path = page_of(running.enter(), observed)
        reader = Reader(running, path)
    finally:
        with caplog.at_level(logging.ERROR, "uvicorn.error"):
            server.should_exit = True
            thread.join(60)
    assert not thread.is_alive() and reader.next() is None
    assert "graceful" not in caplog.text, "no answer had to be broken off"


def test_a_ladder_grows_and_says_what_is_measured(tmp_path: Path, lab: Lab) -> None:
    climbed = climb("fake:cpu=50ms,wait=IO/Read:10ms", [1, 2])
    one, two = climbed.cells
    climbed.cells.clear()
    record = recorded(RunStore(tmp_path / "store"), climbed)
    record.write_cell(one)
    text = lab.ask(f"/live/{record.id}").text
    assert "Measurement 2 of 2: 2 sessions" in text, "by the plan, without a note"
    assert "under way" in text and "to come" not in text
    path = str(data_of(text)["events"])
    with announcing(NullProgressListener(), record) as listener, readers(lab, path) as (reader,):
        for elapsed_s, calls in ((2.0, 100), (4.0, 300)):
            progress = Progress(calls, 0, 2, calls * 5_000_000)
            listener.tick(Tick(two.meta.cell, 2, "measuring", elapsed_s, progress, {"CPU": 0.7}, 31.0))
            listener._noted_s = 0.0  # type: ignore[attr-defined]  as a second later
            eventually(lambda s=elapsed_s: (record.read_progress() or {}).get("elapsed_s") == s)  # type: ignore[misc]
        rates = eventually(lambda: _tiles(reader).get("calls/s now"))
        assert rates == "100"
        listener.preparing("restarting the server")
        eventually(lambda: (record.read_progress() or {}).get("doing"))
        assert "Restarting the server." in lab.ask(f"/live/{record.id}").text
        listener._noted_s = 0.0  # type: ignore[attr-defined]
        progress = Progress(300, 0, 2, 300 * 5_000_000)
        shares = {"run or queue": 0.97}
        listener.tick(Tick(two.meta.cell, 2, "closing", 4.5, progress, shares, 31.0))
        tiles: dict[str, str] = {}
        while "Phase" not in tiles:
            tiles = _tiles(reader)
        assert tiles["Phase"] == "closing the sessions"
        assert "on a CPU or waiting for one 97 %" in tiles.values()
        record.write_cell(two)
        ladder = reader.next("ladder")
        while ladder is not None and len(ladder.data["chart"]["series"][0]["points"]) < 2:
            ladder = reader.next("ladder")
        assert ladder is not None
    assert [x for x, _ in ladder.data["chart"]["series"][0]["points"]] == [1, 2]
    rows = next(b for b in ladder.data["shown"]["blocks"] if b["id"] == "ladder")["blocks"][0]["rows"]
    assert [row[0][0][0] for row in rows] == ["1", "2"]
    assert record.read_progress() is None, "the note is removed at the end"


def _tiles(reader: Reader) -> dict[str, str]:
    event = reader.next("ladder", "now")
    assert event is not None
    return {figure[0]: figure[1][0] for figure in event.data["shown"]["figures"]}


def test_windows_are_derived_at_once_while_somebody_watches() -> None:
    derived: list[int] = []
    given: list[int] = []

    def lines() -> Iterator[str]:
        for n in range(1, 7):
            given.append(n)
            yield "\n"

    derive_each(
        lines(), lambda: derived.append(len(given)), 4, lambda waiting: waiting > 0 and len(given) >= 3
    )
    assert derived[-4:] == [3, 4, 5, 6]
