"""Identity of the server's processes: proven, or not here with the reason; also where numbers are the
same."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dbdyno import limits
from dbdyno.engines.postgres import connect
from dbdyno.engines.postgres.presence import Presence, presence
from dbdyno.engines.postgres.server import PostgresServer
from dbdyno.model.errors import TargetError
from dbdyno.model.plan.plan import LimitSpec
from tests.db.conftest import LIGHT_CALLS
from tests.db.limiting import machine
from tests.elsewhere import NAMELESS, Elsewhere, World, as_user, in_namespaces, needs, needs_root
from tests.elsewhere import with_docker_capabilities as docker
from tests.elsewhere_server import Cluster, ServerElsewhere

pytestmark = [pytest.mark.db, pytest.mark.root, needs_root]
POD = in_namespaces(pid=True)
ASK = """
import json, sys
from dbdyno.engines.postgres import connect
from dbdyno.engines.postgres.presence import presence
print(json.dumps(presence(connect.connect(sys.argv[1]))[:5]))
"""
LAST_PID = "/proc/sys/kernel/ns_last_pid"


def ask_presence(dsn: str) -> Presence:
    with connect.connect(dsn) as connection:
        return presence(connection)


def asked_in(home: Elsewhere, dsn: str, world: Sequence[str]) -> Presence:
    words = [*home.program.outside, *world, *home.program.python, "-c", ASK, dsn]
    done = subprocess.run(
        words, env=home.env(), cwd=home.home, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return Presence(*json.loads(done.stdout))


@pytest.fixture(scope="module")
def plain(cluster: Cluster) -> Iterator[ServerElsewhere]:
    with cluster.server() as server:
        yield server


@pytest.fixture(scope="module")
def contained(cluster: Cluster) -> Iterator[ServerElsewhere]:
    """Yields a server in a pid namespace of its own, with its port on the host (docker run --net=host)."""
    needs(POD)
    with cluster.server(POD, "autovacuum=off") as server:
        yield server


@pytest.fixture(scope="module")
def bridged(cluster: Cluster) -> Iterator[ServerElsewhere]:
    """Yields a server in namespaces of its own for pids and network, as `docker run` makes it."""
    world = in_namespaces(pid=True, net=True)
    needs(world)
    with cluster.server(world) as server:
        server.bridge()
        yield server


WORLDS: dict[str, World] = {
    "user": as_user(),
    "nameless": as_user(NAMELESS),
    "docker": docker(),
    "root-hidepid": in_namespaces(hidepid=2),
}


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("way", ["unix", "tcp"])
def test_a_local_server_is_identified_by_any_user(
    plain: ServerElsewhere, theirs: Elsewhere, name: str, way: str
) -> None:
    needs(WORLDS[name])
    answer = asked_in(theirs, getattr(plain, way), WORLDS[name])
    assert (answer.here, answer.main_pid) == (True, plain.pid), answer.detail
    assert ("unix socket" if way == "unix" else "both ends are 127.0.0.1") in answer.detail


@pytest.mark.parametrize(
    "options",
    [
        ("update_process_title=off",),
        ("cluster_name=shop: (5)", "log_hostname=on", "logging_collector=on"),
        ("max_parallel_workers=4", "autovacuum_naptime=1s"),
    ],
    ids=["no-titles", "names", "workers"],
)
def test_titles_and_workers_do_not_matter(cluster: Cluster, options: tuple[str, ...]) -> None:
    with cluster.server([], *options) as server:
        for dsn in (server.unix, server.tcp):
            answer = ask_presence(dsn)
            assert (answer.here, answer.main_pid) == (True, server.pid), answer.detail


def test_a_server_with_hardly_room_for_its_title_is_identified(cluster: Cluster) -> None:
    with cluster.server(["env", "-i"]) as server:
        answer = ask_presence(server.tcp)
        assert (answer.here, answer.main_pid) == (True, server.pid), answer.detail


def test_backends_that_come_and_go_are_no_strangers(plain: ServerElsewhere) -> None:
    code = "import psycopg,sys\nwhile True: psycopg.connect(sys.argv[1]).close()"
    churn = [subprocess.Popen([sys.executable, "-c", code, plain.unix]) for _ in range(3)]
    try:
        for _ in range(20):
            assert ask_presence(plain.unix).here
    finally:
        for process in churn:
            process.kill()
            process.wait()


def test_a_network_of_its_own_alone_is_no_other_host(cluster: Cluster) -> None:
    world = in_namespaces(net=True)
    needs(world)
    with cluster.server(world) as server:
        server.bridge()
        answer = ask_presence(server.tcp)
        assert (answer.here, answer.main_pid) == (True, server.pid), answer.detail
        assert f"goes to {server.host}" in answer.detail


@pytest.mark.parametrize("which", ["contained", "bridged"])
@pytest.mark.parametrize("name", ["root", "user"])
def test_a_container_is_named_with_its_process(
    which: str, name: str, theirs: Elsewhere, request: pytest.FixtureRequest
) -> None:
    server: ServerElsewhere = request.getfixturevalue(which)
    for dsn in (server.tcp, server.unix):
        answer = ask_presence(dsn) if name == "root" else asked_in(theirs, dsn, as_user())
        assert (answer.here, answer.pid, answer.main_pid, answer.status) == (False, None, None, "not here")
        assert "the server runs on this host in another pid namespace (a container; there " in answer.detail
        assert "run dbdyno inside that container" in answer.detail
        assert "another host" not in answer.detail


def test_seen_from_inside_a_container_the_host_is_another_namespace(
    plain: ServerElsewhere, roots: Elsewhere
) -> None:
    needs(POD)
    for dsn in (plain.unix, plain.tcp):
        answer = asked_in(roots, dsn, POD)
        assert (answer.here, answer.status) == (False, "not here")
        assert "the server is in another pid namespace" in answer.detail


def test_a_server_at_another_address_may_be_anywhere_seen_from_a_container(
    bridged: ServerElsewhere, theirs: Elsewhere
) -> None:
    answer = asked_in(theirs, bridged.tcp, POD + as_user())
    assert not answer.here
    assert "the server is on another host, or in another pid namespace" in answer.detail


@pytest.mark.parametrize("hidepid", [1, 2, 4])
def test_hidepid_is_named_as_the_reason(plain: ServerElsewhere, theirs: Elsewhere, hidepid: int) -> None:
    world = in_namespaces(hidepid=hidepid) + as_user()
    needs(world)
    for dsn in (plain.unix, plain.tcp):
        answer = asked_in(theirs, dsn, world)
        assert (answer.here, answer.status) == (False, "not permitted"), answer.detail
        assert "/proc is mounted with hidepid=" in answer.detail
        assert "run dbdyno as the server's user or as root" in answer.detail
        assert "namespace" not in answer.detail and "another host" not in answer.detail


def test_hidepid_hides_every_task_with_the_reason(plain: ServerElsewhere, theirs: Elsewhere) -> None:
    world = in_namespaces(hidepid=2) + as_user()
    needs(world)
    words = ("observe", "--for", "2s", "--json", "--dsn", plain.unix)
    with psycopg.connect(plain.unix, autocommit=True):
        done = theirs.dbdyno(*words, world=world)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    check_unknown(document, "not permitted")
    source = os_tasks(document)
    assert source["status"] == "not permitted"
    assert "hidepid=" in source["detail"] and "pid namespace" not in source["detail"]


def os_tasks(document: dict[str, Any]) -> dict[str, Any]:
    (source,) = [s for s in document["sources"] if s["name"] == "os tasks"]
    return dict(source)


def check_unknown(document: dict[str, Any], status: str) -> None:
    """Checks that no figure of a task is known: neither a stranger's, nor 0."""
    server = [r for r in document["ledger"] if r["scope"] in ("rung", "session", "helper")]
    cpu = [r for r in server if r["account"] in ("run", "runq")]
    wrong = [r for r in cpu if r["aas"] is not None]
    assert cpu and not wrong, str(wrong)
    assert {r["status"] for r in cpu if r["scope"] == "rung"} == {status}
    assert "Traceback" not in json.dumps(document)


