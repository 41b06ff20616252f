"""Nodes whose answers are attacks: none of them is executed here, and each becomes an error in words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dbdyno.remote.cluster import Cluster, Node, connect
from tests.ray_nodes import RayCluster
from tests.waiting import eventually

UNDERSTOOD_NOT = "the node's answer is not understood"


@pytest.fixture(scope="module", params=["address", "client"])
def hostile(request: pytest.FixtureRequest, ray_cluster: RayCluster) -> Iterator[Cluster]:
    """Yields a cluster with actors on two nodes, by the gateway of tests/cluster/hostile_gateway.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connect, "_GATEWAY", "tests.cluster.hostile_gateway")
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        cluster = Cluster(getattr(ray_cluster, request.param), f"hostile-{request.param}")
    cluster.nodes = [n for n in cluster.nodes if n.address in ray_cluster.nodes][:2]
    opened = cluster.open(cluster.nodes)
    assert all("ok" in answer for answer in opened.values()), opened
    yield cluster
    cluster.close()


@pytest.fixture
def traps(tmp_path: Path) -> Path:
    """Returns the folder in which traps leave their files. Every user may write there."""
    for place in (tmp_path, *tmp_path.parents[:2]):
        place.chmod(0o1777)
    return tmp_path


def answers(cluster: Cluster, kind: str, traps: Path) -> list[str]:
    by_node = cluster.ask(cluster.nodes, "owns", [kind, str(traps)])
    assert not any("ok" in answer for answer in by_node.values()), by_node
    return [answer["error"] for answer in by_node.values()]


def sprung(traps: Path) -> set[str]:
    return {path.name for path in traps.iterdir()}


@pytest.mark.parametrize("kind", ["trap", "carried", "error"])
def test_a_pickle_that_would_run_code_is_refused(hostile: Cluster, kind: str, traps: Path) -> None:
    assert len(answers(hostile, kind, traps)) == 2
    assert str(hostile.gateway_pid) not in sprung(traps)  # the server of ray:// may have read it


@pytest.mark.parametrize("kind", ["other", "text", "no JSON", "number", "both", "deep", "too long"])
def test_an_answer_of_another_form_is_an_error(hostile: Cluster, kind: str, traps: Path) -> None:
    assert answers(hostile, kind, traps) == [UNDERSTOOD_NOT] * 2


def test_words_are_one_line_of_bounded_length_that_steers_no_terminal(hostile: Cluster, traps: Path) -> None:
    for words in answers(hostile, "endless", traps):
        assert len(words) < 600
    for words in answers(hostile, "steering", traps):
        assert words.isprintable()
        assert "second line" in words


def test_a_pickle_in_place_of_an_agents_bytes_is_refused(
    hostile: Cluster, traps: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "program", lambda _arch: Path("/bin/cat"))
    node: Node = hostile.nodes[0]
    kind = "carried" if hostile.address.startswith("ray://") else "trap"
    hostile.ask([node], "owns", [f"read {kind}", str(traps)])
    channel = hostile.start({node.id: hostile.ask([node], "facts")[node.id]["ok"]})[node.id]
    channel._socket.settimeout(60)
    assert channel.receive() == b""
    assert eventually(lambda: hostile.why(node))
    assert str(hostile.gateway_pid) not in sprung(traps)
