"""Extensions of contrib, which not every build of PostgreSQL has."""

from __future__ import annotations

import psycopg
import pytest


def skip_without(extension: str, dsn: str) -> None:
    """Skips the test where the server of ``dsn`` does not have the extension's files."""
    with psycopg.connect(dsn) as connection:
        known = connection.execute(
            "select from pg_available_extensions where name = %s", [extension]
        ).rowcount
    if not known:
        pytest.skip(f"no {extension} beside this PostgreSQL: name a complete build in DBDYNO_TEST_PG_BINS")
