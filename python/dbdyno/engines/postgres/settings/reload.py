"""A reload that has happened when it returns, and what is in force after it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from dbdyno.engines.postgres import connect, sql
from dbdyno.engines.postgres.settings import values
from dbdyno.engines.postgres.settings.check import Asked, hidden_by
from dbdyno.engines.postgres.settings.site import Site
from dbdyno.engines.postgres.settings.values import Guc
from dbdyno.model.errors import TargetError

_PATIENCE_S = 10.0
_DOUBT_S = 1.0  # then the files are asked whether they can be read at all
_POLL_S = 0.01


def reload(site: Site) -> None:
    """The server has read its files again. Raises :class:`TargetError` where they hold an error."""
    row = site.connection().execute("select pg_catalog.clock_timestamp()").fetchone()
    site.connection().execute("select pg_catalog.pg_reload_conf()")
    begin = time.monotonic()
    while not _loaded_since(site, row):
        waited_s = time.monotonic() - begin
        errors = _file_errors(site) if waited_s > _DOUBT_S else []
        if errors or waited_s > _PATIENCE_S:
            raise TargetError(
                f"the server does not read its settings again: {'; '.join(errors) or 'it gives no reason'}",
                "fix its configuration files, or see its log",
            )
        time.sleep(_POLL_S)


def _file_errors(site: Site) -> list[str]:
    return [str(r[0]) for r in site.connection().execute(sql.text("file_errors").encode()).fetchall()]


def _loaded_since(site: Site, row: tuple[Any, ...] | None) -> bool:
    """Asked in a new session, which begins with what the server's main process has read."""
    with connect.connect(site.dsn) as fresh:
        found = fresh.execute("select pg_catalog.pg_conf_load_time() >= %s", row).fetchone()
    return bool(found and found[0])


def in_force(site: Site) -> dict[str, Guc]:
    """What a new session begins with."""
    with connect.connect(site.dsn) as fresh:
        return values.read(fresh)


def verified(site: Site, asked: Sequence[Asked]) -> Mapping[str, str]:
    """Of each what is in force, as the server shows it. Raises :class:`TargetError` where it is another."""
    now = in_force(site)
    for a in asked:
        if not a.is_in_force(now):
            found = now.get(a.name.lower())
            raise TargetError(
                f"setting {a.name} = {a.value} is not in force: {_instead(site, found)}",
                "see the server's log",
            )
    return {a.name: now[a.name.lower()].in_words for a in asked}


def _instead(site: Site, found: Guc | None) -> str:
    if found is None:
        return "the server does not know it"
    if found.pending_restart:
        return f"it is {found.in_words} until a restart"
    why = hidden_by(site, found) or f"by source {found.source}"
    where = f", {found.sourcefile} line {found.sourceline}" if found.sourcefile else ""
    return f"it is {found.in_words} ({why}{where})"
