"""What answers at an address where no PostgreSQL does: asked after libpq gave up, or while it waits.

PostgreSQL's protocol (54.2.10): a server answers an SSLRequest with one byte, S or N. Others greet first
(MySQL, SSH, FTP), or want a line (HTTP), or say nothing.
"""

from __future__ import annotations

import re
import socket
import struct
from contextlib import suppress
from threading import Timer
from types import TracebackType
from typing import NamedTuple

PORT = 5432
_SSL_REQUEST = struct.pack(">ii", 8, 80877103)
_LINE = b"GET / HTTP/1.0\r\n\r\n"
_GREETING_S = 0.25
_ANSWER_S = 0.4
_SHOWN = 40
_MYSQL_ERROR, _MYSQL_10 = 0xFF, 0x0A

_SPEECH: tuple[tuple[bytes, str], ...] = (
    (rb"HTTP/\d", "a web server (HTTP)"),
    (rb"SSH-", "an SSH server"),
    (rb"220[ -].*(?i:smtp|mail)", "a mail server (SMTP)"),
    (rb"220[ -]", "an FTP or mail server"),
    (rb"\+OK|\* OK", "a mail server (POP3 or IMAP)"),
    (rb"-(ERR|NOAUTH|DENIED)", "Redis, or something that speaks its protocol"),
    (rb"\x15\x03", "a service that speaks TLS from the first byte"),
    (rb"\x00\x00\x00?.\x00.*\(DESCRIPTION", "an Oracle listener"),
)


class Address(NamedTuple):
    """Where libpq was to connect: a host name or address, or the directory of a unix socket."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self._path}" if self.host.startswith("/") else f"{self.host}:{self.port}"

    @property
    def _path(self) -> str:
        return f"{self.host}/.s.PGSQL.{self.port}"

    def connect(self, timeout_s: float) -> socket.socket:
        """Raises :class:`OSError`."""
        if not self.host.startswith("/"):
            return socket.create_connection((self.host, self.port), timeout_s)
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(timeout_s)
        made.connect(self._path)
        return made


class Doubt:
    """Asks who is there when half the time of a connection attempt has gone by, so that the answer has come
    when the attempt times out."""

    def __init__(self, address: Address | None, timeout_s: float) -> None:
        self._address = address
        self._answer: str | None = None
        self._asking = False
        self._timer = Timer(timeout_s / 2, self._ask) if timeout_s > 0 and address else None

    def __enter__(self) -> Doubt:
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def answer(self) -> str | None:
        """Who is there; see :func:`stranger`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        if not self._asking:
            self._ask()
        return self._answer

    def _ask(self) -> None:
        self._asking = True
        self._answer = None if self._address is None else stranger(self._address)


def stranger(address: Address) -> str | None:
    """What is there, a sentence, within about a second; None: PostgreSQL, or nobody takes connections."""
    try:
        heard = _hear(address, b"") or _hear(address, _SSL_REQUEST)
        if heard in (b"S", b"N") or (heard[:1] == b"E" and _postgres_error(heard)):
            return None
        heard = heard or _hear(address, _LINE)
    except OSError:
        return None
    if not heard:
        return f"{address} accepts connections and sends nothing: not PostgreSQL, or it hangs"
    return f"{address} is {named(heard)}, not PostgreSQL"


def named(heard: bytes) -> str:
    """Who speaks so."""
    if (mysql := _mysql(heard)) is not None:
        return mysql
    for pattern, name in _SPEECH:
        if re.match(pattern, heard, re.DOTALL):
            return name
    return f"something that sends {repr(heard[:_SHOWN])[1:]}"


def _hear(address: Address, say: bytes) -> bytes:
    """What comes, first of all or in answer to ``say``; an end without a word is silence."""
    heard = b""
    with address.connect(_ANSWER_S) as connection:
        connection.settimeout(_ANSWER_S if say else _GREETING_S)
        with suppress(TimeoutError, ConnectionError):
            if say:
                connection.sendall(say)
            heard = connection.recv(256)
    return heard


def _postgres_error(heard: bytes) -> bool:
    """An ErrorResponse: of a protocol 3 server a length follows, of an older one text."""
    return len(heard) > 5 and (struct.unpack(">i", heard[1:5])[0] < 30_000 or heard[1:2].isalpha())


def _mysql(heard: bytes) -> str | None:
    """MySQL, "Protocol::HandshakeV10": 3 bytes length, 1 sequence, 10, version; or an error packet."""
    if len(heard) < 6 or heard[3] != 0 or int.from_bytes(heard[:3], "little") < 5:
        return None
    if heard[4] == _MYSQL_10:
        version = heard[5:].split(b"\0")[0].decode("ascii", "replace")
        number = version.removeprefix("5.5.5-").split("-")[0]  # MariaDB says 5.5.5 to old clients
        return f"{'MariaDB' if 'MariaDB' in version else 'MySQL'} {number}"
    return "MySQL or MariaDB, which refuses this host" if heard[4] == _MYSQL_ERROR else None
