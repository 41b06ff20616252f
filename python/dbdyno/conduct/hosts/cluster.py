"""The hosts of a cluster for one run: the server's, those that drive, and an agent on each."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dbdyno.engines import network_address
from dbdyno.model.errors import DbdynoError, HostLost, UsageError
from dbdyno.model.journal import Undo
from dbdyno.model.plan.cluster import ClusterSpec, ClusterStatus, NodeStatus
from dbdyno.remote import Agent, HostClock
from dbdyno.remote.cluster import folder
from dbdyno.remote.cluster.address import is_own
from dbdyno.remote.cluster.connect import Cluster, Node
from dbdyno.remote.machine import RemoteMachine
from dbdyno.store.journal import FileJournal

_REACH_TIMES, _REACH_S = 5, 3.0
_LOOPBACK = ("127.0.0.1", "::1", "localhost", "")

Address = tuple[str, int]
"""Host and port."""


@dataclass(frozen=True)
class Host:
    """A node with an agent. ``name`` is its name in :attr:`Hosts.names`."""

    node: Node
    name: str
    facts: Mapping[str, Any]  # of AgentProcess.facts
    agent: Agent
    clock: HostClock


class Hosts:
    """The nodes of a cluster, with an actor on each, and agents on request."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.names = {n.id: _name(n, cluster.nodes) for n in cluster.nodes}
        """Id -> host name or, if several nodes have it, address, then name in Ray."""
        opened = cluster.open(cluster.nodes)
        self.facts: dict[str, Mapping[str, Any]] = {n: f["ok"] for n, f in opened.items() if "ok" in f}
        self.problems: dict[str, str] = {n: f["error"] for n, f in opened.items() if "error" in f}
        """Id -> the reason why there is no actor."""
        self.nodes = [n for n in cluster.nodes if n.id in self.facts]

    def agents(self, nodes: Sequence[Node]) -> list[Host]:
        """Raises :class:`HostLost`, :class:`NotAvailable` for another version."""
        channels = self.cluster.start({n.id: self.facts[n.id] for n in nodes})
        agents = [(n, Agent(channels[n.id], self.names[n.id])) for n in nodes]
        return [Host(n, a.name, self.facts[n.id], a, HostClock(a.clock)) for n, a in agents]

    def machine(self, node: Node, opened: Sequence[Host]) -> RemoteMachine:
        """Returns the node as a host to observe; its agent is that of ``opened`` if there is one."""

        def agent(again: bool) -> Agent:
            if again:
                self.facts[node.id] = self._opened_again(node)
            existing = [h.agent for h in opened if h.node == node and not again]
            return existing[0] if existing else self.agents([node])[0].agent

        return RemoteMachine(agent, self.names[node.id], by="Ray")

    def add_actor(self, node: Node) -> Node:
        """Returns the same node with one more actor, for an agent of its own. Raises :class:`HostLost`."""
        place = self.cluster.add_actor(node)
        self.names[place.id] = self.names[node.id]
        self.facts[place.id] = self._opened_again(place)
        return place

    def _opened_again(self, node: Node) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = self.cluster.open([node])[node.id]
        if "error" in answer:
            raise HostLost(self.names[node.id], answer["error"])
        facts: Mapping[str, Any] = answer["ok"]
        return facts

    def node_named(self, name: str) -> Node:
        """Returns the node with this address, host name, name in Ray, or id. Raises :class:`UsageError`."""
        nodes = self.nodes
        matching = [n for n in nodes if name in (n.address, n.hostname, n.name, n.id)]
        if len(matching) != 1:
            known = ", ".join(self.names[n.id] for n in nodes)
            how = "no node" if not matching else f"{len(matching)} nodes"
            raise UsageError(f"the cluster has {how} named {name!r}", f"nodes: {known}")
        return matching[0]

    def owners(self, host: str) -> list[Node]:
        """Returns the nodes that have this address."""
        numbers = _numeric(host)
        answers = self.cluster.ask(self.nodes, "owns", numbers) if numbers else {}
        return [n for n in self.nodes if answers.get(n.id, {}).get("ok")]

    def servers(self, spec: ClusterSpec, address: Address | None, *, alone: bool = True) -> list[Node]:
        """Returns the nodes on the server's host: the named one, those with its address or, for a server
        that is ``alone``, those with its role."""
        if spec.server_node is not None:
            return [self.node_named(spec.server_node)]
        owners = self.owners(address[0]) if address is not None else []
        return owners or [n for n in self.nodes if alone and "server" in n.roles]

    def drivers(self, spec: ClusterSpec, servers: Sequence[Node]) -> list[Node]:
        """Returns the nodes that drive: those with the role of a driver, else all but the server's if others
        are left. Raises :class:`UsageError` if there are too few."""
        nodes = self.nodes
        able = [n for n in nodes if "driver" in n.roles] or [n for n in nodes if n not in servers] or nodes
        wanted = len(able) if spec.drivers is None else spec.drivers
        if wanted > len(able):
            raise UsageError(
                f"{wanted} drivers were asked for; the cluster has {len(able)} nodes that can drive",
                f"--drivers {len(able)}; dbdyno cluster status shows roles",
            )
        return list(able[:wanted])


