"""``dbdyno sql`` over snapshots: growth of counters, changed rows, hostile names."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.unit.made_snapshots import BEGAN, snapshot

from dbdyno.cli.app import app
from dbdyno.model.errors import DbdynoError
from dbdyno.store import SnapshotStore, snapshots
from dbdyno.store.sql import query


def _ask(sql: str, *roots: Path) -> list[tuple[Any, ...]]:
    answer = query(sql, [], roots=roots)
    assert not answer.warnings
    return list(answer.rows)


def _at(minute: float) -> datetime:
    return (BEGAN + timedelta(minutes=minute)).replace(tzinfo=None)


def _relation(number: int, scans: int | None, **more: Any) -> dict[str, Any]:
    return {"database_id": 1, "relation_id": number, "relation": f"t{number}", "seq_scans": scans} | more


@pytest.mark.parametrize("together", [2, 3, 100])
def test_counters_are_their_growth_in_rows_that_changed(
    together: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "_TOGETHER", together)
    store = SnapshotStore(tmp_path)
    for minute, first, second in ((0, 5, 1), (10, 8, 1), (20, 9, 1), (30, 2, 4), (40, 2, 4), (50, 7, 4)):
        rows = [_relation(1, first, live_rows=100 + minute // 30), _relation(2, second)]
        rows += [_relation(3, 11)] if minute >= 40 else []
        store.add(snapshot(minute, {"relations": rows}))
    sql = "select taken, relation, seq_scans, live_rows from snapshot_relations order by taken, relation"
    assert _ask(sql, tmp_path) == [
        (_at(0), "t1", None, 100),  # the first snapshot has no growth
        (_at(0), "t2", None, None),
        (_at(10), "t1", 3, 100),
        (_at(20), "t1", 1, 100),
        (_at(30), "t1", None, 101),  # reset
        (_at(30), "t2", 3, None),
        (_at(40), "t3", 11, None),  # created between two snapshots
        (_at(50), "t1", 5, 101),
    ]
    assert _ask("select sum(seq_scans) from snapshot_relations where relation = 't2'", tmp_path) == [(3,)]


def test_the_view_of_snapshots_lists_them_and_what_could_not_be_read(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    store.add(snapshot(0, name='it\'s "one"', missing={"io": "too old"}, every_s=600.0))
    SnapshotStore(tmp_path / "run").add(snapshot(5, run="r", cell="0001"))
    sql = "select taken, name, missing, every_s, run_id, cell, databases from snapshots order by taken"
    assert _ask(sql, tmp_path, tmp_path / "run") == [
        (_at(0), 'it\'s "one"', ["io"], 600.0, None, None, ["app"]),
        (_at(5), None, [], None, "r", "0001", ["app"]),
    ]
    assert _ask("select count(*) from snapshot_relations", tmp_path, tmp_path / "none") == [(0,)]


def test_names_with_quotes_and_newlines_are_read_as_they_are(tmp_path: Path) -> None:
    place = tmp_path / "it's [odd] *"
    rows = [_relation(1, 5, relation="a\"b\n'c", schema="; drop table x")]
    SnapshotStore(place).add(snapshot(0, {"relations": rows}))
    assert _ask("select relation, schema from snapshot_relations", place) == [("a\"b\n'c", "; drop table x")]


def test_a_damaged_file_is_left_out_with_a_warning(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    for minute in (0, 10):
        store.add(snapshot(minute, {"relations": [_relation(1, minute)]}))
    path = max(store.path.glob("segment-*/relations.parquet"))
    path.write_bytes(path.read_bytes()[:-9])
    answer = query("select taken from snapshot_relations", [], roots=[tmp_path])
    assert list(answer.rows) == [(_at(0),)]
    assert len(answer.warnings) == 1


def test_rows_of_a_query_under_way_stay_while_another_program_prunes(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    for minute in range(3):
        store.add(snapshot(minute, {"relations": [_relation(1, minute)]}))
    answer = query("select count(*) from snapshot_relations", [], roots=[tmp_path])
    store.remove({i.id for i in store.list()})
    assert list(answer.rows) == [(3,)]
    store.add(snapshot(9))
    assert len(list(store.path.glob("segment-*"))) == 1


def test_the_command_needs_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBDYNO_STORE", str(tmp_path))
    with pytest.raises(DbdynoError):
        CliRunner().invoke(app, ["sql", "from snapshots"], catch_exceptions=False)
    SnapshotStore(tmp_path).add(snapshot())
    done = CliRunner().invoke(app, ["sql", "--csv", "select address from snapshots"], catch_exceptions=False)
    assert done.output.splitlines() == ["address", "db1:5432"]
