"""The drivers of a run on a cluster: spreads loads over them and handles the loss of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakSet

from dbdyno.conduct.hosts.cluster import Address, Host, Hosts, hosts_of
from dbdyno.conduct.hosts.hosts import unclear_clock
from dbdyno.conduct.measure.progress import ProgressListener
from dbdyno.engines import network_address
from dbdyno.kernel.processes import boot_id
from dbdyno.model.engine.protocols import Listing, Load
from dbdyno.model.errors import HostLost, NotAvailable, TargetError, UsageError
from dbdyno.model.plan.cluster import ClusterSpec, yielding
from dbdyno.model.results.raw import RawCell
from dbdyno.model.units import counted
from dbdyno.plan.spread import spread
from dbdyno.remote import Driver, RemoteLoad, SpreadLoad
from dbdyno.remote.cluster.connect import Node
from dbdyno.remote.machine import RemoteMachine
from dbdyno.remote.shares import sessions_of


class Crew:
    """The hosts that drive. :meth:`make_load` serves as ``Target.make_load``."""

    def __init__(
        self, hosts: Hosts, spec: ClusterSpec, drivers: Sequence[Host], machine: RemoteMachine | None
    ) -> None:
        self._hosts, self._spec = hosts, spec
        self.machine = machine
        """The server's host; None if it is this host, or not a visible node."""
        self._left = list(drivers)
        self._loads: WeakSet[SpreadLoad] = WeakSet()
        self._news: str | None = None

    def make_load(self, engine: str, specification: Mapping[str, Any]) -> Load:
        """Returns a load spread over the hosts that are left."""
        sizes = spread(
            sessions_of(specification),
            [float(h.node.cpus) for h in self._left],
            self._spec.spread,
            self._spec.per_driver,
        )
        drivers = [_driver(h, size) for h, size in zip(self._left, sizes, strict=True)]
        load = SpreadLoad(drivers, engine, specification)
        self._loads.add(load)
        return load

    def left_by(self, host: str) -> list[int]:
        """Returns the server's processes of that driver's sessions: a long statement goes on after the
        driver is lost."""
        return [pid for load in self._loads for pid in load.left_by(host)]

    def lose(self, error: HostLost) -> str:
        """Leaves the host out of later measurements and returns why it was lost."""
        host = next((h for h in self._left if h.name == error.host), None)
        why = error.why
        if host is not None:
            self._left.remove(host)
            why = self._hosts.cluster.why(host.node) or why
            host.agent.close()
        self._news = f"driver {error.host} is lost: {why}"
        return self._news

    def check(self) -> bool:
        """Returns whether a host was lost since the last check. Raises :class:`TargetError` if the others do
        not go on."""
        news, self._news = self._news, None
        if news is None:
            return False
        if not self._spec.degrade:
            raise TargetError(news, "--degrade goes on with the drivers that are left")
        if not self._left:
            raise TargetError(f"{news}; no driver is left", "dbdyno cluster status shows what is up")
        return True

    def check_clocks(self, window_ns: int) -> None:
        """Raises :class:`NotAvailable` if the offset of a driver's clock is not known well enough for
        windows of that length."""
        for host in self._left:
            if (why := unclear_clock(host.name, host.clock.mapping().bound_ns, window_ns)) is not None:
                raise NotAvailable(why, "measure for longer (--measure), or leave that node out (--drivers)")

    def check_quiet_visible(self) -> None:
        """Raises :class:`UsageError` if a driver is on another machine, whose load is not waited for."""
        if far := [h.name for h in self._left if h.facts["boot_id"] != boot_id()]:
            raise UsageError(
                f"--wait-quiet waits for this machine and the server's, not for {', '.join(far)}",
                "run it without --wait-quiet, or name drivers on this machine (--drivers)",
            )

    def words(self) -> str:
        """Returns ``3 drivers: a, b, c``."""
        names = [h.name for h in self._left]
        shown = ", ".join(names[:8]) + (" ..." if len(names) > 8 else "")
        left_out = [f"{self._hosts.names[n]} ({why})" for n, why in self._hosts.problems.items()]
        others = f"; not usable: {', '.join(left_out)}" if left_out else ""
        niced = yielding([(h.name, h.facts["nice"]) for h in self._left])
        others += f". {niced}" if niced else ""
        return f"{counted(len(names), 'driver')} on the cluster: {shown}{others}"

    @property
    def warning(self) -> str | None:
        """A warning about the cluster, for the user."""
        return self._hosts.cluster.warning


def lost_by(crew: Crew | None, listing: Listing | None) -> Callable[[HostLost], str]:
    """Returns ``Setting.lost``, which ends the sessions that a lost driver left at the server."""

    def lose(error: HostLost) -> str:
        if crew is None:
            return error.message
        if listing is not None and (left := crew.left_by(error.host)):
            with suppress(TargetError):  # the processes then end after their statements
                listing.end_left(left)
        return crew.lose(error)

    return lose


def with_hosts_left(
    crew: Crew | None, listener: ProgressListener, measure: Callable[[], Sequence[RawCell]]
) -> Sequence[RawCell]:
    """Returns the measurement. One that a lost host kept from starting is begun again with the others."""
    while True:
        try:
            return measure()
        except HostLost as e:
            if crew is None:
                raise
            why = crew.lose(e)
            crew.check()
            listener.noted(why)


def _driver(host: Host, sessions: int) -> Driver:
    def make(engine: str, specification: Mapping[str, Any]) -> Load:
        return RemoteLoad(host.agent, host.clock, engine, specification)

    return Driver(host.name, make, float(sessions), host.facts["cpus"], host.clock)


@contextmanager
def crew_of(spec: ClusterSpec | None, engine: str, dsn: str | None) -> Iterator[Crew | None]:
    """Returns the nodes of a cluster that drive, and the server's if it is a node; None if no cluster was
    asked for. Raises :class:`TargetError`, and :class:`UsageError` if the nodes cannot be used."""
    if spec is None:
        yield None
        return
    address = None if dsn is None else network_address(engine, dsn)
    with hosts_of(spec.address) as hosts:
        servers = hosts.servers(spec, address)
        drivers = hosts.agents(hosts.drivers(spec, servers))
        for host in drivers:
            _check_way(host, address)
        machine = _server_host(hosts, spec, servers, drivers)
        try:
            yield Crew(hosts, spec, drivers, machine)
        finally:
            if machine is not None:
                machine.close()


def _server_host(
    hosts: Hosts, spec: ClusterSpec, servers: Sequence[Node], drivers: Sequence[Host]
) -> RemoteMachine | None:
    """Returns the server's host if it is a node other than this host; None otherwise, as without a
    cluster."""
    if not servers:
        return None
    here = hosts.facts[servers[0].id]["boot_id"] == boot_id() and spec.server_node is None
    return None if here else hosts.machine(servers[0], drivers)


def _check_way(host: Host, address: Address | None) -> None:
    """Raises :class:`UsageError` if the server's address means another machine on the nodes."""
    if host.facts["boot_id"] == boot_id() or (address is not None and not _is_loopback(address[0])):
        return
    where = "a socket of this machine" if address is None else address[0]
    raise UsageError(
        f"drivers on {host.name} cannot reach the server by {where}",
        "name its network address: --dsn host=...",
    )


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")
