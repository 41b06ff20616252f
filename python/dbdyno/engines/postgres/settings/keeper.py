"""Who keeps the settings of an open server: its own file where it is ours, else ALTER SYSTEM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dbdyno.engines.postgres.settings import altered, written
from dbdyno.engines.postgres.settings.altered import Altered
from dbdyno.engines.postgres.settings.check import check
from dbdyno.engines.postgres.settings.site import Site
from dbdyno.engines.postgres.settings.written import Written
from dbdyno.model.protocols import Configured
from dbdyno.model.undo import Journal, Undo


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
            return written.put_back(site, site.instance) if ours and site.instance else None
        here = site.directory()
        if None not in (here, data.get("directory")) and here != data["directory"]:
            return None  # a copy of that server
        return altered.put_back(site, str(data["name"]), data.get("entry"))
