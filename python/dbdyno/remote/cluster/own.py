"""``local:N``: a cluster of dbdyno's own on this machine, a head and N-1 more nodes below the gateway."""

from __future__ import annotations

import os
from typing import Any

_ADDRESS = "127.0.0.1"
"""Of all nodes: with any other one Ray listens on all interfaces."""
_STORE_BYTES = 80 << 20
"""Of each node: tables of a measurement pass through it."""


def own_cluster(nodes: int) -> Any:
    """Returns a ``ray.cluster_utils.Cluster``; its nodes are named ``node1`` and so on. It ends with this
    process, however that ends. Its files lie in the private folder that the environment names."""
    from ray.cluster_utils import Cluster  # reads the environment

    common = {
        "node_ip_address": _ADDRESS,
        "num_cpus": len(os.sched_getaffinity(0)),
        "object_store_memory": _STORE_BYTES,
        "include_dashboard": False,
        "include_log_monitor": False,
    }
    made = Cluster()
    made.add_node(node_name="node1", no_monitor=True, **common)
    for number in range(2, nodes + 1):
        made.add_node(wait=False, node_name=f"node{number}", **common)
    made.wait_for_nodes(timeout=120)
    return made
