"""Actors on a real Ray cluster: what they pass on, and how they end."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dbdyno.model.errors import HostLost, Unreachable
from dbdyno.remote.cluster import Cluster, Node, SocketChannel, connect
from tests.ray_nodes import RayCluster
from tests.waiting import eventually


@pytest.fixture(scope="module")
def shared_connection(ray_cluster: RayCluster) -> Iterator[Cluster]:
    cluster = Cluster(ray_cluster.address, "")
    yield cluster
    cluster.close()


@pytest.fixture
def cluster(shared_connection: Cluster, run_name: str) -> Iterator[Cluster]:
    """Yields a connection without actors, and ends the actors that the test opened."""
    shared_connection._run = run_name
    yield shared_connection
    for node in shared_connection.nodes:
        with contextlib.suppress(Unreachable):  # it has none
            shared_connection.end([node])


@pytest.fixture
def nodes(ray_cluster: RayCluster, cluster: Cluster) -> list[Node]:
    """Returns the nodes of the shared cluster without its head."""
    return [n for n in cluster.nodes if n.address in ray_cluster.nodes]


def start_echo(
    cluster: Cluster, nodes: list[Node], monkeypatch: pytest.MonkeyPatch
) -> dict[str, SocketChannel]:
    """Starts a program in place of agents that echoes its input."""
    monkeypatch.setattr(connect, "program", lambda _arch: Path("/bin/cat"))
    return cluster.start(open_facts(cluster, nodes))


def open_facts(cluster: Cluster, nodes: list[Node]) -> dict[str, Any]:
    return {n: answer["ok"] for n, answer in cluster.open(nodes).items()}


def alive(pid: int) -> bool:
    """Returns whether a process runs. One that has yet to be waited for does not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def test_nodes_have_their_addresses_and_one_is_the_head(ray_cluster: RayCluster, cluster: Cluster) -> None:
    heads = [n.address for n in cluster.nodes if n.head]
    assert heads == [ray_cluster.host]
    assert {n.address for n in cluster.nodes} >= {*heads, *ray_cluster.nodes}


def test_agents_of_root_do_not_give_way_to_others(cluster: Cluster, nodes: list[Node]) -> None:
    assert {facts["nice"] for facts in open_facts(cluster, nodes).values()} == {0}  # of one Ray begins at 15


