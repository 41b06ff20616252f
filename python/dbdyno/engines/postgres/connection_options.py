"""Translates libpq's connection options for the driver. Each is supported, harmless, or refused by name.

PostgreSQL 18, "libpq - C Library", 32.1.2 and 32.19. The driver sends the password only to servers, and only
by methods, that libpq's first connection accepted.
"""

from __future__ import annotations

import ipaddress
import os
import pwd
import re
import resource
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dbdyno.engines.postgres.traced import Authentication, Traced
from dbdyno.model.errors import UsageError

CARRIED, HARMLESS = "carried", "harmless"

OPTIONS: dict[str, str] = {
    # user and address, and how libpq finds them: the sessions connect to the address that libpq connected to
    **dict.fromkeys(("host", "hostaddr", "port", "dbname", "user", "password", "options"), CARRIED),
    **dict.fromkeys(("passfile", "service", "servicefile"), HARMLESS),
    **dict.fromkeys(("target_session_attrs", "load_balance_hosts", "max_protocol_version"), HARMLESS),
    **dict.fromkeys(("client_encoding", "application_name", "fallback_application_name"), HARMLESS),
    # time limits, and the network
    **dict.fromkeys(("connect_timeout", "tcp_user_timeout"), CARRIED),
    **dict.fromkeys(("keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count"), CARRIED),
    # TLS; the driver neither compresses nor logs keys
    **dict.fromkeys(("sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "sslcrldir"), CARRIED),
    **dict.fromkeys(("sslsni", "sslnegotiation", "sslcertmode"), CARRIED),
    **dict.fromkeys(("ssl_min_protocol_version", "ssl_max_protocol_version"), CARRIED),
    **dict.fromkeys(("sslcompression", "sslkeylogfile"), HARMLESS),
    "sslpassword": "give sslkey a key without a passphrase, readable by you alone",
    # authentication; GSSAPI itself is refused
    **dict.fromkeys(("require_auth", "channel_binding", "requirepeer"), CARRIED),
    **dict.fromkeys(("krbsrvname", "gsslib", "gssdelegation"), HARMLESS),
    "gssencmode": "encrypt with TLS: sslmode=verify-full",
    **dict.fromkeys(("scram_client_key", "scram_server_key"), "give the password, in ~/.pgpass"),
    **dict.fromkeys(
        ("oauth_issuer", "oauth_client_id", "oauth_client_secret", "oauth_scope"),
        "connect as a role with a password (scram-sha-256)",
    ),
    "replication": "leave it out",
    "min_protocol_version": "leave it out: the driver speaks version 3.0",
}
"""Every option of libpq 18: carried to the driver, harmless if it is not, or the cure if it is refused."""

# Values of refused options that change nothing. sslpassword is harmless without an encrypted key.
_NOTHING = {
    "gssencmode": ("disable", "prefer"),
    "min_protocol_version": ("3.0",),
    "replication": ("false", "off"),
}
_METHODS = ("none", "password", "md5", "scram-sha-256")
_VERSIONS = ("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
_CRL_NAME = re.compile(r"[0-9a-f]{8}\.r\d+")
_NO_CORE_BYTES = 1
_POOLER_CANNOT = ("channel_binding", "requirepeer", "sslcrl", "sslcrldir", "sslnegotiation")
_OFF = {"channel_binding": ("disable", "prefer"), "sslnegotiation": ("postgres",)}


def driver_options(connection: Traced) -> dict[str, Any]:
    """Returns the keys ``auth``, ``peer_uid`` and ``tcp`` of the core's target. Raises :class:`UsageError`
    for options that the driver does not support."""
    options = connection.options()
    _check(options)
    if connection.info.password:
        forbid_core_dumps()
    return {"auth": _auth(connection, options), "peer_uid": _peer(connection, options), "tcp": _tcp(options)}


def _check(options: Mapping[str, str]) -> None:
    for name, value in options.items():
        cure = OPTIONS.get(name, "leave it out")
        if cure in (CARRIED, HARMLESS) or name == "sslpassword" or value in _NOTHING.get(name, ()):
            continue
        raise _refusal(name, cure)


def _refusal(what: str, cure: str) -> UsageError:
    return UsageError(f"dbdyno's sessions cannot honour the connection option {what}", cure)


# -- authentication ---------------------------------------------------------------------------------
def _auth(connection: Traced, options: Mapping[str, str]) -> dict[str, Any]:
    """Returns the method that the server asked libpq for. If that is unknown, allows only methods that do
    not reveal the password."""
    met = connection.authentication
    if met is None:
        met = Authentication("scram-sha-256" if connection.pgconn.used_password else "none", bound=False)
    if met.method not in _METHODS:
        raise UsageError(
            f"the server authenticates this role by {met.method}: dbdyno's sessions cannot",
            "connect as a role with a password (scram-sha-256), or with a client certificate",
        )
    allowed = [m for m in allowed_methods(options.get("require_auth", "")) if m == met.method]
    binding = "require" if met.bound else options.get("channel_binding", "prefer")
    return {"methods": allowed, "channel_binding": binding}


def allowed_methods(require_auth: str) -> list[str]:
    """Returns the methods of the driver that a rule allows: it lists methods, or with ``!`` excluded ones."""
    methods = [word.strip() for word in require_auth.split(",") if word.strip()]
    excluded = [word[1:] for word in methods if word.startswith("!")]
    return [m for m in _METHODS if (m in methods or not methods or excluded) and m not in excluded]


def _peer(connection: Traced, options: Mapping[str, str]) -> int | None:
    name = options.get("requirepeer")
    if name is None or not _is_local_socket(connection.info.host):
        return None
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise _refusal(f"requirepeer={name}", "name an existing user") from None


def _is_local_socket(host: str) -> bool:
    return host.startswith(("/", "@"))


def _tcp(options: Mapping[str, str]) -> dict[str, Any]:
    def number(name: str) -> int:
        return max(0, int(options.get(name) or 0))

    return {
        "user_timeout_ms": number("tcp_user_timeout"),
        "keepalives": options.get("keepalives", "1") != "0",
        "idle_s": number("keepalives_idle"),
        "interval_s": number("keepalives_interval"),
        "count": number("keepalives_count"),
    }


# -- TLS --------------------------------------------------------------------------------------------
def tls(connection: Traced) -> dict[str, Any] | None:
    """Returns ``tls`` of the core's target, None if libpq's connection is not encrypted. Raises
    :class:`UsageError`."""
    if not connection.pgconn.ssl_in_use:
        return None
    options = connection.options()
    home = Path(os.path.expanduser("~/.postgresql"))  # noqa: PTH111  no error where there is no home
    root = options.get("sslrootcert") or _existing(home / "root.crt")
    verify = _verify(options.get("sslmode", "prefer"), root)
    cert, key = _client_certificate(options, home)
    return {
        "verify": verify,
        "root_cert": root if verify != "none" else None,
        "cert": cert,
        "key": key,
        "server_name": connection.info.host or connection.info.hostaddr,
        "crls": list(_revoked(options, home)) if verify != "none" and root != "system" else [],
        "versions": _versions(options),
        "sni": options.get("sslsni", "1") != "0",
        "direct": options.get("sslnegotiation") == "direct",
    }


def _verify(mode: str, root: str | None) -> str:
    """Returns what to verify. An existing root certificate is used in every mode (libpq's
    ``initialize_SSL``)."""
    if root == "system" or mode == "verify-full":
        return "full"
    return "ca" if mode == "verify-ca" or (root is not None and Path(root).exists()) else "none"


def _client_certificate(options: Mapping[str, str], home: Path) -> tuple[str | None, str | None]:
    mode = options.get("sslcertmode", "allow")
    if mode == "require":
        raise _refusal("sslcertmode=require", "use a role with a line `cert` in the server's pg_hba.conf")
    cert = options.get("sslcert") or _existing(home / "postgresql.crt")
    key = options.get("sslkey") or _existing(home / "postgresql.key")
    if cert is None or key is None or mode == "disable" or not Path(cert).exists():
        return None, None
    if not Path(key).exists():
        raise _refusal(f"sslkey={key}", "name a file with the key")
    if b"ENCRYPTED" in Path(key).read_bytes():
        raise _refusal("sslpassword", OPTIONS["sslpassword"])
    return cert, key


def _revoked(options: Mapping[str, str], home: Path) -> Iterator[str]:
    """Yields existing files of revoked certificates, as libpq: a file and a directory of names by hash, by
    default ``root.crl``."""
    file, directory = options.get("sslcrl"), options.get("sslcrldir")
    if file is None and directory is None:
        file = str(home / "root.crl")
    if file is not None and Path(file).exists():
        yield file
    if directory is not None and Path(directory).is_dir():
        yield from sorted(str(p) for p in Path(directory).iterdir() if _CRL_NAME.fullmatch(p.name))


def _versions(options: Mapping[str, str]) -> list[str]:
    """Returns the TLS versions in force that the driver supports. Names are libpq's, in any case."""
    known = [v.lower() for v in _VERSIONS]
    first = known.index(options.get("ssl_min_protocol_version", _VERSIONS[0]).lower())
    last = known.index(options.get("ssl_max_protocol_version", _VERSIONS[-1]).lower())
    versions = [v for i, v in enumerate(_VERSIONS) if i >= 2 and first <= i <= last]
    if not versions:
        raise _refusal(f"ssl_max_protocol_version={_VERSIONS[last]}", "the driver speaks TLS 1.2 and 1.3")
    return versions


def _existing(path: Path) -> str | None:
    return str(path) if path.exists() else None


# -- a pooler ---------------------------------------------------------------------------------------
def check_pooler(connection: Traced, target: Mapping[str, Any]) -> None:
    """Raises :class:`UsageError` for options that PgBouncer does not support: it has few, and answers
    whatever a server asks for."""
    options = connection.asked
    for name in _POOLER_CANNOT:
        if options.get(name) and options[name] not in _OFF.get(name, ()):
            raise _pooler_cannot(f"{name}={options[name]}")
    rule = options.get("require_auth", "")
    gives = {"password", "md5", "scram-sha-256"} <= set(allowed_methods(rule))
    if rule and not gives:
        raise _pooler_cannot(f"require_auth={rule}")
    if rule or target["password"] is None or target["auth"]["methods"] == ["password"]:
        return
    verified = target["tls"] is not None and target["tls"]["verify"] != "none"
    if not verified and not _is_here(str(target["host"])):
        raise UsageError(
            f"a limit `pool` gives the password of {target['user']} to PgBouncer, which sends it to whatever "
            f"answers at {target['host']}: the server's certificate is not verified",
            "sslmode=verify-full with sslrootcert, or a unix socket",
        )


def _pooler_cannot(what: str) -> UsageError:
    return UsageError(
        f"PgBouncer cannot honour the connection option {what}: the limit `pool` is not available with it",
        "measure without a pool",
    )


def _is_here(host: str) -> bool:
    try:
        return _is_local_socket(host) or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# -- memory -----------------------------------------------------------------------------------------
def forbid_core_dumps() -> None:
    """Keeps a crash from writing memory, and so a password, into a file.

    The limit is 1 byte, not 0: at 0 the kernel still pipes a core to a program in core_pattern, at 1 to none
    (core(5)). PR_SET_DUMPABLE would also make root the owner of /proc/self, which measurements of an ordinary
    user read. Children inherit the limit; the embedded server, which has no password, starts without it.
    """
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    least = _NO_CORE_BYTES if hard in (-1, resource.RLIM_INFINITY) or hard >= _NO_CORE_BYTES else hard
    resource.setrlimit(resource.RLIMIT_CORE, (least, hard))
