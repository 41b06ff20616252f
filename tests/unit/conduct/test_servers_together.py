"""Servers observed together: their common instants, and the page that has them side by side."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console
from tests.unit import report_observation as observed

from dbdyno import present
from dbdyno.conduct.measure.cell import MachineClock
from dbdyno.conduct.observe.server_hosts import ServerHosts
from dbdyno.conduct.observe.together import PATIENCE_NS, GivenUp, Together
from dbdyno.engines import wait_families
from dbdyno.model.engine.machine import Reached
from dbdyno.model.errors import UsageError
from dbdyno.model.results.raw import REPLAY_BEHIND
from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import rows
from dbdyno.model.sources.wait_families import TABLE as FAMILIES
from dbdyno.present.document.document import Chart, Paragraph, Table, walk
from dbdyno.present.observation.servers import servers_of

S, MS = 1_000_000_000, 1_000_000
STANDBY_BUSY = (0.5,) * 6


def never() -> bool:
    return False


# The instants.


def test_servers_begin_together_when_the_last_can() -> None:
    clock, together = MachineClock(), Together(3)
    now_ns = clock.now_ns()
    wanted = [now_ns + S, now_ns + 3 * S, now_ns + 2 * S]
    begun: list[int] = []
    threads = [
        threading.Thread(target=lambda ns=ns: begun.append(together.begin(ns, clock, never)))  # type: ignore[misc]
        for ns in wanted
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_NS / S)
    assert begun == [now_ns + 3 * S] * 3


def test_a_server_that_begins_later_is_in_step_from_the_next_instant_on() -> None:
    clock, together = MachineClock(), Together(1)
    t0_ns = together.begin(clock.now_ns() + S, clock, never)
    late_ns = t0_ns + 14 * S
    assert together.begin(late_ns, clock, never) == late_ns
    assert together.cut(t0_ns, 10 * S) == t0_ns + 10 * S
    assert together.cut(t0_ns + 10 * S, 10 * S) == t0_ns + 20 * S
    assert together.cut(late_ns, 10 * S) == t0_ns + 20 * S
    assert together.cut(t0_ns + 19 * S + 500 * MS, 10 * S) == t0_ns + 30 * S  # not half a second


def test_no_server_begins_if_one_cannot() -> None:
    together = Together(2)
    together.fail()
    with pytest.raises(GivenUp):
        together.begin(0, MachineClock(), never)


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        (ServerHosts(nodes=("a",)), "--server-node is for a cluster"),
        (ServerHosts(cluster="auto", ssh=("a",)), "exclude each other"),
        (ServerHosts(ssh=("a", "b", "c")), "--server-ssh names 3 hosts for 2 servers"),
    ],
)
def test_hosts_that_do_not_fit_the_servers_are_refused(hosts: ServerHosts, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        hosts.check(2)


# The page.


def server(results: Results, host: str, standby: bool | None, behind: int | None = None) -> Results:
    """Returns the results as of an agent on the server's node; ``behind``: bytes not replayed per window."""
    reached = Reached(host=f"node-{host}", by="Ray", clock_bound_ns=200_000)
    facts = results.environment.server.model_copy(
        update={"where": f"{host}:5432, database app, user m", "standby": standby, "reached": reached}
    )
    environment = results.environment.model_copy(update={"server": facts})
    info = results.info.model_copy(update={"group": "20261121-104501-servers-77aa", "id": f"run-of-{host}"})
    cells = results.tables["windows"].select("cell", "workload", "variant", "sessions", "repeat").to_dicts()
    row = {
        "scope": "rung",
        "name": REPLAY_BEHIND,
        "unit": "bytes",
        "status": "ok",
        "source": "engine counters",
    }
    lags = [] if behind is None else [{**c, **row, "value": n * behind} for n, c in enumerate(cells)]
    families = {FAMILIES: wait_families("postgres").table()}
    tables = {**results.tables, **families, "rates": rows("rates", lags)}
    return replace(results, info=info, environment=environment, tables=tables)


@pytest.fixture
def two_servers() -> list[Results]:
    """A standby that is half as busy, and its primary, in this order."""
    standby = server(observed.results(busy=STANDBY_BUSY), "db2", True, behind=4_000_000)
    return [standby, server(observed.results(), "db1", False)]


