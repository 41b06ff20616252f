"""Control connections to servers that send wrong answers, none, or names that are no UTF-8."""

from __future__ import annotations

import random
import re
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest
from tests.conftest import Servers
from tests.contract import hostile
from tests.contract.hostile import DONE, Endless, Script, hang_up_after, message, reply_with, report, row
from tests.waiting import eventually

from dbdyno.engines.postgres import connect, patience
from dbdyno.engines.postgres.errors import connect_error, masked
from dbdyno.engines.postgres.server import PostgresServer
from dbdyno.model import errors
from dbdyno.model.errors import (
    Abandoned,
    AuthenticationFailed,
    DbdynoError,
    Interrupted,
    ServerLost,
    Unreachable,
    UsageError,
)

GARBAGE = random.Random(19).randbytes(5000)
FIRST: dict[str, Script] = {
    "closes": lambda _line: None,
    "error": hang_up_after(report(b"E", "go away", "FATAL", "57P03")),
    "error in latin1": hang_up_after(report(b"E", b"caf\xe9 ferm\xe9", "FATAL", "28000")),
    "error of an old protocol": hang_up_after(b"EFATAL: too old\n\0"),
    "garbage": hang_up_after(GARBAGE),
    "zeros": hang_up_after(bytes(5000)),
    "a huge length": hang_up_after(b"R\x7f\xff\xff\xff"),
    "a negative length": hang_up_after(b"R\xff\xff\xff\xff"),
    "HTTP": hang_up_after(b"HTTP/1.0 400 Bad\r\n\r\n"),
}
LATER: dict[str, Script] = {
    "errors": reply_with(report(b"E", b"caf\xe9"), message(b"Z", b"I")),
    "garbage": reply_with(b"\xff" * 3000),
    "one column": reply_with(row(b"\xff\xfe"), DONE),
    "NULL": reply_with(row(None), DONE),
    "many columns": reply_with(row(*[b"1"] * 30), DONE),
    "no column": reply_with(message(b"T", b"\0\0"), DONE),
    "no row": reply_with(DONE),
    "COPY": reply_with(message(b"H", b"\0\0\0"), DONE),
    "nothing but ready": reply_with(message(b"Z", b"I")),
    "rows without a description": reply_with(row(b"1"), message(b"C", b"SELECT 1\0"), row(b"2")[:-9], DONE),
}


