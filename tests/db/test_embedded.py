"""The life of the embedded server: quick, private, unprivileged, without orphans, and no stranger is
ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from dbdyno.engines.postgres import PostgresServer, embedded
from dbdyno.engines.postgres.embedded import Instance, StartOptions, instance_of, postmaster
from dbdyno.engines.postgres.embedded.account import server_account
from dbdyno.engines.postgres.embedded.places import find_places
from dbdyno.engines.postgres.embedded.programs import Programs
from dbdyno.engines.postgres.embedded.worker import Worker, argv
from dbdyno.model.errors import ServerBusy, TargetError, TooFewConnections, Unreachable, UsageError
from tests.conftest import other_wheel

pytestmark = pytest.mark.db

OWNER = """
import json, sys, time
from dbdyno.engines.postgres.embedded import StartOptions, open_instance
instance = open_instance(None, StartOptions())
print(json.dumps(instance.facts()), flush=True)
time.sleep(600)
"""


@pytest.fixture
def instance(home: Path) -> tuple[Instance, Programs]:  # noqa: ARG001
    return instance_of(None)


def ask(instance: Instance, sql: str) -> object:
    with psycopg.connect(instance.facts()["dsn"], autocommit=True) as connection:
        cursor = connection.execute(sql.encode())
        row = cursor.fetchone() if cursor.description else None
    return row and row[0]


def test_an_embedded_server_starts_private_and_ends_with_its_owner(
    instance: tuple[Instance, Programs],
) -> None:
    server, programs = instance
    server.open(programs, StartOptions(settings={"work_mem": "5MB"}, sessions=200))
    process = server.process()
    assert process is not None
    assert ask(server, "show work_mem") == "5MB"
    assert ask(server, "show max_connections") == "210"
    assert ask(server, "show fsync") == "on"
    assert ask(server, "select current_user") == "dbdyno"
    assert ask(server, "show listen_addresses") == ""
    assert stat.S_IMODE(server.socket_dir.stat().st_mode) == 0o700
    assert not _tcp_sockets(process.pid)
    assert os.getsid(process.pid) != os.getsid(0)  # a terminal's Ctrl-C does not reach it
    server.close()
    assert not process.alive
    assert server.process() is None
    assert not server.socket_dir.exists()


def test_the_sockets_directory_may_have_any_name(home: Path) -> None:
    odd = home.parent / "o'b 5% x"
    odd.mkdir(mode=0o711)
    places = replace(find_places(server_account()), runtime=odd)
    server, programs = instance_of(None, places)
    server.open(programs, StartOptions())
    assert ask(server, "select 1") == 1
    with psycopg.connect(server.address) as connection:
        assert connection.info.host == str(server.socket_dir)
    server.close()
    assert server.socket_dir.parent == odd


def test_an_embedded_server_never_runs_as_root(instance: tuple[Instance, Programs]) -> None:
    server, programs = instance
    server.open(programs, StartOptions())
    process = server.process()
    assert process is not None
    assert _uid(process.pid) == server_account().uid != 0
    server.close()


def test_signals_that_are_blocked_here_reach_the_servers_programs() -> None:
    earlier = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        words = argv(server_account(), "0", "/bin/cat", "/proc/self/status")
        output = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, earlier)
    assert int(output.partition("SigBlk:")[2].split()[0], 16) == 0


def test_data_stays_unless_fresh(instance: tuple[Instance, Programs]) -> None:
    server, programs = instance
    server.open(programs, StartOptions())
    ask(server, "create table kept as select 1 as n")
    server.close()
    server.open(programs, StartOptions())
    assert ask(server, "select n from kept") == 1
    server.close()
    server.open(programs, StartOptions(fresh=True))
    assert ask(server, "select to_regclass('kept')") is None
    server.close()


STATISTICS = {"compute_query_id": "on", "track_io_timing": "on", "track_wal_io_timing": "on"}


def test_an_embedded_server_counts_statements_from_its_start(
    instance: tuple[Instance, Programs], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGHOSTADDR", "198.51.100.1")  # ours is made in our own server alone
    server, programs = instance
    for settings in ({}, {"default_transaction_read_only": "on"}):
        server.open(programs, StartOptions(settings=settings))
        with psycopg.connect(server.address, autocommit=True) as connection:
            statistics = {name: _setting(connection, name) for name in STATISTICS}
            calls = connection.execute("select sum(calls) from pg_stat_statements").fetchone()
        assert statistics == STATISTICS
        assert calls is not None
        assert calls[0] > 0
        server.close()


def test_requested_settings_win_over_those_for_statistics(instance: tuple[Instance, Programs]) -> None:
    server, programs = instance
    server.open(programs, StartOptions(settings={"shared_preload_libraries": "", "track_io_timing": "off"}))
    with psycopg.connect(server.address) as connection:
        assert _setting(connection, "shared_preload_libraries") == ""
        assert _setting(connection, "track_io_timing") == "off"
        assert _setting(connection, "track_wal_io_timing") == "on"
    server.close()


def test_programs_without_contrib_start_all_the_same(home: Path, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: ARG001
    server, programs = instance_of(other_wheel() / "pginstall")
    server.open(programs, StartOptions())
    assert "pg_stat_statements" in capsys.readouterr().err
    with psycopg.connect(server.address) as connection:
        assert _setting(connection, "shared_preload_libraries") == ""
        assert {name: _setting(connection, name) for name in STATISTICS} == STATISTICS
    with closing(PostgresServer(server.address)) as looking:
        source = {s.name: s for s in looking.sources()}["statement counters"]
    assert source.status == "not supported"
    assert any("contrib" in step.command for step in source.enabling.steps)
    server.close()
    with pytest.raises(TargetError, match="pg_stat_statements"):
        server.open(programs, StartOptions(settings={"shared_preload_libraries": "pg_stat_statements"}))
    server.close()


def test_data_of_other_programs_of_the_same_major_version_go_on(
    home: Path,  # noqa: ARG001
    instance: tuple[Instance, Programs],
) -> None:
    former, older = instance_of(other_wheel() / "pginstall18")
    server, programs = instance
    assert older.version != programs.version
    assert former.data == server.data
    former.open(older, StartOptions())
    ask(former, "create table kept as select n, n::text as t from generate_series(1, 5000) as n")
    ask(former, "create index on kept (t)")
    before = ask(former, "select datcollversion is null and datlocprovider = 'c' from pg_database limit 1")
    former.close()
    server.open(programs, StartOptions())
    assert str(ask(server, "show server_version")) == programs.version
    assert before
    assert ask(server, "select sum(n) from kept where t between '1' and '9999'") == sum(range(1, 5001))
    assert ask(server, "select count(*) from pg_stat_statements")
    assert "collation" not in server.log_tail()
    server.close()


def _setting(connection: psycopg.Connection[tuple[object, ...]], name: str) -> object:
    row = connection.execute("select current_setting(%s)", [name]).fetchone()
    assert row is not None
    return row[0]


def test_kill_9_of_the_owner_leaves_nothing_after_the_next_start(home: Path) -> None:  # noqa: ARG001
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    facts = json.loads(owner.stdout.readline())
    server, programs = instance_of(None)
    first = server.process()
    assert first is not None
    assert first.pid == facts["pid"]
    with pytest.raises(ServerBusy, match=str(owner.pid)):
        server.stop()
    assert embedded.status()["owner_pid"] == owner.pid
    owner.kill()
    owner.wait()
    owner.stdout.close()
    server.open(programs, StartOptions())
    second = server.process()
    assert second is not None
    assert not first.alive
    assert ask(server, "select pg_backend_pid() > 0")
    server.close()
    assert not Worker(server.account).orphans(server.data)


def test_an_orphan_that_outlived_its_owner_is_ended(instance: tuple[Instance, Programs]) -> None:
    """The kernel does not help: the server was started to stay, then recorded as that of a user whose lock is
    free."""
    server, programs = instance
    server.open(programs, StartOptions(stay=True))
    orphan = server.process()
    assert orphan is not None
    record = server.directory / "instance.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"stay": False, "owner_pid": 2}))
    server.open(programs, StartOptions())
    assert not orphan.alive
    running = server.process()
    assert running is not None
    assert running.pid != orphan.pid
    server.close()


def test_a_strangers_pid_in_the_pid_file_is_left_alone(instance: tuple[Instance, Programs]) -> None:
    """A process of the same user has the reused pid. It is neither ended nor in the way."""
    server, programs = instance
    server.open(programs, StartOptions())
    server.close()
    account = server.account
    with subprocess.Popen(argv(account, "0", "/bin/sleep", "600")) as stranger:
        try:
            lines = [
                str(stranger.pid),
                str(server.data),
                "1",
                "5432",
                str(server.socket_dir),
                "",
                " 1 1",
                "ready",
            ]
            file = server.data / "postmaster.pid"
            file.write_text("\n".join(lines) + "\n")
            os.chown(file, account.uid, account.gid)
            assert server.process() is None
            server.open(programs, StartOptions())
            assert ask(server, "select 1") == 1
            server.close()
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_a_pid_file_with_another_servers_pid_does_not_end_that_server(
    instance: tuple[Instance, Programs], servers: object, dsn18: str
) -> None:
    """Even a postgres of the same user is a stranger if it works on another data directory."""
    server, programs = instance
    server.open(programs, StartOptions())
    server.close()
    with psycopg.connect(dsn18) as other:
        row = other.execute("select split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::int").fetchone()
        assert row is not None
        file = server.data / "postmaster.pid"
        file.write_text(f"{row[0]}\n{server.data}\n1\n5432\n{server.socket_dir}\n\n\nready\n")
        os.chown(file, server.account.uid, server.account.gid)
        assert server.process() is None
        assert server.stop() is None
        server.open(programs, StartOptions())
        server.close()
        assert other.execute("select 1").fetchone() == (1,)
    assert servers


def test_leftover_backends_of_a_killed_postmaster_are_ended(instance: tuple[Instance, Programs]) -> None:
    server, programs = instance
    server.open(programs, StartOptions())
    with psycopg.connect(server.facts()["dsn"], autocommit=True) as connection:
        backend = connection.info.backend_pid
        os.kill(backend, signal.SIGSTOP)  # it cannot see that its postmaster dies
        first = server.process()
        assert first is not None
        os.kill(first.pid, signal.SIGKILL)
        server.close()
        assert Worker(server.account).orphans(server.data)
        server.open(programs, StartOptions())
        assert postmaster.start_ticks(backend) is None
        assert ask(server, "select 1") == 1
    server.close()


def test_a_server_that_was_started_to_stay_serves_runs_and_is_stopped_by_hand(home: Path) -> None:  # noqa: ARG001
    assert embedded.status()["running"] is False
    with pytest.raises(Unreachable, match="does not run"):
        embedded.client_argv()
    started = embedded.start(max_connections=40)
    assert json.loads(json.dumps(started))["stays"] is True
    user = embedded.open_instance(None, StartOptions(sessions=20))
    user.close()
    assert embedded.status()["pid"] == started["pid"]
    assert embedded.client_argv()[1] == started["dsn"]
    with pytest.raises(TooFewConnections, match="max_connections = 40") as caught:
        embedded.open_instance(None, StartOptions(sessions=200))
    assert "server stop" in str(caught.value.cure)
    with pytest.raises(ServerBusy, match="work_mem=9MB"):
        embedded.open_instance(None, StartOptions(settings={"work_mem": "9MB"}))
    assert embedded.stop()["pid"] == started["pid"]
    assert embedded.status()["running"] is False
    assert embedded.stop()["stopped"] is False


def test_a_bad_setting_shows_the_servers_words(instance: tuple[Instance, Programs]) -> None:
    server, programs = instance
    with pytest.raises(UsageError, match="no_such_setting") as caught:
        server.open(programs, StartOptions(settings={"no_such_setting": "1"}))
    assert len(str(caught.value.cure)) < 200
    with pytest.raises(TargetError, match="invalid value for parameter") as refused:
        server.open(programs, StartOptions(settings={"work_mem": "much"}))
    assert "setting" in str(refused.value.cure)
    server.close()
    with pytest.raises(UsageError, match="not the name"):
        server.open(programs, StartOptions(settings={"a b": "1"}))
    server.close()
    server.open(programs, StartOptions(settings={"cluster_name": "it's \\ quoted"}))
    assert ask(server, "show cluster_name") == "it's \\ quoted"
    server.close()


def test_missing_programs_say_where_to_look(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no PostgreSQL server in") as caught:
        instance_of(tmp_path)
    assert "pg_config --bindir" in str(caught.value.cure)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user: run the tests as root")
def test_programs_that_the_servers_user_cannot_reach_are_copied(
    home: Path, tmp_path: Path, instance: tuple[Instance, Programs]
) -> None:
    _, programs = instance
    hidden = tmp_path / "hidden"
    package = programs.bin_dir.parents[1]
    prefix = hidden / package.name / programs.bin_dir.parent.name
    hidden.mkdir(mode=0o700)
    for part in (programs.bin_dir.parent, package.with_name(f"{package.name}.libs")):
        copy = hidden / part.relative_to(package.parent)
        copy.parent.mkdir(exist_ok=True)
        subprocess.run(["cp", "-a", part, copy], check=True)
    server, copied = instance_of(prefix)
    assert not copied.bin_dir.is_relative_to(hidden)
    assert copied.bin_dir.is_relative_to(home / "cache")
    server.open(copied, StartOptions())
    assert ask(server, "select 1") == 1
    server.close()
    assert instance_of(prefix)[1].bin_dir == copied.bin_dir


def test_the_template_is_initialised_once(instance: tuple[Instance, Programs], home: Path) -> None:
    server, programs = instance
    server.open(programs, StartOptions())
    server.close()
    clusters = home / "cache" / "clusters"
    before = {p.name: p.stat().st_mtime_ns for p in clusters.iterdir()}
    server.open(programs, StartOptions(fresh=True))
    server.close()
    after = {p.name: p.stat().st_mtime_ns for p in clusters.iterdir()}
    assert before.items() <= after.items()  # a test of another server may add its own meanwhile


def _uid(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[2] for line in status.splitlines() if line.startswith("Uid:")))


def _tcp_sockets(pid: int) -> list[str]:
    """Returns listening TCP sockets that the process holds."""
    held = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            held.add(str(file.readlink()))
    lines = [
        line.split() for f in ("tcp", "tcp6") for line in Path(f"/proc/net/{f}").read_text().splitlines()[1:]
    ]
    return [line[1] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in held]


def test_closing_after_the_server_was_lost_does_not_end_the_next_one(
    instance: tuple[Instance, Programs],
) -> None:
    server, programs = instance
    server.open(programs, StartOptions())
    first = server.process()
    assert first is not None
    os.kill(first.pid, signal.SIGQUIT)
    while first.alive:
        time.sleep(0.01)
    other, _ = instance_of(None)
    other.open(programs, StartOptions())
    server.close()
    assert ask(other, "select 1") == 1
    other.close()
