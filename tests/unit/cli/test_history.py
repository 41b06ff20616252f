"""The store as a history: its list, how a run is named, labels, removal."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.on_terminal import on_terminal
from tests.stored_runs import copied_run, derived_run

from dbdyno.cli.app import app
from dbdyno.cli.history import _table
from dbdyno.conduct import select
from dbdyno.model.errors import NoSuchRun, UsageError
from dbdyno.store import Run, find_run
from dbdyno.store.overview import INDEX, overviews


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return derived_run(tmp_path_factory.mktemp("model"))


@pytest.fixture
def store(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    root = tmp_path / "store"
    root.mkdir(mode=0o700)
    monkeypatch.setenv("DBDYNO_STORE", str(root))
    for day, name, tags in ((1, "", []), (2, "nightly", ["a"]), (3, "nightly", ["a", "b"]), (4, "x y", [])):
        copied_run(root, model, f"2026010{day}-100000-lio-000{day}", name=name, tags=tags)
    yield root


def dbdyno(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def ids(*words: str) -> list[str]:
    done = dbdyno("runs", "--json", *words)
    assert done.exit_code == 0, done.output
    return [record["id"][-1] for record in json.loads(done.output)]


@pytest.mark.parametrize(
    ("wanted", "run"),
    [
        ("last", 4), ("last~0", 4), ("last~3", 1), ("nightly", 3), ("nightly~1", 2), ("x y", 4),
        ("20260102", 2), ("20260103-100000-lio-0003", 3), ("0001", 1), ("lio-0002", 2),
    ],
)  # fmt: skip
def test_a_run_is_found_by_id_name_and_place(store: Path, wanted: str, run: int) -> None:
    assert find_run(store, wanted).name == f"2026010{run}-100000-lio-000{run}"


@pytest.mark.parametrize("wanted", ["last~4", "nightly~2", "2026", "", "nope", "~1", "last~", "20260102~1"])
def test_a_word_that_names_no_single_run_is_refused(store: Path, wanted: str) -> None:
    with pytest.raises(NoSuchRun) as error:
        find_run(store, wanted)
    assert error.value.cure


def test_a_mistyped_name_is_refused_with_the_nearest_one(store: Path) -> None:
    with pytest.raises(NoSuchRun) as error:
        find_run(store, "nightyl")
    assert "nightly" in str(error.value.cure)


def test_runs_of_a_script_are_found_by_its_file_and_by_the_name_that_titles_show(store: Path) -> None:
    entries = [replace(o, outline=replace(o.outline, workload="mix.sql")) for o in overviews(store)]
    assert select(entries, workload="mix") == select(entries, workload="mix.sql") == entries
    assert select(entries, workload="mi") == select(entries, workload="sql") == []


@pytest.mark.usefixtures("store")
def test_runs_are_listed_by_name_tag_date_workload_target_and_status() -> None:
    assert ids() == ["1", "2", "3", "4"]
    assert ids("--name", "nightly") == ids("--name", "night*") == ids("--tag", "a") == ["2", "3"]
    assert ids("--tag", "a", "--tag", "b") == ["3"]
    assert ids("--limit", "2") == ids("--since", "2026-01-03") == ["3", "4"]
    assert ids("--since", "1h") == ids("--workload", "none") == ids("--status", "broken") == []
    assert ids("--workload", "lio", "--target", "EMBED", "--status", "complete") == ["1", "2", "3", "4"]
    assert "'lio'" in dbdyno("runs", "--workload", "loi").output
    for wrong in ("yesterday", "2026-13-01", "2026-01-01x", "9999999999999999h"):
        assert dbdyno("runs", "--since", wrong).exit_code != 0


@pytest.mark.usefixtures("store")
def test_json_csv_and_markdown_have_the_same_runs() -> None:
    records = json.loads(dbdyno("runs", "--json").output)
    assert records[2]["tags"] == ["a", "b"] and records[2]["sessions"] == [1, 2]
    assert records[2]["peak_sessions"] == 2 and records[2]["target"] == "embedded"
    rows = list(csv.DictReader(io.StringIO(dbdyno("runs", "--csv").output)))
    assert [r["id"] for r in rows] == [r["id"] for r in records]
    assert all(r["id"] in dbdyno("runs", "--markdown").output for r in records)
    assert dbdyno("runs", "--csv", "--json").exit_code != 0


def test_a_run_that_changed_or_is_damaged_is_listed_anew(store: Path) -> None:
    assert [o.outline.peak_sessions for o in overviews(store)] == [2, 2, 2, 2]
    index = (store / INDEX).read_text()
    assert overviews(store) == overviews(store) and (store / INDEX).read_text() == index
    for damaged in ("[", '{"version": 1, "runs": []}', '{"version": 1, "runs": {"a": 1}}', "[" * 99_999):
        (store / INDEX).write_text(damaged)
        assert [o.outline.peak_sessions for o in overviews(store)] == [2, 2, 2, 2]
    forged = json.loads(index)
    for entry in forged["runs"].values():
        entry["outline"]["sessions"] = ["x"]
    (store / INDEX).write_text(json.dumps(forged))
    assert overviews(store)[0].outline.sessions == [1, 2]
    one, two, three, four = (o.run.path for o in overviews(store))
    (one / "run.json").write_text("{")
    (two / "plan.json").write_text("{")
    shutil.rmtree(three / "derived")
    shutil.rmtree(four)
    listed = overviews(store)
    assert [o.run.status for o in listed] == ["broken", "complete", "complete"]
    assert [o.outline.workload for o in listed] == ["lio", "", "lio"]
    assert [o.outline.peak_sessions for o in listed] == [2, 2, None]


def test_a_name_or_tag_of_a_wrong_type_is_a_broken_run(store: Path, model: Path) -> None:
    for n, wrong in enumerate(({"name": 5}, {"tags": "a"}, {"tags": [1]}, {"note": []}, {"tags": None})):
        copied_run(store, model, f"2026020{n + 1}-100000-lio-00ff", **wrong)
    assert len(ids("--status", "broken")) == 5


def test_a_store_that_cannot_be_written_is_listed(store: Path) -> None:
    (store / INDEX).mkdir()
    assert ids() == ["1", "2", "3", "4"]


@pytest.mark.parametrize(("columns", "heads"), [
    (80, ["run", "when", "name", "peak", "target", "status"]),
    (120, ["run", "when", "name", "workload", "sess", "peak", "target", "status"]),
])  # fmt: skip
def test_the_list_of_runs_fits_the_terminal(store: Path, columns: int, heads: list[str]) -> None:
    code, written = on_terminal("runs", columns=columns, env={"DBDYNO_STORE": str(store)})
    lines = written.splitlines()
    assert code == 0 and set(heads) <= set(lines[0].split())
    assert max(map(len, lines)) <= columns
    assert [find_run(store, line.split()[0]).name[-1] for line in lines[1:5]] == ["1", "2", "3", "4"]


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 140])
def test_long_names_are_shortened_and_columns_named_that_are_left_out(columns: int) -> None:
    heads = ("when", "name", "workload", "sess", "peak", "target", "status", "server", "lasted", "tags",
             "remark")  # fmt: skip
    row = {"run": "20260101-100000-lio-0001", **dict.fromkeys(heads, "1234567 " * 3)}
    *lines, left_out = _table([row], columns)
    assert lines[0].startswith("run") and "peak" in lines[0] and "status" in lines[0]
    gone = set(heads) - set(lines[0].split())
    assert gone == set(left_out.removeprefix("Not shown at this width: ").rstrip(".").split(", "))


def test_labels_are_stored_and_changed(store: Path) -> None:
    assert dbdyno("label", "last", "--name", "best", "--tag", "t", "--note", "a note").exit_code == 0
    info = Run(find_run(store, "best")).info
    assert (info.name, info.tags, info.note) == ("best", ("t",), "a note")
    assert "best" in dbdyno("show", "best").output
    assert "a note" in (find_run(store, "best") / "report.html").read_text()
    assert dbdyno("label", "best", "--tag", "u", "--untag", "t", "--note", "").exit_code == 0
    labels = json.loads(dbdyno("label", "best", "--json").output)
    assert (labels["tags"], labels["note"]) == (["u"], "")
    assert json.loads(dbdyno("show", "best", "--json").output)["run"]["name"] == "best"
    assert ids("--tag", "u") == ["4"]


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    "name", ["last", "last~1", "a~1", "-x", "20260101-100000-lio-0001", "a\nb", "x" * 61, "\x1b[2J"]
)
def test_a_name_that_could_be_something_else_is_refused(name: str) -> None:
    assert isinstance(dbdyno("label", "last", f"--name={name}").exception, UsageError)
    for words in (["--tag", ""], ["--untag", "none"], ["--note", "x" * 3_000]):
        assert isinstance(dbdyno("label", "last", *words).exception, UsageError)


def test_a_run_in_progress_is_neither_labelled_nor_removed(store: Path, model: Path) -> None:
    from dbdyno.store.listing import start_ticks

    me = {"pid": 1, "pid_start_ticks": start_ticks(1), "status": "running", "ended": None}
    copied_run(store, model, "20260105-100000-lio-0005", **me)
    assert isinstance(dbdyno("label", "last", "--name", "n").exception, UsageError)
    assert dbdyno("rm", "--yes", "last").exit_code != 0
    assert dbdyno("rm", "--yes", "--keep", "0").exit_code == 0
    assert ids() == ["5"]


@pytest.mark.usefixtures("store")
def test_rm_asks_before_it_removes() -> None:
    refused = dbdyno("rm", "last")
    assert isinstance(refused.exception, UsageError) and "--yes" in str(refused.exception.cure)
    assert len(ids()) == 4
    assert isinstance(dbdyno("rm").exception, UsageError)
    assert isinstance(dbdyno("rm", "last", "--keep", "1", "--yes").exception, UsageError)
    assert dbdyno("rm", "--yes", "last", "nightly", "last").exit_code == 0
    assert ids() == ["1", "2"]
    assert dbdyno("rm", "--yes", "last", "none").exit_code != 0 and ids() == ["1", "2"]


@pytest.mark.usefixtures("store")
def test_rm_removes_runs_by_age_and_number() -> None:
    assert dbdyno("rm", "--yes", "--older-than", "1h", "--keep", "3").exit_code == 0
    assert ids() == ["2", "3", "4"]
    assert "no runs" in dbdyno("rm", "--yes", "--older-than", "99999h").output
    assert dbdyno("rm", "--yes", "--older-than", "30d").exit_code == 0
    assert ids() == []


@pytest.mark.parametrize(("answer", "left"), [("y\n", 3), ("n\n", 4), ("\n", 4)])
def test_rm_on_a_terminal_names_what_it_removes_and_removes_it_after_yes(
    store: Path, answer: str, left: int
) -> None:
    code, written = on_terminal("rm", "nightly", env={"DBDYNO_STORE": str(store)}, typed=answer)
    assert code == 0 and "20260103-100000-lio-0003" in written and "MiB" in written
    assert len(ids()) == left


@pytest.mark.parametrize("words", [("runs", "--since"), ("rm", "--yes", "--older-than")])
def test_a_time_without_a_unit_is_refused_and_nothing_is_removed(words: tuple[str, ...], store: Path) -> None:
    before = sorted(store.glob("2026*"))
    for text in ("30", "1.5", " 7 "):
        assert isinstance(dbdyno(*words, text).exception, UsageError)
    assert sorted(store.glob("2026*")) == before
