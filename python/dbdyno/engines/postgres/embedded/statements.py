"""The extension that reads what the embedded server counts of each statement."""

from __future__ import annotations

from contextlib import suppress


def make_extension(address: str) -> None:
    """Where it is refused (a setting that was asked for may be the reason), the server does without, and the
    run's sources say so."""
    import psycopg  # here: to look at a server needs none of these

    from dbdyno.engines.postgres import sql
    from dbdyno.engines.postgres.connect import connect
    from dbdyno.model.errors import DbdynoError

    with suppress(DbdynoError, psycopg.Error):
        connection = connect(address)
        try:
            connection.execute(sql.text("make_statements").encode())
        finally:
            connection.close()
