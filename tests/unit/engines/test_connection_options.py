"""libpq's options: all are known, and those that the driver does not support are refused."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from psycopg import pq

from dbdyno.engines.postgres import connect, connection_options
from dbdyno.engines.postgres.connection_options import CARRIED, HARMLESS, OPTIONS, allowed_methods
from dbdyno.engines.postgres.errors import server_error
from dbdyno.engines.postgres.traced import Authentication, read
from dbdyno.model.errors import ServerLost, UsageError


def test_every_option_of_libpq_is_supported_or_has_a_cure() -> None:
    """Fails for an option of a new libpq: support it, or give a cure."""
    names = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    assert names - set(OPTIONS) == set()


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(UsageError, match="quantum_safe"):
        connection_options._check({"host": "h", "quantum_safe": "1"})


@pytest.mark.parametrize("name", [n for n, kind in OPTIONS.items() if kind not in (CARRIED, HARMLESS)])
def test_what_cannot_be_honoured_is_refused_by_name(name: str) -> None:
    if name == "sslpassword":
        return  # refused only if the key needs it: tested below
    with pytest.raises(UsageError, match=name) as caught:
        connection_options._check({"host": "h", name: "require"})
    assert caught.value.cure == OPTIONS[name]


def test_the_defaults_ask_for_nothing() -> None:
    connection_options._check(
        {o.keyword.decode(): o.val.decode() for o in pq.Conninfo.get_defaults() if o.val}
    )
    connection_options._check({"gssencmode": "prefer"})


def test_a_key_with_a_passphrase_is_refused(tmp_path: Path) -> None:
    for name, header in (("new", "ENCRYPTED PRIVATE KEY"), ("old", "RSA PRIVATE KEY")):
        key, cert = tmp_path / f"{name}.key", tmp_path / f"{name}.crt"
        cert.touch()
        key.write_text(f"-----BEGIN {header}-----\nProc-Type: 4,ENCRYPTED\n")
        with pytest.raises(UsageError, match="sslpassword"):
            connection_options._client_certificate({"sslcert": str(cert), "sslkey": str(key)}, tmp_path)
    given = {"sslcert": str(cert), "sslkey": str(key), "sslcertmode": "disable"}
    assert connection_options._client_certificate(given, tmp_path) == (None, None)
    with pytest.raises(UsageError, match="sslcertmode=require"):
        connection_options._client_certificate({"sslcertmode": "require"}, tmp_path)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("", ["none", "password", "md5", "scram-sha-256"]),
        ("scram-sha-256", ["scram-sha-256"]),
        ("none,scram-sha-256", ["none", "scram-sha-256"]),
        ("!password", ["none", "md5", "scram-sha-256"]),
        ("!none, !md5", ["password", "scram-sha-256"]),
        ("gss,oauth", []),
        ("!gss", ["none", "password", "md5", "scram-sha-256"]),
    ],
)
def test_require_auth_lists_or_excludes(rule: str, expected: list[str]) -> None:
    assert allowed_methods(rule) == expected


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ("TLSv1.2", None, ["TLSv1.2", "TLSv1.3"]),
        ("tlsv1", "TLSv1.2", ["TLSv1.2"]),
        ("TLSv1.3", "TLSv1.3", ["TLSv1.3"]),
        ("TLSv1", "TLSv1.1", None),
    ],
)
def test_first_and_last_version_of_tls_give_the_allowed_ones(
    first: str, last: str | None, expected: list[str] | None
) -> None:
    given = {"ssl_min_protocol_version": first} | ({"ssl_max_protocol_version": last} if last else {})
    if expected is None:
        with pytest.raises(UsageError, match=r"TLSv1\.1"):
            connection_options._versions(given)
    else:
        assert connection_options._versions(given) == expected


@pytest.mark.parametrize("mode", ["prefer", "allow", "require", "verify-ca"])
def test_a_root_certificate_that_is_there_is_used_in_every_mode(mode: str, tmp_path: Path) -> None:
    (tmp_path / "root.crt").touch()
    assert connection_options._verify(mode, str(tmp_path / "root.crt")) == "ca"
    assert connection_options._verify("require", "system") == "full"
    assert connection_options._verify("require", None) == "none"


def test_lists_of_revoked_certificates_are_found_as_libpq_does(tmp_path: Path) -> None:
    for name in ("root.crl", "0a1b2c3d.r0", "0a1b2c3d.r12", "0a1b2c3d.0", "readme"):
        (tmp_path / name).touch()
    files = connection_options._revoked({}, tmp_path)
    assert list(files) == [str(tmp_path / "root.crl")]
    files = connection_options._revoked({"sslcrldir": str(tmp_path)}, tmp_path)
    assert list(files) == [str(tmp_path / name) for name in ("0a1b2c3d.r0", "0a1b2c3d.r12")]
    assert list(connection_options._revoked({"sslcrl": str(tmp_path / "none")}, tmp_path)) == []


START = 'F\t38\tStartupMessage\t 3 0 "user" "u"\n'
SASL = 'B\t23\tAuthenticationSASL\t "SCRAM-SHA-256" ""\nF\t54\tSASLInitialResponse\t "{}" 32 \'BBBB\'\n'
SET = 'B\t22\tParameterStatus\t "TimeZone" "UTC"\n'


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (START + SET, Authentication("none", bound=False)),
        (START + SASL.format("SCRAM-SHA-256") + SET, Authentication("scram-sha-256", bound=False)),
        (START + SASL.format("SCRAM-SHA-256-PLUS") + SET, Authentication("scram-sha-256", bound=True)),
        (START + SASL.format("OAUTHBEARER") + SET, Authentication("oauth", bound=False)),
        (
            START + "B\t12\tAuthenticationMD5Password\nmismatched message length\n" + SET,
            Authentication("md5", bound=False),
        ),
        # a failed first attempt under TLS; then a server that sends messages out of order
        (
            START
            + SASL.format("SCRAM-SHA-256-PLUS")
            + "B\t9\tErrorResponse\n"
            + START
            + "B\t8\tAuthenticationCleartextPassword\n"
            + SET,
            Authentication("password", bound=False),
        ),
        (
            START + SASL.format("SCRAM-SHA-256") + SET + "B\t8\tAuthenticationCleartextPassword\n",
            Authentication("scram-sha-256", bound=False),
        ),
    ],
)
def test_the_method_of_authentication_is_read_from_libpqs_trace(lines: str, expected: Authentication) -> None:
    assert read(lines) == expected


@pytest.mark.parametrize("hard", [resource.RLIM_INFINITY, 4096, 0])
def test_no_core_dump_with_a_password(tmp_path: Path, hard: int) -> None:
    """Crashes a process, for which the kernel would write a core file into the directory."""
    code = (
        "import os, resource, signal\n"
        f"resource.setrlimit(resource.RLIMIT_CORE, ({hard}, {hard}))\n"
        "from dbdyno.engines.postgres.connection_options import forbid_core_dumps\n"
        "forbid_core_dumps()\n"
        "assert resource.getrlimit(resource.RLIMIT_CORE)[0] in (0, 1)\n"
        "os.kill(os.getpid(), signal.SIGABRT)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False, capture_output=True)
    assert done.returncode == -6, done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dsn", ["host=h dbnam=bench", "postgresql://h/d?dbnam=bench"])
def test_an_option_that_does_not_exist_is_named(dsn: str) -> None:
    with pytest.raises(UsageError) as caught:
        connect.connect(dsn)
    assert '"dbnam"' in caught.value.message and "bench" not in caught.value.message
    assert "dbname" in (caught.value.cure or "")


def test_a_service_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGSERVICEFILE", "/dev/null")
    with pytest.raises(UsageError, match='"nowhere"'):
        connect.connect("service=nowhere")


@pytest.mark.parametrize("dsn", ["password=open sesame=1 host=h", "host=h password='a b' password=c d=e"])
def test_a_word_that_may_be_a_part_of_a_password_is_not_repeated(dsn: str) -> None:
    with pytest.raises(UsageError) as caught:
        connect.connect(dsn)
    assert '"..."' in caught.value.message


def test_a_lost_server_is_one_line() -> None:
    words = "consuming input failed: server closed the connection unexpectedly"
    lost = server_error(psycopg.OperationalError(f"{words}\n\tThis probably means\n\tbefore or"), "reading")
    assert isinstance(lost, ServerLost)
    assert lost.message == f"reading: {words}"
