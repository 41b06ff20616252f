"""Lists the nodes of a cluster as lines, for ``dbdyno cluster status``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dbdyno.model.plan.cluster import yielding
from dbdyno.model.units import counted, format_given, format_ns

if TYPE_CHECKING:
    from dbdyno.model.plan.cluster import ClusterStatus, NodeStatus

HEADS = (
    "node",
    "host",
    "roles",
    "free CPUs",
    "clock",
    "clock error",
    "round trip",
    "server",
    "Python",
    "problem",
)
RIGHT = (False, False, False, True, True, True, True, True, False, False)


def headline(status: ClusterStatus) -> str:
    """Returns ``Ray 2.60.0 at ADDRESS: 4 nodes, 3 of them usable``."""
    able = [n for n in status.nodes if n.problem is None]
    usable = "" if len(able) == len(status.nodes) else f", {len(able)} of them usable"
    return f"Ray {status.ray} at {status.address}: {counted(len(status.nodes), 'node')}{usable}"


def remarks(status: ClusterStatus) -> list[str]:
    """Returns the lines below the table."""
    niced = yielding([(n.name, n.nice) for n in status.nodes if n.nice is not None])
    return [remark for remark in (niced, status.warning) if remark is not None]


def rows(status: ClusterStatus) -> list[Sequence[str]]:
    """Returns one row of texts per node, with the columns of :data:`HEADS`."""
    addresses = [n.address for n in status.nodes]
    return [_row(n, n.address if addresses.count(n.address) == 1 else n.name) for n in status.nodes]


def _row(n: NodeStatus, name: str) -> Sequence[str]:
    free = "?" if n.free_cpus is None else format_given(n.free_cpus)
    return (
        name,
        n.hostname + (" (head)" if n.head else ""),
        ", ".join(n.roles),
        f"{free} of {format_given(n.cpus)}",
        _known(n.clock_offset_ns, lambda ns: f"{'-' if ns < 0 else '+'}{format_ns(abs(ns))}"),
        _known(n.clock_bound_ns, lambda ns: f"±{format_ns(ns)}"),
        _known(n.round_trip_ns, format_ns),
        _known(n.server_ns, format_ns),
        n.python or "?",
        n.problem or "",
    )


def _known(value: int | None, text: Callable[[float], str]) -> str:
    return "?" if value is None else text(value)
