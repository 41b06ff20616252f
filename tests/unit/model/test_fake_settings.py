"""Settings of the fake engine: the keys of its DSN, over the law it was opened with."""

from __future__ import annotations

import pytest
from tests.fake_engine import FakeServer
from tests.fakery import S, climb_one, plan_cell

from dbdyno.model.engine.protocols import Pool, Target, Undo
from dbdyno.model.errors import UsageError


class Notes:
    """A journal that must stay empty."""

    def note(self, undo: Undo) -> None:
        raise AssertionError(undo)

    def forget(self, key: str) -> None:
        raise AssertionError(key)


def rate(server: FakeServer, number: int, sessions: int = 2) -> float:
    """Calls a second of a cell of 10 s."""
    cell = climb_one(server, plan_cell(sessions, number=number))
    return float(cell.tables["sessions"]["calls"].sum()) / 10


def test_a_setting_changes_the_law_of_later_loads_by_a_known_ratio() -> None:
    server = FakeServer(Target(dsn="fake:cpus=4,cpu=10ms"))
    assert rate(server, 1) == pytest.approx(200, abs=1)
    done = server.configure({"cpu": "12500us"}, Notes())
    assert (dict(done.in_force), done.restarted) == ({"cpu": "12500us"}, False)
    assert rate(server, 2) == pytest.approx(160, abs=1)
    assert server.facts().settings["cpu"] == "12500000"
    server.configure({}, Notes())
    assert rate(server, 3) == pytest.approx(200, abs=1)


def test_settings_of_an_earlier_cell_do_not_stay() -> None:
    server = FakeServer(Target(dsn="fake:cpu=10ms"))
    server.configure({"cpu": "5ms", "think": "3ms"}, Notes())
    server.configure({"think": "4ms"}, Notes())
    assert (server.law.cpu, server.law.think) == (10_000_000, 4_000_000)


def test_a_restart_only_where_something_needs_one_and_only_when_it_changes() -> None:
    server = FakeServer(Target(dsn="fake:cpus=4,cpu=10ms"))
    assert list(server.check_settings({"cpus": "2", "cpu": "5ms"})) == ["cpus"]
    assert list(server.check_settings({"cpu": "5ms"})) == []
    assert server.law.cpus == 4  # a check changes nothing
    before = server.clock().now_ns()
    assert server.configure({"cpus": "2"}, Notes()).restarted
    assert server.clock().now_ns() == before + S
    assert not server.configure({"cpus": "2", "cpu": "5ms"}, Notes()).restarted
    assert rate(server, 1, sessions=4) == pytest.approx(400, abs=2)  # two CPUs, 5 ms a call
    assert server.configure({}, Notes()).restarted
    assert rate(server, 2, sessions=4) == pytest.approx(400, abs=2)  # four CPUs, 10 ms a call


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cpuss": "2"}, "did you mean 'cpus'"),
        ({"cpus": "none"}, "cpus=none cannot be read"),
        ({"cpu": "1ms,cpus=1"}, "comma"),
        ({"call": "cpu:1ms"}, "leave out cpu="),
    ],
)
def test_an_impossible_setting_is_refused_before_anything_changes(
    settings: dict[str, str], words: str
) -> None:
    server = FakeServer(Target(dsn="fake:cpu=10ms"))
    with pytest.raises(UsageError) as caught:
        server.check_settings(settings)
    assert words in str(caught.value)
    with pytest.raises(UsageError):
        server.configure(settings, Notes())
    assert server.law.cpu == 10_000_000


def test_pools_are_refused_with_the_reason_and_nothing_is_left_to_put_back() -> None:
    server = FakeServer(Target())
    with pytest.raises(UsageError, match="no pooler of 6 connections"):
        server.check_pool(Pool(6, "transaction", 12))
    server.use_pool(None, Notes())
    assert server.put_back(Undo(kind="settings", key="x", what="x")) is None
