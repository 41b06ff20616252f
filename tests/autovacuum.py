"""Settings without autovacuum, which commits, reads blocks and changes catalogs, for tests that count what
a server did."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.waiting import eventually

_AT_WORK = "select from pg_stat_activity where backend_type = 'autovacuum worker'"


@contextmanager
def without_autovacuum(dsn: str) -> Iterator[None]:
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute("alter system set autovacuum = off")
        admin.execute("select pg_reload_conf()")
        eventually(lambda: not admin.execute(_AT_WORK).fetchall())
    try:
        yield
    finally:
        with psycopg.connect(dsn, autocommit=True) as admin:
            admin.execute("alter system reset autovacuum")
            admin.execute("select pg_reload_conf()")
