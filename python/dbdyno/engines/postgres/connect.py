"""Control connections, which never wait for a server without a limit.

A statement is cancelled after :data:`PATIENCE_S`; if the server does not answer that, the connection is
closed. Within :meth:`Connection.patient` there is no such limit: then only a lost network or the user ends a
statement. The first Ctrl-C cancels patient statements; others only if they take too long.

PostgreSQL, "libpq - C Library", 32.1 to 32.19: connection strings, environment variables, password file,
service file, TLS. The driver gets all it needs to connect to the same server.
"""

from __future__ import annotations

import logging
import os
import select
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from socket import SOCK_STREAM, getaddrinfo
from typing import Any, TypeVar

import psycopg
from psycopg import pq, waiting
from psycopg.conninfo import conninfo_to_dict, timeout_from_conninfo

from dbdyno.engines.attended import STEP_S, Attended
from dbdyno.engines.postgres import activity_view, connection_options, own_settings, sql, texts, versions
from dbdyno.engines.postgres.errors import (
    Doubt,
    check_dsn,
    connect_error,
    dsn_error,
    server_error,
    single_address,
)
from dbdyno.engines.postgres.own_settings import Before
from dbdyno.engines.postgres.patience import STOPPING_S, Patience, Unanswered
from dbdyno.engines.postgres.received import MOST_BYTES, Received, TooMuch, statement
from dbdyno.engines.postgres.traced import DATABASE, Traced, remember, required_options
from dbdyno.model.errors import Abandoned, TargetError, UsageError, requests

PATIENCE_S = 30.0
CANCEL_S = 2.0
"""Time limit of the cancel request, and again for its effect."""
_SLACK_S = 1.0  # libpq's own limit ends first, with a better message
_NETWORK = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
_R = TypeVar("_R")
logging.getLogger("psycopg").addHandler(logging.NullHandler())  # errors are raised anyway


