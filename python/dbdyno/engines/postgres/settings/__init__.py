"""Settings of a variant: checked, put in force, and put back.

In an embedded server dbdyno writes its settings file. In other servers it uses ALTER SYSTEM, with the former
entries in the journal, and a reload.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import psycopg

from dbdyno.engines.postgres import connect, sql
from dbdyno.engines.postgres.embedded import Instance
from dbdyno.engines.postgres.settings import values
from dbdyno.engines.postgres.settings.check import Asked, check, hidden_by, statement
from dbdyno.engines.postgres.settings.values import Guc
from dbdyno.engines.postgres.settings.values import Site as Site
from dbdyno.model.engine.protocols import Configured, Journal, Undo
from dbdyno.model.errors import DbdynoError, NotAvailable, TargetError, UsageError

_PATIENCE_S = 10.0
_DOUBT_S = 1.0  # after this time, look for errors in the files
_POLL_S = 0.01


def reload(site: Site) -> None:
    """Makes the server read its files again, and waits for it. Raises :class:`TargetError` if they have an
    error."""
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
    """Returns whether the files were read since then. Asks in a new session, which starts with the
    settings of the server's main process."""
    with connect.connect(site.dsn) as fresh:
        row_now = fresh.execute("select pg_catalog.pg_conf_load_time() >= %s", row).fetchone()
    return bool(row_now and row_now[0])


def current_settings(site: Site) -> dict[str, Guc]:
    """Returns the settings that a new session starts with."""
    with connect.connect(site.dsn) as fresh:
        return values.read(fresh)


def verify_in_force(site: Site, asked: Sequence[Asked]) -> Mapping[str, str]:
    """Returns the value in force of each setting, as the server shows it. Raises :class:`TargetError` if
    one is not in force."""
    now = current_settings(site)
    for a in asked:
        if not a.is_in_force(now):
            guc = now.get(a.name.lower())
            raise TargetError(
                f"setting {a.name} = {a.value} is not in force: {_explain_other_value(site, guc)}",
                "see the server's log",
            )
    return {a.name: now[a.name.lower()].in_words for a in asked}


def _explain_other_value(site: Site, guc: Guc | None) -> str:
    if guc is None:
        return "the server does not know it"
    if guc.pending_restart:
        return f"it is {guc.in_words} until a restart"
    why = hidden_by(site, guc) or f"by source {guc.source}"
    where = f", {guc.sourcefile} line {guc.sourceline}" if guc.sourcefile else ""
    return f"it is {guc.in_words} ({why}{where})"


