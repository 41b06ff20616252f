"""Observing with few rights: what is hidden or cannot be read is unknown, and all known figures are right."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.conftest import Servers
from tests.db.conftest import LIGHT_CALLS, PROGRAM, eventually
from tests.db.limiting import NOBODY, needs_root

pytestmark = [pytest.mark.db, pytest.mark.root]
STRANGER = 60123  # neither root nor the server's account
ASLEEP, THINKING = 2, 2
HIDDEN = "hidden from this role"
PLACES = ("HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR")
ACCOUNTS = {"run", "runq", "sleep", "client", "unaccounted"}


@contextlib.contextmanager
def load(dsn: str) -> Iterator[None]:
    """Keeps sessions that sleep in the server, that wait for a lock, and whose client thinks."""
    with contextlib.ExitStack() as stack:
        sessions = [
            stack.enter_context(contextlib.closing(psycopg.connect(dsn, autocommit=True)))
            for _ in range(ASLEEP + THINKING + 2)
        ]
        holder, waiter, *rest = sessions
        holder.execute("create table if not exists held (n int)")
        holder.execute("begin; lock table held in access exclusive mode")
        waiter.pgconn.send_query(b"select * from held")
        for sleeper in rest[:ASLEEP]:
            sleeper.pgconn.send_query(b"select pg_sleep(60)")
        over = threading.Event()
        thinkers = [threading.Thread(target=_think, args=(c, over)) for c in rest[ASLEEP:]]
        for thread in thinkers:
            thread.start()
        waiting = "select count(*) from pg_locks where not granted"
        eventually(lambda: rest[-1].closed or holder.execute(waiting).fetchone())
        try:
            yield
        finally:
            over.set()
            for thread in thinkers:
                thread.join()
            for busy in (waiter, *rest[:ASLEEP]):
                busy.cancel_safe(timeout=60)


def _think(connection: psycopg.Connection[Any], over: threading.Event) -> None:
    while not over.wait(0.02):
        connection.execute("select 1")


@pytest.fixture
def open_dsn(servers: Servers) -> str:
    """Returns the DSN of a server whose socket any user may use."""
    return open_to_all(servers.dsn(18))


def open_to_all(dsn: str) -> str:
    with psycopg.connect(dsn, autocommit=True) as c:
        c.execute("do $$ begin create role blind login; exception when duplicate_object then null; end $$")
    where = conninfo_to_dict(dsn)
    directory = Path(str(where["host"]))
    directory.chmod(0o755)
    for socket in directory.glob(".s.PGSQL.*"):
        if socket.is_socket():
            socket.chmod(0o777)
    return dsn


def owner(dsn: str) -> int:
    """Returns the server's user."""
    return Path(str(conninfo_to_dict(dsn)["host"])).stat().st_uid


