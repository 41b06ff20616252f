"""Settings of a variant on servers that are not ours: checked without a trace, put in force, put back."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dbdyno.engines.postgres import PostgresServer
from dbdyno.engines.postgres.settings import values
from dbdyno.model.engine.protocols import Undo
from dbdyno.model.errors import NotPrivileged, TargetError, UsageError
from tests.conftest import KINDS
from tests.contract.plain_server import PlainServer, plain_server

pytestmark = pytest.mark.db

ENTRIES = "select name, setting from pg_file_settings where sourcefile like '%postgresql.auto.conf'"


class Notes:
    """A journal in memory; the first entry of a key counts."""

    def __init__(self) -> None:
        self.undos: dict[str, Undo] = {}
        self.ever: list[str] = []

    def note(self, undo: Undo) -> None:
        self.undos.setdefault(undo.key, undo)
        self.ever.append(undo.what)

    def forget(self, key: str) -> None:
        self.undos.pop(key, None)


@pytest.fixture(scope="module", params=KINDS, ids=lambda v: f"pg{v}")
def plain(servers: Any, request: pytest.FixtureRequest) -> Iterator[PlainServer]:
    """Yields a server that dbdyno did not start."""
    with plain_server(servers.bin_dir(request.param)) as plain:
        yield plain


@pytest.fixture
def server(plain: PlainServer) -> Iterator[PostgresServer]:
    plain.ask("alter system reset all")
    plain.ask("select pg_reload_conf()")
    with closing(PostgresServer(plain.dsn)) as server:
        yield server


def entries(plain: PlainServer) -> dict[str, str]:
    return dict(plain.ask(ENTRIES))


# -- a check, which changes nothing ---------------------------------------------------------------

REFUSED = [
    ({"work_memm": "8MB"}, "did you mean 'work_mem'"),
    ({"work_mem": "8XB"}, "8XB"),
    ({"work_mem": "-1"}, "64"),
    ({"block_size": "4096"}, "cannot be changed"),
    ({"synchronous_commit": "maybe"}, "maybe"),
    ({"autovacuum_naptime": "0"}, "autovacuum_naptime"),
    ({"checkpoint_timeout": "5 parsecs"}, "parsecs"),
    ({"checkpoint_timeout": "2d"}, "30 to 86400"),
    ({"full_page_writes": "perhaps"}, "on or off"),
    ({"log_destination": "pigeon"}, "pigeon"),
    ({"synchronous_standby_names": "a((("}, "synchronous_standby_names"),
    ({"wal_sync_method": "hope"}, "fsync"),
    ({"default_tablespace": "nowhere"}, "nowhere"),
    ({"transaction_isolation": "serializable"}, "transaction_isolation"),
    ({"session_preload_libraries": "no_such_library"}, "no_such_library"),
    ({"nothing.of_that": "1"}, "no library"),
    ({"listen_addresses": "*"}, "no longer find the server"),
    ({"data_directory": "/tmp"}, "where the server's files are"),
    ({"archive_command": "scp %p backup@host:"}, "secret"),
    ({"work_mem": "8MB", "Work_Mem": "9MB"}, "twice"),
    ({"work_mem": "8MB\n"}, "more than one line"),
    ({"search_path": 'a, "b'}, "search_path"),
]


@pytest.mark.parametrize(("settings", "words"), REFUSED, ids=lambda v: str(v)[:40])
def test_what_the_server_would_refuse_is_refused_before(
    server: PostgresServer, plain: PlainServer, settings: dict[str, str], words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        server.check_settings(settings)
    assert words in str(caught.value)
    assert entries(plain) == {}


def test_a_check_leaves_no_trace(server: PostgresServer, plain: PlainServer) -> None:
    good = {
        "work_mem": "8MB",
        "track_io_timing": "on",
        "log_destination": "stderr,csvlog",
        "search_path": '"$user", public',
        "checkpoint_timeout": "7min",
        "vacuum_cost_delay": "2.5ms",
        "log_timezone": "UTC",
        "wal_sync_method": "fdatasync",
        "TimeZone": "Asia/Tokyo",
        "statement_timeout": "1ms",
        "idle_in_transaction_session_timeout": "1ms",
        "shared_buffers": "32MB",  # needs a restart, but is so already
    }
    assert list(server.check_settings(good)) == []
    assert entries(plain) == {}
    assert plain.ask("show work_mem") == [("4MB",)]


SAMPLES = {
    "bool": ("on", "off", "tr", "NO", "1", "maybe", "o"),
    "integer": (
        "0",
        "1",
        "7",
        "100",
        "-1",
        "3.7",
        "0x20",
        "64kB",
        "1MB",
        "1.5GB",
        "90s",
        "2min",
        "x",
        "5 kb",
    ),
    "real": ("0", "0.5", "1", "-1", "1e2", "2500us", "3ms", "x"),
}


def test_values_are_read_as_this_server_reads_them(server: PostgresServer, plain: PlainServer) -> None:
    """dbdyno's reading of every setting of sessions, with values of all kinds, agrees with set_config's."""
    asked = [
        (guc, value)
        for guc in values.read(server._connection).values()
        if guc.context in ("user", "superuser") and not has_hook(guc.name)
        for value in (*SAMPLES.get(guc.vartype, ()), *(guc.enumvals or ()))
    ]
    assert len(asked) > 1000
    with psycopg.connect(plain.dsn, autocommit=True) as session:
        readings = [(guc.name, value, ours(guc, value), theirs(session, guc, value)) for guc, value in asked]
    others = [row for row in readings if row[2] != row[3]]
    assert not others, others


# The server has more to say about these than type, unit and range.
HOOKED = ("max_stack_depth", "wal_compression", "vacuum_buffer_usage_limit")


def has_hook(name: str) -> bool:
    return name in HOOKED or name.startswith(("tcp_", "transaction_")) or name.endswith("_timeout")


def ours(guc: values.Guc, value: str) -> str | float | None:
    try:
        return values.canonical(guc, value)
    except UsageError:
        return None


def theirs(session: psycopg.Connection[Any], guc: values.Guc, value: str) -> str | float | None:
    try:
        with session.transaction(force_rollback=True):
            session.execute("select set_config(%s, %s, true)", (guc.name, value))
            row = session.execute("select setting from pg_settings where name = %s", (guc.name,)).fetchone()
    except psycopg.Error:
        return None
    assert row is not None
    return float(row[0]) if guc.vartype in ("integer", "real") else str(row[0])


def test_a_restart_of_a_server_that_is_not_ours_is_refused_with_the_cure(server: PostgresServer) -> None:
    with pytest.raises(UsageError) as caught:
        server.check_settings({"shared_buffers": "64MB"})
    message = str(caught.value)
    assert "restarts only servers that it started itself" in message
    assert "alter system set \"shared_buffers\" = '64MB'" in message
    assert "compare RUN RUN" in message


def test_a_right_that_is_missing_is_named_and_suffices(server: PostgresServer, plain: PlainServer) -> None:  # noqa: ARG001
    plain.ask("drop role if exists app")
    plain.ask("create role app login")
    hba = plain.data / "pg_hba.conf"
    hba.write_text("local all all trust\n")
    plain.ask("select pg_reload_conf()")
    dsn = psycopg.conninfo.make_conninfo(plain.dsn, user="app")
    wanted = {"work_mem": "9MB", "checkpoint_timeout": "7min"}
    with closing(PostgresServer(dsn)) as poor:
        with pytest.raises(NotPrivileged) as caught:
            poor.check_settings(wanted)
        if poor.version < 150000:
            assert "superuser" in str(caught.value.cure)
            plain.ask("drop role app")
            return
        grants = [g for g in str(caught.value.cure).split(": ", 1)[1].split(";") if g.strip()]
        for grant in grants:
            assert grant.strip().startswith("GRANT")
            plain.ask(grant)
        notes = Notes()
        assert poor.configure(wanted, notes).in_force == wanted
        poor.configure({}, notes)
    assert entries(plain) == {}
    plain.ask("drop owned by app")
    plain.ask("drop role app")


def test_a_run_without_settings_needs_no_right(server: PostgresServer, plain: PlainServer) -> None:  # noqa: ARG001
    plain.ask("create role poor login")
    (plain.data / "pg_hba.conf").write_text("local all all trust\n")
    plain.ask("select pg_reload_conf()")
    try:
        with closing(PostgresServer(psycopg.conninfo.make_conninfo(plain.dsn, user="poor"))) as poor:
            assert list(poor.check_settings({})) == []
            assert poor.configure({}, Notes()).in_force == {}
    finally:
        plain.ask("drop role poor")


# -- put in force, put back -----------------------------------------------------------------------


def test_variants_follow_each_other_and_nothing_is_left(server: PostgresServer, plain: PlainServer) -> None:
    notes = Notes()
    done = server.configure({"work_mem": "8192kB", "checkpoint_timeout": "420s"}, notes)
    assert (dict(done.in_force), done.restarted) == (
        {"work_mem": "8MB", "checkpoint_timeout": "7min"},
        False,
    )
    assert entries(plain) == {"work_mem": "8192kB", "checkpoint_timeout": "420s"}
    assert len(notes.undos) == 2
    done = server.configure({"work_mem": "16MB", "log_destination": "stderr,csvlog"}, notes)
    assert done.in_force == {"work_mem": "16MB", "log_destination": "stderr,csvlog"}
    assert entries(plain) == {"work_mem": "16MB", "log_destination": "stderr,csvlog"}
    assert plain.ask("show checkpoint_timeout") == [("5min",)]
    server.configure({}, notes)
    assert entries(plain) == {}
    assert plain.ask("show work_mem") == [("4MB",)]
    assert notes.undos == {}


def test_settings_that_only_new_sessions_get_come_into_force_and_go(
    server: PostgresServer, plain: PlainServer
) -> None:
    notes = Notes()
    wanted = {"log_connections": "on", "statement_timeout": "90s", "max_parallel_workers": "3"}
    done = server.configure(wanted, notes)
    assert done.in_force["log_connections"] == "on"
    assert done.in_force["statement_timeout"] == "90000ms"  # our own sessions have none
    assert plain.ask("show statement_timeout") == [("90s",)]
    assert plain.ask("show max_parallel_workers") == [("3",)]
    server.configure({}, notes)
    assert (entries(plain), notes.undos) == ({}, {})


@pytest.mark.parametrize("major", [17, 18])
def test_a_server_that_does_not_allow_alter_system_is_refused(servers: Any, major: int) -> None:
    forbidding = plain_server(servers.bin_dir(major), {"allow_alter_system": "off"})
    with forbidding as plain, closing(PostgresServer(plain.dsn)) as server:  # noqa: SIM117
        with pytest.raises(UsageError, match="ALTER SYSTEM is not allowed"):
            server.check_settings({"work_mem": "8MB"})


def test_a_setting_that_is_in_force_already_is_left_alone(server: PostgresServer, plain: PlainServer) -> None:
    notes = Notes()
    done = server.configure({"work_mem": "4096kB", "shared_buffers": "32MB"}, notes)
    assert done.in_force == {"work_mem": "4MB", "shared_buffers": "32MB"}
    assert (entries(plain), notes.ever) == ({}, [])
    assert server._settings.names == {"work_mem", "shared_buffers"}  # no workload may cover them
    server.configure({}, notes)
    assert server._settings.names == frozenset()


def test_an_entry_that_was_there_comes_back(server: PostgresServer, plain: PlainServer) -> None:
    plain.ask("alter system set search_path = 'Own', \"$user\", public")
    plain.ask("alter system set work_mem = '5MB'")
    plain.ask("select pg_reload_conf()")
    before = entries(plain)
    notes = Notes()
    done = server.configure({"search_path": 'pg_catalog, "Mixed Case"', "work_mem": "6MB"}, notes)
    assert done.in_force["search_path"] == 'pg_catalog, "Mixed Case"'
    assert plain.ask("select current_schemas(false)") == [(["pg_catalog"],)]
    server.configure({}, notes)
    assert entries(plain) == before == {"search_path": '"Own", "$user", public', "work_mem": "5MB"}


@pytest.mark.parametrize(
    ("how", "undone", "words"),
    [
        ("alter role boss set {}", "alter role boss reset work_mem", "ALTER ROLE ... SET wins"),
        ("alter database postgres set {}", "alter database postgres reset work_mem", "ALTER DATABASE"),
    ],
)
def test_what_wins_over_the_file_is_named(
    server: PostgresServer, plain: PlainServer, how: str, undone: str, words: str
) -> None:
    server.close()
    plain.ask(how.format("work_mem = '3MB'"))
    try:
        with closing(PostgresServer(plain.dsn)) as late, pytest.raises(UsageError, match=words):
            late.check_settings({"work_mem": "8MB"})
    finally:
        plain.ask(undone)


def test_a_source_that_comes_to_win_afterwards_is_named_and_everything_put_back(
    server: PostgresServer, plain: PlainServer
) -> None:
    """The control connection does not see the change, but a new session does."""
    plain.ask("alter role boss set work_mem = '3MB'")
    notes = Notes()
    try:
        with pytest.raises(TargetError, match="ALTER ROLE"):
            server.configure({"work_mem": "8MB"}, notes)
    finally:
        plain.ask("alter role boss reset work_mem")
    assert (entries(plain), notes.undos) == ({}, {})


def test_a_broken_file_is_an_error_and_the_entry_is_taken_back(
    server: PostgresServer, plain: PlainServer
) -> None:
    conf = plain.data / "postgresql.conf"
    whole = conf.read_text()
    conf.write_text(whole + "\nthis = is = broken\n")
    notes = Notes()
    try:
        with pytest.raises(TargetError, match=r"postgresql.conf, line \d+: syntax error"):
            server.configure({"work_mem": "8MB"}, notes)
    finally:
        conf.write_text(whole)
    assert entries(plain) == {}


# -- a run that is killed -------------------------------------------------------------------------

KILLED = """
import json, os, sys
from dbdyno.engines.postgres import PostgresServer
from dbdyno.engines.postgres.settings import values
from dbdyno.model.engine.protocols import Undo

