"""The fake engine: a virtual clock and a known law, so the whole pipeline must come out at known figures."""

from dbdyno.engines.fake.dsn import parse_law
from dbdyno.engines.fake.law import Helper, Law, Wait
from dbdyno.engines.fake.server import FakeServer, helpers, wait_families
from dbdyno.engines.fake.truth import Truth
from dbdyno.model.protocols import Server, Target


def open_server(target: Target) -> Server:
    """A server after the law in ``target.dsn`` (``fake:cpus=4,cpu=10ms,...``; None: the law's defaults)."""
    return FakeServer(target)


PRODUCT = "simulated server"

__all__ = [
    "PRODUCT",
    "FakeServer",
    "Helper",
    "Law",
    "Truth",
    "Wait",
    "helpers",
    "open_server",
    "parse_law",
    "wait_families",
]
