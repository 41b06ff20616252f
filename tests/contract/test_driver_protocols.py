"""Protocols, pipelines and validations of the driver, on real servers of every version (docs/core.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import product
from typing import Any

import psycopg
import pytest
from tests.conftest import KINDS, Servers
from tests.contract import loads
from tests.contract.driving import failure, run, statement
from tests.pairs import pairs

from dbdyno.engines.postgres import PostgresServer, connect
from dbdyno.engines.postgres.sessions import as_sent
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.plan import DriverSetup, Protocol

pytestmark = pytest.mark.db

PROTOCOLS: tuple[Protocol, ...] = ("prepared", "extended", "simple")
CALLS = 10


def in_each(name: str = "", values: Sequence[Any] = ()) -> pytest.MarkDecorator:
    """Returns parameters in which every kind of server, protocol, pipeline and value meet in pairs."""
    numbers = range(len(values)) if name else (-1,)
    cases = []
    for major, protocol, pipeline, n in pairs(KINDS, PROTOCOLS, (False, True), numbers):
        how = {"protocol": protocol, "pipeline": pipeline}
        words = (f"pg{major}", protocol, *["pipelined"] * pipeline, *[str(n)] * bool(name))
        cases.append(pytest.param(major, how, *([values[n]] if name else ()), id="-".join(words)))
    return pytest.mark.parametrize(("major", "how", name) if name else ("major", "how"), cases)


@pytest.fixture
def dsn(servers: Servers, major: int) -> str:
    return servers.dsn(major)


@pytest.fixture
def admin(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("drop table if exists written")
        connection.execute("create table written (n bigint, what text)")
        yield connection
        connection.execute("drop table written")


def target(dsn: str) -> dict[str, Any]:
    with closing(connect.connect(dsn)) as connection:
        return connect.driver_target(connection)


def rows_by_text(admin: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    return admin.execute("select what, count(*)::int from written group by 1 order by 1").fetchall()


@in_each("sessions", (1, 4))
def test_all_statements_are_executed_in_order_and_round_trips_counted(
    admin: psycopg.Connection[Any], dsn: str, how: dict[str, Any], sessions: int
) -> None:
    call = [
        statement("begin"),
        statement("insert into written values (1, 'a')"),
        statement("update written set n = n + 41 where xmin::text::bigint = txid_current()"),
        statement("commit"),
    ]
    group = how | {"warm_calls": 2}
    rows = run(target(dsn), call, sessions, group=group, max_calls=CALLS)["sessions"]
    executed = (CALLS + 2) * sessions  # those that warm, too
    assert admin.execute("select count(*), min(n), max(n) from written").fetchone() == (executed, 42, 42)
    assert rows["calls"].to_list() == [CALLS] * sessions
    assert rows["round_trips"].to_list() == [CALLS * (1 if how["pipeline"] else 4)] * sessions


@in_each()
def test_a_statement_is_kept_prepared_where_that_was_asked_for(
    admin: psycopg.Connection[Any], dsn: str, how: dict[str, Any]
) -> None:
    """The server lists this session's prepared statements while the call runs."""
    call = [statement("insert into written select count(*), 'x' from pg_prepared_statements")]
    run(target(dsn), call, group=how, max_calls=CALLS)
    expected = 1 if how["protocol"] == "prepared" else 0
    assert admin.execute("select count(*), min(n), max(n) from written").fetchone() == (
        CALLS,
        expected,
        expected,
    )


@in_each()
def test_a_failed_statement_fails_the_call(
    admin: psycopg.Connection[Any], dsn: str, how: dict[str, Any]
) -> None:
    """Without a transaction a call leaves out the statements behind the error, but a pipeline was sent
    whole."""
    call = [
        statement("insert into written values (1, 'before')"),
        statement("select 1 / (random() * 0)::int"),
        statement("insert into written values (1, 'behind')"),
    ]
    result = run(target(dsn), call, 2, group=how, max_calls=CALLS)
    assert result["sessions"]["errors_total"].to_list() == [CALLS] * 2
    assert result["sessions"]["calls_total"].to_list() == [0] * 2
    assert set(result["errors"]["sqlstate"]) == {"22012"}
    assert dict(rows_by_text(admin)) == {"before": 2 * CALLS} | (
        {"behind": 2 * CALLS} if how["pipeline"] else {}
    )
    trips = 1 if how["pipeline"] else 2
    assert result["sessions"]["round_trips"].to_list() == [CALLS * trips] * 2


@in_each()
def test_a_failed_transaction_is_rolled_back(
    admin: psycopg.Connection[Any], dsn: str, how: dict[str, Any]
) -> None:
    call = [
        statement("begin"),
        statement("insert into written values (1, 'inside')"),
        statement("select 1 / (random() * 0)::int"),
    ]
    result = run(target(dsn), call, 2, group=how, max_calls=CALLS)
    assert result["sessions"]["errors_total"].to_list() == [CALLS] * 2
    assert set(result["errors"]["sqlstate"]) == {"22012"}
    assert rows_by_text(admin) == []
    trips = 2 if how["pipeline"] else 4  # the ROLLBACK is one
    assert result["sessions"]["round_trips"].to_list() == [CALLS * trips] * 2


