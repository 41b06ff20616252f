"""``dbdyno clean`` after kill -9 restores settings on the server they belong to, and on no other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from dbdyno.store.journal import left_over
from tests.db.limiting import clean

NAME, OURS = "work_mem", "7777kB"
SET = """
import os, signal, sys
from dbdyno.engines import open_server
from dbdyno.model.engine.protocols import Target
from dbdyno.store.journal import FileJournal
with open_server("postgres", Target(dsn=sys.argv[1])) as server:
    done = server.configure({sys.argv[2]: sys.argv[3]}, FileJournal("killed"))
    print(done.in_force, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBDYNO_STATE_DIR", str(tmp_path / "state"))


def in_force(dsn: str) -> str:
    with psycopg.connect(dsn) as connection:
        return str(connection.execute(f"show {NAME}".encode()).fetchone()[0])  # type: ignore[index]


def test_clean_puts_settings_of_a_killed_run_back_on_its_own_server_alone(dsn18: str, servers) -> None:  # type: ignore[no-untyped-def]
    other = servers.dsn(16)
    before = in_force(dsn18)
    killed = subprocess.run([sys.executable, "-c", SET, dsn18, NAME, OURS], capture_output=True, text=True)
    assert OURS in killed.stdout, killed.stderr
    assert in_force(dsn18) == OURS
    (undo,) = left_over().dead[0].undos

    elsewhere = clean(other)
    assert (
        f"run killed: not put back: {undo.what}; it is another server's or database's: name that one"
        in elsewhere
    )
    unreachable = clean("host=/nonexistent", code=3)
    assert f"run killed: not put back: {undo.what}; the server cannot be reached" in unreachable
    assert in_force(dsn18) == OURS

    assert "run killed: " in clean(dsn18)
    assert in_force(dsn18) == before
    assert left_over().dead == []
    assert clean(dsn18) == "nothing to remove\n"
    assert in_force(other) == before
