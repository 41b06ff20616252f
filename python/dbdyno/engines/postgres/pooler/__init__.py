"""A connection pooler as a limit: PgBouncer in front of the server, one for each cell, of our own."""

from __future__ import annotations

from dbdyno.engines.postgres.pooler.front import Fronting, put_back

__all__ = ["Fronting", "put_back"]
