"""The server whose settings are kept, as far as these modules need to know it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dbdyno.engines.postgres import sql
from dbdyno.engines.postgres.connect import Connection
from dbdyno.engines.postgres.embedded import Instance
from dbdyno.engines.postgres.identity import Identity


@dataclass(frozen=True)
class Site:
    """``connection``: the control connection of the moment; ``reconnect``: makes a new one."""

    dsn: str
    instance: Instance | None  # the embedded server
    identity: Identity
    connection: Callable[[], Connection]
    reconnect: Callable[[], None]

    def directory(self) -> str | None:
        """Where the server's data lies; None: this role may not know. Copies of a cluster have its number."""
        row = self.connection().execute(
            "select setting from pg_catalog.pg_settings where name = 'data_directory'"
        )
        found = row.fetchone()
        return None if found is None else str(found[0])

    def role(self) -> str:
        """Quoted as SQL needs it."""
        row = self.connection().execute("select pg_catalog.quote_ident(current_user)").fetchone()
        return str((row or ("?",))[0])

    def strangers(self) -> list[str]:
        """Who else is connected, in words."""
        rows = self.connection().execute(sql.text("strangers").encode()).fetchall()
        return [f"{application} (process {pid}, user {user})" for pid, application, user in rows]
