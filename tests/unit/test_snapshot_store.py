"""The store of snapshots: what was put in comes out, whatever was merged, removed or cut short."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from polars.testing import assert_frame_equal
from tests.unit.made_snapshots import BEGAN, frame, info, snapshot, texts

from dbdyno.model.snapshot import TABLES, Snapshot
from dbdyno.store import SnapshotStore, snapshots

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


def _made(draw: random.Random, minute: int, before: Snapshot | None) -> Snapshot:
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


def _same(found: Snapshot, put: Snapshot) -> None:
    for name, form in TABLES.items():
        key = [c.name for c in form.columns]
        assert_frame_equal(found.tables[name].sort(key), put.tables[name].sort(key))


@pytest.mark.parametrize("seed", range(3))
def test_what_was_put_in_comes_out(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "_TOGETHER", 4)
    draw, store, put = random.Random(seed), SnapshotStore(tmp_path), list[Snapshot]()
    for minute in range(14):
        put.append(_made(draw, minute, put[-1] if put else None))
        store.add(put[-1])
    infos = list(SnapshotStore(tmp_path).list())
    assert [i.taken for i in infos] == [p.info.taken for p in put]
    for found, was in zip(infos, put, strict=True):
        _same(SnapshotStore(tmp_path).read(found), was)
    gone = draw.sample(infos, 6)
    store.remove({i.id for i in gone})
    left = [(i, p) for i, p in zip(infos, put, strict=True) if i not in gone]
    assert list(store.list()) == [i for i, _ in left]
    for found, was in left:
        _same(SnapshotStore(tmp_path).read(found), was)


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
    found = [store.read(i) for i in store.list()]
    assert [s.tables["databases"]["commits"].item() for s in found] == list(range(10))
    assert [s.info.server for s in found] == ["7000", "7001"] * 5


def test_an_empty_store_is_no_error(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path / "none")
    assert not store.list() and store.known_texts() == set() and not (tmp_path / "none").exists()
