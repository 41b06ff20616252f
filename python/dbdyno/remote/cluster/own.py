"""``local:N``: a cluster of dbdyno's own on this machine, with a head and N-1 other nodes, as children of
the gateway."""

from __future__ import annotations

import os
from typing import Any

_ADDRESS = "127.0.0.1"
"""Address of all nodes: with another one Ray listens on all interfaces."""
_STORE_BYTES = 80 << 20
"""Object store of each node, through which the tables of a measurement pass."""


def own_cluster(nodes: int) -> Any:
    """Starts and returns a ``ray.cluster_utils.Cluster`` with nodes ``node1`` and so on.

    It ends with this process, however that ends. Its files are in the private folder that the environment
    names.
    """
    from ray.cluster_utils import Cluster  # the import reads the environment

    common = {
        "node_ip_address": _ADDRESS,
        "num_cpus": len(os.sched_getaffinity(0)),
        "object_store_memory": _STORE_BYTES,
        "include_dashboard": False,
        "include_log_monitor": False,
    }
    local = Cluster()
    local.add_node(node_name="node1", no_monitor=True, **common)
    for number in range(2, nodes + 1):
        local.add_node(wait=False, node_name=f"node{number}", **common)
    local.wait_for_nodes(timeout=120)
    return local
