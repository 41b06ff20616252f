"""A Ray cluster of a head and three nodes, of which all workers of a test run have the same one."""

from __future__ import annotations

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