class Connection(Traced):
    """A control connection with time limits and with settings of its own."""

    _patience_s: float | None = PATIENCE_S
    statements = 0
    """Statements sent so far. Each is a transaction of its own unless one is begun explicitly."""
    opened = used = 0.0
    """Seconds of the monotonic clock when connecting began, and when a statement was last answered."""
    counts_own_work = False
    """Whether the server counts the work of this session, and a statement that dbdyno knows reads it."""
    lacking: Mapping[str, str] = {}
    """Columns that the server's activity view lacks, with their types."""
    before: Mapping[str, Before] = {}
    """Settings as given by role, database and connection options. Empty behind a pooler, where they still
    hold."""

    @contextmanager
    def patient(self, limit_s: float | None = None) -> Iterator[None]:
        """Lifts the time limit of statements, for those that create data or are timed; or sets another."""
        before, self._patience_s = self._patience_s, limit_s
        try:
            yield
        finally:
            self._patience_s = before

    @property
    def database(self) -> str:
        """Name of the database as text."""
        encoding = self.info.parameter_status("server_encoding") or "UTF8"
        return texts.database_name(self.pgconn.db, encoding)

    @property
    def user(self) -> str:
        """Role of the login as text."""
        return self.pgconn.user.decode(errors="replace")

    def user_value(self, setting: str) -> str | None:
        """Returns the value that a setting has in this role's sessions, if the server reports it."""
        before = self.before.get(setting)
        return self.info.parameter_status(setting) if before is None else before.value

    @contextmanager
    def users_settings(self, path: str | None = None) -> Iterator[None]:
        """Restores the user's settings meanwhile, so that statements mean what they mean to the user.
        Unqualified names are searched in the user's search_path, or in ``path``. Only outside of
        transactions."""
        users = own_settings.of_statements(self.before)
        if not users:
            yield
            return
        self._set({**users, **({} if path is None else {"search_path": path})})
        try:
            yield
        finally:
            if self.info.transaction_status == pq.TransactionStatus.IDLE:
                self._set(own_settings.own(users))

    def _set(self, values: Mapping[str, str]) -> None:
        named = {"names": list(values), "values": list(values.values()), "count": len(values)}
        self.execute(sql.text("set_settings").encode(), named)

    def take_text_as_it_is(self) -> None:
        """Sets client_encoding to the database's encoding; see :mod:`texts`."""
        encoding = self.info.parameter_status("server_encoding") or "UTF8"
        if encoding not in texts.UNKNOWN:
            self.execute(f"select pg_catalog.set_config('client_encoding', %s, false){sql.OWN}", [encoding])
        for kind in texts.TYPES:
            self.adapters.register_loader(kind, texts.Text)

    def wait(
        self, gen: Generator[Any, Any, _R], interval: float = STEP_S, timeout: float | None = None
    ) -> _R:
        """Waits for an answer. Overrides psycopg, which sends everything through this method.

        Raises :class:`psycopg.errors.QueryCanceled`; :class:`psycopg.OperationalError` if the connection had
        to be closed, also because of a too large answer; :class:`Abandoned` after Ctrl-C.
        """
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        self.statements += 1
        signals_before = requests()
        try:
            return self._answer(gen, Patience(self._patience_s, signals_before))
        except Unanswered:
            usable = self._break_off(gen)
        except TooMuch:
            text = statement(gen)
            self.close()
            raise psycopg.OperationalError(
                f"the server's answer is larger than {MOST_BYTES >> 20} MiB, the limit for what is asked "
                f"beside the calls, and the connection was closed: {text}"
            ) from None
        except (psycopg.Error, UnicodeError):
            raise
        except BaseException:  # a second Ctrl-C
            if self.pgconn.transaction_status == pq.TransactionStatus.ACTIVE:
                self._break_off(gen)
            raise
        if requests() > signals_before:
            raise Abandoned
        late = f"no answer within {STOPPING_S if signals_before else self._patience_s:g} s"
        if usable:
            raise psycopg.errors.QueryCanceled(f"{late}: the statement was cancelled")
        raise psycopg.OperationalError(f"{late}: the connection was closed")

    def _answer(self, gen: Generator[Any, Any, _R], patience: Callable[[], None]) -> _R:
        poll, received = select.poll(), Received(MOST_BYTES)
        try:
            wanted = next(gen)
            while True:
                fd = self.pgconn.socket
                poll.register(fd, _EVENTS[wanted])
                events = poll.poll(STEP_S * 1000)
                received.before(fd)
                wanted = gen.send(_ready(events[0][1], wanted) if events else 0)
                received.after(fd)
                patience()
        except StopIteration as end:
            self.used = time.monotonic()
            result: _R = end.value
            return result

    def _break_off(self, gen: Generator[Any, Any, Any]) -> bool:
        """Cancels the statement. Returns False if the server did not answer, and the connection was
        closed."""
        try:
            self.cancel_safe(timeout=CANCEL_S)
            self._answer(gen, Patience(CANCEL_S, None))
        except psycopg.errors.QueryCanceled:
            pass
        except Exception:
            self.close()
        except BaseException:
            self.close()
            raise
        return not self.closed


_EVENTS = {
    waiting.Wait.R: select.POLLIN,
    waiting.Wait.W: select.POLLOUT,
    waiting.Wait.RW: select.POLLIN | select.POLLOUT,
}


def _ready(events: int, wanted: int) -> int:
    """Returns the events for psycopg. It gets errors and the end of the stream as readiness, and finds
    them itself."""
    if events & ~(select.POLLIN | select.POLLOUT):
        return wanted
    return (waiting.Ready.R if events & select.POLLIN else 0) | (
        waiting.Ready.W if events & select.POLLOUT else 0
    )


def open_connection(given: Mapping[str, Any], database: bytes | None = None) -> Connection:
    """Connects by libpq's options, in autocommit mode. ``database``: see :func:`connect`.

    Connects on a thread that can be abandoned, since libpq may compute for minutes (SCRAM) or wait for a name
    without handling signals. Raises :class:`psycopg.Error`, :class:`Abandoned`, :class:`UnicodeError`.
    """
    options = {**_NETWORK, **given}
    attended = Attended(lambda attended: _connect(options, database, attended), Connection.close)
    try:
        return attended.result()
    except TimeoutError:
        raise psycopg.errors.ConnectionTimeout("connection timeout expired") from None


