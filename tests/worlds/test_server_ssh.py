"""--server-ssh: a server in namespaces of its own has the whole ledger over ssh, and nothing stays there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dbdyno.model.errors import Unreachable
from dbdyno.remote import ssh
from tests.db.conftest import LIGHT_CALLS
from tests.elsewhere import Elsewhere, in_namespaces, needs_root
from tests.elsewhere_server import Cluster, ServerElsewhere
from tests.sshd import PORT, Sshd, needs_sshd, sshd
from tests.waiting import eventually

pytestmark = [pytest.mark.db, pytest.mark.root, needs_root, needs_sshd]
FAR = [*in_namespaces(pid=True, net=True), "sh", "-c", '"$@"; exit $?', "sh"]
"""With a shell for its first process: a server would take orphans of sshd for backends that crashed."""
WATCHED = """select count(*) from pg_stat_activity
    where application_name ~ '^dbdyno activity [0-9]+$' and clock_timestamp() - backend_start > '1.5s'"""
BRIEF = ("--measure", "1500ms", "--settle", "200ms", "--json")
RUN = ("run", "lio", "--call-target", "20ms", "--think", "60ms", *BRIEF)


@pytest.fixture(scope="module")
def far(cluster: Cluster) -> Iterator[ServerElsewhere]:
    """Yields a server that is visible over its address alone."""
    with cluster.server(FAR) as server:
        server.bridge()
        server.wait(server.tcp)
        yield server


@pytest.fixture(scope="module")
def host(far: ServerElsewhere, server_home: Path) -> Iterator[Sshd]:
    with sshd(far, Path(tempfile.mkdtemp(dir=server_home))) as host:
        yield host


def words(far: ServerElsewhere, host: Sshd, *options: str, **ssh: str) -> list[str]:
    command = host.command(*options, **ssh)
    return ["--dsn", far.tcp, "--server-ssh", f"{host.user}@{host.host}", "--ssh-command", command]


def nothing_stays(far: ServerElsewhere, host: Sshd) -> bool:
    """Checks that no process of the user's, no file of the agent's and no session remains."""
    left = [p for p in Path(f"/proc/{far.pid}/root/dev/shm").iterdir() if "dbdyno" in p.name]
    left += [p for p in Path("/tmp").iterdir() if p.name.startswith("dbdyno-agent.")]
    with psycopg.connect(far.unix) as control:
        sessions = control.execute(
            "select count(*) from pg_stat_activity where application_name like 'dbdyno%'"
        ).fetchone()
    return not left and not host.names() and sessions == (0,)


def accounts(page: dict[str, Any]) -> dict[str, float]:
    """Returns seconds per second of the sessions, by account."""
    rows = [r for r in page["ledger"] if r["scope"] == "rung" and r["aas"] is not None]
    return {
        name: sum(r["aas"] for r in rows if r["account"] == name) for name in {r["account"] for r in rows}
    }


def test_a_run_over_ssh_has_the_whole_ledger(roots: Elsewhere, far: ServerElsewhere, host: Sshd) -> None:
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


def test_session_time_adds_up_and_agrees_with_a_run_on_the_servers_host(
    roots: Elsewhere, far: ServerElsewhere, host: Sshd
) -> None:
    """CPU of a call is measured over ssh, and by dbdyno in the server's own namespaces."""
    over = roots.dbdyno(*RUN, "--sessions", "2", *words(far, host))
    inside = ["nsenter", "-t", str(far.pid), "-p", "-n", "unshare", "--mount", "sh", "-ec"]
    inside += ['mount -t proc proc /proc; exec "$@"', "sh"]
    local = roots.dbdyno(*RUN, "--sessions", "2", "--dsn", far.unix, world=inside)
    assert (over.returncode, local.returncode) == (0, 0), over.stderr + local.stderr
    over_ssh, here = json.loads(over.stdout), json.loads(local.stdout)
    assert here["environment"]["server"]["here"] and here["environment"]["server"]["reached"] is None
    for page in (over_ssh, here):
        whole = sum(r["aas"] for r in page["ledger"] if r["scope"] == "rung" and r["parent"] is None)
        assert whole == pytest.approx(2, rel=0.02)
    # the machine's speed changes by a factor of two between runs; a wrong unit or process is farther off
    assert 1 / 4 < cpu_of_a_call(over_ssh) / cpu_of_a_call(here) < 4


def cpu_of_a_call(page: dict[str, Any]) -> float:
    (cpu_ns,) = (r["value"] for r in page["rates"] if r["scope"] == "rung" and r["name"] == "cpu_per_call_ns")
    return float(cpu_ns)


