"""Runs whose drivers are on the nodes of a real Ray cluster."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from dbdyno.model.data_sources.drivers import with_host
from dbdyno.model.errors import StoreError
from dbdyno.store import Run, RunStore
from tests.clusters import server_dir
from tests.conftest import Servers
from tests.contract.plain_server import PlainServer, plain_server
from tests.db.conftest import Bench
from tests.networks import Network, link
from tests.ray_nodes import JoinedNode, RayCluster
from tests.waiting import eventually

pytestmark = [pytest.mark.db, pytest.mark.usefixtures("one_at_a_time")]
MANY = 20
"""Calls: more than the sessions make before the barrier."""
SECRET = "kept-between-us-2391"
USER = "driver18"
BRIEF = ("--settle", "300ms", "--measure", "1500ms", "--no-snapshots", "--no-memory")


@pytest.fixture(scope="module")
def server(servers: Servers, ray_cluster: RayCluster) -> Iterator[PlainServer]:
    """On this host, reached by the nodes over the network, with a password."""
    settings = {"listen_addresses": ray_cluster.host, "password_encryption": "scram-sha-256"}
    with plain_server(servers.bin_dir(18), settings, ["host all all 0.0.0.0/0 scram-sha-256"]) as made:
        made.ask(f"create role {USER} login password '{SECRET}'")
        made.ask(
            "create table told (at timestamptz default clock_timestamp(), by inet default inet_client_addr())"
        )
        made.ask(f"grant insert on told to {USER}; grant create on database postgres to {USER}")
        yield made


@pytest.fixture
def bench(tmp_path: Path, server: PlainServer) -> Bench:
    server.ask("truncate told")  # or calls of the test before would be taken for those of this one
    made = Bench(tmp_path / "home", server_dir(tmp_path / "servers"))
    made.env |= {"PGPASSWORD": SECRET, "RAY_USAGE_STATS_ENABLED": "0"}
    (made.home / "tell.sql").write_text("insert into told default values;\n")
    return made


def words(server: PlainServer, ray_cluster: RayCluster, *more: str) -> list[str]:
    dsn = f"host={ray_cluster.host} port={server.port} user={USER} dbname=postgres"
    return ["run", "-f", "tell.sql", "--dsn", dsn, "--cluster", ray_cluster.address, *BRIEF, *more]


def last(bench: Bench) -> Run:
    return RunStore(Path(bench.env["XDG_DATA_HOME"]) / "dbdyno").open("last")


def measuring(bench: Bench, server: PlainServer, after: int) -> None:
    """Returns once so many measurements are saved and the next one makes calls."""

    def saved() -> bool:
        with contextlib.suppress(StoreError):
            return len(last(bench).cells()) >= after
        return False

    eventually(saved)
    more = _calls(server) + MANY
    eventually(lambda: _calls(server) > more)


def _calls(server: PlainServer) -> int:
    return int(server.ask("select count(*) from told")[0][0])


def actor_of(server: PlainServer, ray_cluster: RayCluster, number: int) -> int:
    """The worker process above an agent that has sessions on this server: of that node, where nodes have
    networks of their own."""
    within = ["ip", "netns", "exec", f"{ray_cluster.network}-{number}"] if ray_cluster.network else []
    words = [*within, "ss", "-tnpH", "dport", "=", f":{server.port}"]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    agent = re.search(r'"dbdyno-agent",pid=(\d+)', shown)
    assert agent is not None, shown
    return int(Path(f"/proc/{agent[1]}/stat").read_text().rsplit(")", 1)[1].split()[1])


def sessions(server: PlainServer) -> int:
    found = server.ask(f"select count(*) from pg_stat_activity where usename = '{USER}'")
    return int(found[0][0])


def statuses(run: Run) -> list[str]:
    return [run.read_cell(c).meta.status for c in run.cells()]


def test_one_run_by_three_hosts(bench: Bench, server: PlainServer, ray_cluster: RayCluster) -> None:
    done = bench.dbdyno(*words(server, ray_cluster, "--sessions", "6"))
    assert done.returncode == 0, done.stderr + done.stdout
    run = last(bench)
    (cell,) = run.cells()
    tables = run.read_cell(cell).tables
    drivers = tables["drivers"]
    assert drivers["host"].to_list() == ray_cluster.nodes
    assert drivers["sessions"].to_list() == [2, 2, 2]
    assert drivers["run_ns"].min() > 0  # type: ignore[operator]
    begun = with_host(tables["sessions"], drivers).group_by("host").agg(pl.col("began_ns").min())
    for row in drivers.join(begun, on="host").to_dicts():  # what is mapped wrongly is off by the shift
        is_shifted = ray_cluster.shifted_s and row["host"] == ray_cluster.nodes[-1]
        assert round(row["clock_offset_ns"] / 1e9) == (ray_cluster.shifted_s if is_shifted else 0)
        assert -row["clock_bound_ns"] <= row["began_ns"] - row["barrier_ns"] < 100e9
    counted = dict(server.ask("select host(by), count(*) from told group by 1"))
    calls = tables["sessions"]["calls_total"].to_list()
    assert len(calls) == 6
    assert sum(counted.values()) == sum(calls)
    if ray_cluster.network is not None:
        assert counted == {h: sum(calls[2 * n : 2 * n + 2]) for n, h in enumerate(ray_cluster.nodes)}
    seen = [done.stdout.encode(), done.stderr.encode()]
    seen += [p.read_bytes() for p in Path(ray_cluster.temp).rglob("*") if p.is_file()]
    seen += [p.read_bytes() for p in run.path.rglob("*") if p.is_file()]
    assert not any(SECRET.encode() in text for text in seen)


def test_the_servers_node_is_observed(bench: Bench, server: PlainServer, ray_cluster: RayCluster) -> None:
    """As if it were another machine: by the agent there."""
    done = bench.dbdyno(*words(server, ray_cluster, "--sessions", "3", "--server-node", ray_cluster.host))
    assert done.returncode == 0, done.stderr + done.stdout
    run = last(bench)
    tables = run.read_cell(run.cells()[0]).tables
    tasks = tables["tasks"].filter(pl.col("role") == "session")
    assert set(tasks["pid"]) == set(tables["sessions"]["backend_pid"])
    assert tables["samples"].height > 0
    facts = run.environment.server
    assert facts.here and facts.reached is not None and facts.reached.by == "Ray"


def test_a_lost_driver_makes_a_measurement_invalid_and_the_others_go_on(
    bench: Bench, server: PlainServer, ray_cluster: RayCluster
) -> None:
    more = ("--sessions", "3", "--repeats", "3", "--measure", "4s", "--degrade")
    with bench.background(*words(server, ray_cluster, *more)) as process:
        measuring(bench, server, 1)
        os.kill(actor_of(server, ray_cluster, 2), signal.SIGKILL)
        assert process.wait(120) == 0
    run = last(bench)
    assert statuses(run) == ["ok", "invalid", "ok"]
    raws = [run.read_cell(c) for c in run.cells()]
    lost = raws[1].tables["drivers"].filter(status="lost")["host"].item()
    assert raws[1].meta.reason == f"driver {lost} is lost: the actor's process ended"
    assert raws[2].tables["drivers"]["host"].to_list() == [n for n in ray_cluster.nodes if n != lost]
    assert raws[2].tables["sessions"].height == 3
    assert sessions(server) == 0


def test_without_leave_to_go_on_the_run_ends_and_can_be_read(
    bench: Bench, server: PlainServer, ray_cluster: RayCluster
) -> None:
    more = ("--sessions", "3", "--repeats", "3", "--measure", "4s")
    with bench.background(*words(server, ray_cluster, *more)) as process:
        measuring(bench, server, 1)
        os.kill(actor_of(server, ray_cluster, 3), signal.SIGKILL)
        assert process.wait(120) == 5
    run = last(bench)
    assert statuses(run) == ["ok", "invalid"]
    assert "is lost: the actor's process ended" in str(run.info.reason)
    assert sessions(server) == 0


def test_a_node_that_is_gone(bench: Bench, server: PlainServer, ray_cluster: RayCluster) -> None:
    """Its raylet is killed and its link is down: nobody says so, there is only silence."""
    if ray_cluster.network is None:
        pytest.skip("needs network namespaces: root, and the program ip")
    with contextlib.ExitStack() as stack:
        network = Network((ray_cluster.network, ray_cluster.host))
        stack.callback(network.close)
        number = random.SystemRandom().randrange(100, 250)
        address = network.host(number)
        extra = JoinedNode(ray_cluster.address, address, ray_cluster.temp, network.within(number))
        stack.callback(extra.close)
        extra.ready()
        more = ("--sessions", "4", "--repeats", "3", "--measure", "3s", "--degrade", "--drivers", "4")
        with bench.background(*words(server, ray_cluster, *more)) as process:
            measuring(bench, server, 1)
            link(ray_cluster.end_of(address), "down")
            os.kill(extra.raylet, signal.SIGKILL)
            assert process.wait(120) == 0
        link(ray_cluster.end_of(address), "up")
        eventually(lambda: sessions(server) == 0)
    run = last(bench)
    assert statuses(run) == ["ok", "invalid", "ok"]
    lost, after = (run.read_cell(c) for c in run.cells()[1:])
    assert str(lost.meta.reason).startswith(f"driver {address} is lost: ")
    assert after.tables["drivers"]["host"].to_list() == ray_cluster.nodes


def test_one_driver_and_three_make_the_same_calls(
    bench: Bench, server: PlainServer, ray_cluster: RayCluster
) -> None:
    """What is due is the same whoever makes it, and both make all of it."""
    due = []
    for drivers in ("1", "3"):
        more = ("--sessions", "6", "--rate", "40", "--measure", "3s", "--drivers", drivers)
        done = bench.dbdyno(*words(server, ray_cluster, *more))
        assert done.returncode == 0, done.stderr + done.stdout
        tables = last(bench).read_cell(last(bench).cells()[0]).tables
        assert tables["drivers"].height == int(drivers)
        made = tables["sessions"].select(pl.sum("calls", "errors")).row(0)
        due.append((tables["pace"]["arrivals"].sum(), *made))
    assert due[0] == due[1]
    assert due[0][0] == due[0][1] > 0


def test_a_killed_conductor_leaves_no_session_and_no_actor(
    bench: Bench, server: PlainServer, ray_cluster: RayCluster
) -> None:
    more = ("--sessions", "6", "--measure", "60s")
    with bench.background(*words(server, ray_cluster, *more)) as process:
        eventually(lambda: _calls(server) > MANY)
        actors = [actor_of(server, ray_cluster, n) for n in (2, 3, 4)]
        process.kill()
        eventually(lambda: sessions(server) == 0)
        eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in actors))


def test_a_link_that_is_down_for_three_seconds(
    bench: Bench, server: PlainServer, ray_cluster: RayCluster
) -> None:
    """Calls of that host take as long; nothing is lost, and nothing is made up."""
    if ray_cluster.network is None:
        pytest.skip("needs network namespaces: root, and the program ip")
    end = ray_cluster.end_of(ray_cluster.nodes[1])
    with bench.background(*words(server, ray_cluster, "--sessions", "3", "--measure", "9s")) as process:
        eventually(lambda: _calls(server) > MANY)
        time.sleep(1)  # into the window
        link(end, "down")
        try:
            time.sleep(3)
        finally:
            link(end, "up")
        assert process.wait(120) == 0
    run = last(bench)
    assert statuses(run) == ["ok"]
    longest = run.read_cell(run.cells()[0]).tables["sessions"]["max_ns"].to_list()
    assert longest[1] > 2_900_000_000
    assert max(longest[0], longest[2]) < 2_900_000_000
