"""Where the server listens, and which names it answers to."""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
import ssl
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from dbdyno.model.errors import UsageError

PORT = 8431
"""Port by default, if it is free."""
_ADDRESS = re.compile(r"(?:(\[[^]]*\]|[^:\[\]]+):)?(\d{1,5})")
_CURE = "HOST:PORT or PORT: --listen 127.0.0.1:8431; port 0 takes any that is free"
_TLS_CURE = (
    "a certificate for this machine: openssl req -x509 -newkey rsa:2048 -nodes -days 365 -subj /CN=HOST "
    "-out web.pem -keyout web.key"
)
_LOCAL = ("localhost",)


@dataclass(frozen=True)
class Address:
    """``tls``: files of the certificate and its key. ``host`` is an IP address."""

    sockets: tuple[socket.socket, ...]
    host: str
    port: int
    names: Collection[str]
    tls: tuple[Path, Path] | None = None

    @property
    def scheme(self) -> str:
        return "https" if self.tls else "http"

    @property
    def url(self) -> str:
        """Returns the address for people: of all addresses of the machine, the one it has for itself."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"{self.scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def is_local(self) -> bool:
        return ipaddress.ip_address(self.host).is_loopback

    def answers_to(self, host: str) -> bool:
        """Returns whether the header Host is one of ours.

        A request by a foreign name that leads here (DNS rebinding) has that name in it, so only addresses
        and the names of this machine count. The port may be another: that of a tunnel.
        """
        match = re.fullmatch(r"(\[[^]\s]+\]|[^:\s]+)(?::\d{1,5})?", host)
        if match is None:
            return False
        name = match[1].strip("[]").lower().rstrip(".")
        if name in self.names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not self.is_local


def listening(text: str | None, *, insecure: bool, tls: tuple[Path, Path] | None) -> Address:
    """Binds ``HOST:PORT`` or ``PORT``; by default :data:`PORT` on 127.0.0.1, or any if it is in use.

    Raises :class:`UsageError`, also if others could read what is sent: not loopback, and neither ``tls`` nor
    ``insecure``.
    """
    match = _ADDRESS.fullmatch((text or str(PORT)).strip())
    if match is None or int(match[2]) > 65535:
        raise UsageError(f"--listen {text}: no address", _CURE)
    wanted, port = (match[1] or "127.0.0.1").strip("[]"), int(match[2])
    try:
        family, _, _, _, resolved = socket.getaddrinfo(wanted, port, type=socket.SOCK_STREAM)[0]
    except OSError as e:
        raise UsageError(f"--listen {text}: {(e.strerror or str(e)).lower()}", _CURE) from None
    host = str(resolved[0])
    if not (ipaddress.ip_address(host.partition("%")[0]).is_loopback or tls or insecure):
        raise UsageError(
            f"--listen {text}: others on the network could read what is sent",
            "--tls-cert FILE --tls-key FILE; or a tunnel to a loopback address (ssh -L); or --insecure",
        )
    bound = _bound(family, resolved, text)
    names = {*_LOCAL, wanted.lower(), *([] if _is_loopback(host) else _machine_names())}
    return Address((bound,), host.partition("%")[0], bound.getsockname()[1], frozenset(names), tls)


def tls_files(certificate: Path, key: Path) -> tuple[Path, Path]:
    """Returns both. Raises :class:`UsageError` unless they can be used together."""

    def refuse() -> str:
        raise UsageError(
            f"--tls-key {key}: it has a password", f"openssl pkey -in {quote(str(key))} -out KEY"
        )

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, refuse)
    except ssl.SSLError as e:
        if e.reason == "KEY_VALUES_MISMATCH":
            message = f"--tls-key {key}: it is not the key of {certificate}"
        else:
            option, path = ("--tls-key", key) if _is_certificate(certificate) else ("--tls-cert", certificate)
            message = f"{option} {path}: not in the format PEM"
        raise UsageError(message, _TLS_CURE) from None
    except OSError as e:
        raise UsageError(f"--tls-cert {certificate}, --tls-key {key}: {e.strerror}", _TLS_CURE) from None
    return certificate, key


def _is_certificate(path: Path) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except OSError:  # ssl.SSLError is one
        return False
    return True


def _is_loopback(host: str) -> bool:
    return ipaddress.ip_address(host.partition("%")[0]).is_loopback


def _machine_names() -> set[str]:
    return {name.lower() for name in (socket.gethostname(), socket.getfqdn()) if name}


def _bound(family: int, address: tuple[object, ...], text: str | None) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        try:
            bound.bind(address)
        except OSError as e:
            if text is not None or e.errno != errno.EADDRINUSE:
                raise
            bound.bind((address[0], 0, *address[2:]))
        bound.listen()  # who opens the printed address at once waits
    except OSError as e:
        bound.close()
        in_use = e.errno == errno.EADDRINUSE
        reason = "the port is in use" if in_use else (e.strerror or str(e)).lower()
        cure = "another port; ss -ltnp shows who uses it" if in_use else _CURE
        raise UsageError(f"--listen {text}: {reason}", cure) from None
    return bound
