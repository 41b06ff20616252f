"""The server's host if it is another: reaches it, checks it, and judges a measurement without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dbdyno import observe
from dbdyno.engines import embedded
from dbdyno.kernel.machine import HERE
from dbdyno.model.engine.environment import Host, ServerFacts
from dbdyno.model.engine.machine import Machine
from dbdyno.model.engine.protocols import Server, Target, Watch
from dbdyno.model.errors import NotAvailable, TargetError, UsageError
from dbdyno.model.units import format_ns

CLOSE = 0.01
"""Most error of the other host's clock, as a share of a measurement."""


@contextmanager
def server_machine(where: str | None, command: str | None = None) -> Iterator[Machine]:
    """Returns the host ``where`` (``[user@]host``), reached over ssh with the client ``command``; None
    stands for this host. Raises :class:`UsageError`, :class:`TargetError`, :class:`NotAvailable`."""
    if where is None:
        yield HERE
        return
    from dbdyno.remote import ssh  # here, since most runs do not need it

    reached = ssh.machine(where, command or "ssh")
    try:
        yield reached
    finally:
        reached.close()


def observed_target(engine: str, dsn: str | None, machine: Machine | None = None) -> Target:
    """Returns the target of ``dsn``; for None the embedded server if it runs, else the one that the
    environment names. ``machine`` is its host if that is another."""
    if dsn is not None or (machine is not None and machine.reached is not None):
        return Target(dsn=dsn or "", machine=machine)
    try:
        running = embedded(engine).status()
    except UsageError:  # it has none
        return Target()
    return Target(dsn=str(running["dsn"]) if running.get("running") else "")


def host_of(machine: Machine) -> Host:
    """Returns the facts of a host, in a few round trips."""
    if machine.reached is None:
        return observe.host()
    files, folders = observe.read_of_host()
    with machine.ahead(_below(machine.root, files), _below(machine.root, folders)):
        return observe.host(machine.root)


def _below(root: Path, patterns: tuple[str, ...]) -> list[Path]:
    return [root / p for p in patterns]


def other_client(machine: Machine) -> Host | None:
    """Returns this host if it is not the server's; else None."""
    return None if machine.reached is None else observe.host()


def check_reached(server: Server, facts: ServerFacts, window_ns: int | None) -> None:
    """Checks that the named host is the server's and that its clock is known well enough for windows of that
    length. Raises :class:`TargetError`, :class:`NotAvailable`."""
    reached = server.machine.reached
    if reached is None:
        return
    if not facts.here:
        raise TargetError(
            f"the server's processes are not seen on {reached.host}: {facts.here_detail}",
            "name the host that the server runs on; without --server-ssh it is measured from here alone",
        )
    if window_ns is not None and (why := unclear_clock(reached.host, reached.clock_bound_ns, window_ns)):
        raise NotAvailable(why, "measure for longer (--measure, --window), or over a faster way")


def unclear_clock(host: str, bound_ns: int, window_ns: int) -> str | None:
    """Returns why the clock of a host is not known well enough; None if it is."""
    if bound_ns <= CLOSE * window_ns:
        return None
    bound, most = format_ns(bound_ns), format_ns(round(CLOSE * window_ns))
    return f"the clock of {host} is known to {bound} only; 1 % of a measurement is {most}"


def why_unwatched(watch: Watch, host: str, window_ns: int) -> str | None:
    """Returns why the observations of another host are of no use; None if they are complete, or were made on
    this host."""
    remote = getattr(watch, "remote", None)
    return None if remote is None else lost_host(watch) or unclear_clock(host, remote.bound_ns, window_ns)


def lost_host(watch: Watch) -> str | None:
    """Returns why the observed host can no longer be reached; None if it can, or if it is this one."""
    remote = getattr(watch, "remote", None)
    lost: str | None = None if remote is None else remote.lost
    return lost


def lost_in(server: Server, watch: Watch, window_ns: int) -> str | None:
    """Returns the same for the host of this server."""
    reached = server.machine.reached
    return None if reached is None else why_unwatched(watch, reached.host, window_ns)