def test_bytes_come_back_in_order(
    cluster: Cluster, nodes: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    channels = start_echo(cluster, nodes, monkeypatch)
    assert len(channels) == 3
    for number, channel in enumerate(channels.values()):
        sent = bytes([number]) * 300_000 + os.urandom(200_000)
        channel.send(sent)
        received = b""
        while len(received) < len(sent):
            received += channel.receive()
        assert received == sent


def test_a_program_leaves_no_file_and_ends_with_its_channel(
    cluster: Cluster, nodes: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = start_echo(cluster, nodes[:1], monkeypatch)[nodes[0].id]
    (pid,) = _agents(nodes[0], cluster)
    assert str(Path(f"/proc/{pid}/exe").readlink()).endswith("/dbdyno-agent (deleted)")
    channel.close()
    cluster.end(nodes[:1])
    eventually(lambda: not alive(pid))


def test_the_reason_names_the_process_that_ended(
    cluster: Cluster, nodes: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    channels = start_echo(cluster, nodes, monkeypatch)
    agent, actor = _agents(nodes[0], cluster)[0], _actor(nodes[1], cluster)
    os.kill(agent, signal.SIGKILL)
    assert channels[nodes[0].id].receive() == b""
    os.kill(actor, signal.SIGKILL)
    assert channels[nodes[1].id].receive() == b""
    reasons = [eventually(lambda n=n: cluster.why(n)) for n in nodes[:2]]
    assert reasons == ["the agent ended", "the actor's process ended"]
    assert cluster.why(nodes[2]) is None


def test_a_program_that_cannot_be_started_is_the_nodes_error(
    cluster: Cluster, nodes: list[Node], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "none").write_bytes(b"\x7fELF, but not quite")
    monkeypatch.setattr(connect, "program", lambda _arch: tmp_path / "none")
    with pytest.raises(HostLost, match="Exec format error") as e:
        cluster.start(open_facts(cluster, nodes[:1]))
    assert e.value.host == nodes[0].address


def test_nodes_say_what_they_reach(ray_cluster: RayCluster, cluster: Cluster, nodes: list[Node]) -> None:
    cluster.open(cluster.nodes)
    port = int(ray_cluster.address.rsplit(":", 1)[1])
    reached = cluster.ask(nodes, "reach", ray_cluster.host, port, 3, 2.0)
    assert all(0 < r["ok"] < 2e9 for r in reached.values())
    refused = cluster.ask(nodes, "reach", ray_cluster.host, 1, 1, 2.0)
    assert all("refused" in r["error"] for r in refused.values())
    if ray_cluster.network is not None:
        owners = cluster.ask(cluster.nodes, "owns", [nodes[1].address])
        assert [n.address for n in cluster.nodes if owners[n.id]["ok"]] == [nodes[1].address]


def test_nothing_stays_where_the_gateway_is_killed(
    ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch, run_name: str
) -> None:
    cluster = Cluster(ray_cluster.address, run_name)
    node = next(n for n in cluster.nodes if n.address == ray_cluster.nodes[0])
    start_echo(cluster, [node], monkeypatch)
    pids = [*_agents(node, cluster), _actor(node, cluster)]
    os.kill(cluster.gateway_pid, signal.SIGKILL)
    eventually(lambda: not any(map(alive, pids)))
    cluster.close()


def test_clean_ends_what_is_silent_and_nothing_else(
    ray_cluster: RayCluster,
    cluster: Cluster,
    nodes: list[Node],
    monkeypatch: pytest.MonkeyPatch,
    run_name: str,
) -> None:
    silent = Cluster(ray_cluster.address, f"silent-{run_name}")
    end = nodes[0].id[:12]
    try:
        start_echo(cluster, nodes[:1], monkeypatch)
        start_echo(silent, nodes[:1], monkeypatch)
        pid = _actor(nodes[0], silent)
        os.kill(silent.gateway_pid, signal.SIGSTOP)
        cleaned = eventually(lambda: (f := cluster.clean()).get(f"dbdyno-silent-{run_name}-{end}") and f)
        assert cleaned[f"dbdyno-{run_name}-{end}"] is False
        eventually(lambda: not alive(pid))
    finally:
        os.kill(silent.gateway_pid, signal.SIGCONT)
        silent.close()


def _actor(node: Node, cluster: Cluster) -> int:
    return int(cluster.ask([node], "facts")[node.id]["ok"]["pid"])


def _agents(node: Node, cluster: Cluster) -> list[int]:
    threads = Path(f"/proc/{_actor(node, cluster)}/task").iterdir()
    return [int(pid) for thread in threads for pid in (thread / "children").read_text().split()]


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize(("failures", "whole"), [(0, True), (2, True), (3, False)])
def test_a_ray_server_that_fails_to_start_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, failures: int, whole: bool
) -> None:
    """The server fails as if a process ended that Ray looked at. Ray itself does not start in this
    process."""
    gateway = pytest.importorskip("dbdyno.remote.cluster.gateway")
    outcomes = iter([ConnectionAbortedError("psutil.ZombieProcess")] * failures + [None] * 3)

    def init(**_: Any) -> None:
        if (error := next(outcomes)) is not None:
            raise error

    monkeypatch.setattr(gateway.ray, "init", init)
    monkeypatch.setattr(gateway.access, "check", lambda _address: False)
    ray_gateway = gateway.Gateway()
    with contextlib.nullcontext() if whole else pytest.raises(ConnectionAbortedError):
        assert ray_gateway.connect("ray://head:10001", None)["authenticated"] is False
    assert len(list(outcomes)) == (3 - 1 if whole else 3)
