"""Costs of a call on real servers, against what the test reads itself: WAL positions and counters, and the
kernel's count of switches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.db.conftest import Bench

pytestmark = pytest.mark.db

SHORT = ("--sessions", "1", "--measure", "2s", "--settle", "200ms", "--no-memory", "--no-snapshots")
UPDATE = "update costly set n = n + 1 where id = 1;\n"
CHECKPOINTED = f"checkpoint;\n{UPDATE}"
"""Each update writes an image of the page that it changes."""
OWN = 50
"""Calls that the test makes itself."""


@pytest.fixture
def admin(kind_dsn: str) -> Any:
    with psycopg.connect(kind_dsn, autocommit=True) as connection:
        connection.execute("drop table if exists costly")
        connection.execute("create table costly (id int primary key, n bigint)")
        connection.execute("insert into costly values (1, 0)")
        yield connection
        connection.execute("drop table costly")


def _costs(bench: Bench, script: Path, text: str, dsn: str, *words: str) -> dict[str, dict[str, Any]]:
    script.write_text(text)
    done = bench.here("run", "-f", str(script), "--dsn", dsn, *SHORT, *words)
    assert done.returncode == 0, done.stderr
    rows = [r for r in bench.last()["costs"] if r["per"] == "call"]
    return {r["figure"]: r for r in rows}


def _grown(admin: psycopg.Connection[Any], read: str, call: Callable[[], object]) -> float:
    """Returns the growth of what a statement reads, per call of the test's own."""
    flush = "select pg_stat_force_next_flush()"  # by the version: 14 has a collector
    values = []
    for _ in range(2):
        if admin.info.server_version >= 150000:
            admin.execute(flush)
        row = admin.execute(read.encode()).fetchone()
        assert row is not None
        values.append(float(row[0]))
        if len(values) == 1:
            for _ in range(OWN):
                call()
    return (values[1] - values[0]) / OWN


def _calls(admin: psycopg.Connection[Any], text: str) -> Callable[[], None]:
    def call() -> None:
        for sql in text.strip().splitlines():
            admin.execute(sql.encode())

    return call


POSITION = "select pg_current_wal_insert_lsn() - '0/0'"


def test_wal_of_an_update_is_what_the_log_grows_by(
    bench: Bench, kind_dsn: str, admin: psycopg.Connection[Any], tmp_path: Path
) -> None:
    admin.execute("checkpoint")
    admin.execute(UPDATE.encode())  # the page's image is written: none follows
    position = _grown(admin, POSITION, _calls(admin, UPDATE))
    records = _grown(admin, "select wal_records from pg_stat_wal", _calls(admin, UPDATE))
    costs = _costs(bench, tmp_path / "update.sql", UPDATE, kind_dsn)
    # The position includes the alignment of records to 8 bytes and headers of pages.
    assert position * 0.85 <= costs["wal_bytes"]["value"] <= position * 1.02
    # Now and then an update removes what earlier ones left, which is a record more.
    assert costs["wal_records"]["value"] == pytest.approx(records, rel=0.05)
    assert costs["wal_full_page_images"]["value"] < 0.1
    assert costs["network_bytes"]["value"] > 2 * len("UPDATE 1")


def test_images_of_pages_after_a_checkpoint_are_counted(
    bench: Bench, kind_dsn: str, admin: psycopg.Connection[Any], tmp_path: Path
) -> None:
    call = _calls(admin, CHECKPOINTED)
    call()
    images = _grown(admin, "select wal_fpi from pg_stat_wal", call)
    costs = _costs(bench, tmp_path / "checkpoint.sql", CHECKPOINTED, kind_dsn)
    assert images >= 1
    assert costs["wal_full_page_images"]["value"] == pytest.approx(images, rel=0.1)
    # Checkpoints write the page for the session: a share of the background alone.
    assert costs["writes"]["background"] >= 0.9
    assert costs["writes"]["value"] < 0.1
    assert costs["cpu_ns"]["background"] > 0


def test_a_sleeping_call_switches_once_for_its_sleep_and_at_most_once_for_its_client(
    bench: Bench, kind_dsn: str, tmp_path: Path
) -> None:
    """The test counts by /proc what the run counts by its own means: a backend that sleeps and answers. On a
    busy machine the next call may be there before the backend waits for it."""
    text = "select pg_sleep(0.005);\n"
    costs = _costs(bench, tmp_path / "sleep.sql", text, kind_dsn, "--waits", "sampled")
    with psycopg.connect(kind_dsn, autocommit=True) as connection:
        row = connection.execute("select pg_backend_pid()").fetchone()
        assert row is not None
        before = _voluntary(row[0])
        for _ in range(OWN):
            connection.execute(text.encode())
        own = (_voluntary(row[0]) - before) / OWN
    most = 2.2  # and now and then one for something else
    assert 1 <= own <= most
    assert 1 <= costs["switches_voluntary"]["value"] <= most


def _voluntary(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("voluntary_ctxt"))
