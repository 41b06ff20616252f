"""Where metrics go: an address that scrapers read, a file, or both."""

from __future__ import annotations

import errno
import gzip
import ipaddress
import os
import re
import secrets
import socket
import stat
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder, write_to_textfile

from dbdyno.conduct.metrics.serving import PATH, Answer, Server
from dbdyno.conduct.metrics.sums import Exposed, Sums
from dbdyno.model.errors import UsageError
from dbdyno.model.home import base_directory
from dbdyno.present.metrics.window import Window

_OPEN_METRICS = "application/openmetrics-text"
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{16,1000}")
"""Characters of a token (RFC 6750, 2.1), and enough of them."""
_ELSEWHERE = "another address; --metrics 127.0.0.1:0 takes any free port"


@dataclass(frozen=True)
class Destination:
    """``address``: HOST:PORT or PORT. ``token_file``: by default one of this user. ``open``: ask for no
    token. ``file``: for node_exporter's textfile collector."""

    address: str | None = None
    token_file: Path | None = None
    open: bool = False
    file: Path | None = None


class Exporter:
    """Serves and writes the metrics of all windows so far, while it is entered as a context.

    The constructor listens already, so that an address in use is an error before anything is measured.
    """

    def __init__(self, where: Destination) -> None:
        """Raises :class:`UsageError` if the address or the file cannot be used."""
        self._sums, self._lock = Sums(), threading.Lock()
        self._registries = {created: CollectorRegistry() for created in (False, True)}
        for created, registry in self._registries.items():
            registry.register(Exposed(self._sums, created=created))
        self._answers: dict[
            tuple[bool, bool], Answer
        ] = {}  # by format and compression, until the next window
        self._servers: list[str] = []
        self._file = None if where.file is None else _writable(where.file)
        self._write_failed = False
        self.token_file = None if where.address is None or where.open else where.token_file or default_token()
        self.server: Server | None = None
        if where.address is not None:
            token = None if self.token_file is None else token_in(self.token_file)
            self.server = _listening(where.address, self._answer, token)

    def __enter__(self) -> Exporter:
        if self.server is not None:
            self.server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.server is not None:
            self.server.stop()

    @property
    def url(self) -> str | None:
        if self.server is None:
            return None
        host, port = str(self.server.server_address[0]), self.server.server_address[1]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}"

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches the address."""
        assert self.server is not None
        return ipaddress.ip_address(str(self.server.server_address[0]).partition("%")[0]).is_loopback

    def label(self, place: str) -> str:
        """Returns the label of another server at ``place``, different from those of all others."""
        with self._lock:
            same = sum(label.partition(" #")[0] == place for label in self._servers)
            self._servers.append(f"{place} #{same + 1}" if same else place)
            return self._servers[-1]

    def add(self, server: str, windows: Collection[Window], notice: Callable[[str], None]) -> None:
        """Adds windows of a server. ``notice`` is called once if the file cannot be written."""
        if not windows:
            return
        with self._lock:
            self._sums.add(server, windows)
            self._answers.clear()
            if self._file is not None:
                try:
                    write_to_textfile(str(self._file), self._registries[False])
                except OSError as e:
                    if not self._write_failed:
                        notice(
                            f"metrics: {self._file} could not be written: {e.strerror}; trying again later"
                        )
                    self._write_failed = True
                else:
                    self._write_failed = False

    def _answer(self, accept: str, accept_encoding: str) -> Answer:
        """Returns the metrics in one of two formats. They are rendered once a window."""
        key = (_OPEN_METRICS in accept, "gzip" in accept_encoding)
        with self._lock:
            if key not in self._answers:
                encode, content_type = choose_encoder(f"{_OPEN_METRICS}; version=1.0.0" if key[0] else "")
                body = encode(self._registries[key[0]])
                self._answers[key] = (
                    Answer(content_type, gzip.compress(body, 1), "gzip")
                    if key[1]
                    else Answer(content_type, body)
                )
            return self._answers[key]


def _listening(text: str, answer: Callable[[str, str], Answer], token: str | None) -> Server:
    match = re.fullmatch(r"(?:(\[[^]]*\]|[^:\[\]]*):)?(\d{1,5})", text.strip())
    if match is None or int(match[2]) > 65535 or match[1] == "":
        raise UsageError(f"--metrics {text}: no address", "HOST:PORT or PORT: --metrics 127.0.0.1:9187")
    host, port = (match[1] or "127.0.0.1").strip("[]"), int(match[2])
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return Server(family, address, answer, token)
    except OSError as e:
        in_use = e.errno == errno.EADDRINUSE
        reason = "the port is in use" if in_use else (e.strerror or str(e)).lower()
        cure = f"{_ELSEWHERE}; ss -ltnp shows who uses it" if in_use else _ELSEWHERE
        raise UsageError(f"--metrics {text}: {reason}", cure) from None


def default_token() -> Path:
    """Returns this user's token file, the same for all runs: a scraper's configuration stays valid."""
    home = base_directory(
        "XDG_DATA_HOME", ".local/share", "the token", "name a file: --metrics-token-file FILE"
    )
    return home / "dbdyno" / "metrics-token"


def token_in(path: Path) -> str:
    """Returns the token of a file, which is made if there is none. Raises :class:`UsageError`."""
    try:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(f"{secrets.token_urlsafe(32)}\n")
        mode = path.stat().st_mode
        text = path.read_text(encoding="ascii", errors="replace").strip() if stat.S_ISREG(mode) else ""
    except OSError as e:
        raise UsageError(
            f"token file {path}: {(e.strerror or str(e)).lower()}", "name another: --metrics-token-file FILE"
        ) from None
    if mode & 0o027:
        raise UsageError(f"token file {path}: others may read or change it", f"chmod 600 {path}")
    if not _TOKEN.fullmatch(text):
        raise UsageError(
            f"token file {path}: not a token (one line of at least 16 letters and digits)",
            f"remove it, and the next start makes one: rm {path}",
        )
    return text


def _writable(path: Path) -> Path:
    """Returns ``path``. Raises :class:`UsageError` if no file can be written there, or none would be read."""
    if path.suffix != ".prom":
        raise UsageError(
            f"--metrics-file {path}: the textfile collector reads *.prom only", f"name it {path.name}.prom"
        )
    if not path.parent.is_dir():
        raise UsageError(
            f"--metrics-file {path}: there is no directory {path.parent}", "make it, or name another"
        )
    if path.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK):  # the file is replaced, not written
        raise UsageError(
            f"--metrics-file {path}: no permission to write into {path.parent}",
            "a directory that you may write to, and node_exporter may read",
        )
    return path.absolute()
