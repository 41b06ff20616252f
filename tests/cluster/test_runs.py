"""Runs whose drivers are on the nodes of a real Ray cluster.

A run takes many seconds to begin. So one run contains all that can happen in a row, and several tests
look at what it left.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest

from dbdyno import _core
from dbdyno.model.errors import StoreError
from dbdyno.model.schema.data_sources.drivers import with_host
from dbdyno.remote.cluster import connect
from dbdyno.store import Run, RunStore
from tests.agents import INSTANTS, OtherClock
from tests.clusters import server_dir
from tests.conftest import Servers
from tests.contract.plain_server import PlainServer, plain_server
from tests.db.conftest import Bench
from tests.networks import Network, delayed, link
from tests.ray_nodes import JoinedNode, RayCluster
from tests.waiting import eventually
from tests.windows import into_the_window

pytestmark = [pytest.mark.db, pytest.mark.usefixtures("one_at_a_time")]
S, MS = 1_000_000_000, 1_000_000
MANY = 20
"""Calls: more than the sessions make before the barrier."""
SECRET = "kept-between-us-2391"
USER = "driver18"
BRIEF = ("--settle", "300ms", "--measure", "1500ms", "--no-snapshots", "--no-memory")


@pytest.fixture(scope="module")
def server(servers: Servers, ray_cluster: RayCluster) -> Iterator[PlainServer]:
    """Yields a server on this host, which the nodes reach over the network with a password."""
    settings = {
        "listen_addresses": ray_cluster.host,
        "password_encryption": "scram-sha-256",
        "tcp_keepalives_idle": "2",  # so long nothing is heard of a host that is gone ...
        "tcp_keepalives_interval": "1",
        "tcp_user_timeout": "8s",  # ... until its sessions end
    }
    with plain_server(servers.bin_dir(18), settings, ["host all all 0.0.0.0/0 scram-sha-256"]) as server:
        server.ask(f"create role {USER} login password '{SECRET}'")
        server.ask(
            "create table arrived "
            "(at timestamptz default clock_timestamp(), by inet default inet_client_addr())"
        )
        server.ask(f"grant insert on arrived to {USER}; grant create on database postgres to {USER}")
        yield server


def bench_at(place: Path, server: PlainServer, sql: str = "insert into arrived default values") -> Bench:
    server.ask("truncate arrived")  # or calls of the run before would be taken for those of this one
    bench = Bench(place / "home", server_dir(place / "servers"))
    bench.env |= {"PGPASSWORD": SECRET, "RAY_USAGE_STATS_ENABLED": "0"}
    (bench.home / "arrive.sql").write_text(f"{sql};\n")
    return bench


def words(server: PlainServer, ray_cluster: RayCluster, *more: str) -> list[str]:
    dsn = f"host={ray_cluster.host} port={server.port} user={USER} dbname=postgres"
    return ["run", "-f", "arrive.sql", "--dsn", dsn, "--cluster", ray_cluster.address, *BRIEF, *more]


def last(bench: Bench) -> Run:
    return RunStore(Path(bench.env["XDG_DATA_HOME"]) / "dbdyno").open("last")


def cells(run: Run) -> list[Mapping[str, pl.DataFrame]]:
    return [run.read_cell(c).tables for c in run.cells()]


def wait_for_measurement(bench: Bench, server: PlainServer, after: int) -> None:
    """Returns once so many measurements are saved and the next one makes calls."""

    def saved() -> bool:
        with contextlib.suppress(StoreError):
            return len(last(bench).cells()) >= after
        return False

    eventually(saved)
    more = _calls(server) + MANY
    eventually(lambda: _calls(server) > more)


def _calls(server: PlainServer) -> int:
    return int(server.ask("select count(*) from arrived")[0][0])


def actor_of(server: PlainServer, ray_cluster: RayCluster, number: int) -> int:
    """Returns the worker process above the agent that has sessions on this server; the agent of that node,
    where nodes have networks of their own."""
    within = ["ip", "netns", "exec", f"{ray_cluster.network}-{number}"] if ray_cluster.network else []
    words = [*within, "ss", "-tnpH", "dport", "=", f":{server.port}"]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    agent = re.search(r'"dbdyno-agent",pid=(\d+)', shown)
    assert agent is not None, shown
    return int(Path(f"/proc/{agent[1]}/stat").read_text().rsplit(")", 1)[1].split()[1])


def sessions(server: PlainServer) -> int:
    rows = server.ask(f"select count(*) from pg_stat_activity where usename = '{USER}'")
    return int(rows[0][0])


def statuses(run: Run) -> list[str]:
    return [run.read_cell(c).meta.status for c in run.cells()]


# One ladder by three hosts, and by one.

AHEAD_NS, DRIFT = 5 * S // 2, 200e-6
PACED = ("--rates", "20,40", "--sessions", "6", "--repeats", "2", "--measure", "2s")


class Ladders(NamedTuple):
    """The same ladder at given rates by three drivers and by one.

    ``call_times``: when calls of the three arrived at the server, ns since 1970, by host."""

    bench: Bench
    three: Run
    one: Run
    output: str
    call_times: dict[str, list[int]]


def drifting_start(address: str) -> Any:
    """Returns a ``Cluster.start`` under which the clock of one node is ahead and gains, for everyone who
    asks through Ray."""
    real = connect.Cluster.start

    def start(cluster: connect.Cluster, facts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        nodes = [n.id for n in cluster.nodes if n.address == address]
        return {
            n: OtherClock(channel, AHEAD_NS, DRIFT, INSTANTS) if n in nodes else channel
            for n, channel in real(cluster, facts).items()
        }

    return start


@pytest.fixture(scope="module")
def ladders(
    tmp_path_factory: pytest.TempPathFactory, server: PlainServer, ray_cluster: RayCluster
) -> Ladders:
    slow = "insert into arrived (at) select clock_timestamp() from pg_sleep(0.05)"
    bench, runs, output = bench_at(tmp_path_factory.mktemp("ladders"), server, slow), [], ""
    call_times: dict[str, list[int]] = {}
    for number, more in (("3", ("--server-node", ray_cluster.host)), ("1", ())):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(connect.Cluster, "start", drifting_start(ray_cluster.nodes[-1]))
            done = bench.here(*words(server, ray_cluster, *PACED, "--drivers", number, *more))
        assert done.returncode == 0, done.stderr + done.stdout
        runs.append(last(bench))
        output += done.stdout + done.stderr
        if number == "3":
            at = "select host(by), (extract(epoch from at) * 1000000000)::int8 from arrived"
            for host, at_ns in server.ask(at):
                call_times.setdefault(host, []).append(at_ns)
    return Ladders(bench, *runs, output, call_times)


def test_three_hosts_drive_one_run(ladders: Ladders, ray_cluster: RayCluster) -> None:
    assert f"the cluster at {ray_cluster.address} asks for no token" in ladders.output
    calls = dict.fromkeys(ray_cluster.nodes, 0)
    for tables in cells(ladders.three):
        drivers = tables["drivers"]
        assert drivers["host"].to_list() == ray_cluster.nodes
        assert drivers["sessions"].to_list() == [2, 2, 2]
        assert drivers["run_ns"].min() > 0  # type: ignore[operator]
        sessions = with_host(tables["sessions"], drivers)
        assert sessions.height == 6
        for host, total in sessions.group_by("host").agg(pl.sum("calls_total")).rows():
            calls[host] += total
        begun = sessions.group_by("host").agg(pl.col("began_ns").min())
        for row in drivers.join(begun, on="host").to_dicts():  # what is mapped wrongly is off by the shift
            assert -row["clock_bound_ns"] <= row["began_ns"] - row["barrier_ns"] < 100e9
    assert len(cells(ladders.three)) == 4
    counted = {host: len(times) for host, times in ladders.call_times.items()}
    assert sum(counted.values()) == sum(calls.values())
    if ray_cluster.network is not None:
        assert counted == calls


def test_drivers_in_other_processes_of_this_host_are_drivers(ladders: Ladders) -> None:
    """All of these nodes are this host, and none of the processes that drive the load counts as another
    process of the host."""
    for tables in cells(ladders.three):
        drive = tables["tasks"].filter(pl.col("role") == "driver").select("pid", "tid").unique()
        assert drive.height == tables["drivers"]["threads"].sum() > 0


def test_hosts_are_in_what_is_stored_and_shown(ladders: Ladders, ray_cluster: RayCluster) -> None:
    hosts = json.loads(ladders.bench.here("show", ladders.three.id, "--json").stdout)["hosts"]
    assert len(hosts) == 3 * 4
    assert {h["host"] for h in hosts} == {*ray_cluster.nodes}
    whole = sum(t["sessions"]["calls"].sum() for t in cells(ladders.three))
    assert sum(h["calls"] for h in hosts) == whole
    shown = ladders.bench.here("show", ladders.three.id).stdout
    assert all(host in shown for host in ray_cluster.nodes)


def test_no_password_is_kept(ladders: Ladders, ray_cluster: RayCluster) -> None:
    seen = [ladders.output.encode()]
    seen += [p.read_bytes() for p in Path(ray_cluster.temp).rglob("*") if p.is_file()]
    seen += [p.read_bytes() for p in ladders.three.path.rglob("*") if p.is_file()]
    assert not any(SECRET.encode() in text for text in seen)


def test_the_servers_node_is_observed(ladders: Ladders) -> None:
    """The agent there observes it as if it were another machine."""
    for tables in cells(ladders.three):
        tasks = tables["tasks"].filter(pl.col("role") == "session")
        assert set(tasks["pid"]) == set(tables["sessions"]["backend_pid"])
        assert tables["samples"].height > 0
    facts = ladders.three.environment.server
    assert facts.here and facts.reached is not None and facts.reached.by == "Ray"


def test_a_clock_that_is_off_and_drifts_is_mapped_within_its_bound(
    ladders: Ladders, ray_cluster: RayCluster
) -> None:
    """The node's kernel shifts the clock, too. The arrivals that the server saw of each host's measured
    calls lie between their first and their last, within the bound."""
    since_1970_ns = time.time_ns() - _core.now_ns()
    ahead_ns = [0, 0, ray_cluster.shifted_s * S + AHEAD_NS + round(DRIFT * ray_cluster.shifted_s * S)]
    for tables in cells(ladders.three):
        drivers = tables["drivers"]
        offsets = drivers["clock_offset_ns"].to_list()
        assert all(abs(o - a) < S // 2 for o, a in zip(offsets, ahead_ns, strict=True))
        last_ = drivers.row(2, named=True)
        assert abs(last_["clock_drift"] - DRIFT) <= 2 * last_["clock_bound_ns"] / (2 * S)
        for host, bound_ns in drivers.select("host", "clock_bound_ns").rows():
            theirs = with_host(tables["sessions"], drivers).filter(host=host, errors=0)
            first, end = theirs["first_start_ns"].min(), theirs["last_end_ns"].max()
            seen = (at_ns - since_1970_ns for at_ns in ladders.call_times.get(host, ()))
            within = sum(first - bound_ns - MS <= at_ns <= end + bound_ns + MS for at_ns in seen)  # type: ignore[operator]
            assert ray_cluster.network is None or within >= theirs["calls"].sum()


def test_one_driver_and_three_make_the_same_calls(ladders: Ladders) -> None:
    """The same calls are due whoever makes them, and both ladders make all of them."""
    due = []
    for run, number in ((ladders.three, 3), (ladders.one, 1)):
        calls_by_cell = []
        for tables in cells(run):
            assert tables["drivers"].height == number
            calls, errors = tables["sessions"].select(pl.sum("calls", "errors")).row(0)
            assert (calls, errors) == (tables["pace"]["arrivals"].sum(), 0)
            calls_by_cell.append(calls)
        due.append(calls_by_cell)
    assert due[0] == due[1]
    assert min(due[0]) > 0


def test_one_driver_and_three_compare_as_the_same(ladders: Ladders) -> None:
    """A call waits for 50 ms at the server, so the noise of a busy machine is far below the margin."""
    runs = (ladders.one.path.name, ladders.three.path.name)
    done = ladders.bench.here("compare", *runs, "--metric", "response_mean_ns", "--margin", "40%", "--json")
    assert done.returncode == 0, done.stderr
    (metric,) = json.loads(done.stdout)["metrics"]
    assert len(metric["claims"]) == 2
    for claim in metric["claims"]:
        assert claim["verdict"] not in ("better", "worse")
        assert 1 / 1.4 < claim["effect"]["ratio"] < 1.4


def test_agents_of_the_second_node_have_no_capability(ray_cluster: RayCluster, run_name: str) -> None:
    """This node drives in nearly all of these tests."""
    if not ray_cluster.bare:
        pytest.skip("needs the program setpriv")
    cluster = connect.Cluster(ray_cluster.address, run_name)
    try:
        node = next(n for n in cluster.nodes if n.address == ray_cluster.nodes[1])
        pid = cluster.open([node])[node.id]["ok"]["pid"]
        status = Path(f"/proc/{pid}/status").read_text()
        assert re.findall(r"Cap(?:Prm|Eff|Bnd):\t(\w+)", status) == ["0" * 16] * 3
    finally:
        cluster.close()


# What happens to drivers, with leave to go on without them.

DELAY_MS = 8


class Events(NamedTuple):
    """A run in whose second measurement a driver is killed. In the fourth a node disappears, and after the
    fifth dbdyno itself is killed."""

    run: Run
    extra: str
    """The address of the node that is gone."""
    is_far: bool
    """Its packets took longer."""


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory, server: PlainServer, ray_cluster: RayCluster) -> Events:
    if ray_cluster.network is None:
        pytest.skip("needs network namespaces: root, and the program ip")
    bench = bench_at(tmp_path_factory.mktemp("events"), server)
    with contextlib.ExitStack() as stack:
        network = Network((ray_cluster.network, ray_cluster.host))
        stack.callback(network.close)
        number = random.SystemRandom().randrange(100, 250)
        address = network.host(number)
        end = ray_cluster.end_of(address)
        extra = JoinedNode(ray_cluster.address, address, ray_cluster.temp, network.within(number))
        stack.callback(extra.close)
        extra.ready()
        is_far = delayed(end, DELAY_MS)
        more = ("--sessions", "4", "--repeats", "20", "--measure", "2500ms", "--degrade", "--drivers", "4")
        with bench.background(*words(server, ray_cluster, *more)) as process:
            wait_for_measurement(bench, server, 1)
            first, *others = [actor_of(server, ray_cluster, n) for n in (2, 3, 4)]
            os.kill(first, signal.SIGKILL)
            wait_for_measurement(bench, server, 3)
            link(end, "down")  # and its raylet is killed: nobody says so, there is only silence
            os.kill(extra.raylet, signal.SIGKILL)
            wait_for_measurement(bench, server, 5)
            process.kill()
            eventually(lambda: sessions(server) == 0)  # nor those of the node that is gone
            eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in others))
        link(end, "up")
    return Events(last(bench), address, is_far)


def test_a_lost_driver_makes_a_measurement_invalid_and_the_others_go_on(
    events: Events, ray_cluster: RayCluster
) -> None:
    assert statuses(events.run)[:3] == ["ok", "invalid", "ok"]
    first, lost, after = (events.run.read_cell(c) for c in events.run.cells()[:3])
    assert first.tables["drivers"]["host"].to_list() == sorted([*ray_cluster.nodes, events.extra])
    assert lost.tables["drivers"].filter(status="lost")["host"].to_list() == ray_cluster.nodes[:1]
    assert lost.meta.reason == f"driver {ray_cluster.nodes[0]} is lost: the actor's process ended"
    assert after.tables["drivers"]["host"].to_list() == sorted([*ray_cluster.nodes[1:], events.extra])
    assert after.tables["sessions"].height == 4


def test_a_node_that_is_gone_costs_one_measurement(events: Events, ray_cluster: RayCluster) -> None:
    """The server's keepalive ends the node's sessions."""
    assert statuses(events.run)[3:5] == ["invalid", "ok"]
    lost, after = (events.run.read_cell(c) for c in events.run.cells()[3:5])
    assert str(lost.meta.reason).startswith(f"driver {events.extra} is lost: ")
    assert after.tables["drivers"]["host"].to_list() == ray_cluster.nodes[1:]
    assert after.tables["sessions"].height == 4


def test_a_killed_conductor_leaves_no_session_and_no_actor(events: Events) -> None:
    """The fixture waited for their end. What was measured before can be read."""
    assert 5 <= len(events.run.cells()) < 20


def test_a_node_behind_a_delay_has_a_longer_round_trip_and_a_wider_clock_bound(events: Events) -> None:
    if not events.is_far:
        pytest.skip("needs netem in the kernel, and the program tc")
    drivers = events.run.read_cell(events.run.cells()[0]).tables["drivers"].sort("round_trip_ns")
    far = drivers.row(-1, named=True)
    assert far["host"] == events.extra
    assert far["round_trip_ns"] >= DELAY_MS * MS
    assert far["clock_bound_ns"] >= DELAY_MS * MS // 2


# The same without leave to go on.


@pytest.fixture(scope="module")
def faulty_run(tmp_path_factory: pytest.TempPathFactory, server: PlainServer, ray_cluster: RayCluster) -> Run:
    """A run in whose first measurement a link is down for three seconds, and in whose second a driver is
    killed."""
    bench = bench_at(tmp_path_factory.mktemp("ending"), server)
    more = ("--verbose", "--sessions", "3", "--repeats", "3", "--measure", "7s")
    with bench.background(*words(server, ray_cluster, *more)) as process:
        if ray_cluster.network is not None:
            into_the_window(process)
            _down_for(ray_cluster.end_of(ray_cluster.nodes[1]), 3)
        wait_for_measurement(bench, server, 1)
        os.kill(actor_of(server, ray_cluster, 4), signal.SIGKILL)
        assert process.wait(120) == 5
    assert sessions(server) == 0
    return last(bench)


def _down_for(end: str, seconds: float) -> None:
    link(end, "down")
    try:
        time.sleep(seconds)
    finally:
        link(end, "up")


def test_a_link_that_is_down_for_three_seconds_loses_nothing(
    faulty_run: Run, ray_cluster: RayCluster
) -> None:
    """Calls of that host take as long, and no call is invented."""
    if ray_cluster.network is None:
        pytest.skip("needs network namespaces: root, and the program ip")
    assert statuses(faulty_run)[0] == "ok"
    longest = cells(faulty_run)[0]["sessions"]["max_ns"].to_list()
    assert longest[1] > 2_900_000_000
    assert max(longest[0], longest[2]) < 2_900_000_000


def test_without_leave_to_go_on_the_run_ends_and_can_be_read(faulty_run: Run) -> None:
    assert statuses(faulty_run) == ["ok", "invalid"]
    assert "is lost: the actor's process ended" in str(faulty_run.info.reason)
