"""Counters by second on a real server: full-page images rise after each checkpoint, as pg_stat_wal has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import psycopg
import pytest
from click.testing import CliRunner
from psycopg.conninfo import make_conninfo

from dbdyno.cli.app import app
from dbdyno.conduct.derive.rebuild import conclude
from dbdyno.engines.postgres.server import PostgresServer
from dbdyno.model.sources.second_counters import (
    CHECKPOINT_START,
    CHECKPOINTS_BEGUN,
    FULL_PAGE_IMAGES,
    WAL_POSITION,
)
from dbdyno.store import RunStore
from tests.conftest import VERSIONS, Servers
from tests.db.meanwhile import disturbed
from tests.waiting import eventually

pytestmark = pytest.mark.db
PAGES = 400


@pytest.fixture(params=[v for v in VERSIONS if v != 16], ids=lambda v: f"pg{v}")
def paged(servers: Servers, request: pytest.FixtureRequest) -> Iterator[str]:
    """Returns the DSN of a server with a table of one row a page."""
    dsn = servers.dsn(request.param)
    with psycopg.connect(dsn, autocommit=True) as session:
        session.execute("drop table if exists paged")
        session.execute("create table paged (id int primary key, v int, filler text) with (fillfactor = 50)")
        session.execute("alter table paged alter filler set storage plain")
        session.execute(
            f"insert into paged select n, 0, repeat('x', 3900) from generate_series(1, {PAGES}) n"
        )
        session.execute("checkpoint")
        yield dsn
        session.execute("drop table paged")


def _values(server: PostgresServer) -> dict[str, float]:
    read = server.second_counters()
    assert all(row["status"] == "ok" and row["before_ns"] <= row["after_ns"] for row in read)
    return {row["name"]: row["value"] for row in read}


def test_each_counter_is_what_the_server_says(paged: str) -> None:
    with psycopg.connect(paged, autocommit=True) as session:
        server = PostgresServer(paged)
        try:
            if server.version < 150000:
                assert not server.second_counters()
                return
            images = "select wal_fpi from pg_stat_wal"
            flushed = "select pg_stat_force_next_flush(), count(*) from paged"
            before = _values(server)
            session.execute("update paged set v = v + 1")
            session.execute(flushed)
            least = session.execute(images).fetchone()[0]
            changed = _values(server)
            assert least <= changed[FULL_PAGE_IMAGES] <= session.execute(images).fetchone()[0]
            assert changed[FULL_PAGE_IMAGES] - before[FULL_PAGE_IMAGES] >= PAGES
            assert changed[WAL_POSITION] - before[WAL_POSITION] >= PAGES * 3900
            assert changed[CHECKPOINT_START] == before[CHECKPOINT_START]
            session.execute("checkpoint")
            begun = before[CHECKPOINTS_BEGUN] + 1  # counted by the checkpointer, just afterwards
            done = eventually(lambda: (v := _values(server))[CHECKPOINTS_BEGUN] == begun and v)
            assert changed[WAL_POSITION] <= done[CHECKPOINT_START] <= done[WAL_POSITION]
        finally:
            server.close()


def test_a_role_that_may_not_call_a_function_has_unknown_counters(dsn18: str) -> None:
    function = "function pg_control_checkpoint()"
    with psycopg.connect(dsn18, autocommit=True) as session:
        session.execute(f"create role few login; revoke execute on {function} from public".encode())
        try:
            server = PostgresServer(make_conninfo(dsn18, user="few"))
            read = server.second_counters()
            server.close()
        finally:
            session.execute(f"grant execute on {function} to public; drop role few".encode())
    assert [(row["value"], row["status"]) for row in read] == [(None, "not permitted")] * 4


def test_images_rise_after_each_checkpoint_of_a_run(paged: str, tmp_path: Path) -> None:
    """Updates of random pages: after a checkpoint each page's first one has an image, others have none."""
    with psycopg.connect(paged) as session:
        version = session.info.server_version
    script = tmp_path / "touch.sql"
    script.write_text(f"\\set id random(1, {PAGES})\nupdate paged set v = v + 1 where id = :id;\n")
    load = ("--sessions", "2", "--think", "1ms", "--measure", "9s", "--settle", "500ms")
    run = ["run", "-f", str(script), "--dsn", paged, "--store", str(tmp_path), *load]
    with disturbed(paged, "update paged", (3.2, "checkpoint"), (3.0, "checkpoint")) as times:
        done = CliRunner().invoke(app, run)
    assert done.exit_code == 0, done.output
    record = RunStore(tmp_path).open("last")
    (cell,), _ = record.read_cells()
    read = cell.tables["counter_series"]
    if version < 150000:
        assert read.is_empty()
        row = cell.tables["sources"].filter(name="counters by second").row(0, named=True)
        assert row["status"] == "not supported" and "this version" in row["detail"]
        return
    assert read["name"].n_unique() == 4 and 8 <= read.filter(name=WAL_POSITION).height <= 14
    activity = conclude(record, lambda _: None).tables["activity_over_time"]
    images = activity.filter(name="full-page images").sort("start_s")
    at_s = [(t * 1e9 - cell.meta.t0_ns) / 1e9 for t in times]
    assert len(at_s) == 2 and all(0 < t < 8 for t in at_s)
    for second in at_s:
        after = images.filter((pl.col("end_s") > second) & (pl.col("start_s") < second + 2.5))["value"].sum()
        before = images.filter((pl.col("end_s") <= second) & (pl.col("start_s") >= second - 2))["value"].sum()
        assert after > before, (second, images)  # on a busy machine it takes long until all pages have one
    checkpoint = activity.filter(kind="checkpoint", unit="s/s")
    assert set(checkpoint.filter(pl.col("value") > 0)["start_s"]) >= {float(int(t)) for t in at_s}