def observe(
    dsn: str, home: Path, *words: str, user: int = STRANGER, role: str | None = None
) -> dict[str, Any]:
    """Returns the document of 2 s, observed by a program with the rights of ``words`` (of setpriv)."""
    for directory in (home, home / "run"):
        directory.mkdir(exist_ok=True)
        os.chown(directory, user, user)
        directory.chmod(0o700)
    env = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
    env |= dict.fromkeys(PLACES, str(home)) | {"XDG_RUNTIME_DIR": str(home / "run")}
    servers = Path(str(conninfo_to_dict(dsn)["host"])).stat()
    group = servers.st_gid if user == servers.st_uid else user  # reading memory takes both
    ids = [f"--reuid={user}", f"--regid={group}", "--clear-groups"] if user else []
    done = subprocess.run(
        [
            "setpriv",
            *ids,
            *words,
            PROGRAM,
            "observe",
            "--json",
            "--for",
            "2s",
            "--dsn",
            make_conninfo(dsn, **({"user": role} if role else {})),
        ],
        env=env,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture
def home(server_home: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    home = server_home / f"rights-{abs(hash(request.node.name)) % 10**6}"
    yield home
    shutil.rmtree(home, ignore_errors=True)


def rung(document: dict[str, Any], account: str, detail: str | None = None) -> list[dict[str, Any]]:
    rows = [r for r in document["ledger"] if (r["scope"], r["account"]) == ("rung", account)]
    rows = [r for r in rows if r["parent"] != account]
    return [r for r in rows if detail in (None, r["detail"])]


def total(document: dict[str, Any], account: str, detail: str | None = None) -> float:
    return float(sum(r["aas"] for r in rung(document, account, detail)))


def source(document: dict[str, Any], name: str) -> dict[str, Any]:
    (row,) = [s for s in document["sources"] if s["name"] == name]
    return dict(row)


def db_times(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [r for r in document["profile"] if r["name"] == "DB time"]


def check_split(document: dict[str, Any]) -> None:
    """Checks the known accounts of the load, in seconds per second. Samples are few, and the machine may
    be busy."""
    assert total(document, "sleep", "Timeout/PgSleep") == pytest.approx(ASLEEP, abs=0.5)
    assert total(document, "sleep", "Lock/relation") == pytest.approx(1, abs=0.4)
    assert total(document, "client") + total(document, "runq") == pytest.approx(THINKING + 1, abs=0.9)
    # Event and task state are read one after the other: a sample may meet a session between them.
    assert total(document, "sleep", "no wait event") < 0.3


BPF = ("--inh-caps=+bpf,+perfmon", "--ambient-caps=+bpf,+perfmon")
NO_PTRACE = ("--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace")


@pytest.mark.alone
@needs_root
@pytest.mark.parametrize(
    ("user", "words", "labels"),
    [(STRANGER, BPF, False), (0, NO_PTRACE, False), (NOBODY, BPF, True)],
    ids=[
        "a third user with bpf and perfmon",
        "root without ptrace",
        "the server's user with bpf and perfmon",
    ],
)
def test_waits_are_right_whoever_reads_them(
    open_dsn: str, home: Path, user: int, words: tuple[str, ...], labels: bool
) -> None:
    """Where the trace may not read wait events, it gives the margins and the samples the waits."""
    with load(open_dsn):
        if user == NOBODY:
            user = owner(open_dsn)
        document = observe(open_dsn, home, *words, user=user)
    check_split(document)
    if source(document, "scheduler trace")["status"] != "ok":
        return  # this kernel has none: sampled
    assert {r["source"] for r in rung(document, "runq")} == {"scheduler trace"}
    detail = source(document, "scheduler trace")["detail"]
    assert {r["source"] == "scheduler trace" for r in rung(document, "sleep")} == {labels}, detail
    if not labels:
        assert "CAP_SYS_PTRACE" in detail


@needs_root
def test_the_advice_asks_for_the_third_right_where_the_server_is_another_users(
    open_dsn: str, home: Path
) -> None:
    detail = source(observe(open_dsn, home, "--inh-caps=-all"), "scheduler trace")["detail"]
    if "CAP_BPF" not in detail:
        return  # this kernel has no trace
    assert "--ambient-caps=+bpf,+perfmon,+sys_ptrace" in detail


@pytest.mark.alone
@needs_root
def test_a_program_without_the_symbol_has_no_wait_event_word(servers: Servers, home: Path) -> None:
    """A copy of the program has another name for the symbol, so root cannot find the wait event either."""
    from dbdyno.engines.postgres.embedded import StartOptions, instance_of
    from dbdyno.engines.postgres.embedded.account import server_account
    from dbdyno.engines.postgres.embedded.places import find_places

    home_of_copy = Path(os.environ["DBDYNO_SERVER_DIR"]).parent / "renamed"
    whole = servers.bin_dir(18).parent
    root = home_of_copy / whole.parent.name / whole.name
    shutil.copytree(whole, root, symlinks=True)
    for libraries in whole.parent.parent.glob(f"{whole.parent.name}.libs"):  # found from the programs upwards
        (home_of_copy / libraries.name).symlink_to(libraries)
    program = root / "bin" / "postgres"
    program.write_bytes(program.read_bytes().replace(b"my_wait_event_info", b"my_wait_event_inf0"))
    place = Path(os.environ["DBDYNO_SERVER_DIR"])
    os.environ["DBDYNO_SERVER_DIR"] = str(place.parent / "s2")
    try:
        places = find_places(server_account())
    finally:
        os.environ["DBDYNO_SERVER_DIR"] = str(place)
    instance, programs = instance_of(root / "bin", places)
    instance.open(programs, StartOptions(settings={"fsync": "off"}, sessions=20))
    try:
        dsn = open_to_all(str(instance.facts()["dsn"]))
        with load(dsn):
            document = observe(dsn, home, user=0)
    finally:
        instance.close()
        shutil.rmtree(home_of_copy)
    check_split(document)
    assert source(document, "wait event word")["status"] == "not supported"
    if source(document, "scheduler trace")["status"] == "ok":
        assert "has no symbol" in source(document, "scheduler trace")["detail"]


@needs_root
def test_a_role_without_rights_knows_no_db_time(open_dsn: str, home: Path) -> None:
    with load(open_dsn):
        document = observe(open_dsn, home, "--inh-caps=-all", user=STRANGER, role="blind")
    for account in ("sleep", "client"):
        assert [(r["aas"], r["status"]) for r in rung(document, account)] == [(None, HIDDEN)]
    assert {(r["total"], r["status"]) for r in db_times(document)} == {(None, HIDDEN)}
    (finding,) = [f for f in document["findings"] if f["id"] == "sessions-hidden"]
    assert "GRANT pg_monitor TO blind" in finding["cure"]
    assert finding["value"] == ASLEEP + THINKING + 2


@needs_root
def test_the_roles_own_sessions_are_seen_beside_hidden_ones(open_dsn: str, home: Path) -> None:
    blind = make_conninfo(open_dsn, user="blind")
    with load(open_dsn), contextlib.closing(psycopg.connect(blind, autocommit=True)) as own:
        own.pgconn.send_query(b"select pg_sleep(60)")
        document = observe(open_dsn, home, "--inh-caps=-all", role="blind")
        own.cancel_safe(timeout=60)
    ((value, status),) = [(r["aas"], r["status"]) for r in rung(document, "sleep", "Timeout/PgSleep")]
    assert value == pytest.approx(1, abs=0.3)
    assert status == f"1 of {ASLEEP + THINKING + 3} sessions, others {HIDDEN}"
    assert [r["aas"] for r in rung(document, "client")] == [None]
    assert {r["total"] for r in db_times(document)} == {None}


@pytest.mark.alone
@needs_root
def test_the_servers_user_knows_waits_that_the_role_does_not(open_dsn: str, home: Path) -> None:
    """They are read from memory, where the role does not matter."""
    servers_user = owner(open_dsn)
    with load(open_dsn):
        document = observe(open_dsn, home, "--inh-caps=-all", user=servers_user, role="blind")
    if source(document, "wait event word")["status"] == "not permitted":
        pytest.skip("kernel.yama.ptrace_scope forbids it")
    check_split(document)
    assert None not in {r["total"] for r in db_times(document)}


@needs_root
@pytest.mark.parametrize("measure", ["1s", "1.5s"])
def test_a_window_of_one_second_is_whole_for_an_ordinary_user(
    open_dsn: str, home: Path, measure: str
) -> None:
    home.mkdir()
    os.chown(home, STRANGER, STRANGER)
    done = subprocess.run(
        [
            "setpriv",
            f"--reuid={STRANGER}",
            f"--regid={STRANGER}",
            "--clear-groups",
            "--inh-caps=-all",
            PROGRAM,
            "run",
            "cpu",
            "--sessions",
            "2",
            "--measure",
            measure,
            "--settle",
            "200ms",
            "--json",
            *LIGHT_CALLS,
            "--dsn",
            open_dsn,
        ],
        env=os.environ | dict.fromkeys(PLACES, str(home)),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert {r["status"] for r in rung(document, "run")} == {"ok"}
    assert total(document, "run") > 0
