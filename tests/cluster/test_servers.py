"""``observe --cluster`` of a primary and its standby, each on a node of a real Ray cluster; ``snapshot``."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

from tests.clusters import server_dir
from tests.conftest import Servers
from tests.contract.plain_server import NOBODY, unprivileged_user
from tests.db.conftest import Bench
from tests.ports import free_port
from tests.ray_nodes import RayCluster

pytestmark = [pytest.mark.db, pytest.mark.usefixtures("one_at_a_time")]
SECRET = "kept-between-us-4417"
USER = "watcher"


class Pair(NamedTuple):
    """Two servers by their nodes, and by strings without a password, which let the superuser in, too."""

    primary: str
    standby: str
    nodes: tuple[str, str]


class _Postgres:
    """Programs of PostgreSQL on a node of the cluster, run by a user who may run them."""

    def __init__(self, bin_dir: Path, cluster: RayCluster, node: str) -> None:
        number = node.rsplit(".", 1)[1]
        within = [] if cluster.network is None else ["ip", "netns", "exec", f"{cluster.network}-{number}"]
        user = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        self._before = [*within, *(["setpriv", *user] if unprivileged_user() else [])]
        self._bin_dir, self.node = bin_dir, node

    def run(self, program: str, *words: str) -> None:
        done = subprocess.run(
            [*self._before, str(self._bin_dir / program), *words],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def start(self, stack: ExitStack, data: Path, port: int) -> str:
        with (data / "postgresql.conf").open("a") as conf:
            conf.write(f"\nlisten_addresses = '{self.node}'\nport = {port}\n")
        self.run("pg_ctl", "-D", str(data), "-l", f"{data}.log", "-w", "start")
        stack.callback(self.run, "pg_ctl", "-D", str(data), "-m", "immediate", "-w", "stop")
        return f"host={self.node} port={port} dbname=postgres"


@pytest.fixture(scope="module")
def pair(servers: Servers, ray_cluster: RayCluster) -> Iterator[Pair]:
    """Yields a primary and its standby. The standby is on the node with another clock if the host can have
    one."""
    nodes = ray_cluster.nodes[0], ray_cluster.nodes[-1]
    first, second = (_Postgres(servers.bin_dir(18), ray_cluster, n) for n in nodes)
    with ExitStack() as stack:
        home = Path(tempfile.mkdtemp(prefix="dyno-", dir="/tmp"))
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        if unprivileged_user():
            shutil.chown(home, NOBODY, NOBODY)
        a, b = home / "a", home / "b"
        first.run("initdb", "-D", str(a), "-U", "boss", "-A", "trust", "-N", "--no-locale", "-E", "UTF8")
        settings = f"fsync = off\nshared_buffers = 16MB\nunix_socket_directories = '{home}'\n"
        with (a / "postgresql.conf").open("a") as conf:
            conf.write(f"\n{settings}password_encryption = 'scram-sha-256'\n")
        (a / "pg_hba.conf").write_text(
            "host all,replication boss 0.0.0.0/0 trust\nhost all all 0.0.0.0/0 scram-sha-256\n"
        )
        primary = first.start(stack, a, free_port())
        with psycopg.connect(f"{primary} user=boss", autocommit=True) as control:
            control.execute(f"create role {USER} login password '{SECRET}' in role pg_monitor".encode())
        second.run(
            "pg_basebackup", "-d", f"{primary} user=boss", "-D", str(b), "-R", "-X", "stream", "-c", "fast"
        )
        yield Pair(primary, second.start(stack, b, free_port()), nodes)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path / "home", server_dir(tmp_path / "servers"))
    bench.env |= {"PGPASSWORD": SECRET, "RAY_USAGE_STATS_ENABLED": "0"}
    return bench


def words(ray_cluster: RayCluster, *servers: tuple[str, str]) -> list[str]:
    """Returns the arguments for ``servers``, given as strings and nodes."""
    words = ["--cluster", ray_cluster.address]
    for dsn, node in servers:
        words += ["--dsn", f"{dsn} user={USER}", "--server-node", node]
    return words


def test_a_primary_and_its_standby_are_observed_side_by_side(
    bench: Bench, pair: Pair, ray_cluster: RayCluster
) -> None:
    both = (pair.primary, pair.nodes[0]), (pair.standby, pair.nodes[1])
    brief = ("--for", "2s", "--window", "1s", "--no-memory", "--no-snapshots")
    with ExitStack() as stack:
        for dsn in (pair.primary, pair.primary, pair.standby):
            asleep = psycopg.connect(f"{dsn} user=boss", autocommit=True)
            stack.callback(asleep.close)
            stack.callback(asleep.cancel)
            asleep.pgconn.send_query(b"select pg_sleep(600)")
        done = bench.dbdyno("observe", *words(ray_cluster, *both), *brief, "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    record = json.loads(done.stdout)
    primary, standby = record["servers"]
    assert [s["role"] for s in (primary, standby)] == ["primary", "standby"]
    assert [s["host"] for s in (primary, standby)] == list(pair.nodes)
    for one, active in ((primary, 2), (standby, 1)):
        assert one["sessions"] >= active
        assert one["db_time"] == pytest.approx(active, rel=0.1)
        assert one["asleep"]["timer"] == pytest.approx(active, rel=0.1)
        assert one["clock_bound_ns"] > 0
        assert one["replay_behind_bytes"] is not None
    first = [(w["t0_ns"], w["t1_ns"]) for w in (s["windows"][0] for s in (primary, standby))]
    assert first[0] == first[1] and first[0][1] - first[0][0] == 1_000_000_000
    _shown_and_kept(bench, record["group"], [s["run"] for s in (primary, standby)])
    assert f"the cluster at {ray_cluster.address} asks for no token" in done.stderr
    texts = [done.stdout.encode(), done.stderr.encode()]
    places = (Path(ray_cluster.temp), Path(bench.env["XDG_DATA_HOME"]))
    texts += [p.read_bytes() for place in places for p in place.rglob("*") if p.is_file()]
    assert not any(SECRET.encode() in text for text in texts)


def _shown_and_kept(bench: Bench, group: str, runs: list[str]) -> None:
    """Checks that ``last`` and the group's id name the group, and the id of a run that run."""
    for wanted in ("last", group):
        shown = bench.here("show", wanted, "--json")
        assert [s["run"] for s in json.loads(shown.stdout)["servers"]] == runs, shown.stderr
    single = bench.here("show", runs[1], "--json")
    assert json.loads(single.stdout)["run"]["group"] == group
    page = bench.here("report", group)
    assert "standby" in Path(page.stdout.strip()).read_text()


def test_a_server_that_cannot_be_observed_is_named_and_nothing_is_kept(
    bench: Bench, pair: Pair, ray_cluster: RayCluster
) -> None:
    """Nothing listens at its address."""
    nowhere = re.sub(r"port=\d+", "port=1", pair.standby)
    both = (pair.primary, pair.nodes[0]), (nowhere, pair.nodes[1])
    done = bench.dbdyno("observe", *words(ray_cluster, *both), "--for", "2s")
    assert done.returncode == 3, done.stdout + done.stderr
    assert nowhere.split()[0].removeprefix("host=") in done.stderr and "Traceback" not in done.stderr
    assert not bench.here("runs", "--json").stdout.strip("[] \n")


def test_the_servers_node_takes_a_snapshot(bench: Bench, pair: Pair, ray_cluster: RayCluster) -> None:
    done = bench.dbdyno("snapshot", *words(ray_cluster, (pair.standby, pair.nodes[1])), "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    assert json.loads(done.stdout)["standby"] is True