# -- numbers that clash -----------------------------------------------------------------------------
def next_pid(server: ServerElsewhere, pid: int) -> None:
    """Gives the next process in the server's pid namespace this number, if it is free."""
    inside = ["nsenter", "-t", str(server.pid), "--pid", "--mount", "sh", "-c"]
    subprocess.run([*inside, f"echo {pid - 1} > {LAST_PID}"], check=True)


@contextlib.contextmanager
def clash(decoy: Callable[[], contextlib.AbstractContextManager[int]], server: ServerElsewhere) -> Any:
    """Yields a connection to ``server`` whose backend there has the number of a decoy here, of the same
    age."""
    for _ in range(20):
        with decoy() as pid:
            next_pid(server, pid)
            with connect.connect(server.tcp) as connection:
                if connection.info.backend_pid == pid:
                    yield connection
                    return
    pytest.skip("too many processes come and go here for two to have the same number")


def test_a_backend_of_another_server_with_the_same_number_is_a_stranger(
    plain: ServerElsewhere, contained: ServerElsewhere
) -> None:
    @contextlib.contextmanager
    def backend() -> Iterator[int]:
        with psycopg.connect(plain.tcp) as other:
            yield other.info.backend_pid

    with clash(backend, contained) as connection:
        answer = presence(connection)
    assert not answer.here
    assert "serves another client" in answer.detail
    assert "the server runs on this host in another pid namespace" in answer.detail