class AlteredSystem:
    """Changes settings by ALTER SYSTEM (``postgresql.auto.conf``). Leaves those alone that are in force
    already."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._now: dict[str, str] = {}  # what this object has set
        self._before: dict[str, str | None] = {}  # their former entries
        self.names: frozenset[str] = frozenset()  # settings in force by configure(), in lower case

    def configure(self, settings: Mapping[str, str], journal: Journal) -> Configured:
        self.names = frozenset()
        if not settings and not self._before:
            return Configured({}, restarted=False)
        asked = check(self._site, settings)
        now = current_settings(self._site)
        wanted = {a.name: a.value for a in asked if a.name in self._now or not a.is_in_force(now)}
        back = [name for name in self._now if name not in wanted]
        changed = {name: value for name, value in wanted.items() if self._now.get(name) != value}
        try:
            self._note(list(changed), journal)
            self._alter(changed, back)
            values_in_force = verify_in_force(self._site, asked)
        except BaseException:
            self._give_up(journal)
            raise
        self._forget(back, journal)
        self.names = frozenset(a.name.lower() for a in asked)
        return Configured(values_in_force, restarted=False)

    def _note(self, names: list[str], journal: Journal) -> None:
        new = [name for name in names if name not in self._before]
        if new:
            entries = entries_of(self._site)
            for name in new:
                journal.note(_entry_undo(self._site, name, entries.get(name.lower())))
                self._before[name] = entries.get(name.lower())

    def _alter(self, changed: Mapping[str, str], back: list[str]) -> None:
        for name, value in changed.items():
            self._site.connection().execute(statement(name, value))
            self._now[name] = value
        for name in back:
            self._site.connection().execute(statement(name, self._before[name]))
        if changed or back:
            reload(self._site)

    def _give_up(self, journal: Journal) -> None:
        """Restores the former entries. If that fails, the journal still has them."""
        with suppress(psycopg.Error, DbdynoError):
            for name, entry in self._before.items():
                self._site.connection().execute(statement(name, entry))
            reload(self._site)
            self._forget(list(self._before), journal)

    def _forget(self, names: list[str], journal: Journal) -> None:
        for name in names:
            journal.forget(_entry_key(self._site, name))
            self._now.pop(name, None)
            del self._before[name]


def entries_of(site: Site) -> dict[str, str]:
    """Returns the entries of ``postgresql.auto.conf``, with names in lower case."""
    rows = site.connection().execute(sql.text("auto_entries").encode()).fetchall()
    return {name.lower(): value for name, value in rows}


def _entry_key(site: Site, name: str) -> str:
    return f"settings {site.identity.system} {site.directory()} {name}"


def _entry_undo(site: Site, name: str, entry: str | None) -> Undo:
    where = connect.where(site.connection())
    was = "no entry" if entry is None else f"{entry!r}"
    return Undo(
        kind="settings",
        key=_entry_key(site, name),
        what=f"setting {name} of the server at {where} (before: {was} in postgresql.auto.conf)",
        data={
            "system": site.identity.system,
            "directory": site.directory(),
            "where": where,
            "name": name,
            "entry": entry,
        },
    )


def _entry_back(site: Site, name: str, entry: str | None) -> str:
    """Restores an entry. Returns a description. May be repeated. Reloads in any case, since the run may
    have been killed between changing the file and the reload."""
    same = entries_of(site).get(name.lower()) == entry
    if not same:
        site.connection().execute(statement(name, entry))
    reload(site)
    if same:
        return f"setting {name}: is as it was in postgresql.auto.conf"
    if entry is None:
        return f"setting {name}: entry taken out of postgresql.auto.conf"
    return f"setting {name}: back to {entry!r} in postgresql.auto.conf"


class WrittenFile:
    """Changes settings in the file of an embedded server. If the server ends with its owner, no journal is
    needed, since the next start writes the file anew."""

    def __init__(self, site: Site, instance: Instance) -> None:
        self._site, self._instance = site, instance
        self._now: dict[str, str] = {}
        self._looked = False  # whether settings of a killed run were looked for
        self._before: dict[str, str | None] = {}  # former values of settings that need a restart

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name.lower() for name in self._now)

    def restart(self) -> None:
        """Restarts the server with the settings it has. Raises :class:`NotAvailable` if others are
        connected."""
        if others := self._site.strangers():
            raise NotAvailable(
                f"the server cannot be restarted, as others are connected: {'; '.join(others)}",
                "end these connections, or measure without restarts",
            )
        self._write(self._now, restart=True)

    def configure(self, settings: Mapping[str, str], journal: Journal) -> Configured:
        self._begin()
        if not settings and not self._now:
            return Configured({}, restarted=False)
        asked = check(self._site, settings)
        wanted = {a.name: a.value for a in asked}
        restart = self._needs_restart(asked)
        stays = self._instance.stays
        try:
            if stays and wanted:
                journal.note(_file_undo(self._site, self._instance))
            if wanted != self._now:
                self._write(wanted, restart=restart)
            values_in_force = verify_in_force(self._site, asked)
        except BaseException:
            self._give_up(restart=restart)
            raise
        if stays and not wanted:
            journal.forget(_file_key(self._instance))
        return Configured(values_in_force, restart)

    def _begin(self) -> None:
        """Removes settings of a killed run, which a server that was started to stay may still have."""
        if not self._looked and not self._instance.is_as_started():
            _file_back(self._site, self._instance)
        self._looked = True

    def _needs_restart(self, asked: list[Asked]) -> bool:
        """Returns whether a setting that needs a restart does not have the value asked for, or its former
        one."""
        now = current_settings(self._site)
        needed = False
        for a in asked:
            if a.guc is None or a.at_start:
                guc = now.get(a.name.lower())
                self._before.setdefault(a.name, None if guc is None else guc.reset_val)
                needed |= not a.is_in_force(now)
        for name in self._now.keys() - {a.name for a in asked}:
            if name in self._before:
                guc = now.get(name.lower())
                needed |= (None if guc is None else guc.reset_val) != self._before[name]
        return needed

    def _write(self, wanted: Mapping[str, str], *, restart: bool) -> None:
        self._now = dict(wanted)
        if restart:
            checkpoint(self._site)  # else the shutdown might exceed its time limit
        try:
            self._instance.reconfigure(wanted, restart=restart)
        except UsageError:  # it did not start with these settings, and runs without them
            self._site.reconnect()
            self._now = {}
            raise
        if restart:
            self._site.reconnect()
        else:
            reload(self._site)

    def _give_up(self, *, restart: bool) -> None:
        """Removes the settings, if that is possible. The next start does so in any case."""
        if self._now:
            with suppress(psycopg.Error, DbdynoError):
                self._write({}, restart=restart)


def checkpoint(site: Site) -> None:
    with site.connection().patient():
        site.connection().execute("checkpoint")


def _file_key(instance: Instance) -> str:
    return f"settings {instance.data}"


def _file_undo(site: Site, instance: Instance) -> Undo:
    return Undo(
        kind="settings",
        key=_file_key(instance),
        what=f"settings of the embedded server in {instance.data}",
        data={
            "system": site.identity.system,
            "embedded": str(instance.data),
            "where": connect.where(site.connection()),
        },
    )


def _file_back(site: Site, instance: Instance) -> str:
    """Restores the file of its start. Restarts the server for settings that need that, unless others are
    connected."""
    words = f"settings of the embedded server in {instance.data}"
    if not instance.stays:
        return f"{words}: it has ended since, and they are written anew at each start (dbdyno server start)"
    instance.reconfigure({}, restart=False)
    reload(site)
    late = [g.name for g in values.read(site.connection()).values() if g.pending_restart]
    if not late:
        return f"{words}: back to what it was started with"
    if others := site.strangers():
        return (
            f"{words}: back to what it was started with, but {', '.join(late)} only after a restart, "
            f"which must wait for {'; '.join(others)}: dbdyno server stop, then dbdyno server start"
        )
    checkpoint(site)
    instance.reconfigure({}, restart=True)
    site.reconnect()
    return f"{words}: back to what it was started with, by a restart"


class Keeper:
    """Implements check_settings, configure and put_back of :class:`dbdyno.model.engine.protocols.Server`.

    Call it on the thread that opened the server: a restarted embedded server lives as long as that thread.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._method = AlteredSystem(site) if site.instance is None else WrittenFile(site, site.instance)

    @property
    def names(self) -> frozenset[str]:
        """Names of the settings in force by :meth:`configure`, in lower case."""
        return self._method.names

    def check(self, settings: Mapping[str, str]) -> Sequence[str]:
        """Returns the names of those that need a restart."""
        asked = check(self._site, settings)
        return [a.name for a in asked if self._site.instance is not None and (a.at_start or a.guc is None)]

    def configure(self, settings: Mapping[str, str], journal: Journal) -> Configured:
        return self._method.configure(settings, journal)

    def restart(self) -> None:
        """Raises :class:`NotAvailable` if it is not the embedded server."""
        if not isinstance(self._method, WrittenFile):
            raise NotAvailable(
                "dbdyno restarts only servers that it started itself", "measure without restarts"
            )
        self._method.restart()

    def put_back(self, undo: Undo) -> str | None:
        """Restores a setting. Returns a description, None if it is not this server's. Raises
        :class:`psycopg.Error` and the product's errors."""
        site, data = self._site, undo.data
        if data.get("system") is None or data["system"] != site.identity.system:
            return None
        if (home := data.get("embedded")) is not None:
            ours = site.instance is not None and str(site.instance.data) == home
            return _file_back(site, site.instance) if ours and site.instance else None
        directory = site.directory()
        if None not in (directory, data.get("directory")) and directory != data["directory"]:
            return None  # a copy of that server
        return _entry_back(site, str(data["name"]), data.get("entry"))