def _name(node: Node, nodes: Sequence[Node]) -> str:
    """Returns the first of its names that no other node has."""
    kinds = ((n.hostname for n in nodes), (n.address for n in nodes), (n.name for n in nodes))
    own = (node.hostname, node.address, node.name)
    return next(
        (name for name, all_ in zip(own, kinds, strict=True) if [*all_].count(name) == 1), node.id[:12]
    )


def _numeric(host: str) -> list[str]:
    """Returns its addresses, without those that every host has."""
    with suppress(OSError):
        addresses = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
        return sorted(addresses - set(_LOOPBACK))
    return []


@contextmanager
def hosts_of(address: str) -> Iterator[Hosts]:
    """Opens the cluster at ``address``; at the end, ends its actors, and the cluster if it is dbdyno's
    own."""
    run = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
    with _folder(address) as place, closing(Cluster(address, run, place)) as cluster:
        yield Hosts(cluster)


@contextmanager
def _folder(address: str) -> Iterator[Path | None]:
    """Yields the folder for the files of a cluster of dbdyno's own, which is removed once all of the cluster
    has ended; the journal has an entry for it."""
    if not is_own(address):
        yield None
        return
    place = folder.choose()
    key = f"cluster {place}"
    with closing(FileJournal("cluster")) as journal:
        what = f"a cluster on this machine with its folder {place}"
        journal.note(Undo(kind="cluster", key=key, what=what, data={"place": str(place)}))
        try:
            yield place
        finally:
            folder.remove(place)
            journal.forget(key)


def end_own_cluster(undo: Undo) -> str:
    """Ends the rest of a killed run's cluster of dbdyno's own; returns a line about it. Raises
    :class:`StoreError`."""
    place = Path(undo.data["place"])
    return (
        f"ended the cluster in {place}"
        if folder.remove(place)
        else f"the cluster in {place} was gone already"
    )


def clean(address: str) -> list[str]:
    """Ends what killed runs left on a cluster; returns lines about it."""
    with _folder(address) as place, closing(Cluster(address, "clean", place)) as cluster:
        return [
            f"ended actor {name}" if ended else f"actor {name} is of a run under way: left alone"
            for name, ended in cluster.clean().items()
        ]


# Status.


def status(engine: str, address: str, dsn: str | None) -> ClusterStatus:
    """Returns the state of the cluster. The nodes are asked to reach the server of ``dsn``."""
    server = None if dsn is None else network_address(engine, dsn)
    with hosts_of(address) as hosts:
        cluster = hosts.cluster
        owners = hosts.owners(server[0]) if server is not None else []
        free = _free_cpus(hosts)
        arguments = () if server is None else (*server, _REACH_TIMES, _REACH_S)
        reached = cluster.ask(hosts.nodes, "reach", *arguments) if arguments else {}
        statuses = [_node(hosts, n, owners, free.get(n.id), reached.get(n.id)) for n in cluster.nodes]
        where = None if server is None else f"{server[0]}:{server[1]}"
        return ClusterStatus(
            address=cluster.address,
            ray=cluster.ray,
            authenticated=cluster.authenticated,
            warning=cluster.warning,
            server=where,
            nodes=tuple(statuses),
        )


def _free_cpus(hosts: Hosts) -> Mapping[str, float]:
    for answer in hosts.cluster.ask(hosts.nodes[:1], "free_cpus").values():
        cpus: Mapping[str, float] = answer.get("ok") or {}
        return cpus
    return {}


def _node(
    hosts: Hosts, node: Node, owners: Sequence[Node], free: float | None, reached: Mapping[str, Any] | None
) -> NodeStatus:
    own = node in owners
    known: dict[str, Any] = {
        "address": node.address,
        "name": hosts.names[node.id],
        "hostname": node.hostname,
        "roles": tuple(dict.fromkeys([*node.roles, *(["server"] if own else [])])),
        "head": node.head,
        "cpus": node.cpus,
        "free_cpus": free,
        "server_ns": None if reached is None else reached.get("ok"),
    }
    if node.id in hosts.problems:
        return NodeStatus(**known, problem=hosts.problems[node.id])
    problem = None if reached is None or "ok" in reached else f"cannot reach the server: {reached['error']}"
    try:
        known |= _of_agent(hosts.agents([node])[0])
    except DbdynoError as e:
        problem = problem or (e.why if isinstance(e, HostLost) else e.message)
    return NodeStatus(**known, problem=problem)


def _of_agent(host: Host) -> dict[str, Any]:
    hello, clock = host.agent.hello, host.clock
    mapping = clock.mapping()
    ours_ns = time.time_ns() - time.monotonic_ns()
    host.agent.close()
    return {
        "python": host.facts["python"],
        "agent": hello.product,
        "kernel": hello.kernel,
        "uid": hello.uid,
        "nice": host.facts["nice"],
        "clock_offset_ns": mapping.last.ns + host.facts["since_1970_ns"] - ours_ns,
        "clock_bound_ns": mapping.bound_ns,
        "round_trip_ns": clock.round_trip_ns,
    }
