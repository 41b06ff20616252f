"""``local:N``: a cluster of dbdyno's own on this machine, a head and N-1 more nodes below the gateway."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

_FIRST = 2
"""Ray takes 127.0.0.1 for this machine's address on its network."""
_STORE_BYTES = 80 << 20
"""Of each node: tables of a measurement pass through it."""
_QUIET = {"RAY_enable_worker_prestart": "0", "RAY_enable_metrics_collection": "0"}
"""Processes and traffic that nothing here is in need of."""
_NICENESS = {"RAY_worker_niceness": "0"}
"""Not 15, which a user without rights could not take back."""


def own_cluster(nodes: int, place: str) -> Any:
    """A ``ray.cluster_utils.Cluster``; each node has an address of its own on loopback. It ends with this
    process, however that ends. ``place``: a directory with a short path (paths of sockets are limited)."""
    os.environ.update(_QUIET | _NICENESS, RAY_TMPDIR=place)  # where `auto` of other programs does not look
    Path(place, "ray").mkdir(exist_ok=True)
    from ray.cluster_utils import Cluster  # reads the environment

    common = {
        "num_cpus": len(os.sched_getaffinity(0)),
        "object_store_memory": _STORE_BYTES,
        "include_dashboard": False,
        "include_log_monitor": False,
    }
    made = Cluster()
    made.add_node(node_ip_address=f"127.0.0.{_FIRST}", temp_dir=place, no_monitor=True, **common)
    for number in range(1, nodes):
        made.add_node(wait=False, node_ip_address=f"127.0.0.{_FIRST + number}", **common)
    made.wait_for_nodes(timeout=120)
    return made
