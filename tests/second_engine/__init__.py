"""A second engine, as small as one can be: what the seam must let through that neither PostgreSQL nor the
simulated server needs. Nothing outside this folder knows it.

Its server is one process of many threads, one a session. Each session also runs short processes one after
the other. Time is virtual and every figure is known: see :class:`Law`.
"""

from tests.second_engine.server import PRODUCT, SecondServer, helpers, open_server, wait_families, workloads
from tests.second_engine.world import Law

__all__ = ["PRODUCT", "Law", "SecondServer", "helpers", "open_server", "wait_families", "workloads"]
