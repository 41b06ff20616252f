"""Settings of every engine: a check changes nothing, variants follow each other, and {} restores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import cast

import pytest
from tests.conftest import Servers
from tests.contract.plain_server import PlainServer, plain_server
from tests.fake_engine import FakeServer
from tests.fakery import Notes

from dbdyno.engines.postgres import PostgresServer
from dbdyno.model.engine.protocols import Server, Target, Undo
from dbdyno.model.errors import UsageError


@dataclass
class Case:
    """A server with two settings of its own, each with two values other than that in force."""

    server: Server
    one: tuple[str, str, str]
    other: tuple[str, str, str]
    refused: dict[str, str]
    unknown: str  # near the first


@pytest.fixture(scope="module")
def plain(servers: Servers) -> Iterator[PlainServer]:
    with plain_server(servers.bin_dir(18)) as plain:
        yield plain


@pytest.fixture(params=["fake", pytest.param("postgres", marks=pytest.mark.db)])
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    if request.param == "fake":
        server = cast(Server, FakeServer(Target()))
        yield Case(server, ("think", "2ms", "3ms"), ("cpu", "5ms", "6ms"), {"cpu": "much"}, "thinks")
        return
    plain: PlainServer = request.getfixturevalue("plain")
    with closing(PostgresServer(plain.dsn)) as postgres:
        yield Case(
            postgres,
            ("work_mem", "8MB", "9MB"),
            ("track_io_timing", "on", "true"),
            {"work_mem": "much"},
            "work_memory",
        )


def setting_values(case: Case) -> tuple[str | None, str | None]:
    settings = case.server.facts().settings
    return settings.get(case.one[0]), settings.get(case.other[0])


def test_a_check_changes_nothing(case: Case) -> None:
    before = setting_values(case)
    case.server.check_settings({case.one[0]: case.one[1], case.other[0]: case.other[1]})
    assert setting_values(case) == before


def test_the_empty_variant_restores_what_was_in_force(case: Case) -> None:
    notes, before = Notes(), _in_force(case)
    for settings in (
        {case.one[0]: case.one[1]},
        {case.one[0]: case.one[2], case.other[0]: case.other[1]},
        {case.other[0]: case.other[2]},
        {case.other[0]: case.other[2]},
    ):
        assert case.server.configure(settings, notes).in_force.keys() == settings.keys()
    case.server.configure({}, notes)
    assert notes.undos == {}
    assert _in_force(case) == before


def _in_force(case: Case) -> list[str]:
    """Returns both settings as a new session sees them."""
    case.server.reconnect()
    return [str(value) for value in setting_values(case)]


def test_unknown_and_refused_settings_are_usage_errors_with_the_cure(case: Case) -> None:
    with pytest.raises(UsageError, match=case.one[0]):
        case.server.check_settings({case.unknown: case.one[1]})
    with pytest.raises(UsageError) as caught:
        case.server.check_settings(case.refused)
    assert caught.value.cure
    before = setting_values(case)
    with pytest.raises(UsageError):
        case.server.configure(case.refused, Notes())
    assert setting_values(case) == before


def test_settings_of_another_server_are_not_put_back(case: Case) -> None:
    undo = Undo(kind="settings", key="x", what="x", data={"system": 1, "name": case.one[0], "entry": None})
    assert case.server.put_back(undo) is None
