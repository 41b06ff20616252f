"""Which nodes of a cluster drive, and which one is the server's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from dbdyno.conduct.hosts.cluster import Hosts
from dbdyno.model.errors import NotAvailable, UsageError
from dbdyno.model.plan.cluster import ClusterSpec, yielding
from dbdyno.remote.cluster import connect
from dbdyno.remote.cluster.connect import Cluster, Node, check_address


class _Cluster:
    """Nodes that say which addresses are theirs."""

    def __init__(self, *nodes: Node) -> None:
        self.nodes = nodes

    def open(self, nodes: Sequence[Node]) -> dict[str, Mapping[str, Any]]:
        """The one of host9 has no actor."""
        return {n.id: {"error": "gone"} if n.hostname == "host9" else {"ok": {}} for n in nodes}

    def ask(self, nodes: Sequence[Node], _method: str, addresses: list[str]) -> dict[str, Any]:
        return {n.id: {"ok": n.address in addresses} for n in nodes}


def node(number: int, *roles: str, hostname: str = "") -> Node:
    return Node(f"id{number}", f"10.0.0.{number}", hostname or f"host{number}", 4.0, number == 1, roles)


def hosts(*nodes: Node) -> Hosts:
    return Hosts(_Cluster(*nodes))  # type: ignore[arg-type]


def drivers(made: Hosts, server: str | None = None, **asked: Any) -> list[str]:
    spec = ClusterSpec(address="auto", **asked)
    found = made.servers(spec, None if server is None else (server, 5432))
    return [n.id for n in made.drivers(spec, found)]


def test_nodes_with_the_role_drive() -> None:
    assert drivers(hosts(node(1), node(2, "driver"), node(3, "driver"), node(4, "server"))) == ["id2", "id3"]


def test_without_roles_all_drive_but_the_servers_node() -> None:
    made = hosts(node(1), node(2), node(3))
    assert drivers(made, "10.0.0.2") == ["id1", "id3"]
    assert drivers(made, "10.0.0.99") == ["id1", "id2", "id3"]
    assert drivers(made, server_node="host3") == ["id1", "id2"]
    assert drivers(hosts(node(1)), "10.0.0.1") == ["id1"]  # nobody else is there


def test_a_node_that_cannot_be_used_does_not_drive() -> None:
    made = hosts(node(1), node(9), node(3))
    assert drivers(made) == ["id1", "id3"]
    assert made.problems == {"id9": "gone"}


def test_so_many_drive_as_were_asked_for() -> None:
    made = hosts(node(1), node(2), node(3))
    assert drivers(made, drivers=2) == ["id1", "id2"]
    with pytest.raises(UsageError, match="4 drivers were asked for; the cluster has 3 nodes"):
        drivers(made, drivers=4)


def test_the_servers_node() -> None:
    made = hosts(node(1), node(2, "server"), node(3))
    asked = ClusterSpec(address="auto")
    assert [n.id for n in made.servers(asked, ("10.0.0.3", 5432))] == ["id3"]  # where the connection leads
    assert [n.id for n in made.servers(asked, None)] == ["id2"]
    assert [n.id for n in made.servers(ClusterSpec(address="auto", server_node="10.0.0.1"), None)] == ["id1"]
    with pytest.raises(UsageError, match="no node named 'host9'"):
        made.servers(ClusterSpec(address="auto", server_node="host9"), None)


def test_hosts_of_one_name_are_known_by_their_addresses() -> None:
    made = hosts(node(1, hostname="vm"), node(2, hostname="vm"), node(3))
    assert made.names == {"id1": "10.0.0.1", "id2": "10.0.0.2", "id3": "host3"}
    with pytest.raises(UsageError, match="2 nodes named 'vm'"):
        made.node_named("vm")


def test_without_ray_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "find_spec", lambda _name: None)
    with pytest.raises(NotAvailable) as e:
        Cluster("auto", "x")
    assert e.value.cure == "pip install 'dbdyno[cluster]'"


@pytest.mark.parametrize("address", ["local:", "local:0", "local:-1", "local:many", "local:65", ""])
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(UsageError):
        check_address(address)


@pytest.mark.parametrize("address", ["auto", "local:3", "ray://head:10001", "10.0.0.1:6379"])
def test_addresses(address: str) -> None:
    check_address(address)


def test_nodes_that_give_way_to_other_programs_are_named_once() -> None:
    assert yielding([("a", 0), ("b", 0)]) is None
    said = yielding([("a", 15), ("b", 0), ("a", 15), *((f"n{n}", 3) for n in range(20))])
    assert said is not None
    assert "nice 15 on a, n0," in said and "b" not in said.split(":")[0].split(" on ")[1].split(", ")
    assert "n7" not in said and "RAY_worker_niceness=0" in said
