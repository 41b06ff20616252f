"""Raw tables: what was measured, without interpretation. Their columns are in ``raw.toml``."""

from __future__ import annotations

from dbdyno.model.schema.column import Column
from dbdyno.model.schema.column import column as _c
from dbdyno.model.schema.data_sources import asked, counts, keyed
from dbdyno.model.schema.raw import TABLES, columns

OF_CLIENT = 1 << 32
"""Is added to the process and task ids of the client's host, where the server is on another: its ids are
plain, and a kernel gives none beyond 2^22 (PID_MAX_LIMIT)."""

OWN_CONNECTION = "dbdyno"
"""Kind, in table ``backends``, of the connections of this very process."""
CLIENT_BACKEND = "client backend"
"""Kind of a session in the table ``backends``."""

_READ = columns("traced", "before_ns", "after_ns")
_TASK = columns("traced", "pid", "tid", "start_ticks", "role", "session")
_STATUS = _c("status", "str", "of this read")
_PHASE = _c("phase", "str", "t0 | t1")

RAW: dict[str, tuple[Column, ...]] = {
    **TABLES,
    **{a.table: a.columns for a in asked()},
    **{c.table: (*_READ, *_TASK, *c.labels, *c.figures, _STATUS) for c in counts()},
    **{k.table: (*_READ, _PHASE, *k.key, *k.figures, _STATUS) for k in keyed()},
}
"""All of them by name: those of ``raw.toml``, and of data sources that are registered elsewhere."""
