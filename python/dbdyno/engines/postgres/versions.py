"""What dbdyno knows by major version of PostgreSQL. How to add one: docs/adding/version.md.

The version of a server is what it reports at login (``server_version``): libpq decides by it, a pooler passes
it on, and no role can hide it. Nothing asks ``server_version_num`` beside it.

SQL that differs by version is data where it is used: ``since`` and ``until`` in ``counters*.toml``,
expressions by version in ``snapshots/sources.toml``, ``NAMES`` in ``statements.py``, and files
``sql/NAME_VERSION.sql``. The names of wait events are in ``wait_events/VERSION.toml``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg

OLDEST = 14
NEWEST = 18
"""Newest version that the tests run on a server of."""
PREPARED = (19,)
"""Later versions known from their published sources alone: their names are here, their memory is not read."""

# -- first versions that have something ---------------------------------------------------------------

REPORTS_ON_REQUEST = 15
"""Sessions can be made to report their counters. Before, figures may be half a second old."""
CONSISTENT_VIEWS = 15
"""All statistics of a transaction can be of one moment (stats_fetch_consistency)."""
PRIVILEGES_ON_PARAMETERS = 15
"""GRANT SET and ALTER SYSTEM ON PARAMETER."""
CHECKPOINT_ROLE = 15
CHECKPOINTER_VIEW = 17
IO_VIEW = 16
LOGIN_TRIGGERS = 17
EVICTS_PAGES = 17
COUNTS_BY_CONNECTION = 18
"""pg_stat_get_backend_io counts by backend."""
PARENTS_LOGGED = 18
"""A partitioned table cannot be unlogged."""
MAINTAINS_CHILDREN = 18
"""VACUUM and ANALYZE recurse to inheritance children unless ONLY is given."""
LOCK_VIEW = 19
"""pg_stat_lock counts waits for locks."""

# -- names that have changed --------------------------------------------------------------------------

RENAMED_EVENTS: Mapping[str, str] = {
    "IO/RelationMapReplace": "IO/RelationMapSync",
    "IPC/HashGrowBatchesReallocate": "IPC/HashGrowBatchesAllocate",
    "IPC/HashGrowBucketsReallocate": "IPC/HashGrowBucketsAllocate",
    "Buffer/BufferCleanup": "BufferPin/BufferPin",
    "Buffer/BufferShared": "LWLock/BufferContent",
    "Buffer/BufferShareExclusive": "LWLock/BufferContent",
    "Buffer/BufferExclusive": "LWLock/BufferContent",
}
"""Wait events of 16 and 19 -> the ones that earlier versions show for the same waits. One that is split
stands in several lines. Names that differ in case alone (17: ``WalSync`` for ``WALSync``) are not listed."""

# -- layouts in memory --------------------------------------------------------------------------------

QUERY_ID_OFFSETS: Mapping[int, int] = {14: 424, 15: 424, 16: 424, 17: 424, 18: 424}
"""Offset in bytes of ``st_query_id`` in the status of a backend; a version is added once it was verified."""


def major(connection: psycopg.Connection[Any]) -> int:
    """Returns the major version that the server reports."""
    return connection.info.server_version // 10_000


def doubt(major: int) -> str | None:
    """Returns what is not done for a version that no test has run on; None for the others.

    >>> doubt(18)
    >>> doubt(20)[:53]
    'PostgreSQL 20 is newer than this version of dbdyno kn'
    """
    if major <= NEWEST:
        return None
    off = (
        "wait events and statements are sampled by SQL, under the server's own names, and not read from its "
        "memory"
    )
    if major in PREPARED:
        return f"not verified for PostgreSQL {major}, known from its published sources alone: {off}"
    known = f"{OLDEST} to {NEWEST}, and {', '.join(map(str, PREPARED))} from published sources"
    return f"PostgreSQL {major} is newer than this version of dbdyno knows ({known}): {off}"
