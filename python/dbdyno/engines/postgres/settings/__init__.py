"""Settings of a server as a variant asks for them: checked, put in force, put back.

Who keeps the settings of an open server: its own file where it is ours, else ALTER SYSTEM, with the
entries before in the journal, and the reload."""

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
from dbdyno.model.errors import DbdynoError, TargetError, UsageError

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
    """What is in force for each, as the server shows it. Raises :class:`TargetError` where it is another."""
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


class Altered:
    """Through ``postgresql.auto.conf``. What is in force already is left alone."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._now: dict[str, str] = {}  # what this object has set
        self._before: dict[str, str | None] = {}  # the entry of each of these before
        self.names: frozenset[str] = frozenset()  # that were asked for, in lower case

    def configure(self, settings: Mapping[str, str], journal: Journal) -> Configured:
        self.names = frozenset()
        if not settings and not self._before:
            return Configured({}, restarted=False)
        asked = check(self._site, settings)
        now = in_force(self._site)
        wanted = {a.name: a.value for a in asked if a.name in self._now or not a.is_in_force(now)}
        back = [name for name in self._now if name not in wanted]
        changed = {name: value for name, value in wanted.items() if self._now.get(name) != value}
        try:
            self._note(list(changed), journal)
            self._alter(changed, back)
            found = verified(self._site, asked)
        except BaseException:
            self._give_up(journal)
            raise
        self._forget(back, journal)
        self.names = frozenset(a.name.lower() for a in asked)
        return Configured(found, restarted=False)

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
        """As it was found, if that can be done; else the journal still says what to put back."""
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
    """What ``postgresql.auto.conf`` says: names in lower case."""
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
    """As it was before, in words. Idempotent. It is reloaded in any case: the run may have been killed
    between the change of the file and that."""
    same = entries_of(site).get(name.lower()) == entry
    if not same:
        site.connection().execute(statement(name, entry))
    reload(site)
    if same:
        return f"setting {name}: is as it was in postgresql.auto.conf"
    if entry is None:
        return f"setting {name}: entry taken out of postgresql.auto.conf"
    return f"setting {name}: back to {entry!r} in postgresql.auto.conf"


class Written:
    """A server that ends with its owner needs no journal: the next start writes the file anew."""

    def __init__(self, site: Site, instance: Instance) -> None:
        self._site, self._instance = site, instance
        self._now: dict[str, str] = {}
        self._looked = False  # at what a run before us may have left
        self._before: dict[str, str | None] = {}  # of those read at start only: what they were without us

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name.lower() for name in self._now)

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
            found = verified(self._site, asked)
        except BaseException:
            self._give_up(restart=restart)
            raise
        if stays and not wanted:
            journal.forget(_file_key(self._instance))
        return Configured(found, restart)

    def _begin(self) -> None:
        """A server that stays may still have the settings of a run that was killed."""
        if not self._looked and not self._instance.is_as_started():
            _file_back(self._site, self._instance)
        self._looked = True

    def _needs_restart(self, asked: list[Asked]) -> bool:
        """Whether one that is read at start is not what it shall be: as asked, or as it was."""
        now = in_force(self._site)
        needed = False
        for a in asked:
            if a.guc is None or a.at_start:
                found = now.get(a.name.lower())
                self._before.setdefault(a.name, None if found is None else found.reset_val)
                needed |= not a.is_in_force(now)
        for name in self._now.keys() - {a.name for a in asked}:
            if name in self._before:
                found = now.get(name.lower())
                needed |= (None if found is None else found.reset_val) != self._before[name]
        return needed

    def _write(self, wanted: Mapping[str, str], *, restart: bool) -> None:
        self._now = dict(wanted)
        if restart:
            checkpoint(self._site)  # else the shutdown might take longer than it may
        try:
            self._instance.reconfigure(wanted, restart=restart)
        except UsageError:  # it did not start; without them it did
            self._site.reconnect()
            self._now = {}
            raise
        if restart:
            self._site.reconnect()
        else:
            reload(self._site)

    def _give_up(self, *, restart: bool) -> None:
        """As it was found, if that can be done; its next start does it in any case."""
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
    """The file as at its start; what is read at start alone is put back by a restart, if nobody is there."""
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
    """See :class:`dbdyno.model.engine.protocols.Server`: check_settings, configure, put_back.

    Call it on the thread that opened the server: an embedded one that is restarted lives as long as that.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._way = Altered(site) if site.instance is None else Written(site, site.instance)

    @property
    def names(self) -> frozenset[str]:
        """Names of the settings in force by :meth:`configure`, in lower case."""
        return self._way.names

    def check(self, settings: Mapping[str, str]) -> Sequence[str]:
        """Names of those that need a restart."""
        found = check(self._site, settings)
        return [a.name for a in found if self._site.instance is not None and (a.at_start or a.guc is None)]

    def configure(self, settings: Mapping[str, str], journal: Journal) -> Configured:
        return self._way.configure(settings, journal)

    def put_back(self, undo: Undo) -> str | None:
        """None: not this server's. Raises :class:`psycopg.Error` and the product's errors."""
        site, data = self._site, undo.data
        if data.get("system") is None or data["system"] != site.identity.system:
            return None
        if (home := data.get("embedded")) is not None:
            ours = site.instance is not None and str(site.instance.data) == home
            return _file_back(site, site.instance) if ours and site.instance else None
        here = site.directory()
        if None not in (here, data.get("directory")) and here != data["directory"]:
            return None  # a copy of that server
        return _entry_back(site, str(data["name"]), data.get("entry"))