def _connect(
    options: Mapping[str, Any], database: bytes | None, attended: Attended[Connection]
) -> Connection:
    each_s = timeout_from_conninfo(dict(options))
    attended.limit_s = each_s + _SLACK_S
    hosts = options.get("hostaddr") or options.get("host") or os.environ.get("PGHOST", "")
    attended.limit_s = each_s * _addresses(str(hosts)) + _SLACK_S
    DATABASE.set(database)  # a context variable: set in this thread only
    return Connection.connect(**options, autocommit=True)


def _addresses(hosts: str) -> int:
    """Returns the number of addresses that libpq tries in turn, each with the full time limit."""
    count = 0
    for host in hosts.split(","):
        addresses = 1
        if host and not host.startswith(("/", "@")):
            with suppress(OSError, UnicodeError):
                addresses = len(getaddrinfo(host, None, type=SOCK_STREAM))
        count += addresses
    return count


APPLICATION = "dbdyno"
CONNECT_TIMEOUT_S = 10


def connect(dsn: str, database: bytes | None = None) -> Connection:
    """Connects in autocommit mode. ``database`` replaces the DSN's name, as bytes that need not be UTF-8.
    Raises the product's errors."""
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.Error as e:
        raise dsn_error(e, dsn) from None
    check_dsn(given)
    given.setdefault("fallback_application_name", APPLICATION)
    given["client_encoding"] = "UTF8"
    if "connect_timeout" not in given and "PGCONNECT_TIMEOUT" not in os.environ:
        given["connect_timeout"] = CONNECT_TIMEOUT_S
    password = given.get("password") or os.environ.get("PGPASSWORD")
    if password:
        connection_options.forbid_core_dumps()
    opened = time.monotonic()
    with Doubt(*single_address(given)) as doubt:
        try:
            connection = open_connection({**given, **required_options(given, database)}, database)
        except UnicodeError:
            raise TargetError("a host or user name cannot be encoded", "check the DSN") from None
        except psycopg.Error as e:
            raise connect_error(e, str(password) if password else None, doubt.answer) from None
    remember(given, connection, database)
    connection.prepare_threshold, connection.opened = None, opened
    connection.add_notify_handler(lambda _notify: None)  # else psycopg collects notifications without limit
    connection.cursor_factory = texts.Cursor
    _check_version(connection)
    try:
        connection.before = own_settings.fix(connection)  # before any other statement of ours
        connection.take_text_as_it_is()
        connection.lacking = activity_view.lacking(connection)
        connection.counts_own_work = _counts_own_work(connection)
    except psycopg.Error as e:
        connection.close()
        raise server_error(e, "beginning a session") from None
    except BaseException:
        connection.close()
        raise
    return connection


def secret_in(dsn: str) -> str | None:
    """Returns where to keep the password that the DSN contains. None if it contains none, or libpq cannot
    read the DSN, so that it will not be used."""
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.Error:
        return None
    has_password = any(
        found.get(name) for found in (given, _in_dbname(given)) for name in ("password", "sslpassword")
    )
    return (
        "keep it in ~/.pgpass, in a file named by PGPASSFILE, or in a service file" if has_password else None
    )


