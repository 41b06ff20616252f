"""The store of snapshots: what was put in comes out, whatever was merged, removed or cut short."""

from __future__ import annotations

import errno
import json
import random
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from polars.testing import assert_frame_equal
from tests.unit.made_snapshots import BEGAN, frame, info, snapshot, texts

from dbdyno.model.engine.snapshot import TABLES, Snapshot
from dbdyno.model.errors import StoreError, StoreFull
from dbdyno.store import SnapshotStore, files, snapshots

_ODD = ['it"s', "it's", "two\nlines", "<b>", "", "ÄÖ\U0001f600", "a;drop table x"]


def _value(draw: random.Random, kind: str) -> Any:
    if draw.random() < 0.15:
        return None
    return {
        "i64": lambda: draw.choice([0, 1, draw.randrange(1000), draw.randrange(2**63), -1]),
        "f64": lambda: draw.choice([0.0, 0.1, draw.random() * 1e18, 1.7e9 + draw.random()]),
        "str": lambda: draw.choice(_ODD),
        "bool": lambda: draw.random() < 0.5,
    }[kind]()


def _random_snapshot(draw: random.Random, minute: int, before: Snapshot | None) -> Snapshot:
    """Objects come, change, go and come again; some keys are hidden and equal."""
    tables = {}
    for name, form in TABLES.items():
        rows = [] if before is None else before.tables[name].to_dicts()
        rows = [r for r in rows if draw.random() < 0.9]
        for row in rows:
            for c in (*form.attributes, *form.counters, *form.gauges):
                if draw.random() < 0.2:
                    row[c.name] = _value(draw, c.type)
        for _ in range(draw.randrange(4)):
            new = {c.name: _value(draw, c.type) for c in form.columns}
            new |= {c.name: draw.randrange(5) for c in form.key if c.type == "i64"}
            rows.append(new | {c.name: draw.random() < 0.5 for c in form.key if c.type == "bool"})
        tables[name] = frame(name, [] if draw.random() < 0.05 else rows)
    return Snapshot(info(minute), tables, texts({minute: f"select {minute}"}))


def _same(read_back: Snapshot, put: Snapshot) -> None:
    for name, form in TABLES.items():
        key = [c.name for c in form.columns]
        assert_frame_equal(read_back.tables[name].sort(key), put.tables[name].sort(key))


@pytest.mark.parametrize("seed", range(2))
def test_snapshots_are_read_back_as_they_were_added(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "_TOGETHER", 4)
    draw, store, put = random.Random(seed), SnapshotStore(tmp_path), list[Snapshot]()
    for minute in range(9):  # two that were merged, and one alone
        put.append(_random_snapshot(draw, minute, put[-1] if put else None))
        store.add(put[-1])
    infos = list(SnapshotStore(tmp_path).list())
    assert [i.taken for i in infos] == [p.info.taken for p in put]
    for listed, was in zip(infos, put, strict=True):
        _same(SnapshotStore(tmp_path).read(listed), was)
    gone = draw.sample(infos, 4)
    store.remove({i.id for i in gone})
    left = [(i, p) for i, p in zip(infos, put, strict=True) if i not in gone]
    assert list(store.list()) == [i for i, _ in left]
    for listed, was in left:
        _same(SnapshotStore(tmp_path).read(listed), was)


def test_texts_are_there_once_and_go_with_the_last_snapshot_that_needs_them(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)

    def statements(*ids: int) -> dict[str, list[dict[str, Any]]]:
        return {"statements": [{"query_id": i, "toplevel": True, "calls": 1} for i in ids]}

    first = store.add(snapshot(0, statements(1, 2), {1: "select 1", 2: "select 2"}))
    assert store.known_texts() == {1, 2}
    last = store.add(snapshot(10, statements(2, 3), {2: "another", 3: "select 3"}))
    assert dict(store.read(last).texts.rows()) == {2: "select 2", 3: "select 3"}
    store.remove({first.id})
    assert SnapshotStore(tmp_path).known_texts() == {2, 3}
    store.remove({last.id})
    assert store.known_texts() == set() and not store.list()
    assert not [p for p in store.path.iterdir() if p.name.startswith(("segment", "texts"))]


