"""The two snapshots of an interval by time: near the wanted times, and of one server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.unit.made_snapshots import info

from dbdyno.conduct.history.ends import ends
from dbdyno.model.engine.snapshot import SnapshotInfo
from dbdyno.model.errors import UsageError

NOW = datetime(2026, 11, 23, 18, 0, tzinfo=UTC)


def _taken(name: str, hours_ago: float, server: str = "7001") -> SnapshotInfo:
    taken = NOW - timedelta(hours=hours_ago)
    return info(id=f"20261123-{name}", name=name, taken=taken, server_time=taken, server=server)


def test_no_snapshot_near_the_wanted_time_is_an_error() -> None:
    infos = [_taken("a", 1), _taken("b", 0.8), _taken("c", 0.6)]
    with pytest.raises(UsageError, match="no snapshot near 20h ago; the nearest is 19 h later"):
        ends(infos, ("20h ago", "19h ago"), NOW)
    a, b = ends(infos, ("90min ago", "last"), NOW)
    assert (a.name, b.name) == ("a", "c")


def test_a_long_interval_and_rare_snapshots_allow_a_greater_distance() -> None:
    infos = [_taken("a", 40), _taken("b", 16), _taken("c", 0.5)]
    assert [i.name for i in ends(infos, ("32h ago", "18h ago"), NOW)] == ["a", "b"]
    assert [i.name for i in ends(infos, ("52h ago", "c"), NOW)] == ["a", "c"]


def test_a_time_means_a_snapshot_of_the_server_that_the_other_end_names() -> None:
    infos = [_taken("a", 2.5), _taken("other", 2, "7002"), _taken("b", 0.2)]
    assert [i.name for i in ends(infos, ("2h ago", "b"), NOW)] == ["a", "b"]
    assert [i.name for i in ends(infos, ("b", "2h ago"), NOW)] == ["b", "a"]
    assert [i.name for i in ends(infos, ("2h ago", "10min ago"), NOW)] == ["a", "b"]