def _in_dbname(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the keywords of a dbname that is a DSN itself, as programs of PostgreSQL take it."""
    try:
        return conninfo_to_dict(str(given["dbname"])) if _is_dsn(given.get("dbname")) else {}
    except psycopg.Error:
        return {}


def _is_dsn(dbname: object) -> bool:
    text = str(dbname or "")
    return "=" in text or text.startswith(("postgresql://", "postgres://"))


_ADDRESS = frozenset(
    {
        *("host", "hostaddr", "port", "dbname", "user", "service", "application_name", "connect_timeout"),
        *("sslmode", "sslnegotiation", "channel_binding", "require_auth", "gssencmode"),
        *("target_session_attrs", "load_balance_hosts"),
    }
)
"""Keywords without files, options of the server, and secrets."""


def beyond_address(dsn: str) -> list[str]:
    """Returns the other keywords of a DSN. Raises :class:`UsageError` for one that libpq cannot read, or
    that has a part of a password in its host or port, or a DSN for its dbname."""
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.Error as e:
        raise dsn_error(e, dsn) from None
    if _is_dsn(given.get("dbname")):
        raise UsageError("its dbname is a connection string itself", "dbname=NAME, and the rest beside it")
    check_dsn(given)
    return sorted(given.keys() - _ADDRESS)


def release(number: int) -> str:
    """Returns the release of a ``server_version_num``: two numbers before version 10.

    >>> release(90624), release(180006)
    ('9.6', '18')
    """
    return str(number // 10000) if number >= 100000 else f"{number // 10000}.{number // 100 % 100}"


def _check_version(connection: Connection) -> None:
    if versions.major(connection) < versions.OLDEST:
        number = connection.info.server_version
        connection.close()
        raise TargetError(
            f"the server is PostgreSQL {release(number)}, dbdyno needs {versions.OLDEST} or later",
            "upgrade it; for older servers there are pgbench and pg_profile",
        )


def _counts_own_work(connection: Connection) -> bool:
    """Returns :attr:`Connection.counts_own_work`. In a version without tests, tries the
    statement."""
    if versions.major(connection) <= versions.NEWEST:
        return versions.major(connection) >= versions.COUNTS_BY_CONNECTION
    try:
        connection.execute(sql.text("probe_18").encode())
    except psycopg.Error as e:
        if connection.closed or e.sqlstate is None:
            raise
        return False
    return True


def driver_target(connection: Connection) -> dict[str, Any]:
    """Returns ``target`` of docs/core.md: the server, user and TLS that libpq connected to. Contains the
    password.

    Raises :class:`UsageError` for options that the driver does not support.
    """
    info, options = connection.info, _options(connection)
    try:
        user, password, name = (
            v.decode() for v in (connection.pgconn.user, connection.pgconn.password, connection.pgconn.db)
        )
    except UnicodeDecodeError:
        raise UsageError(
            f"dbdyno's sessions cannot connect: a name or the password is no UTF-8 ({where(connection)})",
            "measure in another database, or as another role",
        ) from None
    timeout_s = int(options.get("connect_timeout") or CONNECT_TIMEOUT_S)
    return {
        "host": options.get("hostaddr") or info.host,
        "port": info.port,
        "user": user,
        "password": password or None,
        "database": name,
        "tls": connection_options.tls(connection),
        "application_name": APPLICATION,
        "connect_timeout_ms": max(2, timeout_s or 3600) * 1000,
        **connection_options.driver_options(connection),
    }


def _options(connection: Connection) -> Mapping[str, str]:
    """Returns libpq's options in force, including defaults and the environment."""
    options = {}
    for option in connection.pgconn.info:
        if option.val is not None:
            options[option.keyword.decode()] = option.val.decode(errors="replace")
    options["hostaddr"] = connection.info.hostaddr if "hostaddr" in options else ""
    return options


def where(connection: Connection) -> str:
    """Returns host and port or socket, database and user, without a password."""
    info = connection.info
    host = info.host or info.hostaddr
    place = f"socket {host}, port {info.port}" if host.startswith(("/", "@")) else f"{host}:{info.port}"
    return f"{place}, database {connection.database}, user {connection.user}"


def network_address(dsn: str) -> tuple[str, int] | None:
    """Returns the host and port that libpq connected to, None for a socket of this machine."""
    with connect(dsn) as connection:
        info = connection.info
        host = _options(connection).get("hostaddr") or info.host
        return None if host.startswith(("/", "@")) else (host, info.port)


def tls_in_words(connection: Connection) -> str | None:
    """Returns ``TLSv1.3, TLS_AES_256_GCM_SHA384, sslmode=verify-full``, None if not encrypted."""
    if not connection.pgconn.ssl_in_use:
        return None
    row = connection.execute(
        f"select version, cipher from pg_catalog.pg_stat_ssl where pid = pg_catalog.pg_backend_pid(){sql.OWN}"
    ).fetchone()
    mode = _options(connection).get("sslmode", "prefer")
    return ", ".join([*(str(v) for v in row or ()), f"sslmode={mode}"])
