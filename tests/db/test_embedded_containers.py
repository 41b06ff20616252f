"""The embedded server where root has fewer rights: capabilities, namespaces, file systems of containers."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from dbdyno.engines.postgres.embedded import postmaster
from dbdyno.engines.postgres.embedded.account import Account
from dbdyno.engines.postgres.embedded.programs import find_programs
from tests.db.conftest import LIGHT_CALLS, PROGRAM, SHORT, Bench

pytestmark = [
    pytest.mark.db,
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="gives up rights: run the tests as root"),
]
# Docker's default set: no SYS_PTRACE, so /proc/PID/exe of another user's process cannot be read.
KEPT = "chown,dac_override,fsetid,fowner,mknod,net_raw,setgid,setuid,setfcap,setpcap,net_bind_service"
DOCKER = ("setpriv", "--bounding-set", ",+".join(["-all", *KEPT.split(","), "sys_chroot", "kill"]))
NO_KILL = ("setpriv", "--bounding-set", ",+".join(["-all", *KEPT.split(",")]))
NO_PTRACE = ("setpriv", "--bounding-set", "-sys_ptrace")
NO_CHOWN = ("setpriv", "--bounding-set", "-chown")
NONE = ("setpriv", "--bounding-set", "-all")
PID_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc")


def can(*words: str) -> bool:
    return subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0


def in_mount_namespace(script: str) -> tuple[str, ...]:
    """Returns the beginning of a command line in a mount namespace, where ``script`` runs before the
    program."""
    return ("unshare", "-m", "sh", "-c", f'set -e; {script}; exec "$@"', "sh")


def dbdyno(
    bench: Bench, prefix: tuple[str, ...], *words: str, **env: str
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*prefix, PROGRAM, *words],
        env=bench.env | env,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture
def staying(fresh_bench: Bench) -> Iterator[Bench]:
    started = fresh_bench.dbdyno("server", "start")
    assert started.returncode == 0, started.stderr
    yield fresh_bench


def check_lives(bench: Bench, pid: int) -> None:
    """Checks that the server, and not only its process, is the one that it was."""
    facts = bench.status()
    assert facts["pid"] == pid
    with psycopg.connect(facts["dsn"]) as connection:
        assert connection.execute("select 1").fetchone() == (1,)


def test_a_run_ends_with_dockers_capabilities(fresh_bench: Bench) -> None:
    done = dbdyno(fresh_bench, DOCKER, "run", "lio", "--sessions", "1", *SHORT, *LIGHT_CALLS)
    assert done.returncode == 0, done.stderr
    assert fresh_bench.status()["running"] is False
    for words in (("start",), ("status",), ("stop",)):  # without CAP_KILL, too
        done = dbdyno(fresh_bench, NO_KILL, "server", *words)
        assert done.returncode == 0, done.stderr
    assert fresh_bench.status()["running"] is False


def test_a_live_server_is_seen_and_kept_without_ptrace(staying: Bench) -> None:
    pid = staying.status()["pid"]
    seen = json.loads(dbdyno(staying, NO_PTRACE, "server", "status", "--json").stdout)
    assert (seen["running"], seen["pid"]) == (True, pid)
    refused = dbdyno(staying, NO_PTRACE, "server", "start", "--fresh")
    assert refused.returncode == 3 and "is running" in refused.stderr
    used = dbdyno(staying, NO_PTRACE, "run", "lio", "--sessions", "1", *SHORT, *LIGHT_CALLS)
    assert used.returncode == 0, used.stderr
    check_lives(staying, pid)
    assert dbdyno(staying, NO_PTRACE, "server", "stop").returncode == 0
    assert postmaster.start_ticks(pid) is None


@pytest.mark.skipif(not can(*PID_NAMESPACE), reason="no pid namespace can be made here")
def test_a_server_of_another_pid_namespace_is_unknown_and_left_alone(staying: Bench) -> None:
    pid = staying.status()["pid"]
    shown = dbdyno(staying, PID_NAMESPACE, "server", "status", "--json")
    assert (shown.returncode, json.loads(shown.stdout)["running"]) == (3, None)
    for words in (
        ("server", "stop"),
        ("server", "start", "--fresh"),
        ("run", "lio", "--sessions", "1", *SHORT),
    ):
        refused = dbdyno(staying, PID_NAMESPACE, *words)
        assert refused.returncode == 3, refused.stderr
        assert "may be the embedded server" in refused.stderr
    check_lives(staying, pid)


HIDDEN = in_mount_namespace("mount -t proc -o hidepid=2 proc /proc")


@pytest.mark.skipif(not can(*HIDDEN), reason="no mount namespace can be made here")
def test_a_hidden_server_is_seen(staying: Bench) -> None:
    """Root without ptrace sees no process of another user in this namespace."""
    prefix = (*HIDDEN, *NO_PTRACE)
    pid = staying.status()["pid"]
    seen = json.loads(dbdyno(staying, prefix, "server", "status", "--json").stdout)
    assert (seen["running"], seen["pid"]) == (True, pid)
    check_lives(staying, pid)
    assert dbdyno(staying, prefix, "server", "stop").returncode == 0
    assert postmaster.start_ticks(pid) is None


@pytest.mark.parametrize(
    "prefix",
    [NONE, NO_CHOWN, ("unshare", "-U"), ("unshare", "-U", "-r")],
    ids=["no capability", "no chown", "unmapped", "root alone"],
)
def test_a_server_that_cannot_be_started_is_an_error_with_the_cure(
    fresh_bench: Bench, prefix: tuple[str, ...]
) -> None:
    if not can(*prefix):
        pytest.skip("no user namespace can be made here")
    done = dbdyno(fresh_bench, prefix, "server", "start")
    assert done.returncode == 2, done.stderr
    assert "docker run --user" in done.stderr and "DBDYNO_SERVER_DIR" in done.stderr


SMALL = in_mount_namespace("mount -t tmpfs -o size=1m tmpfs /dev/shm")
FULL = in_mount_namespace('mount -t tmpfs -o size=30m,mode=755 tmpfs "$DBDYNO_SERVER_DIR"')
READ_ONLY = in_mount_namespace('mount -t tmpfs -o ro,mode=755 tmpfs "$DBDYNO_SERVER_DIR"')


@pytest.mark.skipif(not can(*SMALL), reason="no mount namespace can be made here")
@pytest.mark.parametrize(
    ("prefix", "cure"),
    [(SMALL, "docker run --shm-size"), (FULL, "make room there"), (READ_ONLY, "is read-only")],
    ids=["shm", "full", "read-only"],
)
def test_the_machines_limits_are_named(fresh_bench: Bench, prefix: tuple[str, ...], cure: str) -> None:
    done = dbdyno(fresh_bench, prefix, "server", "start")
    assert done.returncode in (2, 3)
    assert cure in done.stderr and "--fresh" not in done.stderr


BARE = """
mount -t tmpfs tmpfs /mnt; cp -a /etc/. /mnt; mount --bind /mnt /etc
for f in passwd group shadow gshadow; do sed -i -e /^postgres:/d -e /^dbdyno:/d /etc/$f; done
"""


@pytest.mark.skipif(not can(*SMALL), reason="no mount namespace can be made here")
def test_a_machine_without_a_user_for_databases_gets_one(fresh_bench: Bench) -> None:
    """Looking makes no user. A start makes one, reports it, and makes no second one."""
    script = f"""{BARE}
    "$@" status && exit 90; grep ^dbdyno: /etc/passwd && exit 91
    "$@" start >/dev/null 2>said; grep 'made the system user dbdyno' said
    "$@" status | grep 'running *True'; "$@" stop; "$@" start 2>again; test ! -s again; "$@" stop
    grep ^dbdyno:.*nologin /etc/passwd
    """
    words = ("unshare", "-m", "sh", "-c", script.replace("\n\n", "\n").strip(), "sh", PROGRAM, "server")
    where = {"env": fresh_bench.env, "cwd": fresh_bench.home}
    done = subprocess.run(words, **where, capture_output=True, text=True, timeout=600, check=False)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr


def as_daemon(capabilities: str) -> tuple[str, ...]:
    who = ("setpriv", "--reuid", "daemon", "--regid", "daemon", "--clear-groups")
    return (*who, "--inh-caps", capabilities, "--ambient-caps", capabilities)


def test_ambient_capabilities_end_at_the_servers_door(tmp_path: Path) -> None:
    """An ordinary user with more rights starts it. The same user without them sees and stops it."""
    entry = pwd.getpwnam("daemon")
    user = Account(entry.pw_name, entry.pw_uid, entry.pw_gid, switch=True)
    if not user.can_reach(find_programs(None).bin_dir):
        pytest.skip("an ordinary user cannot reach the server's programs")
    with tempfile.TemporaryDirectory(prefix="dyno-", dir="/tmp") as home:
        os.chown(home, user.uid, user.gid)
        bench = Bench(tmp_path, Path(home) / "s")
        bench.env |= {"HOME": home, "XDG_RUNTIME_DIR": home, "XDG_DATA_HOME": f"{home}/d"}
        plain = as_daemon("+dac_read_search")  # Python may lie where only root may read
        started = dbdyno(bench, as_daemon("+dac_read_search,+sys_ptrace"), "server", "start", "--json")
        assert started.returncode == 0, started.stderr
        pid = json.loads(started.stdout)["pid"]
        status = Path(f"/proc/{pid}/status").read_text()
        held = {k: int(v, 16) for k, _, v in (x.partition(":\t") for x in status.splitlines()) if "Cap" in k}
        assert held["CapEff"] == held["CapPrm"] == held["CapAmb"] == 0
        assert json.loads(dbdyno(bench, plain, "server", "status", "--json").stdout)["pid"] == pid
        assert dbdyno(bench, plain, "server", "stop").returncode == 0
        assert postmaster.start_ticks(pid) is None
