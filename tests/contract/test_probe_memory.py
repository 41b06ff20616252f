"""Sessions are not probed if that would exhaust the server's memory."""

from __future__ import annotations

import psycopg
import pytest

from dbdyno.engines.postgres import facts

pytestmark = pytest.mark.db


def test_few_sessions_are_probed_and_too_many_are_refused_with_the_cure(dsn18: str) -> None:
    with psycopg.connect(dsn18) as connection:
        slots = int(connection.execute("show max_connections").fetchone()[0])  # type: ignore[index]
        assert facts.probe_refusal(connection, 1, here=False) is None
        # 1.5 kB a slot at least, so 4 GiB are passed well before this many
        why = facts.probe_refusal(connection, (4 << 30) // (slots * 1024), here=False)
    assert why is not None
    assert "fewer sessions" in why
