"""All system calls of a command connect to the named server and to nothing else, as SECURITY.md says."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dbdyno.engines.postgres.pooler.config import PORT
from tests.db.conftest import LIGHT_CALLS, QUICK, Bench

pytestmark = pytest.mark.db
_STRACE = ("strace", "-f", "--seccomp-bpf", "-qq", "-e", "trace=connect,sendto,sendmsg,sendmmsg")
_ADDRESS = re.compile(r"\{sa_family=(AF_\w+)(?:, sun_path=@?\"([^\"]*)\")?[^}]*\}")
_NAMES = "/run/nscd/socket"
"""Where the C library asks for names of users; mostly nobody listens."""
_POOLER = re.compile(rf"/dbdyno/p\w+/\.s\.PGSQL\.{PORT}")
"""The socket of dbdyno's own pooler, which ``doctor`` tries."""


def addresses(trace: str) -> set[tuple[str, str]]:
    """Returns family and path of all addresses that system calls name."""
    return set(_ADDRESS.findall(trace))


@pytest.fixture(scope="module", autouse=True)
def strace() -> None:
    if shutil.which("strace") is None:
        pytest.skip("no strace here: apt-get install strace")
    if subprocess.run([*_STRACE, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no process may be traced here: CAP_SYS_PTRACE")


LINES = (
    ("run", "lio", "--sessions", "1,2", *QUICK, *LIGHT_CALLS, "--dsn", "{dsn}"),
    ("observe", "--for", "1s", "--dsn", "{dsn}"),
    ("doctor", "--dsn", "{dsn}"),
    ("report", "last"),
)


@pytest.mark.parametrize("words", LINES, ids=lambda words: str(words[0]))
def test_only_the_named_server_is_connected_to(words: tuple[str, ...], bench: Bench, tmp_path: Path) -> None:
    socket, trace = bench.status()["socket"], tmp_path / "trace"
    given = [w.format(dsn=bench.dsn) for w in words]
    done = bench.dbdyno(*given, under=(*_STRACE, "-o", str(trace)))
    assert done.returncode == 0, done.stderr
    connected = addresses(trace.read_text())
    assert {a for a in connected if not _is_allowed(*a, socket)} == set()
    assert any(path.startswith(socket) for _, path in connected) is (words[0] != "report")


def _is_allowed(family: str, path: str, socket: str) -> bool:
    named = path.startswith(socket) or path.endswith(_NAMES) or _POOLER.search(path) is not None
    return family == "AF_UNIX" and named


def test_another_address_would_be_seen(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    program = "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'', ('127.0.0.1', 9))"
    subprocess.run([*_STRACE, "-o", str(trace), "python3", "-c", program], check=True)
    assert ("AF_INET", "") in addresses(trace.read_text())
