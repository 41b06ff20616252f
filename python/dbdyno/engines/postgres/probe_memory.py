"""What the probe of a session costs in memory, and whether the machine can bear it for all sessions.

``pg_stat_get_backend_io`` copies the status of every backend slot into the asking backend
(``pgstat_read_current_status`` in backend_status.c), and its allocator keeps that memory. With many slots
and many sessions that is the product of both: 5,000 of 5,000 would be 36 GB.
"""

from __future__ import annotations

from dbdyno.engines.postgres import sql
from dbdyno.engines.postgres.connect import Connection
from dbdyno.engines.postgres.embedded.memory import memory_limit_bytes

SHARE = 0.25  # of the machine's memory, where the server is here
ELSEWHERE_BYTES = 4 << 30  # where its machine is unknown
_SLOT_BYTES = 512  # of a slot besides its query text; measured on 18: 1.4 kB with texts of 1 kB


def refusal(connection: Connection, sessions: int, *, here: bool) -> str | None:
    """Why the sessions are not probed: a sentence; None: they can be."""
    row = connection.execute(sql.text("probe_slots")).fetchone()
    slots, text_bytes = (int(v) for v in row or (0, 0))
    needed = sessions * slots * (text_bytes + _SLOT_BYTES)
    limit = int(SHARE * memory_limit_bytes()) if here else ELSEWHERE_BYTES
    if needed <= limit:
        return None
    return (
        f"asking each of {sessions} sessions on a server of {slots} slots would take "
        f"{needed / 2**30:.1f} GB of its memory (limit {limit / 2**30:.1f} GB): fewer sessions or a lower "
        "max_connections; counters of the whole database are read all the same"
    )
