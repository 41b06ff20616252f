"""Bytes that calls send and receive, against a proxy that counts them on the line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.conftest import Servers
from tests.contract.driving import run, statement
from tests.contract.plain_server import PlainServer, plain_server
from tests.contract.proxy import proxy
from tests.waiting import eventually

pytestmark = pytest.mark.db

CALLS = (20, 50)
LONG = "select repeat('y', 100000)"
"""Its answer comes in several reads."""


@pytest.fixture(scope="module")
def server(servers: Servers) -> Iterator[PlainServer]:
    with plain_server(servers.bin_dir(18), hba=["host all boss 127.0.0.1/32 trust"]) as server:
        yield server


@pytest.mark.parametrize(
    ("statements", "group"),
    [
        (["select 1"], {}),
        (["select 1"], {"warm_calls": 3}),
        (["select 1", "select 2", LONG], {"protocol": "simple"}),
        (["select 1", LONG, f"select '{'x' * 200_000}' = 'x'"], {"protocol": "extended"}),
    ],
)
def test_the_bytes_of_calls_are_those_on_the_line(
    server: PlainServer, statements: list[str], group: Mapping[str, Any]
) -> None:
    """Connecting, preparing and leaving take the same bytes whatever the number of calls, so the rest of
    two loads is that of their calls."""
    passed, counted = [], []
    for calls in CALLS:
        with proxy(server.port) as line:
            target = server.target(host="127.0.0.1", port=line.port)
            sessions = run(target, [*map(statement, statements)], 1, group=group, max_calls=calls)["sessions"]
            counted.append(sessions.select("sent_bytes", "received_bytes").row(0))
            eventually(lambda line=line: line.ended == 1)
            passed.append((line.sent, line.received))
        assert sessions["calls_total"].to_list() == [calls]
    more = CALLS[1] - CALLS[0]
    on_line = [last - first for first, last in zip(*passed, strict=True)]
    by_driver = [last - first for first, last in zip(*counted, strict=True)]
    assert by_driver == on_line
    assert [n // more * CALLS[0] for n in by_driver] == [*counted[0]]  # nothing but calls is in them
