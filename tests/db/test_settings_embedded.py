"""Settings of a variant on the embedded server: reloads, restarts, starts that fail, kill -9 of owners."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dbdyno.engines.postgres import PostgresServer, embedded, open_server, sessions
from dbdyno.engines.postgres.embedded import files, postmaster
from dbdyno.model.engine.protocols import Target, Undo
from dbdyno.model.errors import ServerBusy, UsageError
from tests.db.conftest import eventually
from tests.fakery import LIO, Notes

pytestmark = pytest.mark.db


BASE = {"shared_buffers": "64MB", "work_mem": "5MB", "fsync": "off"}


@pytest.fixture
def server(home: Path) -> Iterator[PostgresServer]:  # noqa: ARG001
    with closing(open_server(Target(settings=BASE, sessions=8))) as server:
        yield server


def show(server: PostgresServer, name: str) -> str:
    """Returns a setting in a new session."""
    with psycopg.connect(server._dsn) as fresh:
        row = fresh.execute(f"show {name}".encode()).fetchone()
    assert row is not None
    return str(row[0])


def main_pid(server: PostgresServer) -> int:
    pid = server.facts().main_pid
    assert pid is not None
    return pid


def test_a_reload_suffices_where_it_can_and_restores_the_opening_values(server: PostgresServer) -> None:
    first, notes = main_pid(server), Notes()
    assert list(server.check_settings({"work_mem": "9MB", "autovacuum_naptime": "2min"})) == []
    done = server.configure({"work_mem": "9MB", "autovacuum_naptime": "120s"}, notes)
    assert done.in_force == {"work_mem": "9MB", "autovacuum_naptime": "2min"}
    assert not done.restarted
    assert not server.configure({"autovacuum_naptime": "3min"}, notes).restarted
    assert (show(server, "work_mem"), show(server, "autovacuum_naptime")) == ("5MB", "3min")
    server.configure({}, notes)
    assert show(server, "autovacuum_naptime") == "1min"
    assert (main_pid(server), notes.undos) == (first, {})


def test_a_restart_happens_only_where_one_is_needed(server: PostgresServer) -> None:
    pids, notes = [main_pid(server)], Notes()
    server.claim("run-1")
    with psycopg.connect(server._dsn, autocommit=True) as other:
        other.execute("create table kept as select 1 as n")
    assert list(server.check_settings({"shared_buffers": "32MB", "work_mem": "6MB"})) == ["shared_buffers"]
    for settings, restarts in (
        ({"shared_buffers": "32MB", "work_mem": "6MB"}, True),
        ({"shared_buffers": "32768kB", "work_mem": "7MB"}, False),  # the same in other words
        ({"shared_buffers": "64MB", "work_mem": "7MB"}, True),
        ({"work_mem": "7MB"}, False),  # what it was opened with is in force
        ({"max_connections": "50"}, True),
        ({}, True),
        ({}, False),
    ):
        done = server.configure(settings, notes)
        assert done.restarted is restarts, settings
        pids += [main_pid(server)] if restarts else []
        assert main_pid(server) == pids[-1]
    assert len(set(pids)) == 5
    assert (show(server, "shared_buffers"), show(server, "work_mem")) == ("64MB", "5MB")
    assert show(server, "max_connections") == "100"
    with psycopg.connect(server._dsn) as other:
        assert other.execute("select n from kept").fetchone() == (1,)
    with closing(PostgresServer(server._dsn)) as second, pytest.raises(ServerBusy, match="run-1"):
        second.claim("run-2")
    facts = embedded.status()
    assert (facts["pid"], facts["stays"]) == (pids[-1], False)
    server.close()
    assert not embedded.status()["running"]


@pytest.mark.parametrize("major", [14, 15, 16, 17])
def test_other_versions_restart_too_and_survive_a_start_that_fails(
    servers: Any,
    home: Path,  # noqa: ARG001
    major: int,
) -> None:
    with closing(open_server(Target(bin_dir=servers.bin_dir(major), settings=BASE))) as server:
        first, notes = main_pid(server), Notes()
        done = server.configure({"shared_buffers": "32MB", "work_mem": "6MB"}, notes)
        assert (done.in_force, done.restarted) == ({"shared_buffers": "32MB", "work_mem": "6MB"}, True)
        with pytest.raises(UsageError, match="WAL streaming"):
            server.configure({"wal_level": "minimal"}, notes)
        assert (show(server, "shared_buffers"), show(server, "work_mem")) == ("64MB", "5MB")
        assert main_pid(server) != first


def test_a_start_that_fails_is_survived(server: PostgresServer) -> None:
    notes = Notes()
    server.configure({"work_mem": "6MB"}, notes)
    with pytest.raises(UsageError) as caught:
        server.configure({"wal_level": "minimal", "max_wal_senders": "5"}, notes)
    assert "with wal_level = minimal, max_wal_senders = 5: the embedded server did not start" in str(
        caught.value
    )
    assert "WAL streaming" in str(caught.value)
    assert "shutdown request" not in str(caught.value)  # of the life before
    assert (show(server, "wal_level"), show(server, "work_mem")) == ("replica", "5MB")
    assert server.configure({"work_mem": "7MB"}, notes).in_force == {"work_mem": "7MB"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"shared_preload_libraries": "no_such_library"}, "no_such_library"),
        ({"max_connections": "9"}, "no room for 8 sessions"),
        ({"port": "5433"}, "no longer find"),
        ({"unix_socket_directories": "/tmp"}, "no longer find"),
        ({"cluster_name": "mine"}, "what it is called"),
        ({"hba_file": "/tmp/x"}, "where the server's files are"),
        ({"shared_buffers": "lots"}, "lots"),
        ({"block_size": "4096"}, "cannot be changed"),
    ],
)
def test_impossible_settings_are_refused_and_change_nothing(
    server: PostgresServer, settings: dict[str, str], words: str
) -> None:
    first = main_pid(server)
    for refusing in (server.check_settings, lambda s: server.configure(s, Notes())):
        with pytest.raises(UsageError) as caught:
            refusing(settings)
        assert words in str(caught.value)
    assert main_pid(server) == first


def test_a_value_of_alter_system_would_win_and_is_named(server: PostgresServer) -> None:
    with psycopg.connect(server._dsn, autocommit=True) as other:
        other.execute("alter system set work_mem = '3MB'")
    server.configure({"autovacuum_naptime": "2min"}, Notes())  # reloads
    with pytest.raises(UsageError, match="ALTER SYSTEM RESET work_mem"):
        server.check_settings({"work_mem": "9MB"})


@pytest.mark.parametrize("major", [15])
def test_a_library_brings_its_settings(servers: Any, home: Path, major: int) -> None:  # noqa: ARG001
    """Debian's programs have contrib."""
    target = Target(bin_dir=servers.bin_dir(major), settings=BASE)
    wanted = {"shared_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "1min"}
    with closing(open_server(target)) as server:
        with pytest.raises(UsageError, match="no library that is loaded"):
            server.check_settings({"auto_explain.log_min_duration": "1min"})
        notes = Notes()
        done = server.configure(wanted, notes)
        assert (done.in_force, done.restarted) == (wanted, True)
        assert server.configure({}, notes).restarted
        assert show(server, "shared_preload_libraries") == "pg_stat_statements"


def test_a_variant_wins_over_what_the_workload_sets_for_its_sessions(server: PostgresServer) -> None:
    """Each session sets what keeps plans constant, and no timeouts, but no setting of the variant."""
    server.prepare(LIO, {}, 1)
    assert "'jit', 'off'" in _set_up(server)
    assert "'statement_timeout', '0'" in _set_up(server)
    server.configure({"JIT": "on", "statement_timeout": "9s"}, Notes())
    set_up = _set_up(server)
    assert "'jit'" not in set_up
    assert "'statement_timeout'" not in set_up
    assert "'lock_timeout', '0'" in set_up
    server.configure({}, Notes())
    assert "'jit', 'off'" in _set_up(server)


def _set_up(server: PostgresServer) -> str:
    """Returns the statements with which the sessions of a load begin."""
    recipe = replace(server._recipe(LIO, {}), varied=server._settings.names)
    return "; ".join(sessions.entries(server._connection, recipe, 1, 1)[0]["setup"])


# -- an owner that is killed, a server that stays -------------------------------------------------

OWNER = """
import json, sys
from dbdyno.engines.postgres import open_server
from dbdyno.model.engine.protocols import Target

class Notes:
    def note(self, undo):
        with open(sys.argv[1], "a") as journal:
            journal.write(undo.model_dump_json() + "\\n")
    def forget(self, key):
        raise AssertionError(key)

server = open_server(Target(settings=json.loads(sys.argv[3])))
server.configure(json.loads(sys.argv[2]), Notes())
print(server.facts().main_pid, flush=True)
sys.stdin.read()
"""


def kill_run(tmp_path: Path, settings: dict[str, str], base: dict[str, str]) -> tuple[int, list[Undo]]:
    """Returns (server's main process, journal) of a run that is killed with -9 once it has changed
    settings."""
    journal = tmp_path / "journal"
    words = [str(journal), json.dumps(settings), json.dumps(base)]
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    changed = process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    lines = journal.read_text().splitlines() if journal.exists() else []
    return int(changed), [Undo.model_validate_json(line) for line in lines]


def test_after_kill_9_of_the_owner_the_next_start_has_no_setting_of_it(home: Path, tmp_path: Path) -> None:  # noqa: ARG001
    pid, undos = kill_run(tmp_path, {"shared_buffers": "32MB", "work_mem": "9MB"}, BASE)
    assert undos == []
    with closing(open_server(Target(settings={"shared_buffers": "48MB"}))) as server:
        assert main_pid(server) != pid
        assert (show(server, "shared_buffers"), show(server, "work_mem")) == ("48MB", "4MB")


@pytest.mark.parametrize("settings", [{"work_mem": "9MB"}, {"work_mem": "9MB", "shared_buffers": "32MB"}])
def test_a_server_that_stays_is_put_back_after_kill_9(
    home: Path,  # noqa: ARG001
    tmp_path: Path,
    settings: dict[str, str],
) -> None:
    embedded.start(settings=BASE, max_connections=30)
    pid, undos = kill_run(tmp_path, settings, {})
    assert len(undos) == 1
    facts = embedded.status()
    assert (facts["pid"], facts["stays"], facts["max_connections"]) == (pid, True, 30)
    assert facts["settings"] == BASE | settings, "as it runs now"
    with closing(open_server(Target())) as server:
        assert show(server, "work_mem") == "9MB"
        assert "back to what it was started with" in str(server.put_back(undos[0]))
        assert (show(server, "work_mem"), show(server, "shared_buffers")) == ("5MB", "64MB")
        elsewhere = undos[0].model_copy(update={"data": undos[0].data | {"embedded": "/elsewhere"}})
        assert server.put_back(elsewhere) is None
    assert embedded.status()["running"]
    embedded.stop()


def test_a_server_that_stays_is_put_back_by_the_next_run_too(home: Path, tmp_path: Path) -> None:  # noqa: ARG001
    """Nobody called `dbdyno clean`, and the settings of the dead run are in no variant of the next."""
    embedded.start(settings=BASE, max_connections=30)
    kill_run(tmp_path, {"work_mem": "9MB", "shared_buffers": "32MB"}, {})
    with closing(open_server(Target())) as server:
        assert show(server, "shared_buffers") == "32MB"
        done = server.configure({"autovacuum_naptime": "2min"}, Notes())
        assert done.in_force == {"autovacuum_naptime": "2min"}
        assert (show(server, "work_mem"), show(server, "shared_buffers")) == ("5MB", "64MB")
        server.configure({}, Notes())
    embedded.stop()


def test_a_server_left_by_a_run_that_was_killed_in_its_restart_is_started_again(home: Path) -> None:  # noqa: ARG001
    """The server was stopped for the restart, and nobody is left to start it again."""
    embedded.start(settings=BASE, max_connections=30)
    facts = embedded.status()
    pid = facts["pid"]
    os.kill(pid, signal.SIGINT)
    while postmaster.is_ready(files.read(facts["data_dir"] + "/postmaster.pid")):
        time.sleep(0.001)
    with closing(open_server(Target(settings={"work_mem": "6MB"}))) as server:
        assert main_pid(server) != pid
        assert show(server, "work_mem") == "6MB"


def test_a_run_without_settings_leaves_a_staying_server_alone(
    home: Path,  # noqa: ARG001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """dbdyno would start it with other settings now, since memory limits differ from group to group."""
    embedded.start(max_connections=30)
    monkeypatch.setattr("dbdyno.engines.postgres.embedded.defaults.shared_buffers", lambda: "48MB")
    with closing(open_server(Target())) as server:
        pid, before = main_pid(server), show(server, "shared_buffers")
        assert before != "48MB"
        assert server.configure({}, Notes()).in_force == {}
        server.configure({"max_connections": "40"}, Notes())
        assert show(server, "shared_buffers") == before
        server.configure({}, Notes())
        assert (main_pid(server) == pid, show(server, "shared_buffers")) == (False, before)
    embedded.stop()


def test_settings_of_a_server_that_has_ended_since_are_not_put_back(home: Path, tmp_path: Path) -> None:  # noqa: ARG001
    embedded.start(settings=BASE, max_connections=30)
    _, undos = kill_run(tmp_path, {"work_mem": "9MB"}, {})
    embedded.stop()
    with closing(open_server(Target())) as server:
        assert "it has ended since" in str(server.put_back(undos[0]))
        assert show(server, "work_mem") == "4MB"


def test_a_server_that_stays_is_not_restarted_under_others(home: Path) -> None:  # noqa: ARG001
    embedded.start(settings=BASE, max_connections=30)
    notes = Notes()
    with closing(open_server(Target())) as server:
        with psycopg.connect(server._dsn, application_name="somebody"):
            with pytest.raises(ServerBusy, match="somebody"):
                server.check_settings({"shared_buffers": "32MB"})
            assert server.configure({"work_mem": "9MB"}, notes).in_force == {"work_mem": "9MB"}
            assert len(notes.undos) == 1
        with psycopg.connect(server._dsn, autocommit=True) as looking:  # a backend ends after its connection
            query = "select from pg_stat_activity where application_name = 'somebody'"
            eventually(lambda: not looking.execute(query).fetchall())
        first = main_pid(server)
        assert server.configure({"shared_buffers": "32MB"}, notes).restarted
        assert main_pid(server) != first
        assert server.configure({}, notes).restarted
        assert notes.undos == {}
    assert embedded.status()["stays"]
    embedded.stop()
