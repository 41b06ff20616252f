"""Raw tables: what was measured, without interpretation. Their columns are in ``raw.toml``."""

from __future__ import annotations

from dbdyno.model.schema.column import Column
from dbdyno.model.schema.column import column as _c
from dbdyno.model.schema.data_sources import asked, counts, keyed
from dbdyno.model.schema.raw import TABLES, columns

OF_CLIENT = 1 << 32
"""Offset that is added to process and task ids of the client's host if the server runs on another host. The
server's ids are unchanged. A kernel assigns no id above 2^22 (PID_MAX_LIMIT)."""

OWN_CONNECTION = "dbdyno"
"""Kind of this process's own connections in the table ``backends``."""
CLIENT_BACKEND = "client backend"
"""Kind of sessions in the table ``backends``."""

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
"""Columns of all raw tables by name: those of ``raw.toml``, and those of data sources registered
elsewhere."""
