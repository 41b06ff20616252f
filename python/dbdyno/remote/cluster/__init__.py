"""Agents on the nodes of a Ray cluster: actors that start them, and a child process in which Ray lives.

Only :mod:`gateway` and :mod:`own` import Ray, :mod:`access` gRPC; only that child process imports them.
"""

from typing import TYPE_CHECKING

from dbdyno.lazy import lazy

if TYPE_CHECKING:
    from dbdyno.remote.cluster.address import check_address
    from dbdyno.remote.cluster.connect import Cluster, Node, SocketChannel

lazy(
    __name__,
    {
        "Cluster": "dbdyno.remote.cluster.connect",
        "Node": "dbdyno.remote.cluster.connect",
        "SocketChannel": "dbdyno.remote.cluster.connect",
        "check_address": "dbdyno.remote.cluster.address",
    },
)
