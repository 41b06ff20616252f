"""Names of the engine's counters that the costs of a call are made of."""

from __future__ import annotations

from typing import NamedTuple

from dbdyno.model.sources.wait_families import LOG_BYTES, READ_REQUESTS

SESSIONS, BACKGROUND = "sessions_", "background_"
"""Prefixes of the server's counters of work by who did it: sessions with their parallel workers, and the
server's own processes."""


class Counted(NamedTuple):
    """The engine's counters of a figure: of one session, of all sessions and of the server's own processes
    (each with its prefix), and of the whole server. An engine has some of them."""

    figure: str
    session: str
    server: str


COUNTED = (
    Counted("logical_reads", "lio", "logical_reads"),
    Counted("reads", READ_REQUESTS, "physical_reads"),
    Counted("read_bytes", "read_bytes", "physical_read_bytes"),
    Counted("writes", "writes", "block_writes"),
    Counted("written_bytes", "written_bytes", ""),
    Counted("wal_bytes", LOG_BYTES, LOG_BYTES),
    Counted("wal_records", "wal_records", "wal_records"),
    Counted("wal_full_page_images", "wal_full_page_images", "wal_full_page_images"),
    Counted("wal_writes", "wal_writes", "wal_writes"),
    Counted("wal_syncs", "wal_syncs", "wal_syncs"),
)

REPORTED_BY_SESSIONS = (
    *(f"{SESSIONS}{c.figure}" for c in COUNTED),
    *("physical_read_bytes", "wal_records", "wal_full_page_images", "wal_writes", "wal_syncs"),
)
"""Counters of the whole server that mostly grow by calls, and that sessions report late."""