def test_observe_doctor_snapshot_and_memory_reach_the_host_over_ssh(
    roots: Elsewhere, far: ServerElsewhere, host: Sshd
) -> None:
    observed = roots.dbdyno("observe", "--for", "2s", "--window", "1s", "--json", *words(far, host))
    assert observed.returncode == 0, observed.stderr
    page = json.loads(observed.stdout)
    assert {w["status"] for w in page["windows"]} == {"ok"}
    assert {s["name"]: s["status"] for s in page["sources"]}["os tasks"] == "ok"
    looked = roots.dbdyno("doctor", "--json", *words(far, host))
    assert looked.returncode == 0, looked.stderr
    document = json.loads(looked.stdout)
    states = {s["name"]: s["state"] for s in document["sources"]}
    assert states["os tasks"] == states["host"] == "on", states
    assert states["control groups"] != "on" and "only read" in looked.stdout
    checks = {c["id"]: c["state"] for c in document["checks"]}
    assert checks["swappiness"] not in ("not here", "unknown"), checks
    taken = roots.dbdyno("snapshot", "--json", *words(far, host))
    assert taken.returncode == 0, taken.stderr
    memory = roots.dbdyno("memory", "--json", *words(far, host))
    assert memory.returncode == 0, memory.stderr
    eventually(lambda: nothing_stays(far, host))


def test_a_host_behind_another_is_reached_as_the_configuration_says(
    roots: Elsewhere, far: ServerElsewhere, host: Sshd, tmp_path: Path
) -> None:
    """It has an alias with port, user and key, by way of a second host."""
    common = f"""  HostName {host.host}
  Port {PORT}
  User {host.user}
  IdentityFile {host.place}/key
  IdentitiesOnly yes
  UserKnownHostsFile {host.place}/known
"""
    config = tmp_path / "config"
    config.write_text(f"Host gate\n{common}Host db\n{common}  ProxyJump gate\n")
    ssh = tmp_path / "ssh"  # the jump is an ssh, too, and has to have the same configuration
    ssh.write_text(f'#!/bin/sh\nexec ssh -F {config} "$@"\n')
    ssh.chmod(0o755)
    given = ["--dsn", far.tcp, "--server-ssh", "db", "--ssh-command", str(ssh)]
    done = roots.dbdyno("doctor", "--json", *given)
    assert done.returncode == 0, done.stderr
    assert {s["name"]: s["state"] for s in json.loads(done.stdout)["sources"]}["os tasks"] == "on"
    eventually(lambda: nothing_stays(far, host))


def test_limits_of_a_host_that_is_only_read_are_refused(
    roots: Elsewhere, far: ServerElsewhere, host: Sshd
) -> None:
    done = roots.dbdyno(*RUN, "--sessions", "1", "--limit", "quota=1", *words(far, host))
    assert done.returncode == 3 and "only read" in done.stderr, done.stderr


def test_a_way_that_fails_is_an_error_with_the_cure(
    roots: Elsewhere, far: ServerElsewhere, host: Sshd
) -> None:
    """Nothing is measured, and the error tells the key's fault from the host's."""
    cases = {
        "wrong key": words(far, host, key="other"),
        "strange host": words(far, host, "-o", "UserKnownHostsFile=/dev/null"),
        "no program": [*words(far, host)[:-1], "no-such-ssh"],
        "nobody there": [*words(far, host)[:-1], host.command().replace(f"-p {PORT}", "-p 1")],
    }
    signs = {
        "wrong key": ("Permission denied", "ssh-add"),
        "strange host": ("Host key verification failed", "check the host's key"),
        "no program": ("no-such-ssh", "openssh-client"),
        "nobody there": ("Connection refused", "sshd"),
    }
    for case, given in cases.items():
        done = roots.dbdyno("run", "lio", *given)
        assert done.returncode in (2, 3), (case, done.stderr)
        for sign in signs[case]:
            assert sign in done.stderr, (case, done.stderr)
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("script", "sign"),
    [
        ("echo dbdyno host Darwin arm64; cat >/dev/null", "Linux"),
        ("echo dbdyno host Linux riscv64; cat >/dev/null", "riscv64"),
        ("yes hello", "prints more"),
        (
            "exec unshare --mount sh -ec 'for d in /dev/shm /tmp; do mount -t tmpfs -o noexec none $d; done; "
            "unset XDG_RUNTIME_DIR; exec env HOME=/dev/shm TMPDIR=/tmp /bin/sh'",
            "noexec",
        ),
    ],
)
def test_a_host_that_cannot_be_observed_is_an_error_with_the_reason(
    roots: Elsewhere, tmp_path: Path, script: str, sign: str
) -> None:
    """A program in place of ssh plays the host."""
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\n{script}\n")
    ssh.chmod(0o755)
    done = roots.dbdyno(
        "run", "lio", "--dsn", "host=/nowhere", "--server-ssh", "db", "--ssh-command", str(ssh)
    )
    assert done.returncode in (2, 3) and sign in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_a_shell_that_is_silent_has_a_time_limit(
    far: ServerElsewhere, host: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "LOGIN_S", 3.0)
    with pytest.raises(Unreachable, match="no shell answered within 3 s"):
        ssh.machine(f"{host.user}@{host.host}", host.command(key="mute"))
    eventually(lambda: nothing_stays(far, host))


