"""--server-ssh: a server in namespaces of its own has the whole ledger over ssh, and nothing stays there."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.elsewhere import Elsewhere, in_namespaces, needs_root
from tests.elsewhere_server import Cluster, ServerElsewhere
from tests.sshd import Sshd, needs_sshd, sshd
from tests.waiting import eventually

pytestmark = [pytest.mark.db, pytest.mark.root, needs_root, needs_sshd]
FAR = in_namespaces(pid=True, net=True)
RUN = ("run", "lio", "--call-target", "20ms", "--measure", "1500ms", "--settle", "200ms", "--json")


@pytest.fixture(scope="module")
def far(cluster: Cluster) -> Iterator[ServerElsewhere]:
    """A server that is seen over its address alone."""
    with cluster.server(FAR) as server:
        server.bridge()
        server.wait(server.tcp)
        yield server


@pytest.fixture(scope="module")
def host(far: ServerElsewhere, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    place = tmp_path_factory.mktemp("sshd")
    for parent in (place, *place.parents):
        if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    with sshd(far, place) as made:
        yield made


def words(far: ServerElsewhere, host: Sshd, *options: str, **ssh: str) -> list[str]:
    command = host.command(*options, **ssh)
    return ["--dsn", far.tcp, "--server-ssh", f"{host.user}@{host.host}", "--ssh-command", command]


def nothing_stays(far: ServerElsewhere, host: Sshd) -> bool:
    """No process of the user's, no file of the agent's, no session."""
    left = [p for p in Path(f"/proc/{far.pid}/root/dev/shm").iterdir() if "dbdyno" in p.name]
    left += [p for p in Path("/tmp").iterdir() if p.name.startswith("dbdyno-agent.")]
    with psycopg.connect(far.unix) as control:
        sessions = control.execute(
            "select count(*) from pg_stat_activity where application_name like 'dbdyno%'"
        ).fetchone()
    return not left and not host.names() and sessions == (0,)


def accounts(page: dict[str, Any]) -> dict[str, float]:
    """Seconds per second of the sessions, by account."""
    rows = [r for r in page["ledger"] if r["scope"] == "rung" and r["aas"] is not None]
    return {
        name: sum(r["aas"] for r in rows if r["account"] == name) for name in {r["account"] for r in rows}
    }


def test_a_run_has_the_whole_ledger(roots: Elsewhere, far: ServerElsewhere, host: Sshd) -> None:
    done = roots.dbdyno(*RUN, "--sessions", "2", *words(far, host))
    assert done.returncode == 0, done.stderr
    page = json.loads(done.stdout)
    server = page["environment"]["server"]
    assert (
        server["here"] and server["reached"]["host"] == host.host and server["reached"]["user"] == host.user
    )
    assert 0 < server["reached"]["clock_bound_ns"] < 15_000_000
    assert page["environment"]["client"]["cpu"]["logical"] == os.cpu_count()
    sources = {s["name"]: s["status"] for s in page["sources"]}
    for name in ("os tasks", "driver tasks", "activity samples", "host", "driver"):
        assert sources[name] == "ok", (name, page["sources"])
    eventually(lambda: nothing_stays(far, host))


def test_without_it_the_server_is_not_here(roots: Elsewhere, far: ServerElsewhere) -> None:
    done = roots.dbdyno(*RUN, "--sessions", "1", "--dsn", far.tcp)
    assert done.returncode == 0, done.stderr
    assert not json.loads(done.stdout)["environment"]["server"]["here"]
