"""The live view's reads on every version: screens, rates against known work, rights."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from tests.waiting import eventually

from dbdyno.engines.postgres import PostgresServer
from dbdyno.engines.postgres.live import Growth
from dbdyno.engines.postgres.live_screens import SCREENS
from dbdyno.model.engine.live import LiveAnswer, LiveReader, LiveRequest
from dbdyno.model.plan.plan import Observation


@contextmanager
def reading(dsn: str, **chosen: str) -> Iterator[LiveReader]:
    with closing(PostgresServer(dsn)) as server, server.live.opened(Observation(**chosen)) as reader:  # type: ignore[arg-type]
        yield reader


def read(reader: LiveReader, screen: str) -> LiveAnswer:
    answer = reader.read(LiveRequest(screen))
    assert not any("not read" in note or "no answer" in note for note in answer.rows.notes)
    return answer


@pytest.mark.db
@pytest.mark.parametrize("name", [entry.screen.name for entry in SCREENS])
def test_rows_of_every_screen_have_its_columns(any_dsn: str, name: str) -> None:
    screen = next(entry.screen for entry in SCREENS if entry.screen.name == name)
    with (
        psycopg.connect(any_dsn) as holder,
        psycopg.connect(any_dsn, autocommit=True) as other,
        reading(any_dsn) as reader,
    ):
        holder.execute("create temporary table held (n int)")
        pid = holder.info.backend_pid
        other.execute("select pg_create_physical_replication_slot('live_screens', true)")
        try:
            time.sleep(1.1)  # a transaction that is younger is left out
            rows = read(reader, name).rows.rows
        finally:
            other.execute("select pg_drop_replication_slot('live_screens')")
    assert all({c.name for c in screen.columns} | set(screen.key) <= set(row) for row in rows)
    if name == "transactions":
        held = next(row for row in rows if row["pid"] == pid)
        assert held["state"] == "idle in tx" and held["age"] >= 1 and "create temporary" in held["statement"]
    if name == "replication":
        slot = next(row for row in rows if row["name"] == "live_screens")
        assert slot["what"] == "unused slot" and slot["kept_bytes"] >= 0
    if name == "temp":
        assert "postgres" in {row["database"] for row in rows}


@pytest.mark.db
def test_a_vacuum_in_progress_is_shown_with_its_share(dsn18: str) -> None:
    with psycopg.connect(dsn18, autocommit=True) as owner, reading(dsn18) as reader:
        owner.execute("create table long_vacuum as select n from generate_series(1, 100000) n")
        owner.execute("delete from long_vacuum where n % 2 = 0")
        vacuum = psycopg.connect(dsn18, autocommit=True)
        try:
            vacuum.execute("set vacuum_cost_delay = 100; set vacuum_cost_limit = 1")
            pid = vacuum.info.backend_pid
            vacuum.pgconn.send_query(b"vacuum long_vacuum")
            rows = eventually(lambda: [r for r in read(reader, "progress").rows.rows if r["pid"] == pid])
            assert (rows[0]["command"], rows[0]["relation"]) == ("vacuum", "public.long_vacuum")
            assert rows[0]["unit"] == "blocks" and 0 <= rows[0]["share"] <= 1
        finally:
            vacuum.cancel_safe()
            vacuum.close()
            owner.execute("drop table long_vacuum")


@pytest.mark.db
def test_the_header_counts_the_work_of_others_alone(dsn18: str) -> None:
    """200 transactions between two reads; dbdyno's own connections add none."""
    with psycopg.connect(dsn18, autocommit=True) as client, reading(dsn18) as reader:
        first = time.monotonic()
        read(reader, "")
        for n in range(200):
            client.execute(f"select {n}")
        client.execute("select pg_stat_force_next_flush()")
        client.execute("select 1")
        figures = read(reader, "").figures
        longest = time.monotonic() - first
        assert figures.sessions is not None and figures.sessions >= 1
        assert figures.most_sessions is not None and figures.active is not None
        assert figures.transactions_per_s is not None and figures.transactions_per_s * longest >= 195


@pytest.mark.db
def test_a_role_without_rights_is_told_what_is_missing_and_the_cure(dsn18: str) -> None:
    with psycopg.connect(dsn18, autocommit=True) as owner:
        owner.execute("create role live_guest login")
        try:
            owner.execute("begin")
            with reading(make_conninfo(dsn18, user="live_guest")) as reader:
                answer = read(reader, "transactions")
            assert any("GRANT pg_monitor TO live_guest" in note for note in answer.rows.notes)
            assert answer.figures.active is None and answer.figures.sessions
        finally:
            owner.execute("rollback")
            owner.execute("drop role live_guest")


def test_rates_are_of_the_last_seconds_and_a_reset_has_none() -> None:
    growth = Growth()
    assert growth.per_s(10.0, {"a": 100}) == {}
    assert growth.per_s(12.0, {"a": 120, "b": 5}) == {"a": 10.0}
    assert growth.per_s(16.0, {"a": 180, "b": 9}) == {"a": 80 / 6, "b": 1.0}
    assert growth.per_s(22.0, {"a": 180, "b": 9}) == {"a": 0.0, "b": 0.0}  # against the read at 16
    assert growth.per_s(23.0, {"a": 3, "b": 9}) == {"b": 0.0}


@pytest.mark.db
def test_a_text_that_the_server_does_not_have_is_not_requested_at_each_read(dsn18: str) -> None:
    with reading(dsn18) as reader:
        read(reader, "SQL")  # looks at rights, too
        connection, sent = reader.connection, []  # type: ignore[attr-defined]
        for _ in range(3):
            before = connection.statements
            assert reader.read(LiveRequest("SQL", query_ids=[12345])).statements[12345].text is None
            sent.append(connection.statements - before)
    assert sent[0] > sent[1] == sent[2]
