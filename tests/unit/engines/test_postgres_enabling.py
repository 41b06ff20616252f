"""The right and the steps that switch on a data source of PostgreSQL, by how far the server is set up."""

from __future__ import annotations

import pytest

from dbdyno.engines.postgres.enabling import Preloaded, Visibility, statements

LACKING = Visibility(
    role="app",
    superuser=False,
    all_sessions=True,
    states=True,
    query_ids=True,
    io_timing=True,
    has_statements=True,
    statements_loaded=False,
    statements_version=None,
    statements_permitted=True,
)


@pytest.mark.parametrize(
    ("seen", "restart"),
    [
        (LACKING, True),
        (LACKING._replace(statements_loaded=True), False),
        (LACKING._replace(statements_loaded=True, statements_version="1.8"), False),
    ],
)
def test_only_a_library_that_is_not_loaded_needs_a_restart(seen: Visibility, restart: bool) -> None:
    source = statements(seen, "shop", Preloaded("", "default", False), embedded=False)
    assert source.enabling is not None
    assert ("restart" in source.enabling.right) == restart
    assert any("restart" in step.command for step in source.enabling.steps) == restart