WRONG: list[tuple[str, list[str], str]] = [
    ("copy written to stdout", [], "COPY"),
    ("select 1; select 2", [], "multiple commands"),
    ("select", ["1"], "parameters"),
    ("selec 1", [], "syntax error"),
]


@in_each("wrong", WRONG)
@pytest.mark.usefixtures("admin")
def test_invalid_calls_are_refused_alike_in_every_protocol(
    dsn: str, how: dict[str, Any], wrong: tuple[str, list[str], str]
) -> None:
    sql, params, words = wrong
    assert words in failure(target(dsn), [statement(sql, *params)], group=how)[1]


NASTY = [
    "it's",
    "back\\slash '",
    "$1 $2",
    "-- no comment",
    "",
    None,
    "ünïcödé 'x' E'",
    "'; drop table written; --",
]


@pytest.mark.parametrize(("major", "standard"), list(product(KINDS, ("on", "off"))))
def test_values_in_the_text_are_the_parameters(
    admin: psycopg.Connection[Any], dsn: str, standard: str
) -> None:
    sql = "insert into written select $1::int, $2 /* $9 */ where '$1' <> $$$2$$ -- $7\n"
    admin.execute("set standard_conforming_strings = " + standard)
    setup = ["set standard_conforming_strings = " + standard, "set escape_string_warning = off"]
    for value in NASTY:
        call = as_sent(
            [{"sql": sql, "params": ["7", value]}],
            DriverSetup(protocol="simple"),
            standard_strings=standard == "on",
        )
        result = run(target(dsn), call, group={"protocol": "simple", "setup": setup}, max_calls=1)
        assert result["sessions"]["calls"].to_list() == [1]
    rows = admin.execute("select n, what from written order by ctid").fetchall()
    assert rows == [(7, value) for value in NASTY]


def test_a_validation_goes_before_each_statement() -> None:
    call = [statement("begin"), statement("select $1::int", "1")]
    sent = as_sent(call, DriverSetup(validation="SELECT 1"), standard_strings=True)
    assert [s["sql"] for s in sent] == ["SELECT 1", "begin", "SELECT 1", "select $1::int"]
    assert as_sent(call, DriverSetup(validation=None), standard_strings=True) == call


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("SELEC 1", "validation:1:1: syntax error"),
        ("SELECT 1; SELECT 2", "2 statements"),
        ("COPY t TO STDOUT", "COPY"),
        ("SELECT $1", "parameter"),
        ("-- nothing", "is empty"),
    ],
)
def test_an_invalid_validation_is_refused_with_the_cure(kind_dsn: str, wrong: str, words: str) -> None:
    with closing(PostgresServer(kind_dsn)) as server:
        server.check_driver(DriverSetup(validation="select 1;"))
        with pytest.raises(UsageError, match=words) as caught:
            server.check_driver(DriverSetup(validation=wrong))
    assert caught.value.cure


def test_a_pipeline_that_is_too_long_is_refused_with_the_cure() -> None:
    call = [statement("select $1", "x" * 40_000)] * 2
    for protocol in PROTOCOLS:
        with pytest.raises(UsageError, match="in one go") as caught:
            as_sent(call, DriverSetup(protocol=protocol, pipeline=True), standard_strings=True)
        assert caught.value.cure
        as_sent(call, DriverSetup(protocol=protocol), standard_strings=True)
        as_sent(call[:1], DriverSetup(protocol=protocol, pipeline=True), standard_strings=True)


@in_each("validation", (None, "SELECT 1"))
def test_logical_reads_are_the_same_in_every_protocol(
    dsn: str, how: dict[str, Any], validation: str | None
) -> None:
    """Servers from 14 to 17 count within one transaction, which goes on in every protocol."""
    unit = loads.workload("lio")
    params = loads.defaults(unit, blocks=128)
    driver = DriverSetup(**how, validation=validation, threads=1)
    with closing(PostgresServer(dsn)) as server:
        server.prepare(unit, params, 3)
        plain = loads.run(server, unit, params, 1, size=50, calls=CALLS)
        result = loads.run(server, unit, params, 3, size=50, calls=CALLS, driver=driver)
    assert set(loads.work(result, "lio").values()) == {loads.work(plain, "lio")[0]}
    statements = 1 if validation is None else 2
    trips = CALLS * (1 if how["pipeline"] else statements)
    assert result["sessions"]["round_trips"].to_list() == [trips] * 3


@in_each()
def test_a_failure_to_connect_is_reported_in_every_protocol(dsn: str, how: dict[str, Any]) -> None:
    wrong = target(dsn) | {"database": "nowhere"}
    assert failure(wrong, [statement("select 1")], group=how)[0] == "server"
