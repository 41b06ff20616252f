"""The fake engine: a virtual clock and a known law, so that the whole pipeline yields known figures."""

from dbdyno.model.engine.protocols import Server, Target
from dbdyno.model.plan.suite import Benchmark, Suite
from tests.fake_engine.dsn import parse_law
from tests.fake_engine.law import Helper, Law, Wait
from tests.fake_engine.server import FakeServer, helpers, wait_families
from tests.fake_engine.truth import Truth


def open_server(target: Target) -> Server:
    """Opens a server with the law of ``target.dsn`` (``fake:cpus=4,cpu=10ms,...``), None for the law's
    defaults."""
    return FakeServer(target)


def scripts() -> dict[str, str]:
    """Returns the built-in scripts."""
    return {"tpcb-like": "begin; end;", "simple-update": "update t set n = 1;", "select-only": "select 1;"}


def suites() -> dict[str, Suite]:
    """Returns a suite of two benchmarks."""
    loop = Benchmark("loop", "a loop", "cpu", {}, "1", {})
    reads = Benchmark("reads", "blocks of a table", "lio", {"tables": "shared"}, "2", {})
    return {"tiny": Suite("tiny", "Two operations.", (loop, reads))}


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
    "scripts",
    "suites",
    "wait_families",
]