@pytest.fixture
def impostor(tmp_path: Path) -> Iterator[Callable[[int, str], bool]]:
    """Makes a process of that number and title, named postgres, whose parent is named postgres."""
    for name, program in (("parent", "bash"), ("child", "sleep")):
        (tmp_path / name).mkdir()
        shutil.copy(str(shutil.which(program)), tmp_path / name / "postgres")
    script = f'while read want title; do echo $((want-1)) > {LAST_PID}; exec -a "$title" '
    script = script.replace(
        'exec -a "$title" ', f'(exec -a "$title" {tmp_path}/child/postgres 60) & echo $!; '
    )
    words = [str(tmp_path / "parent" / "postgres"), "-c", f"{script} done"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        pids: list[int] = []

        def make(pid: int, title: str) -> bool:
            assert parent.stdin is not None and parent.stdout is not None
            parent.stdin.write(f"{pid} {title}\n")
            parent.stdin.flush()
            pids.append(int(parent.stdout.readline()))
            return pids[-1] == pid

        try:
            yield make
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
            parent.kill()


def test_an_impostor_that_looks_like_our_backend_in_all_is_found_by_its_siblings(
    contained: ServerElsewhere, impostor: Callable[[int, str], bool]
) -> None:
    """Name, age, title with the client's port and parent agree; the rest of the activity view does not."""
    for _ in range(20):
        with closing(PostgresServer(contained.tcp)) as server:
            connection = server._connection
            pid, port = connection.execute("select pg_backend_pid(), inet_client_port()").fetchone() or (0, 0)
            if Path(f"/proc/{pid}").exists():
                next_pid(contained, 20_000)
                continue
            if not impostor(pid, f"postgres: postgres postgres 127.0.0.1({port}) idle"):
                continue
            assert Path(f"/proc/{pid}/comm").read_text() == "postgres\n"
            answer = presence(connection)
            assert (answer.here, answer.main_pid) == (False, None), answer.detail
            # on a busy machine its parent comes too late, and that is seen first
            late = "is younger than the server" in answer.detail
            assert late or "of its activity view is not a child of process" in answer.detail
            server._presence = answer
            facts = server.facts()
            with pytest.raises(TargetError, match="another pid namespace"):
                limits.check(
                    LimitSpec(quota=0.5), machine(), facts.main_pid, facts.here, 1, why=facts.here_detail
                )
            return
    pytest.skip("too many processes come and go here for two to have the same number")


def test_a_ladder_on_a_container_has_no_figure_of_a_stranger(
    contained: ServerElsewhere, theirs: Elsewhere
) -> None:
    words = ("run", "cpu", "--sessions", "1,2", "--measure", "1s", "--settle", "200ms", "--json")
    done = theirs.dbdyno(*words, *LIGHT_CALLS, "--dsn", contained.tcp, world=as_user())
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    check_unknown(document, "not here")
    assert "another pid namespace" in os_tasks(document)["detail"]
