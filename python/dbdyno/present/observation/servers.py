"""Compares servers that were observed together: role, session time, replication, statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from dbdyno.model.engine.environment import ServerFacts
from dbdyno.model.results.raw import REPLAY_BEHIND, REPLAY_LAG
from dbdyno.model.results.results import Results
from dbdyno.model.sources.wait_families import AT_CLIENT, Family, families_of
from dbdyno.model.units import NS_PER_S, counted, format_ns
from dbdyno.present.figures import headline, jsondoc
from dbdyno.present.figures.selection import Pick, pick_of, rows_of
from dbdyno.present.figures.selection import events as all_events
from dbdyno.present.run import statements

MOST_STATEMENTS = 5
"""Most statements of a server; its own report has the rest."""


@dataclass(frozen=True)
class Server:
    """An observed server. Seconds per second are means over its windows; None if unknown."""

    name: str
    results: Results

    @property
    def role(self) -> str | None:
        """``primary`` or ``standby``; None if unknown."""
        standby = self.results.environment.server.standby
        return None if standby is None else "standby" if standby else "primary"

    @cached_property
    def pick(self) -> Pick | None:
        return pick_of(self.results)

    @cached_property
    def overview(self) -> headline.Overview | None:
        return headline.overview(self.results)

    @cached_property
    def waits(self) -> dict[Family, float | None]:
        """Time asleep by family without those of the client; an unobserved family is absent, None is
        unknown."""
        families = families_of(self.results.tables)
        times: dict[Family, list[float | None]] = {}
        rows = all_events(self.results).filter(
            (pl.col("scope") == "rung") & pl.col("wait_class").is_not_null()
        )
        for wait_class, event, asleep in rows.select("wait_class", "wait_event", "sleep").iter_rows():
            family = families.of(f"{wait_class}/{event}")
            if family not in AT_CLIENT:
                times.setdefault(family, []).append(asleep)
        return {f: None if None in v else sum(s for s in v if s is not None) for f, v in times.items()}

    @cached_property
    def over_time(self) -> pl.DataFrame:
        """One row per window, in time order.

        Columns: t0_ns, t1_ns, status, db_time, db_cpu, cpu_wait, transactions_per_s, statements_per_s,
        replay_lag_ns, replay_behind_bytes. Times are on the clock of the host that dbdyno ran on.
        """
        profile = self.results.tables["profile"]
        joined = self.results.tables["windows"].sort("t0_ns").select("cell", "t0_ns", "t1_ns", "status")
        for heading, column in _PROFILE.items():
            column_values = profile.filter(pl.col("name") == heading).select(
                "cell", pl.col("per_s").alias(column)
            )
            joined = joined.join(column_values, on="cell", how="left", maintain_order="left")
        rates = self.results.tables["rates"].filter(pl.col("scope") == "rung")
        for name in (REPLAY_LAG, REPLAY_BEHIND):
            column_values = rates.filter(pl.col("name") == name).select("cell", pl.col("value").alias(name))
            joined = joined.join(column_values, on="cell", how="left", maintain_order="left")
        return joined

    def most(self, column: str) -> float | None:
        """Returns the largest value of a column of :attr:`over_time`; None if all are unknown."""
        value: Any = self.over_time[column].max()
        return None if value is None else float(value)

    @property
    def host(self) -> str:
        """The host where the server was observed."""
        server = self.results.environment.server
        return (
            "not seen" if not server.here else "this host" if server.reached is None else server.reached.host
        )

    @property
    def clock_bound_ns(self) -> int | None:
        reached = self.results.environment.server.reached
        return None if reached is None else reached.clock_bound_ns

    def statements(self, most: int | None = None) -> list[dict[str, Any]]:
        """Returns rows of table ``statements`` with their texts, the most time first."""
        if self.pick is None or not statements.observed(self.results):
            return []
        frame = rows_of(self.results, "statements", self.pick)
        by = statements.DB_TIME if frame["db_time_s"].is_not_null().any() else "time"
        first = statements.ranked(frame, by, statements.texts_of(self.results), most)
        return statements.of_whole(first, statements.db_time_s(self.results, self.pick))


_PROFILE = {
    "DB time": "db_time",
    "DB CPU": "db_cpu",
    "CPU WAIT": "cpu_wait",
    headline.TRANSACTIONS: "transactions_per_s",
    headline.STATEMENTS: "statements_per_s",
}


def servers_of(several: Sequence[Results]) -> list[Server]:
    """Returns the servers with distinct names, primaries first."""
    places = [_place(r.environment.server) for r in several]
    hosts = [host for host, _, _ in places]
    names = []
    for host, port, database in places:
        alone = hosts.count(host) == 1
        twice = sum(p[:2] == (host, port) for p in places) > 1
        names.append(host if alone else f"{host}:{port}/{database}" if twice else f"{host}:{port}")
    servers = [Server(n, r) for n, r in zip(names, several, strict=True)]
    return sorted(servers, key=lambda s: (s.role != "primary", s.name))


def place_in_words(server: ServerFacts) -> str:
    """Returns ``db1:5432``."""
    return ":".join(_place(server)[:2])


def _place(server: ServerFacts) -> tuple[str, str, str]:
    """Parses host, port and database of ``HOST:PORT, database D, user U`` or ``socket DIR, port N,
    database ...``."""
    where, _, rest = server.where.partition(", database ")
    host, _, port = where.removeprefix("socket ").replace(", port ", ":").rpartition(":")
    return host or where, port, rest.partition(",")[0]


def title(servers: Sequence[Server]) -> str:
    """Returns ``Observation of 2 servers: 60.0 s in 6 windows``."""
    longest = max(servers, key=lambda s: s.over_time.height)
    wall = float(longest.results.tables["windows"]["wall_s"].sum())
    windows = counted(longest.over_time.height, "window")
    return f"Observation of {counted(len(servers), 'server')}: {format_ns(wall * NS_PER_S)} in {windows}"


def record(several: Sequence[Results]) -> dict[str, Any]:
    """Returns the content of the document of servers as JSON; docs/observe.md explains each key."""
    servers = servers_of(several)
    return {
        "format": jsondoc.FORMAT,
        "group": servers[0].results.info.group,
        "title": title(servers),
        "servers": [_record(s) for s in servers],
    }


def _record(server: Server) -> dict[str, Any]:
    results, means = server.results, server.overview
    figures = ("sessions", "db_time", "db_cpu", "cpu_wait")
    top = [{k: r[k] for k in _STATEMENT} for r in server.statements(MOST_STATEMENTS)]
    server_record = {
        "server": server.name,
        "where": results.environment.server.where,
        "role": server.role,
        "version": results.environment.server.version,
        "host": server.host,
        "clock_bound_ns": server.clock_bound_ns,
        "run": results.info.id,
        "status": results.info.status,
        "reason": results.info.reason,
        **{name: None if means is None else getattr(means, name) for name in figures},
        "transactions_per_s": None if means is None else means.transactions.per_s,
        "statements_per_s": None if means is None else means.statements.per_s,
        "asleep": {str(f): v for f, v in server.waits.items()},
        **{name: server.most(name) for name in (REPLAY_LAG, REPLAY_BEHIND)},
        "statements": top,
        "windows": server.over_time.drop("cell"),
    }
    return jsondoc.plain(server_record)  # type: ignore[no-any-return]


_STATEMENT = ("query_id", "text", "calls", "exec_ns", "share", "db_time_s", "top_wait")
