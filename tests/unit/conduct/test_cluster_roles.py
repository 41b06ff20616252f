"""The nodes of a cluster that drive, and the node of the server."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from dbdyno.conduct.hosts.cluster import Hosts
from dbdyno.conduct.measure.crew import Crew
from dbdyno.kernel.processes import boot_id
from dbdyno.model.errors import NotInstalled, UsageError
from dbdyno.model.plan.cluster import ClusterSpec, yielding
from dbdyno.remote.cluster.connect import Cluster, Node, check_address


class _Cluster:
    """Nodes that know their addresses."""

    def __init__(self, *nodes: Node) -> None:
        self.nodes = nodes

    def open(self, nodes: Sequence[Node]) -> dict[str, Mapping[str, Any]]:
        """Opens an actor on each node but host9."""
        return {n.id: {"error": "gone"} if n.hostname == "host9" else {"ok": {}} for n in nodes}

    def ask(self, nodes: Sequence[Node], _method: str, addresses: list[str]) -> dict[str, Any]:
        return {n.id: {"ok": n.address in addresses} for n in nodes}


def node(number: int, *roles: str, hostname: str = "") -> Node:
    return Node(f"id{number}", f"10.0.0.{number}", hostname or f"host{number}", 4.0, number == 1, roles)


def hosts(*nodes: Node) -> Hosts:
    return Hosts(_Cluster(*nodes))  # type: ignore[arg-type]


def drivers(cluster: Hosts, server: str | None = None, **asked: Any) -> list[str]:
    spec = ClusterSpec(address="auto", **asked)
    server_nodes = cluster.servers(spec, None if server is None else (server, 5432))
    return [n.id for n in cluster.drivers(spec, server_nodes)]


def test_nodes_with_the_role_drive() -> None:
    assert drivers(hosts(node(1), node(2, "driver"), node(3, "driver"), node(4, "server"))) == ["id2", "id3"]


def test_without_roles_all_drive_but_the_servers_node() -> None:
    cluster = hosts(node(1), node(2), node(3))
    assert drivers(cluster, "10.0.0.2") == ["id1", "id3"]
    assert drivers(cluster, "10.0.0.99") == ["id1", "id2", "id3"]
    assert drivers(cluster, server_node="host3") == ["id1", "id2"]
    assert drivers(hosts(node(1)), "10.0.0.1") == ["id1"]  # the server has the only node


def test_a_node_that_cannot_be_used_does_not_drive() -> None:
    cluster = hosts(node(1), node(9), node(3))
    assert drivers(cluster) == ["id1", "id3"]
    assert cluster.problems == {"id9": "gone"}


def test_as_many_nodes_drive_as_were_asked_for() -> None:
    cluster = hosts(node(1), node(2), node(3))
    assert drivers(cluster, drivers=2) == ["id1", "id2"]
    with pytest.raises(UsageError, match="4 drivers were asked for; the cluster has 3 nodes"):
        drivers(cluster, drivers=4)


def test_the_servers_node_is_the_named_one_else_by_connection_or_role() -> None:
    cluster = hosts(node(1), node(2, "server"), node(3))
    asked = ClusterSpec(address="auto")
    assert [n.id for n in cluster.servers(asked, ("10.0.0.3", 5432))] == ["id3"]  # by the connection
    assert [n.id for n in cluster.servers(asked, None)] == ["id2"]
    assert [n.id for n in cluster.servers(ClusterSpec(address="auto", server_node="10.0.0.1"), None)] == [
        "id1"
    ]
    with pytest.raises(UsageError, match="no node named 'host9'"):
        cluster.servers(ClusterSpec(address="auto", server_node="host9"), None)


def test_hosts_of_one_name_are_known_by_their_addresses() -> None:
    cluster = hosts(node(1, hostname="vm"), node(2, hostname="vm"), node(3))
    assert cluster.names == {"id1": "10.0.0.1", "id2": "10.0.0.2", "id3": "host3"}
    with pytest.raises(UsageError, match="2 nodes named 'vm'"):
        cluster.node_named("vm")


def test_without_ray_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(NotInstalled) as e:
        Cluster("auto", "x")
    assert e.value.cure == "pip install 'dbdyno[cluster]'"


@pytest.mark.parametrize("address", ["local:", "local:0", "local:-1", "local:many", "local:65", ""])
def test_a_text_that_is_no_address_of_a_cluster_is_refused(address: str) -> None:
    with pytest.raises(UsageError):
        check_address(address)


@pytest.mark.parametrize("address", ["auto", "local:3", "ray://head:10001", "10.0.0.1:6379"])
def test_an_address_of_a_cluster_is_accepted(address: str) -> None:
    check_address(address)


def test_nodes_that_give_way_to_other_programs_are_named_once() -> None:
    assert yielding([("a", 0), ("b", 0)]) is None
    warning = yielding([("a", 15), ("b", 0), ("a", 15), *((f"n{n}", 3) for n in range(20))])
    assert warning is not None
    assert "nice 15 on a, n0," in warning and "b" not in warning.split(":")[0].split(" on ")[1].split(", ")
    assert "n7" not in warning and "RAY_worker_niceness=0" in warning


def test_a_quiet_machine_is_not_waited_for_where_drivers_are_elsewhere() -> None:
    def crew(*boots: str) -> Crew:
        drivers = [SimpleNamespace(name=f"host{n}", facts={"boot_id": b}) for n, b in enumerate(boots)]
        return Crew(None, ClusterSpec(address="auto"), drivers, None)  # type: ignore[arg-type]

    crew(boot_id(), boot_id()).check_quiet_visible()
    with pytest.raises(UsageError, match="not for host1"):
        crew(boot_id(), "another").check_quiet_visible()
