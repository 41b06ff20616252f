"""``dbdyno cluster status``, ``clean --cluster``, and errors before a run begins."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.clusters import server_dir
from tests.conftest import Servers
from tests.contract.plain_server import plain_server
from tests.db.conftest import Bench
from tests.ray_nodes import RayCluster

pytestmark = pytest.mark.db


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "home", server_dir(tmp_path / "servers"))


@pytest.mark.parametrize("way", ["address", "client"])
def test_status_lists_every_node_with_its_way_to_the_server(
    bench: Bench, servers: Servers, ray_cluster: RayCluster, way: str
) -> None:
    reached = {"listen_addresses": ray_cluster.host}
    with plain_server(servers.bin_dir(18), reached, ["host all boss 0.0.0.0/0 trust"]) as server:
        dsn = f"host={ray_cluster.host} port={server.port} user=boss dbname=postgres"
        done = bench.dbdyno("cluster", "status", getattr(ray_cluster, way), "--dsn", dsn, "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    document = json.loads(done.stdout)
    assert document["authenticated"] is False
    assert "asks for no token" in document["warning"]
    nodes = {n["address"]: n for n in document["nodes"]}
    assert {ray_cluster.host, *ray_cluster.nodes} <= nodes.keys()
    for address in ray_cluster.nodes:
        node = nodes[address]
        assert node["problem"] is None
        assert 0 < node["server_ns"] < 3_000_000_000
        assert node["clock_bound_ns"] == -(-node["round_trip_ns"] // 2)
        assert (
            abs(node["clock_offset_ns"]) < 50_000_000 + node["clock_bound_ns"]
        )  # it is this machine's clock
        assert (node["cpus"], node["head"], node["uid"]) == (1.0, False, os.getuid())
    if ray_cluster.network is not None:
        assert nodes[ray_cluster.host]["roles"] == ["server"]


def test_a_node_that_cannot_reach_the_server_is_named(
    bench: Bench, servers: Servers, ray_cluster: RayCluster
) -> None:
    if ray_cluster.network is None:
        pytest.skip("needs network namespaces: root, and the program ip")
    with plain_server(servers.bin_dir(18), None, ["host all boss 127.0.0.1/32 trust"]) as server:
        dsn = f"host=127.0.0.1 port={server.port} user=boss dbname=postgres"
        done = bench.dbdyno("cluster", "status", ray_cluster.address, "--dsn", dsn, COLUMNS="200")
    assert done.returncode == 3
    assert done.stdout.count("cannot reach the server: [Errno 111] Connection refused") == len(
        ray_cluster.nodes
    )
    assert f"the cluster at {ray_cluster.address} asks for no token" in done.stdout


def test_clean_says_what_it_did(bench: Bench, ray_cluster: RayCluster) -> None:
    done = bench.dbdyno("clean", "--cluster", ray_cluster.address)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_an_address_without_a_cluster_is_a_readable_error(bench: Bench) -> None:
    done = bench.dbdyno("cluster", "status", "nowhere.invalid:6379")
    assert done.returncode == 3
    assert done.stderr.startswith("error: cluster nowhere.invalid:6379: ")
    assert "Traceback" not in done.stderr
    assert "ray status" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--cluster", "local:0"], "cluster 'local:0' is none"),
        (["--drivers", "3"], "--drivers is for a cluster"),
        (["--cluster", "auto", "--spread", "pack"], "pack needs the number of sessions that fill a driver"),
    ],
)
def test_wrong_arguments_are_refused(bench: Bench, words: list[str], message: str) -> None:
    done = bench.here("run", "lio", *words)
    assert done.returncode == 2
    assert message in done.stderr
