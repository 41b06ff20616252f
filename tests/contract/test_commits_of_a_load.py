"""Commits of a load are those of its calls; what sets its sessions up is not in the window."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import polars as pl
import pytest
from tests.contract import loads
from tests.contract.plain_server import plain_server
from tests.contract.pooled import cell_of, measure
from tests.waiting import eventually

from dbdyno.account import window
from dbdyno.drive import Interrupt, connect
from dbdyno.engines.postgres import PostgresServer, sessions
from dbdyno.engines.postgres.sessions import MOST_PAUSED
from dbdyno.model.engine.protocols import PLAIN, Pool
from dbdyno.model.results.raw import OWN

pytestmark = pytest.mark.db

COMMITS = "transactions_committed"
SINGLE = "select n from numbers where n = 7;\n"
SEVERAL = "begin;\nupdate numbers set n = n where n = 7;\nselect 1;\nend;\nselect 2;\n"
SCRIPTS = pytest.mark.parametrize(
    ("text", "commits"), [(SINGLE, 1), (SEVERAL, 2)], ids=["one statement", "several"]
)
SESSIONS = 4


@pytest.fixture(scope="module", params=range(14, 19), ids=lambda v: f"pg{v}")
def server(servers: Any, request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """A server on which nobody else works."""
    with (
        plain_server(servers.bin_dir(request.param), {"autovacuum": "off", "fsync": "off"}) as plain,
        closing(PostgresServer(plain.dsn)) as server,
    ):
        plain.ask("create table numbers as select n from generate_series(1, 10) as n")
        yield server


def _value(rows: pl.DataFrame, name: str) -> float:
    return float(rows.filter(pl.col("name") == name, pl.col("scope") == "server")["value"].item())


def _commits_between(first: pl.DataFrame, last: pl.DataFrame) -> float:
    """Returns commits between two reads, without those of dbdyno's own connections."""
    grown = {name: _value(last, name) - _value(first, name) for name in (COMMITS, OWN[COMMITS])}
    return grown[COMMITS] - grown[OWN[COMMITS]]


@pytest.mark.parametrize("text", [SINGLE, SEVERAL], ids=["one statement", "several"])
def test_what_sets_sessions_up_is_reported_before_the_barrier(server: PostgresServer, text: str) -> None:
    """Sessions that make no call add nothing, from the read before the barrier to the one after their end."""
    if server.version >= 180000:
        pytest.skip("18 reports with the first probe of each session, and the later probes are counted")
    script = loads.script(server, text, "commits.sql")
    load = server.load(script, cell_of(script, Pool(SESSIONS, "", 1, "prepared")), None, False, None)
    try:
        connect(load, Interrupt())
        first = server.counters("start")
        pids = [pid for _, pid, _ in load.backends()]
    finally:
        load.abort()
    eventually(lambda: not server.backends()["pid"].is_in(pids).any())
    assert _commits_between(first, server.counters("end")) == 0


@SCRIPTS
def test_commits_are_those_of_the_calls(server: PostgresServer, text: str, commits: int) -> None:
    script = loads.script(server, text, "commits.sql")
    raw = measure(server, script, cell_of(script, Pool(SESSIONS, "", 1, "prepared"), 0.5))
    counters = raw.tables["counters"].filter(pl.col("scope") == "server")
    first, last = (counters.filter(pl.col("phase") == phase) for phase in ("start", "end"))
    samples = raw.tables["sampler"].filter(pl.col("status") == "ok", pl.col("via") == "sql").height
    calls = raw.tables["sessions"]["calls_total"].sum()
    assert _commits_between(first, last) - samples == commits * calls
    levels = window.cut([raw])["cut_levels"].filter(pl.col("key") == COMMITS)
    assert levels["status"].unique().to_list() == ["ok"]


def test_many_sessions_of_14_do_not_pause(server: PostgresServer) -> None:
    """A thousand would take minutes at four at a time."""
    if server.version >= 150000:
        pytest.skip("only 14 cannot be asked to report")
    script = loads.script(server, SINGLE, "commits.sql")
    recipe = server._scripts[script.name, PLAIN.name]
    assert sessions.reporting(recipe, server._connection, MOST_PAUSED) is not None
    assert sessions.reporting(recipe, server._connection, MOST_PAUSED + 1) is None
