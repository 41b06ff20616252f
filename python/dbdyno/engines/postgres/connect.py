"""Control connections: no wait for a server is without an end.

A statement has :data:`PATIENCE_S`, then it is cancelled, and where that is not answered the connection is
closed. One that may take long (:meth:`Connection.patient`) ends when the network says that the server is
gone, or the user does. The first Ctrl-C cancels, too: of the others only those that hang.

PostgreSQL, "libpq - C Library", 32.1 to 32.19: connection strings, environment variables, password file,
service file, TLS. The driver gets what it needs to connect to the same place.
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
from dbdyno.engines.postgres import connection_options, own_settings, sql, texts
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
from dbdyno.engines.postgres.traced import DATABASE, Traced, held, note
from dbdyno.model.errors import Abandoned, TargetError, UsageError, requests

PATIENCE_S = 30.0
CANCEL_S = 2.0
"""For the request to cancel, and again for its effect."""
_SLACK_S = 1.0  # libpq's own limit comes first, with its words
_NETWORK = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
_R = TypeVar("_R")
logging.getLogger("psycopg").addHandler(logging.NullHandler())  # what matters is raised


class Connection(Traced):
    """See the module."""

    _patience_s: float | None = PATIENCE_S
    statements = 0
    """Sent so far; each is a transaction of its own where nothing else is said."""
    opened = used = 0.0
    """Seconds of the monotonic clock when it began to connect, and when a statement was last answered."""
    before: Mapping[str, Before] = {}
    """Settings as role, database and connection options give them; empty behind a pooler, where they hold."""

    @contextmanager
    def patient(self) -> Iterator[None]:
        """Within it, statements may take as long as they need: they make data, or are timed."""
        before, self._patience_s = self._patience_s, None
        try:
            yield
        finally:
            self._patience_s = before

    @property
    def database(self) -> str:
        """Its name, to be shown and compared."""
        encoding = self.info.parameter_status("server_encoding") or "UTF8"
        return texts.database_name(self.pgconn.db, encoding)

    @property
    def user(self) -> str:
        """The role of the login, to be shown."""
        return self.pgconn.user.decode(errors="replace")

    def users(self, setting: str) -> str | None:
        """The value of a setting that sessions of this role have here, of those that the server reports."""
        found = self.before.get(setting)
        return self.info.parameter_status(setting) if found is None else found.value

    @contextmanager
    def users_settings(self, path: str | None = None) -> Iterator[None]:
        """Within it, statements mean what they mean to the user; names without a schema lead where the user's
        do, or by the search_path ``path``. Outside of transactions only."""
        theirs = own_settings.of_statements(self.before)
        if not theirs:
            yield
            return
        self._set({**theirs, **({} if path is None else {"search_path": path})})
        try:
            yield
        finally:
            if self.info.transaction_status == pq.TransactionStatus.IDLE:
                self._set(own_settings.own(theirs))

    def _set(self, values: Mapping[str, str]) -> None:
        named = {"names": list(values), "values": list(values.values()), "count": len(values)}
        self.execute(sql.text("set_settings").encode(), named)

    def take_text_as_it_is(self) -> None:
        """See :mod:`texts`."""
        encoding = self.info.parameter_status("server_encoding") or "UTF8"
        if encoding not in texts.UNKNOWN:
            self.execute(f"select pg_catalog.set_config('client_encoding', %s, false){sql.OWN}", [encoding])
        for kind in texts.TYPES:
            self.adapters.register_loader(kind, texts.Text)

    def wait(
        self, gen: Generator[Any, Any, _R], interval: float = STEP_S, timeout: float | None = None
    ) -> _R:
        """All that psycopg sends comes through here.

        Raises :class:`psycopg.errors.QueryCanceled` or, where the connection had to be closed (an answer that
        is too large, too), :class:`psycopg.OperationalError`; :class:`Abandoned` after Ctrl-C.
        """
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        self.statements += 1
        before = requests()
        try:
            return self._answer(gen, Patience(self._patience_s, before))
        except Unanswered:
            usable = self._break_off(gen)
        except TooMuch:
            asked = statement(gen)
            self.close()
            raise psycopg.OperationalError(
                f"the server's answer is larger than {MOST_BYTES >> 20} MiB, the limit for what is asked "
                f"beside the calls, and the connection was closed: {asked}"
            ) from None
        except (psycopg.Error, UnicodeError):
            raise
        except BaseException:  # a second Ctrl-C
            if self.pgconn.transaction_status == pq.TransactionStatus.ACTIVE:
                self._break_off(gen)
            raise
        if requests() > before:
            raise Abandoned
        late = f"no answer within {STOPPING_S if before else PATIENCE_S:g} s"
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
                found = poll.poll(STEP_S * 1000)
                received.before(fd)
                wanted = gen.send(_ready(found[0][1], wanted) if found else 0)
                received.after(fd)
                patience()
        except StopIteration as end:
            self.used = time.monotonic()
            result: _R = end.value
            return result

    def _break_off(self, gen: Generator[Any, Any, Any]) -> bool:
        """Cancels the statement; False: that was not answered, and the connection is closed."""
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
    """An error or the end of the stream is for the next read or write to find."""
    if events & ~(select.POLLIN | select.POLLOUT):
        return wanted
    return (waiting.Ready.R if events & select.POLLIN else 0) | (
        waiting.Ready.W if events & select.POLLOUT else 0
    )


def open_connection(given: Mapping[str, Any], database: bytes | None = None) -> Connection:
    """A connection by libpq's options, every statement in a transaction of its own. ``database``: see
    :func:`connect`.

    libpq can compute for minutes (SCRAM) or wait for a name without hearing a signal, so it does that on a
    thread which is left behind. Raises :class:`psycopg.Error`, :class:`Abandoned`, :class:`UnicodeError`.
    """
    options = {**_NETWORK, **given}
    attended = Attended(lambda mine: _connected(options, database, mine), Connection.close)
    try:
        return attended.result()
    except TimeoutError:
        raise psycopg.errors.ConnectionTimeout("connection timeout expired") from None


def _connected(
    options: Mapping[str, Any], database: bytes | None, attended: Attended[Connection]
) -> Connection:
    each_s = timeout_from_conninfo(dict(options))
    attended.limit_s = each_s + _SLACK_S
    hosts = options.get("hostaddr") or options.get("host") or os.environ.get("PGHOST", "")
    attended.limit_s = each_s * _addresses(str(hosts)) + _SLACK_S
    DATABASE.set(database)  # of this thread alone
    return Connection.connect(**options, autocommit=True)


def _addresses(hosts: str) -> int:
    """How many libpq would try, one after the other: the limit is for each."""
    count = 0
    for host in hosts.split(","):
        found = 1
        if host and not host.startswith(("/", "@")):
            with suppress(OSError, UnicodeError):
                found = len(getaddrinfo(host, None, type=SOCK_STREAM))
        count += found
    return count


APPLICATION = "dbdyno"
MINIMUM_VERSION = 140000
CONNECT_TIMEOUT_S = 10


def connect(dsn: str, database: bytes | None = None) -> Connection:
    """A connection with every statement in a transaction of its own. ``database``: the name in place of the
    DSN's, which need not be UTF-8. Raises the product's errors."""
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.Error as e:
        raise dsn_error(e) from None
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
            connection = open_connection({**given, **held(given, database)}, database)
        except UnicodeError:
            raise TargetError("a host or user name cannot be encoded", "check the DSN") from None
        except psycopg.Error as e:
            raise connect_error(e, str(password) if password else None, doubt.answer) from None
    note(given, connection, database)
    connection.prepare_threshold, connection.opened = None, opened
    connection.add_notify_handler(lambda _notify: None)  # psycopg would keep them for whoever asks later
    connection.cursor_factory = texts.Cursor
    _check_version(connection)
    try:
        connection.before = own_settings.fix(connection)  # before any other statement of ours
        connection.take_text_as_it_is()
    except psycopg.Error as e:
        connection.close()
        raise server_error(e, "beginning a session") from None
    except BaseException:
        connection.close()
        raise
    return connection


def secret_in(dsn: str) -> str | None:
    """Where to keep the password that the DSN holds. None: it holds none, or libpq cannot read it: then it is
    not used either."""
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.Error:
        return None
    held = any(given.get(name) for name in ("password", "sslpassword"))
    return "keep it in ~/.pgpass, in a file named by PGPASSFILE, or in a service file" if held else None


def release(number: int) -> str:
    """The release line of a ``server_version_num``: two numbers before version 10.

    >>> release(90624), release(180006)
    ('9.6', '18')
    """
    return str(number // 10000) if number >= 100000 else f"{number // 10000}.{number // 100 % 100}"


def _check_version(connection: Connection) -> None:
    number = connection.info.server_version
    if number < MINIMUM_VERSION:
        connection.close()
        raise TargetError(
            f"the server is PostgreSQL {release(number)}, dbdyno needs {MINIMUM_VERSION // 10000} or later",
            "measure a later server",
        )


def driver_target(connection: Connection) -> dict[str, Any]:
    """``target`` of docs/core.md: the very server, user and TLS that libpq arrived at. Holds the password.

    Raises :class:`UsageError` for an option that the driver cannot honour.
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
    """libpq's options as they are in force, defaults and environment included."""
    found = {}
    for option in connection.pgconn.info:
        if option.val is not None:
            found[option.keyword.decode()] = option.val.decode(errors="replace")
    found["hostaddr"] = connection.info.hostaddr if "hostaddr" in found else ""
    return found


def where(connection: Connection) -> str:
    """Host and port or socket, database, user: no password."""
    info = connection.info
    host = info.host or info.hostaddr
    place = f"socket {host}, port {info.port}" if host.startswith(("/", "@")) else f"{host}:{info.port}"
    return f"{place}, database {connection.database}, user {connection.user}"


def network_address(dsn: str) -> tuple[str, int] | None:
    """Host and port that libpq arrived at. None: a socket of this machine."""
    with connect(dsn) as connection:
        info = connection.info
        host = _options(connection).get("hostaddr") or info.host
        return None if host.startswith(("/", "@")) else (host, info.port)


def tls_in_words(connection: Connection) -> str | None:
    """``TLSv1.3, TLS_AES_256_GCM_SHA384, sslmode=verify-full``; None: not encrypted."""
    if not connection.pgconn.ssl_in_use:
        return None
    row = connection.execute(
        f"select version, cipher from pg_catalog.pg_stat_ssl where pid = pg_catalog.pg_backend_pid(){sql.OWN}"
    ).fetchone()
    mode = _options(connection).get("sslmode", "prefer")
    return ", ".join([*(str(v) for v in row or ()), f"sslmode={mode}"])
