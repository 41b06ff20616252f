"""The store on real directories, a real small file system, real processes."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from tests.fakery import Climb, climb, recorded

from dbdyno.conduct.derive.derive import derive
from dbdyno.model.errors import NoSuchRun, SchemaTooNew, StoreError, StoreFull
from dbdyno.model.results.raw import RawCell
from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import SCHEMA_VERSION
from dbdyno.store import Run, RunStore, default_root


@pytest.fixture(scope="module")
def climbed() -> Climb:
    return climb("fake:cpu=50ms,wait=IO/Read:10ms", [1, 2], log_calls=True)


@pytest.fixture(scope="module")
def derived(climbed: Climb) -> Results:
    return derive(climbed.info, climbed.plan, climbed.environment, climbed.cells)


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "store")


@pytest.fixture
def run(store: RunStore, climbed: Climb, derived: Results) -> Run:
    """A complete run of two cells."""
    new = recorded(store, climbed)
    new.write_derived(derived.tables, derived.findings)
    new.finish("complete")
    return new


def _same(one: RawCell, other: RawCell) -> bool:
    return one.meta == other.meta and all(t.equals(other.tables[n]) for n, t in one.tables.items())


def test_a_run_is_read_as_it_was_written(store: RunStore, run: Run, climbed: Climb):
    again = store.open(run.id)
    assert again.info == run.info
    assert again.info.status == "complete"
    assert again.plan == climbed.plan
    assert again.environment == climbed.environment
    assert again.cells() == [c.id for c in climbed.cells]
    cells, damaged = again.read_cells()
    assert not damaged
    assert all(_same(*pair) for pair in zip(cells, climbed.cells, strict=True))
    tables, findings = again.read_derived() or ({}, ())
    assert tables["rungs"]["sessions"].to_list() == [1, 2]
    assert {f.id for f in findings} >= {"peak"}


def test_runs_are_private(run: Run):
    for path in (run.path, run.path / "cells", run.path / "cells" / run.cells()[0]):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE((run.path / "run.json").stat().st_mode) == 0o600


def test_runs_are_opened_by_id_by_beginning_and_as_last(store: RunStore, run: Run, climbed: Climb):
    assert store.open("last").id == run.id
    assert store.open(run.id[:-2]).id == run.id
    other = store.create(climbed.plan)
    with pytest.raises(NoSuchRun, match="2 runs begin with"):
        store.open("20")
    with pytest.raises(NoSuchRun) as caught:
        store.open(other.id[:-4] + "zzzz")
    assert other.id in (caught.value.cure or "")


def test_a_run_of_an_empty_store_is_refused_with_the_command_that_makes_one(store: RunStore):
    assert list(store.list()) == []
    with pytest.raises(NoSuchRun) as caught:
        store.open("last")
    assert "dbdyno run" in (caught.value.cure or "")


def test_a_directory_that_is_no_run_is_refused(store: RunStore, tmp_path: Path):
    for word in (str(tmp_path), f"{tmp_path}/"):
        with pytest.raises(NoSuchRun, match="is a directory"):
            store.open(word)


def test_the_default_store_is_in_the_data_directory_of_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_root() == tmp_path / "dbdyno"
    monkeypatch.setenv("XDG_DATA_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_root() == tmp_path / ".local/share/dbdyno"


_KILLED = """
import os, signal, sys
from pathlib import Path
from dbdyno.model.plan.plan import Plan
from dbdyno.store import RunStore
plan = Plan.model_validate_json(sys.stdin.read())
print(RunStore(Path(sys.argv[1])).create(plan).id, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_run_whose_process_was_killed_reads_as_cut_short(store: RunStore, climbed: Climb):
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(store.root)],
        input=climbed.plan.model_dump_json(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -9, done.stderr
    info = store.open(done.stdout.strip()).info
    assert (info.status, info.reason) == ("cut short", "the process ended")
    assert store.list()[0].status == "cut short"


def test_a_run_of_a_living_process_is_running(store: RunStore, climbed: Climb):
    assert store.open(store.create(climbed.plan).id).info.status == "running"


def test_a_run_whose_pid_was_reused_is_cut_short(store: RunStore, climbed: Climb):
    run = store.create(climbed.plan)
    run.update_info(pid=os.getpid(), pid_start_ticks=1)
    assert store.open(run.id).info.status == "cut short"


@pytest.mark.parametrize("file", ["samples.parquet", "cell.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["truncated", "flipped", "gone"])
def test_a_damaged_cell_is_left_out_and_the_others_are_read(run: Run, climbed: Climb, file: str, damage: str):
    path = run.path / "cells" / run.cells()[0] / file
    content = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(content[: len(content) // 2])
    else:
        content[len(content) // 2] ^= 0xFF
        path.write_bytes(content)
    cells, damaged = run.read_cells()
    assert [c.id for c in cells] == [climbed.cells[1].id]
    assert [d.id for d in damaged] == [climbed.cells[0].id]
    assert damaged[0].reason


def test_damaged_derived_tables_say_how_to_make_them_again(run: Run):
    (run.path / "derived" / "rungs.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(StoreError) as caught:
        run.read_derived()
    assert "rebuild" in (caught.value.cure or "")


def test_derived_tables_replace_older_ones(run: Run, climbed: Climb):
    results = derive(run.info, climbed.plan, climbed.environment, climbed.cells[:1])
    run.write_derived(results.tables, results.findings)
    tables, _ = run.read_derived() or ({}, ())
    assert tables["rungs"]["sessions"].to_list() == [1]
    assert [p.name for p in run.path.iterdir() if p.name.startswith(".tmp")] == []


def test_broken_directories_are_listed_as_broken(store: RunStore, run: Run):
    (store.root / "20260101-000000-lio-dead").mkdir()
    broken = store.root / "20260102-000000-lio-beef"
    broken.mkdir()
    (broken / "run.json").write_text('{"schema_version": 1, "id": 3')
    listed = store.list()
    assert [i.status for i in listed] == ["broken", "broken", "complete"]
    assert all(i.reason for i in listed[:2])
    assert store.open("last").id == run.id


def test_a_newer_store_names_the_version_it_needs(store: RunStore, run: Run):
    path = run.path / "run.json"
    info = json.loads(path.read_text()) | {"schema_version": SCHEMA_VERSION + 1, "dbdyno": "7.3.0"}
    path.write_text(json.dumps(info))
    with pytest.raises(SchemaTooNew) as caught:
        store.open(run.id)
    assert "7.3.0" in caught.value.message
    assert "upgrade" in (caught.value.cure or "")
    assert store.list()[0].status == "broken"


def test_leftovers_of_a_write_that_was_cut_are_no_cells(run: Run):
    (run.path / "cells" / ".tmp-0003-lio-base-s4-r1-77").mkdir()
    assert len(run.cells()) == 2


def test_a_discarded_run_is_gone(store: RunStore, run: Run):
    run.discard()
    assert list(store.list()) == []


def test_a_place_that_is_a_file_is_refused(tmp_path: Path, climbed: Climb):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError) as caught:
        RunStore(tmp_path / "file").create(climbed.plan)
    assert "--store" in (caught.value.cure or "")


# -- a full disk ------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 256 kB."""
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("mounts a tmpfs: run the tests as root")
    yield place
    subprocess.run(["umount", place], check=True)


@pytest.mark.root
def test_a_full_disk_is_an_error_and_what_was_saved_is_readable(small_disk: Path, climbed: Climb):
    store = RunStore(small_disk)
    run = store.create(climbed.plan)
    run.write_cell(climbed.cells[0])
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space left"), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    with pytest.raises(StoreFull) as caught:
        run.write_cell(climbed.cells[1])
    assert str(small_disk) in caught.value.message
    assert "--store" in (caught.value.cure or "")
    again = store.open(run.id)
    assert again.cells() == [climbed.cells[0].id]
    assert _same(again.read_cell(climbed.cells[0].id), climbed.cells[0])
    assert [p.name for p in (run.path / "cells").iterdir()] == [climbed.cells[0].id], "no part is left"
    with pytest.raises(StoreFull):
        store.create(climbed.plan)
    filler.unlink()
    run.finish("cut short", "disk full")
    assert store.open(run.id).info.status == "cut short"


def test_types_of_columns_are_stored(run: Run):
    frame = run.read_cell(run.cells()[0]).tables["samples"]
    assert frame.schema["leader_pid"] == pl.Int64
    assert frame["leader_pid"].null_count() == frame.height
