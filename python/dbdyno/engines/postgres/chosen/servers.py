"""The servers of a run's variants as one server: all that is asked of it goes to the one in use.

Of the servers that dbdyno starts, one runs at a time. Each directory of programs has a data directory of its
own, so servers of one version do not share one. A server that is left has all its connections closed, and
:meth:`PostgresServer.reconnect` opens them again: its prepared workloads stay known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from dbdyno.engines import driving
from dbdyno.engines.postgres import loader
from dbdyno.engines.postgres.chosen.cluster import Cluster
from dbdyno.engines.postgres.chosen.finding import programs_named
from dbdyno.engines.postgres.chosen.running import Running
from dbdyno.engines.postgres.chosen.same import older_defaults, setting_values
from dbdyno.engines.postgres.errors import doing
from dbdyno.engines.postgres.resetting import uses_tables
from dbdyno.engines.postgres.server import PostgresServer
from dbdyno.engines.postgres.settings import values
from dbdyno.model.engine.choosing import SettingValue
from dbdyno.model.engine.protocols import Server, Target
from dbdyno.model.errors import Abandoned, DbdynoError, ServerBusy, UsageError, requests
from dbdyno.model.plan.servers import is_dsn

_DATA = ("machine", "wait_families")
_CAPABILITIES = {name for name, of in vars(Server).items() if isinstance(of, property)} - {*_DATA}


class _Capability:
    """A capability of the server in use, for those who keep it while servers change."""

    def __init__(self, servers: Servers, name: str) -> None:
        self._servers, self._name = servers, name

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(self._servers.in_use, self._name), name)


class Servers:
    """The servers of ``target``, by variant. The first that can be used is in use; :meth:`close` ends it."""

    def __init__(self, target: Target) -> None:
        if target.dsn is not None or target.bin_dir is not None:
            raise UsageError(
                f"variants name their servers, and {'--dsn' if target.bin_dir is None else '--pg-bin'} names "
                "another one",
                "leave that out",
            )
        self.choosing = self
        self._target = target
        self._by_text: dict[str | None, Cluster | Running] = {}
        self._now: Cluster | Running | None = None
        self._last: PostgresServer | None = None
        self._run: str | None = None
        self._claims: dict[str, Running] = {}
        """Whose connection holds the claim of each server that runs already: several may lead to one."""
        self._settings: dict[str | None, dict[str, values.Guc]] = {}
        try:
            self._reserve()
            self._use_first()
        except BaseException:
            self.close()
            raise

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.in_use, name)
        return _Capability(self, name) if name in _CAPABILITIES and value is not None else value

    @property
    def in_use(self) -> PostgresServer:
        """The server in use; after a failed change the one before, which no longer answers."""
        assert self._last is not None
        return self._last

    def _reserve(self) -> None:
        """Keeps the data directories of all servers that dbdyno starts, before the first is used: no other
        run takes one of them halfway. All runs do so in one order, so one of several goes on. Raises
        :class:`ServerBusy`; :meth:`use` raises other errors again."""
        clusters: dict[Cluster, str] = {}
        for variant, text in self._target.servers.items():
            with suppress(DbdynoError):
                one = self._server_of(text)
                if isinstance(one, Cluster):
                    clusters.setdefault(one, variant)
        for cluster in sorted(clusters, key=lambda c: c.instance.directory):
            try:
                cluster.reserve()
            except Abandoned:
                raise
            except ServerBusy as e:
                raise e.of_variant(clusters[cluster]) from None
            except DbdynoError:
                continue

    def _use_first(self) -> None:
        """Puts the first usable server in use; :meth:`use` raises the errors of others again. Raises the
        error of the first if there is none."""
        errors: list[DbdynoError] = []
        for variant in self._target.servers:
            try:
                self.use(variant)
            except Abandoned:
                raise
            except DbdynoError as e:
                errors.append(e.of_variant(variant))
            else:
                return
        raise errors[0]

    # -- Choosing -----------------------------------------------------------------------------------
    def use(self, variant: str, *, anew: bool = False) -> bool:
        if requests():  # nothing that restores a server changes to another one
            raise Abandoned
        text = self._target.servers[variant]
        one = self._server_of(text)
        if one is self._now and not (anew and one.is_started) and one.is_current:
            return False
        self._leave()
        one.enter()
        self._now, self._last = one, one.server
        if self._run is not None:
            self.claim(self._run)
        return one.is_started

    def _server_of(self, text: str | None) -> Cluster | Running:
        """Raises :class:`UsageError` if there are no such programs."""
        if text not in self._by_text:
            self._by_text[text] = self._new(text)
        return self._by_text[text]

    def _new(self, text: str | None) -> Cluster | Running:
        drive = self._target.make_load or driving.local_load
        if text is not None and is_dsn(text):
            if self._target.settings:
                raise UsageError(
                    "--setting is for servers that dbdyno starts, and this one runs already",
                    "settings of a variant stand in a recipe: [variants.NAME.settings]",
                )
            return Running(text, drive)
        programs = programs_named(text)
        same = next((c for c in self._by_text.values() if c.uses(programs)), None)
        return same or Cluster(programs, self._target, drive)

    def _leave(self) -> None:
        now, self._now = self._now, None
        if now is not None:
            now.leave()

    def lacking(self, names: Iterable[str]) -> Sequence[str]:
        known = self._known()
        return [name for name in names if "." not in name and name.lower() not in known]

    def tables_of(self, texts: Sequence[str]) -> Sequence[str]:
        if not isinstance(self._now, Cluster):
            return ()
        return [name for name in loader.names() if uses_tables(name, texts)]

    def flush(self) -> None:
        self.in_use.checkpoint()

    def all_settings(self) -> Mapping[str, SettingValue]:
        return setting_values(self._known())

    def _known(self) -> dict[str, values.Guc]:
        with doing("asking for settings"):
            known = values.read(self.in_use.control)
        self._settings[self._text_in_use()] = known
        return known

    def _text_in_use(self) -> str | None:
        return next(text for text, one in self._by_text.items() if one is self._now)

    def programs(self) -> str:
        return str(self._now.found.bin_dir) if isinstance(self._now, Cluster) else ""

    def is_read_anew(self) -> bool:
        return not isinstance(self._now, Cluster) or self._now.read_anew

    def identity(self) -> str:
        if isinstance(self._now, Cluster):
            return str(self._now.instance.data)
        return f"{self._running_server()} {self.in_use.control.database}"

    def _running_server(self) -> str:
        """Returns what identifies the server in use while it runs: a standby has its primary's identity."""
        with doing("asking when the server was started"):
            row = self.in_use.control.execute("select pg_catalog.pg_postmaster_start_time()").fetchone()
        return f"{self.in_use.identity} {row}"

    def same_settings(self) -> Mapping[str, str]:
        clusters = [one for one in self._by_text.values() if isinstance(one, Cluster)]
        gucs = {one: self._settings[text] for text, one in self._by_text.items() if text in self._settings}
        oldest = min(gucs, key=lambda one: one.server.version)
        kept = {name.lower() for one in clusters for name in one.own_settings}
        same = {n: v for n, v in older_defaults(gucs[oldest], list(gucs.values())).items() if n not in kept}
        for cluster in clusters:
            cluster.same = same
        return same

    def left_out(self) -> Mapping[str, str]:
        clusters = {one for one in self._by_text.values() if isinstance(one, Cluster) and one.has_run}
        lacked = {name: [c for c in clusters if name in c.lacking] for name in self._target.settings}
        for name, lacking in lacked.items():
            if lacking and len(lacking) == len(clusters):
                raise UsageError(f"no server has a setting {name!r}", "see its spelling, or leave it out")
        return {
            name: f"PostgreSQL {', '.join(sorted(c.programs.version for c in lacking))}"
            for name, lacking in lacked.items()
            if lacking
        }

    def target(self) -> Target:
        return Target(dsn=self._now.address if self._now is not None else "")

    # -- what is not of one server alone --------------------------------------------------------------
    def claim(self, run: str) -> None:
        self._run = run
        if isinstance(self._now, Running):
            self._claims.setdefault(self._running_server(), self._now).claim(run)
        else:
            self.in_use.claim(run)

    def close(self) -> None:
        try:
            self._leave()
        finally:
            for one in self._by_text.values():
                one.close()
