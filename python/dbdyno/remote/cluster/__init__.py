"""Agents on the nodes of a Ray cluster, which actors start. Ray itself runs in a child process.

Only :mod:`gateway` and :mod:`own` import Ray, and :mod:`access` imports gRPC. Only that child process
imports these modules.
"""

from typing import TYPE_CHECKING

from dbdyno.lazy import lazy

if TYPE_CHECKING:
    from dbdyno.remote.cluster.address import check_address
    from dbdyno.remote.cluster.connect import Cluster, Node, SocketChannel

lazy(__name__)