COMPUTING = """
import os, sys, threading
from dbdyno.engines.attended import left_behind
from dbdyno.engines.postgres import connect, patience
from dbdyno.model import errors
timer = threading.Timer(float(sys.argv[2]), errors.request)
timer.daemon = True
timer.start()
try:
    connect.connect(sys.argv[1])
except BaseException as error:
    print(f"{type(error).__name__}: {error}", flush=True)
sys.stdout.write("computing\\n" if left_behind() else "")
sys.stdout.flush()
os._exit(0)
"""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits statements to half a second."""
    monkeypatch.setattr(connect.Connection, "_patience_s", 0.5)
    monkeypatch.setattr(connect, "CANCEL_S", 0.5)


@pytest.fixture(autouse=True)
def _nobody_stops() -> Iterator[None]:
    yield
    errors.reset()


@contextmanager
def stopped_after(seconds: float) -> Iterator[None]:
    """Stops the program after a while, as a Ctrl-C does."""
    timer = threading.Timer(seconds, errors.request)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@pytest.mark.parametrize("script", FIRST.values(), ids=FIRST)
def test_what_a_server_says_first_is_a_clear_error(script: Script) -> None:
    with hostile.hostile(script) as server, pytest.raises(DbdynoError) as caught:
        PostgresServer(f"{server.dsn} connect_timeout=3")
    assert caught.value.exit_code == 3
    assert caught.value.cure


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("script", LATER.values(), ids=LATER)
def test_answers_that_postgresql_never_gives_are_a_clear_error(script: Script) -> None:
    with hostile.hostile(script) as server, pytest.raises(DbdynoError) as caught:
        PostgresServer(server.dsn)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("script", [hostile.notices, lambda line: line.silence()], ids=["notices", "silence"])
def test_connecting_has_one_limit_whatever_the_server_does(script: Script) -> None:
    with hostile.hostile(script) as server, pytest.raises(Unreachable, match="timeout"):
        connect.connect(f"{server.dsn} password=secret connect_timeout=2")


def test_a_stop_takes_effect_while_connecting() -> None:
    with hostile.hostile(hostile.notices) as server, stopped_after(0.5), pytest.raises(Abandoned):
        connect.connect(f"{server.dsn} password=secret connect_timeout=600")


@pytest.mark.parametrize(
    ("timeout_s", "stop_s", "error"), [(2, 600, "Unreachable: .*timeout"), (600, 0.5, "Abandoned")]
)
def test_time_limit_and_stop_hold_while_a_password_is_computed(
    timeout_s: int, stop_s: float, error: str
) -> None:
    """A process of its own tries it, because libpq's thread computes for as long as its process lives."""
    with hostile.hostile(hostile.endless_scram) as server:
        dsn = f"{server.dsn} password=secret connect_timeout={timeout_s}"
        done = subprocess.run(
            [sys.executable, "-c", COMPUTING, dsn, str(stop_s)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert re.match(f"{error}.*computing$", done.stdout.strip(), re.DOTALL), done.stdout + done.stderr


MB = 1 << 20
DATA_ROW = message(b"D", struct.pack(">hi", 1, 1) + b"1")
PARAMETER = message(b"S", b"application_name\0x\0")
GIGABYTE = struct.pack(">i", 1 << 30)


ENDLESS = {
    "small rows": Endless(DATA_ROW, row(b"1")),
    "a value of a gigabyte": Endless(b"x", b"D" + GIGABYTE + struct.pack(">hi", 1, (1 << 30) - 10)),
    "notices": Endless(report(b"N", "flood", "NOTICE", "00000")),
    "notifications": Endless(message(b"A", struct.pack(">i", 1) + b"channel\0payload\0")),
    "parameters": Endless(PARAMETER),
    "parameters before it is ready": Endless(PARAMETER, message(b"R", bytes(4)), ready=False),
    "an error of a gigabyte before it is ready": Endless(b"x", b"E" + GIGABYTE + b"SFATAL\0M", ready=False),
}


@pytest.mark.parametrize("script", ENDLESS.values(), ids=ENDLESS)
def test_an_answer_without_end_is_refused_before_it_fills_the_memory(script: Endless) -> None:
    with (
        hostile.hostile(script) as server,
        pytest.raises(DbdynoError, match=r"larger than 64 MiB|more than 1024 KiB|failed"),
    ):
        connect.connect(server.dsn)
    assert script.sent < 400 * MB, "64, what sockets hold, and what comes while libpq reads"


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("script", [hostile.silent_when_ready, hostile.notices_when_ready])
def test_a_server_that_answers_no_more_is_lost(script: Script) -> None:
    with hostile.hostile(script) as server:
        with pytest.raises(ServerLost, match="no answer within"):
            connect.connect(server.dsn)
        eventually(lambda: server.lines == 2)  # one to connect, one to cancel


def test_a_stop_takes_effect_while_a_server_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "STOPPING_S", 0.5)
    with (
        hostile.hostile(hostile.silent_when_ready) as server,
        stopped_after(0.5),
        pytest.raises(Interrupted),
    ):
        connect.connect(server.dsn)


def test_a_statement_that_waits_too_long_is_cancelled(dsn18: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(connect.connect(dsn18)) as connection:
        monkeypatch.setattr(connection, "_patience_s", 0.5)
        with pytest.raises(psycopg.errors.QueryCanceled, match="no answer within"):
            connection.execute("select pg_catalog.pg_sleep(600)")
        with connection.patient():
            assert connection.execute("select 1 from pg_catalog.pg_sleep(1)").fetchone() == (1,)
        with pytest.raises(psycopg.errors.QueryCanceled), connection.transaction():
            connection.execute("select pg_catalog.pg_sleep(600)")
        monkeypatch.undo()
        assert connection.execute("select 1").fetchone() == (1,)


def test_a_stop_cancels_a_long_statement_and_leaves_the_connection_usable(dsn18: str) -> None:
    with closing(connect.connect(dsn18)) as connection:
        with connection.patient(), stopped_after(0.5), pytest.raises(Abandoned):
            connection.execute("select pg_catalog.pg_sleep(601)")
        assert connection.execute("select 1").fetchone() == (1,)
        left = "select count(*) from pg_catalog.pg_stat_activity where query ~ 'pg_sleep.601' and pid <> %s"
        assert connection.execute(left, [connection.info.backend_pid]).fetchone() == (0,)


def test_a_stop_does_not_cut_a_statement_that_is_nearly_done(dsn18: str) -> None:
    with closing(connect.connect(dsn18)) as connection, stopped_after(0.2):
        assert connection.execute("select 1 from pg_catalog.pg_sleep(1)").fetchone() == (1,)


def test_keyboard_interrupt_leaves_no_statement_behind(dsn18: str) -> None:
    """This is about commands that do not count signals; their handler raises."""
    import signal

    with closing(connect.connect(dsn18)) as connection:
        threading.Timer(0.5, signal.raise_signal, [signal.SIGINT]).start()
        with pytest.raises(KeyboardInterrupt):
            connection.execute("select pg_catalog.pg_sleep(600)")
        assert connection.execute("select 1").fetchone() == (1,)


# -- names that are no UTF-8 -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def foreign(servers: Servers) -> Iterator[str]:
    """A server with names in LATIN1 that all databases see, and a session that runs such a text."""
    dsn = servers.dsn(18)
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(
            "create database bytes template template0 encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C'"
        )
    with psycopg.connect(dsn, dbname="bytes", client_encoding="SQL_ASCII", autocommit=True) as raw:
        for statement in (
            b'create role "caf\xe9" login superuser',
            b'create table "tabl\xe9" (v text)',
            b"insert into \"tabl\xe9\" values ('\xe9\xff')",
        ):
            assert raw.pgconn.exec_(statement).status == psycopg.pq.ExecStatus.COMMAND_OK
    other = psycopg.pq.PGconn.connect(f"{dsn}&application_name=other".encode() + b"&user=caf%E9")
    assert other.status == psycopg.pq.ConnStatus.OK, other.error_message
    other.exec_(b"select '\xe9\xff' as \"\xe9\"")
    yield dsn
    other.finish()
    with psycopg.connect(dsn, dbname="bytes", client_encoding="SQL_ASCII", autocommit=True) as raw:
        raw.pgconn.exec_(b'drop role "caf\xe9"')
    with psycopg.connect(dsn, autocommit=True) as admin:
        # while it has kept such a text, the server gives none at all
        admin.execute("create extension if not exists pg_stat_statements")
        admin.execute("select pg_stat_statements_reset(0, oid, 0) from pg_database where datname = 'bytes'")
        admin.execute("drop database bytes with (force)")


@pytest.mark.parametrize("database", ["postgres", "bytes"])
def test_bytes_that_are_no_text_are_replaced(foreign: str, database: str) -> None:
    dsn = psycopg.conninfo.make_conninfo(foreign, dbname=database)
    with closing(PostgresServer(dsn)) as server:
        backends = server.backends()
        assert any("�" in str(row) for row in backends.rows())
        server.facts()
        server.counters("t0")
    with closing(connect.connect(dsn)) as connection:
        (user,) = connection.execute(
            "select usename from pg_stat_activity where usename ~ '^caf'"
        ).fetchone() or ("",)
        assert user == "caf�"


def test_names_in_the_encoding_of_the_database_are_read_as_such(foreign: str) -> None:
    with psycopg.connect(foreign, autocommit=True) as admin:
        admin.execute("drop database if exists latin")
        admin.execute(
            "create database latin template template0 encoding 'LATIN1' lc_collate 'C' lc_ctype 'C'"
        )
    with closing(connect.connect(psycopg.conninfo.make_conninfo(foreign, dbname="latin"))) as connection:
        assert connection.execute("select chr(233), 'é', %s", ["é"]).fetchone() == ("é", "é", "é")


# -- passwords -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("password", ["x", "e", "connection", "server", "to"])
def test_a_password_that_is_a_word_does_not_spoil_messages(password: str) -> None:
    words = 'connection to server at "db1", port 5432 failed: timeout expired'
    assert masked(words, password) == words


@pytest.mark.parametrize("password", ["x", "secret", "pa.s*", "S3cr3t(", "a b"])
@pytest.mark.parametrize(
    "words", ['name "{}" unknown', "password={}", "password='{}' host=h", "postgresql://u:{}@h/d failed"]
)
def test_a_password_is_masked_wherever_a_value_stands(words: str, password: str) -> None:
    assert masked(words.format(password), password) == words.format("***")


def test_an_unlikely_password_is_masked_anywhere() -> None:
    assert "hunter2!" not in masked("a hunter2!hunter2! b", "hunter2!")


@pytest.mark.parametrize("dsn", ["postgresql://u:hu@sh@h/d", "host=sh@h user=u", "host=a,sh@h"])
def test_a_host_that_is_the_rest_of_a_password_is_not_repeated(dsn: str) -> None:
    with pytest.raises(UsageError) as caught:
        connect.connect(dsn)
    assert "sh@h" not in str(caught.value)


@pytest.mark.parametrize("sqlstate", [None, "28000"])
def test_a_role_that_does_not_exist_is_to_be_created_or_replaced(sqlstate: str | None) -> None:
    error = type("Refused", (psycopg.OperationalError,), {"sqlstate": sqlstate})
    refusal = connect_error(error('FATAL:  role "nobody" does not exist'), None)
    assert isinstance(refusal, AuthenticationFailed)
    assert (refusal.cure or "").startswith("create the role")


@pytest.mark.parametrize("sqlstate", ["28P01", "28000"])
def test_no_cure_asks_for_a_password_on_the_command_line(sqlstate: str) -> None:
    error = type("Refused", (psycopg.OperationalError,), {"sqlstate": sqlstate})("no")
    refusal = connect_error(error, None)
    assert refusal.cure is not None
    assert "DSN" not in refusal.cure
    with pytest.raises(UsageError) as caught:
        connect.connect("nonsense")
    assert ":password@" not in str(caught.value)