def test_prune_removes_the_older_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "_TOGETHER", 5)
    store = SnapshotStore(tmp_path)
    for minute in range(12):
        store.add(snapshot(minute, {"databases": [{"database_id": 1, "commits": 10 * minute}]}))
    now = BEGAN + timedelta(minutes=12)
    gone = store.prune(timedelta(minutes=5), now)
    assert [i.taken for i in gone] == [BEGAN + timedelta(minutes=m) for m in range(7)]
    commits = [store.read(i).tables["databases"]["commits"].item() for i in store.list()]
    assert commits == [70, 80, 90, 100, 110]
    assert not store.prune(timedelta(minutes=5), now)


def test_snapshots_of_two_servers_lie_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "_TOGETHER", 3)
    store = SnapshotStore(tmp_path)
    for minute in range(10):
        rows = [{"database_id": 1, "commits": minute}]
        store.add(snapshot(minute, {"databases": rows}, server=f"700{minute % 2}"))
    stored = [store.read(i) for i in store.list()]
    assert [s.tables["databases"]["commits"].item() for s in stored] == list(range(10))
    assert [s.info.server for s in stored] == ["7000", "7001"] * 5


def test_an_empty_store_is_no_error(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path / "none")
    assert not store.list() and store.known_texts() == set() and not (tmp_path / "none").exists()


def _in_another(code: str, store: Path) -> subprocess.Popen[str]:
    """A process that has the store as ``store``."""
    program = (
        "import os\nfrom pathlib import Path\nfrom dbdyno.store import SnapshotStore, files, snapshots\n"
        "from tests.unit.made_snapshots import snapshot\nsnapshots._TOGETHER = 4\n"
        f"store = SnapshotStore(Path({str(store)!r}))\n{code}"
    )
    return subprocess.Popen([sys.executable, "-c", program], text=True, stdout=subprocess.PIPE)


def _commits(store: SnapshotStore) -> list[int]:
    return [store.read(i).tables["databases"]["commits"].item() for i in store.list()]


def _adding(minute: str) -> str:
    return f"store.add(snapshot({minute}, {{'databases': [{{'database_id': 1, 'commits': {minute}}}]}}))\n"


def test_two_writers_take_turns(tmp_path: Path) -> None:
    code = [f"for i in range({n}, {n + 9}):\n    {_adding('i')}" for n in (100, 200)]
    writers = [_in_another(c, tmp_path) for c in code]
    assert [w.wait(120) for w in writers] == [0, 0]
    commits = _commits(SnapshotStore(tmp_path))
    assert sorted(commits) == [*range(100, 109), *range(200, 209)]
    assert [c for c in commits if c < 200] == list(range(100, 109))  # each in its order


@pytest.mark.parametrize("at", [1, 2, 3, 4, 5, 7, 9, 99])
def test_after_a_kill_at_any_write_every_snapshot_reported_as_stored_is_there(
    at: int, tmp_path: Path
) -> None:
    """The fourth snapshot makes one segment of four: writing ends at the ``at``-th file from there on."""
    store = SnapshotStore(tmp_path)
    for i in range(3):
        store.add(snapshot(i, {"databases": [{"database_id": 1, "commits": i}]}, texts_of(i)))
    die = (
        f"was, left = files.write_synced, [{at}]\n"
        "def write(path, content, **more):\n"
        "    left[0] -= 1\n"
        "    was(path, content if left[0] else content[:3], **more)\n"
        "    if not left[0]: os._exit(9)\n"
        "files.write_synced = write\n"
    )
    code = die + _adding("3") + "print('stored', flush=True)\n"
    with _in_another(code, tmp_path) as killed:
        assert killed.stdout is not None
        output = killed.stdout.read()
    after = SnapshotStore(tmp_path)
    assert _commits(after) in (([0, 1, 2, 3],) if output else ([0, 1, 2], [0, 1, 2, 3]))
    after.add(snapshot(9, {"databases": [{"database_id": 1, "commits": 9}]}))
    assert _commits(SnapshotStore(tmp_path))[-1] == 9
    named = {s["name"] for s in json.loads((after.path / files.MANIFEST).read_text())["segments"]}
    assert {p.name for p in after.path.iterdir() if p.name.startswith(("segment", ".tmp"))} == named


