"""The hosts of observed servers: reached by an agent on a node of a cluster, over ssh, or this host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from dbdyno.conduct.hosts.cluster import Hosts, hosts_of
from dbdyno.conduct.hosts.hosts import server_machine
from dbdyno.engines import network_address
from dbdyno.kernel.machine import HERE
from dbdyno.kernel.processes import boot_id
from dbdyno.model.engine.machine import Machine
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.cluster import ClusterSpec
from dbdyno.model.units import counted
from dbdyno.remote.cluster.connect import Node


@dataclass(frozen=True)
class ServerHosts:
    """The way to the hosts of servers. ``nodes`` and ``ssh`` have one entry for each server, or none at
    all."""

    cluster: str | None = None
    nodes: Sequence[str] = ()
    ssh: Sequence[str] = ()
    ssh_command: str | None = None

    def check(self, servers: int) -> None:
        """Raises :class:`UsageError` if the options do not fit this number of servers."""
        if self.nodes and self.cluster is None:
            raise UsageError("--server-node is for a cluster", "--cluster ADDRESS")
        if self.ssh and self.cluster is not None:
            raise UsageError("--server-ssh and --cluster exclude each other", "give one of them")
        for option, given in (("--server-node", self.nodes), ("--server-ssh", self.ssh)):
            if given and len(given) != servers:
                raise UsageError(
                    f"{option} names {counted(len(given), 'host')} for {counted(servers, 'server')}",
                    f"{option} once for each --dsn, in the same order",
                )


@contextmanager
def server_machines(
    engine: str, dsns: Sequence[str | None], hosts: ServerHosts, say: Callable[[str], None] = lambda _: None
) -> Iterator[Sequence[Machine]]:
    """Yields the host of each server; this host if the server runs here, or is on no node of the cluster,
    which ``say`` then reports. Raises :class:`UsageError`, :class:`TargetError`, :class:`NotAvailable`."""
    hosts.check(len(dsns))
    with ExitStack() as stack:
        if hosts.cluster is None:
            named: Sequence[str | None] = hosts.ssh or [None] * len(dsns)
            yield [stack.enter_context(server_machine(name, hosts.ssh_command)) for name in named]
            return
        addresses = [None if dsn is None else network_address(engine, dsn) for dsn in dsns]
        cluster_hosts = stack.enter_context(hosts_of(hosts.cluster))
        if (warning := cluster_hosts.cluster.warning) is not None:
            say(warning)
        taken: list[Node] = []
        machines: list[Machine] = []
        for number, address in enumerate(addresses):
            name = hosts.nodes[number] if hosts.nodes else None
            spec = ClusterSpec(address=hosts.cluster, server_node=name)
            nodes = cluster_hosts.servers(spec, address, alone=len(dsns) == 1)
            if address is not None and not nodes:
                say(
                    f"server {address[0]}:{address[1]} is on no node of the cluster: observed from here alone"
                )
            machines.append(_machine(cluster_hosts, nodes, taken, stack, named=name is not None))
        yield machines


def _machine(
    hosts: Hosts, nodes: Sequence[Node], taken: list[Node], stack: ExitStack, *, named: bool
) -> Machine:
    """Returns the node as a host, with an agent of its own even if another server runs there."""
    if not nodes or (hosts.facts[nodes[0].id]["boot_id"] == boot_id() and not named):
        return HERE
    node = hosts.add_actor(nodes[0]) if nodes[0] in taken else nodes[0]
    taken.append(node)
    machine = hosts.machine(node, ())
    stack.callback(machine.close)
    return machine
