"""Who keeps the settings of an open server: its own file where it is ours, else ALTER SYSTEM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import psycopg

from dbdyno.engines.postgres import connect
from dbdyno.engines.postgres.embedded import Instance
from dbdyno.engines.postgres.settings import altered, values
from dbdyno.engines.postgres.settings.altered import Altered, in_force, reload, verified
from dbdyno.engines.postgres.settings.check import Asked, check
from dbdyno.engines.postgres.settings.values import Site
from dbdyno.model.errors import DbdynoError, UsageError
from dbdyno.model.protocols import Configured
from dbdyno.model.undo import Journal, Undo


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
                journal.note(undo(self._site, self._instance))
            if wanted != self._now:
                self._write(wanted, restart=restart)
            found = verified(self._site, asked)
        except BaseException:
            self._give_up(restart=restart)
            raise
        if stays and not wanted:
            journal.forget(key(self._instance))
        return Configured(found, restart)

    def _begin(self) -> None:
        """A server that stays may still have the settings of a run that was killed."""
        if not self._looked and not self._instance.is_as_started():
            put_back(self._site, self._instance)
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


def key(instance: Instance) -> str:
    return f"settings {instance.data}"


def undo(site: Site, instance: Instance) -> Undo:
    return Undo(
        kind="settings",
        key=key(instance),
        what=f"settings of the embedded server in {instance.data}",
        data={
            "system": site.identity.system,
            "embedded": str(instance.data),
            "where": connect.where(site.connection()),
        },
    )


def put_back(site: Site, instance: Instance) -> str:
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
    """See :class:`dbdyno.model.protocols.Server`: check_settings, configure, put_back.

    Call it on the thread that opened the server: an embedded one that is restarted lives as long as that.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._way = Altered(site) if site.instance is None else Written(site, site.instance)

    @property
    def names(self) -> frozenset[str]:
        """Of the settings in force by :meth:`configure`, in lower case."""
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
            return put_back(site, site.instance) if ours and site.instance else None
        here = site.directory()
        if None not in (here, data.get("directory")) and here != data["directory"]:
            return None  # a copy of that server
        return altered.put_back(site, str(data["name"]), data.get("entry"))
