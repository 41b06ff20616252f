"""The list of runs: its rows, curves, labels and removal, and what is refused."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from dbdyno.store import RunStore, overview
from dbdyno.store.listing import has_run, start_ticks
from tests.stored_runs import copied_run
from tests.web.conftest import Answer, Lab, Started, fill

ONE, TWO, THREE = (f"2026010{n}-100000-lio-000{n}" for n in (1, 2, 3))
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def lab(start_lab: Started, store_of_runs: Path) -> Lab:
    return start_lab(store_of_runs).enter()


def rows(lab: Lab) -> dict[str, dict[str, Any]]:
    """Returns the rows by id, newest first."""
    listing = json.loads(lab.ask("/runs.json").text)
    records = [dict(zip(listing["columns"], row, strict=True)) for row in listing["rows"]]
    return {record["id"]: record for record in records}


def in_page(answer: Answer) -> dict[str, Any]:
    """Returns the data of the page."""
    found = re.search(r'id="run-list">([^<]*)</script>', answer.text)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def post(lab: Lab, path: str, **body: object) -> tuple[int, dict[str, Any]]:
    answer = lab.post(path, json.dumps(body).encode(), Accept="application/json")
    return answer.status, json.loads(answer.text)


def test_the_page_has_the_rows_newest_first_and_a_saved_one_their_curves(lab: Lab) -> None:
    listed = rows(lab)
    assert list(listed) == [THREE, TWO, ONE]
    assert listed[TWO]["name"] == "nightly" and listed[TWO]["tags"] == ["a"]
    assert listed[THREE]["note"] == "the newest" and listed[ONE]["workload"] == "lio"
    assert (listed[ONE]["sessions"], listed[ONE]["most_sessions"]) == ("1,2", 2)
    page = in_page(lab.ask("/"))
    assert [row[0] for row in page["rows"]] == list(listed) and "curves" not in page
    saved = in_page(lab.ask("/?q=nightly&sort=-peak&save=1"))
    assert saved["asked"] == {"q": "nightly", "sort": "-peak", "save": "1"}
    assert set(saved["curves"]) == set(listed)


def test_a_curve_rises_with_the_sessions_of_the_simulated_server(lab: Lab) -> None:
    """Two CPUs: two sessions get twice as much as one."""
    answer = json.loads(lab.ask(f"/curves?run={ONE}&run=..%2f..&run=none&run={ONE}").text)
    assert list(answer) == [ONE]
    (((one, low), (two, high)),), words = answer[ONE]
    assert (one, two) == (1, 2) and high == pytest.approx(2 * low, rel=0.02)
    assert re.fullmatch(r".+ LIO/s at 1 session to .+ LIO/s at 2 sessions", words)
    shutil.rmtree(lab.store / TWO / "derived")
    assert json.loads(lab.ask(f"/curves?run={TWO}").text) == {TWO: None}
    assert lab.ask("/curves?" + "&".join(f"run={n}" for n in range(101))).status == 400


def test_an_unchanged_store_is_not_sent_again(lab: Lab, model_run: Path) -> None:
    tag = lab.ask("/runs.json").headers["etag"]
    assert lab.ask("/runs.json", If_None_Match=tag).status == 304
    copied_run(lab.store, model_run, "20260104-100000-lio-0004")
    changed = lab.ask("/runs.json", If_None_Match=tag)
    assert changed.status == 200 and "lio-0004" in changed.text and changed.headers["etag"] != tag


def test_a_run_whose_process_ended_is_cut_short_though_no_file_changed(lab: Lab, model_run: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        try:
            me = {"pid": child.pid, "pid_start_ticks": start_ticks(child.pid)}
            run = copied_run(
                lab.store, model_run, "20260104-100000-lio-0004", status="running", ended=None, **me
            ).name
            os.utime(lab.store / run, (1, 1))
            assert rows(lab)[run]["status"] == "running"
            for path, body in (("/label", {"run": run, "name": "x"}), ("/remove", {"runs": [run]})):
                answer = json.dumps(post(lab, path, **body)[1])
                assert "still running" in answer
        finally:
            child.kill()
    assert rows(lab)[run]["status"] == "cut short" and rows(lab)[run]["reason"]


def test_labels_are_changed_and_the_rest_stays(lab: Lab) -> None:
    status, labels = post(lab, "/label", run=TWO, note=HOSTILE, tags=["b", "a"], untags=[])
    assert status == 200 and labels == {"id": TWO, "name": "nightly", "tags": ["a", "b"], "note": HOSTILE}
    assert post(lab, "/label", run=TWO, name="", untags=["a"])[1]["tags"] == ["b"]
    assert (rows(lab)[TWO]["name"], rows(lab)[TWO]["note"]) == ("", HOSTILE)
    assert HOSTILE not in lab.ask("/").text and HOSTILE not in lab.ask(f"/run/{TWO}").text


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"run": TWO, "name": "last"}, 400, "could be taken for something else"),
        ({"run": TWO, "tags": ["x" * 61]}, 400, "one line"),
        ({"run": TWO, "untags": ["none"]}, 400, "has no tag"),
        ({"run": TWO, "note": "\x1b[2J"}, 400, "characters"),
        ({"run": TWO, "name": 7}, 400, "no text"),
        ({"run": TWO, "tags": "a"}, 400, "no list"),
        ({"run": TWO, "tags": ["a"] * 51}, 400, "at most 50"),
        ({"run": "last", "name": "x"}, 404, "no longer"),  # a row has an id, and nothing else changes
        ({"run": "nightly", "name": "x"}, 404, "no longer"),
        ({"run": "../model", "name": "x"}, 404, "no longer"),
        ({}, 400, "no run was named"),
    ],
)
def test_labels_that_cannot_be_used_are_refused(
    lab: Lab, body: dict[str, object], status: int, words: str
) -> None:
    before = rows(lab)
    got, answer = post(lab, "/label", **body)
    assert got == status and words in f"{answer['error']} {answer['cure']}"
    assert rows(lab) == before


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"[" * 100_000, b"\xff"])
def test_what_is_no_json_object_is_refused(lab: Lab, body: bytes) -> None:
    assert lab.post("/remove", body).status == 400 and len(rows(lab)) == 3


def test_runs_are_removed_after_their_sizes_were_shown(lab: Lab, tmp_path: Path) -> None:
    elsewhere = copied_run(tmp_path, lab.store / ONE, "20260105-100000-lio-0005")
    (lab.store / elsewhere.name).symlink_to(elsewhere)
    asked = json.loads(lab.ask(f"/sizes?run={ONE}&run={elsewhere.name}&run=none").text)
    assert [(r["id"], r["size"] == "link") for r in asked["runs"]] == [(ONE, False), (elsewhere.name, True)]
    assert re.fullmatch(r"Remove 2 runs, .* [KM]iB\?", asked["question"])
    assert len(rows(lab)) == 4
    status, done = post(lab, "/remove", runs=[ONE, elsewhere.name, "none", "last"])
    assert status == 200 and [(r["gone"], bool(r["error"])) for r in done["runs"]] == [
        (True, False), (True, False), (True, True), (True, True)
    ]  # fmt: skip
    assert list(rows(lab)) == [THREE, TWO] and (elsewhere / "run.json").exists()
    assert post(lab, "/remove", runs=[])[0] == 400
    assert lab.ask("/remove").status == 405 and lab.post("/runs.json").status == 405


def test_a_run_that_is_worked_out_is_not_removed(lab: Lab) -> None:
    newest = RunStore(lab.store).open(THREE)
    with newest.in_use():
        (answer,) = post(lab, "/remove", runs=[THREE])[1]["runs"]
        assert not answer["gone"] and "still being worked out" in answer["error"] and newest.path.is_dir()
    (answer,) = post(lab, "/remove", runs=[THREE])[1]["runs"]
    assert answer["gone"] and not newest.path.exists()


def test_broken_and_newer_runs_say_why_and_can_be_removed(lab: Lab, model_run: Path) -> None:
    (lab.store / ONE / "run.json").write_text("{")
    copied_run(lab.store, model_run, "20260104-100000-lio-0004", schema_version=99)
    (lab.store / HOSTILE).mkdir()
    (lab.store / HOSTILE / "run.json").write_text("{}")
    (lab.store / "20260104-100000-\udcff\u202e").mkdir()
    listed = rows(lab)
    assert listed[ONE]["status"] == "broken" and "damaged" in listed[ONE]["reason"]
    newer = listed["20260104-100000-lio-0004"]
    assert newer["status"] == "broken" and "newer dbdyno" in newer["reason"]
    assert listed[HOSTILE]["status"] == "broken"
    page = lab.ask("/")
    assert page.status == 200 and HOSTILE not in page.text and "\u202e" not in page.text
    assert len(in_page(page)["rows"]) == 6
    assert post(lab, "/remove", runs=[ONE, HOSTILE])[1]["runs"][1] == {
        "id": HOSTILE, "gone": True, "error": "", "cure": ""
    }  # fmt: skip
    assert len(rows(lab)) == 4
    (unclear,) = (id for id in rows(lab) if id.startswith("20260104-100000-\ufffd"))
    assert json.loads(lab.ask(f"/sizes?{urlencode({'run': unclear})}").text)["runs"]
    assert post(lab, "/remove", runs=[unclear])[1]["runs"][0]["error"] == ""
    assert len(rows(lab)) == 3


def test_of_runs_that_look_the_same_none_is_removed(lab: Lab) -> None:
    for byte in "\udcff", "\udcfe":
        (lab.store / f"20260104-100000-{byte}").mkdir()
    (done,) = post(lab, "/remove", runs=["20260104-100000-\ufffd"])[1]["runs"]
    assert done["error"] and len([*lab.store.glob("2026*")]) == 5


def test_a_run_is_opened_and_removed_by_its_id_without_reading_all(
    store_of_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unexpected(_: Path) -> list[str]:
        raise AssertionError("lists the store")

    monkeypatch.setattr(overview, "run_ids", unexpected)
    store = RunStore(store_of_runs)
    assert store.open(ONE).id == store.remove(ONE) == ONE
    for name in ("", ".", "..", "x/../x", "x" * 5_000, "a\0b", "\ud800", ONE):
        assert not has_run(store_of_runs, name)


def test_a_store_without_runs_is_no_error(start_lab: Started, tmp_path: Path) -> None:
    lab = start_lab(tmp_path / "none").enter()
    assert in_page(lab.ask("/"))["rows"] == [] and "dbdyno demo" in lab.ask("/").text
    assert f"{tmp_path / 'none'} is not there" in lab.ask("/").text
    assert not (tmp_path / "none").exists()
    (tmp_path / "none").mkdir(mode=0o700)
    assert "is not there" not in lab.ask("/").text


@pytest.fixture
def small_disk(disk: Path, store_of_runs: Path) -> Path:
    """The runs on a file system of their own."""
    shutil.copytree(store_of_runs, disk, dirs_exist_ok=True)
    return disk


@pytest.mark.root
@pytest.mark.parametrize("why", ["Read-only", "No space"])
def test_a_store_that_cannot_be_written_is_shown_and_nothing_is_lost(
    start_lab: Started, small_disk: Path, why: str
) -> None:
    if why == "Read-only":
        subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    else:
        fill(small_disk)
    lab = start_lab(small_disk).enter()
    before = rows(lab)
    assert list(before) == [THREE, TWO, ONE]
    status, answer = post(lab, "/label", run=TWO, name="other")
    assert status == 409 and why in answer["error"] and answer["cure"]
    assert rows(lab) == before
    (done,) = post(lab, "/remove", runs=[ONE])[1]["runs"]
    assert (ONE in rows(lab)) is (why == "Read-only") is bool(done["error"])