def test_each_server_has_its_own_figures_the_primary_first(two_servers: list[Results]) -> None:
    record = present.servers_record(two_servers)
    assert record["group"] == "20261121-104501-servers-77aa"
    primary, standby = record["servers"]
    assert [(s["server"], s["role"], s["run"]) for s in (primary, standby)] == [
        ("db1", "primary", "run-of-db1"),
        ("db2", "standby", "run-of-db2"),
    ]
    mean = sum(map(observed.db_time, observed.BUSY)) / 6
    assert primary["db_time"] == pytest.approx(mean)
    assert (primary["sessions"], primary["host"]) == (observed.SESSIONS, "node-db1")
    busy = sum(observed.BUSY) / 6
    asleep = {"latch": 0.12 * busy, "io": 0.3 * busy, "lock": 0.2 * busy}
    assert {n: primary["asleep"][n] for n in asleep} == pytest.approx(asleep)
    assert (primary[REPLAY_BEHIND], standby[REPLAY_BEHIND]) == (None, 20e6)
    assert [w["db_time"] for w in standby["windows"]] == pytest.approx([observed.db_time(0.5)] * 6)
    json.dumps(record, allow_nan=False)


def test_servers_of_one_host_are_named_with_their_ports(two_servers: list[Results]) -> None:
    ports = []
    for port, results in zip(("5432", "5433"), two_servers, strict=True):
        facts = results.environment.server.model_copy(update={"where": f"db1:{port}, database app, user m"})
        ports.append(replace(results, environment=results.environment.model_copy(update={"server": facts})))
    assert {s.name for s in servers_of(ports)} == {"db1:5432", "db1:5433"}


def steps(chart: Chart) -> list[dict[str, Any]]:
    """The rows of a chart without its gaps."""
    return [r for rows in chart.spec["datasets"].values() for r in rows if "value" in r]


def test_a_chart_has_a_step_for_each_window_of_each_server(two_servers: list[Results]) -> None:
    drawn = {c.title: c for c in walk(present.servers(two_servers).blocks) if isinstance(c, Chart)}
    assert [*drawn] == ["Average active sessions", "CPU WAIT", "WAL not replayed"]
    active = pl.DataFrame(steps(drawn["Average active sessions"]))
    assert active.group_by("server").len().sort("server").rows() == [("db1", 6), ("db2", 6)]
    assert active.filter(pl.col("server") == "db1")["value"].max() == pytest.approx(observed.db_time(2.0))
    assert {r["server"] for r in steps(drawn["WAL not replayed"])} == {"db2"}


def test_rates_are_beside_each_other_and_unknown_with_the_reason(two_servers: list[Results]) -> None:
    counting = [
        replace(r, tables={**r.tables, "profile": r.tables["profile"].with_columns(name)})
        for r in two_servers
        for name in [pl.col("name").replace("commits", "transactions")]
    ]
    primary, standby = present.servers_record(counting)["servers"]
    commits = {s.name: s.results.tables["profile"].filter(name="transactions") for s in servers_of(counting)}
    for record in (primary, standby):
        rows = commits[record["server"]]
        assert record["transactions_per_s"] == rows.filter(cell="all")["per_s"].item() > 0
        by_window = [w["transactions_per_s"] for w in record["windows"]]
        assert by_window == rows.filter(pl.col("cell") != "all").sort("repeat")["per_s"].to_list()
        assert record["statements_per_s"] is None
    document = present.servers(counting)
    drawn = {c.title: c for c in walk(document.blocks) if isinstance(c, Chart)}
    assert len(steps(drawn["Transactions per second"])) == 12
    assert "Statements per second" not in drawn
    texts = [b.text for b in walk(document.blocks) if isinstance(b, Paragraph)]
    assert any(t.startswith("? statements/s of db1, db2: ") for t in texts)


def test_a_terminal_of_80_columns_has_both_servers_and_what_is_not_replayed(
    two_servers: list[Results],
) -> None:
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(present.printed(present.servers_brief(two_servers)))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    (head,) = (line for line in text.splitlines() if line.startswith("server "))
    assert "role" in head and "not replayed" in head
    assert "dbdyno show run-of-db2" in " ".join(text.split())


def test_an_unknown_role_and_figure_are_no_zero(two_servers: list[Results]) -> None:
    unknown = server(observed.results(busy=()), "db3", None)
    document = present.servers([*two_servers, unknown])
    (table,) = (
        t
        for t in walk(document.blocks)
        if isinstance(t, Table) and t.columns[0].head == "server" and t.columns[1].head == "role"
    )
    row = next(r for r in table.rows if r.cells[0].text == "db3")
    assert row.cells[1].text == "?"
    assert {c.value for c in row.cells[3:7]} == {None}


def test_the_page_is_written_whole(two_servers: list[Results], tmp_path: Path) -> None:
    page = present.write(present.servers(two_servers), tmp_path / "servers.html").read_text()
    assert "db1 (primary)" in page and "db2 (standby)" in page