def texts_of(i: int) -> dict[int, str]:
    return {i: f"select {i}"}


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SnapshotStore(tmp_path)
    store.add(snapshot(0, {"databases": [{"database_id": 1, "commits": 7}]}))
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    was, left = files.write_synced, [2]

    def full(path: Path, content: bytes, *, synced: bool = True) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        was(path, content, synced=synced)

    monkeypatch.setattr(files, "write_synced", full)
    with pytest.raises(StoreFull):
        store.add(snapshot(1, {"databases": [{"database_id": 1, "commits": 8}]}))
    monkeypatch.undo()
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    store.add(snapshot(2, {"databases": [{"database_id": 1, "commits": 9}]}))
    assert _commits(SnapshotStore(tmp_path)) == [7, 9]


def test_on_a_full_disk_snapshots_can_be_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "_TOGETHER", 3)
    store = SnapshotStore(tmp_path)
    for i in range(6):
        store.add(snapshot(i, {"databases": [{"database_id": 1, "commits": i}]}))

    def full(*_: object) -> None:
        raise StoreFull("no space left")

    monkeypatch.setattr(SnapshotStore, "_write", full)
    store.remove({i.id for i in store.list()[:4]})
    monkeypatch.undo()
    assert len(list(store.path.glob("segment-*"))) == 1
    assert _commits(SnapshotStore(tmp_path)) == [4, 5]
    store.add(snapshot(9, {"databases": [{"database_id": 1, "commits": 9}]}))
    store.remove({store.list()[0].id})
    assert _commits(SnapshotStore(tmp_path)) == [5, 9]


def test_a_reader_reads_to_the_end_while_another_process_prunes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SnapshotStore(tmp_path)
    for i in range(3):
        store.add(snapshot(i, {"databases": [{"database_id": 1, "commits": i}]}))
    info, was = store.list()[0], SnapshotStore._rows

    def slow(self: SnapshotStore, segment: Any, table: str) -> Any:
        monkeypatch.setattr(SnapshotStore, "_rows", was)
        assert _in_another("store.remove({i.id for i in store.list()[:2]})", tmp_path).wait(60) == 0
        return was(self, segment, table)

    monkeypatch.setattr(SnapshotStore, "_rows", slow)
    assert store.read(info).tables["databases"]["commits"].item() == 0
    assert _commits(SnapshotStore(tmp_path)) == [2]
    with pytest.raises(StoreError):
        store.read(info)
    store.add(snapshot(5))
    assert len([p for p in store.path.iterdir() if p.name.startswith("segment")]) == 2


def test_ten_thousand_relations_are_stored_and_read_back(tmp_path: Path) -> None:
    rows = [
        {"database_id": 1, "relation_id": i, "relation": f'"{i}"\n', "seq_scans": i} for i in range(10_000)
    ]
    store = SnapshotStore(tmp_path)
    for minute in range(2):
        rows[7]["seq_scans"] = minute
        store.add(snapshot(minute, {"relations": rows}))
    _same(store.read(store.list()[1]), snapshot(1, {"relations": rows}))


def test_a_damaged_segment_is_left_out_and_named(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    for minute in range(3):
        store.add(snapshot(minute))
    segment = sorted(p for p in store.path.iterdir() if p.name.startswith("segment"))[1]
    (segment / "segment.json").write_text("{")
    fresh = SnapshotStore(tmp_path)
    assert [i.taken for i in fresh.list()] == [BEGAN, BEGAN + timedelta(minutes=2)]
    assert list(fresh.damaged) == [segment.name]
    fresh.remove({fresh.list()[0].id})
    assert len(fresh.list()) == 1


@pytest.mark.root
def test_on_a_full_file_system_the_store_stays_whole(tmp_path: Path) -> None:
    """Once there is room the next one is stored; what was there can be read all the time."""
    (place := tmp_path / "small").mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounts a tmpfs: run the tests as root")
    try:
        store, draw = SnapshotStore(place), random.Random(3)
        rows = [{"database_id": 1, "relation_id": i} for i in range(3000)]
        with pytest.raises(StoreFull):
            for minute in range(60):
                store.add(
                    snapshot(minute, {"relations": [r | {"seq_rows": draw.getrandbits(60)} for r in rows]})
                )
        stored = SnapshotStore(place).list()
        assert stored and all(store.read(i).tables["relations"].height == 3000 for i in stored)
        assert not [p for p in store.path.iterdir() if p.name.startswith(".tmp")]
        SnapshotStore(place).remove({i.id for i in stored})
        assert SnapshotStore(place).add(snapshot(99))
    finally:
        subprocess.run(["umount", place], check=True)