def test_the_first_ctrl_c_ends_the_wait_for_a_shell(
    roots: Elsewhere, far: ServerElsewhere, host: Sshd
) -> None:
    process = subprocess.Popen(
        roots.words("doctor", *words(far, host, key="mute")),
        env=roots.env(),
        cwd=roots.home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    eventually(lambda: process.poll() is not None or "cat" in host.names())
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130 and "Traceback" not in err, err
    eventually(lambda: nothing_stays(far, host))


DELAY = """
import os, socket, sys, threading, time
way, late = socket.create_connection((sys.argv[1], int(sys.argv[2]))), float(sys.argv[3])
def carry(read, write, end):
    while data := read():
        time.sleep(late)
        write(data)
    end()
out = threading.Thread(target=carry, args=(
    lambda: os.read(0, 65536), way.sendall, lambda: way.shutdown(socket.SHUT_WR)))
out.daemon = True
out.start()
carry(lambda: way.recv(65536), lambda data: os.write(1, data), lambda: None)
"""


def test_a_slow_way_is_used_where_the_clock_is_known_well_enough(
    roots: Elsewhere, far: ServerElsewhere, host: Sshd, tmp_path: Path
) -> None:
    proxy = tmp_path / "delay.py"
    proxy.write_text(DELAY)
    for late_s, measure, code in ((0.03, "1500ms", 2), (0.02, "5s", 0)):
        command = host.command("-o", f"'ProxyCommand={sys.executable} {proxy} %h %p {late_s}'")
        given = [*words(far, host)[:-1], command]
        asked = ["run", "lio", *LIGHT_CALLS, "--settle", "200ms", "--json"]
        done = roots.dbdyno(*asked, "--measure", measure, "--sessions", "1", *given)
        assert done.returncode == code, done.stderr
        if code:
            assert "the clock of" in done.stderr and "--measure" in done.stderr
        else:
            bound_ns = json.loads(done.stdout)["environment"]["server"]["reached"]["clock_bound_ns"]
            assert late_s * 1e9 <= bound_ns <= 50_000_000


def start_run(roots: Elsewhere, far: ServerElsewhere, host: Sshd, *options: str) -> subprocess.Popen[str]:
    """Returns a run of several measurements, once its agent is connected to the server."""
    asked = ("run", "lio", *LIGHT_CALLS, "--settle", "100ms", "--json")
    return start_watching(roots, far, host, *asked, *options)


def start_watching(roots: Elsewhere, far: ServerElsewhere, host: Sshd, *asked: str) -> subprocess.Popen[str]:
    """Returns a command in the background, once its agent is connected to the server."""
    process = subprocess.Popen(
        roots.words(*asked, *words(far, host)),
        env=roots.env(),
        cwd=roots.home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with psycopg.connect(far.unix, autocommit=True) as control:
        eventually(lambda: process.poll() is not None or control.execute(WATCHED).fetchone() != (0,))
    return process


def test_a_client_that_is_killed_leaves_nothing(roots: Elsewhere, far: ServerElsewhere, host: Sshd) -> None:
    process = start_run(roots, far, host, "--sessions", "2", "--measure", "60s")
    assert host.names()
    process.kill()
    process.communicate()
    eventually(lambda: nothing_stays(far, host))


def test_a_way_that_breaks_costs_its_measurement_alone(
    roots: Elsewhere, far: ServerElsewhere, host: Sshd
) -> None:
    """The next measurement reaches the host again."""
    process = start_run(roots, far, host, "--sessions", "1,2", "--measure", "5s")
    for pid in host.logins():
        os.kill(pid, signal.SIGKILL)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    first, second = json.loads(out)["windows"]
    assert first["status"] == "invalid" and "is lost" in first["reason"], first
    assert second["status"] == "ok", second
    eventually(lambda: nothing_stays(far, host))


def test_an_observation_goes_on_after_its_agent_was_killed(
    roots: Elsewhere, far: ServerElsewhere, host: Sshd
) -> None:
    """The gap is reported, and windows after it are whole."""
    process = start_watching(roots, far, host, "observe", "--for", "18s", "--window", "2s", "--json")
    eventually(lambda: list(roots.home.glob(".local/share/dbdyno/*/cells/[0-9]*")))
    for pid in host.agents():
        os.kill(pid, signal.SIGKILL)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    windows = json.loads(out)["windows"]
    assert "the server's host is away: " in err and "is lost" in err, (err, windows)
    assert windows[-1]["status"] != "invalid", windows
    assert "the server's host is back after" in err
    eventually(lambda: nothing_stays(far, host))


def test_without_server_ssh_the_server_is_not_here(roots: Elsewhere, far: ServerElsewhere) -> None:
    done = roots.dbdyno(*RUN, "--sessions", "1", "--dsn", far.tcp)
    assert done.returncode == 0, done.stderr
    assert not json.loads(done.stdout)["environment"]["server"]["here"]