class Notes:
    def note(self, undo):
        with open(sys.argv[2], "a") as journal:
            journal.write(undo.model_dump_json() + "\\n")
            journal.flush()
            os.fsync(journal.fileno())
    def forget(self, key):
        raise AssertionError(key)

server = PostgresServer(sys.argv[1])
server.configure(json.loads(sys.argv[3]), Notes())
print("configured", flush=True)
sys.stdin.read()
"""


def killed_after(program: str, *words: str) -> None:
    """Runs a process until it has reported that it changed the settings, then kills it with -9."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert line == "configured\n"


def test_settings_of_a_killed_run_are_put_back(
    server: PostgresServer, plain: PlainServer, tmp_path: Path
) -> None:
    plain.ask("alter system set work_mem = '5MB'")
    journal = tmp_path / "journal"
    wanted = {"work_mem": "8MB", "track_io_timing": "on"}
    killed_after(KILLED, plain.dsn, str(journal), json.dumps(wanted))
    assert entries(plain) == wanted
    undos = [Undo.model_validate_json(line) for line in journal.read_text().splitlines()]
    assert len(undos) == 2
    for undo in undos:
        message = server.put_back(undo)
        assert message is not None
        assert undo.data["name"] in message
    assert entries(plain) == {"work_mem": "5MB"}
    assert plain.ask("show work_mem") == [("5MB",)]
    assert plain.ask("show track_io_timing") == [("off",)]
    assert "is as it was" in str(server.put_back(undos[0]))  # once more does no harm


def test_another_servers_settings_are_not_put_back(server: PostgresServer, plain: PlainServer) -> None:
    notes = Notes()
    server.configure({"work_mem": "8MB"}, notes)
    (undo,) = notes.undos.values()
    stranger = undo.model_copy(update={"data": undo.data | {"system": 1}})
    copied = undo.model_copy(update={"data": undo.data | {"directory": "/elsewhere"}})
    assert server.put_back(stranger) is None
    assert server.put_back(copied) is None
    assert server.put_back(Undo(kind="group", key="x", what="x")) is None
    assert entries(plain) == {"work_mem": "8MB"}
    server.configure({}, notes)


def test_clock_facts_hold_the_cost_of_a_reading_or_unknown(
    server: PostgresServer, plain: PlainServer
) -> None:
    facts = server.clock_facts()
    if (plain.bin_dir / "pg_test_timing").exists():
        assert re.fullmatch(r"[\d.]+ ns a loop", facts["pg_test_timing"])
    else:
        assert facts["pg_test_timing"].startswith("unknown")
