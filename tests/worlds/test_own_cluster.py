"""``--cluster local:N`` by a user without any rights."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.elsewhere import Elsewhere, as_user, test_user


def test_a_cluster_of_ones_own_needs_no_rights(theirs: Elsewhere) -> None:
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed: it has no wheel for this platform")
    before = {*Path("/tmp").glob("dyno-ray-*")}
    done = theirs.dbdyno("cluster", "status", "local:2", "--json", world=as_user(), timeout_s=300)
    assert done.returncode == 0, done.stderr + done.stdout
    nodes = json.loads(done.stdout)["nodes"]
    assert [(n["uid"], n["problem"], n["nice"]) for n in nodes] == [(test_user()[0], None, 0)] * 2
    assert {*Path("/tmp").glob("dyno-ray-*")} == before
