"""A Ray cluster of a head and three nodes, of which all workers of a test run have the same one."""

from __future__ import annotations

import fcntl
import secrets
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests import clusters
from tests.ray_nodes import RayCluster, shared_cluster


@pytest.fixture(scope="session")
def ray_cluster() -> RayCluster:
    """Skips where Ray has no wheel."""
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed: it has no wheel for this platform")
    return shared_cluster(clusters.shared("ray"), clusters.controller())


@pytest.fixture(scope="module")
def one_at_a_time(ray_cluster: RayCluster) -> Iterator[None]:  # noqa: ARG001 - it makes the place
    """No other module with this has the cluster's nodes meanwhile."""
    with (clusters.shared("ray") / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def run_name() -> str:
    """What no other test's actors are named after."""
    return f"test-{secrets.token_hex(4)}"
