"""``observe --metrics`` of real servers: scraped while it goes on, and ended with scrapers that hang."""

from __future__ import annotations

import signal
import socket
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path

import psycopg
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.clusters import server_dir
from tests.conftest import Servers
from tests.contract.plain_server import plain_server
from tests.db.conftest import Bench
from tests.ports import free_port
from tests.waiting import eventually

pytestmark = pytest.mark.db
TOKEN = "a-token-of-sixteen-characters-at-least"
Scrape = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(port: int) -> Scrape:
    """Returns nothing while there is no answer."""
    headers = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/openmetrics-text"}
    with suppress(OSError):
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/metrics", headers=headers)
        text = connection.getresponse().read().decode()
        families = text_string_to_metric_families(text)
        return {(s.name, frozenset(s.labels.items())): s.value for f in families for s in f.samples}
    return {}


def of_server(values: Scrape, place: str, name: str, **labels: str) -> float:
    wanted = {"server": place, **labels}.items()
    return sum(v for (n, own), v in values.items() if n == name and wanted <= dict(own).items())


def test_two_servers_are_scraped_and_ctrl_c_ends_in_spite_of_scrapers(
    servers: Servers, tmp_path: Path
) -> None:
    bench, token, port = (
        Bench(tmp_path / "home", server_dir(tmp_path / "servers")),
        tmp_path / "token",
        free_port(),
    )
    token.write_text(TOKEN)
    token.chmod(0o600)
    file = tmp_path / "dbdyno.prom"
    with plain_server(servers.bin_dir(18)) as one, plain_server(servers.bin_dir(18)) as other:
        words = (
            "observe",
            "--dsn",
            one.dsn,
            "--dsn",
            other.dsn,
            "--window",
            "1s",
            "--no-memory",
            "--no-snapshots",
        )
        metrics = ("--metrics", str(port), "--metrics-token-file", str(token), "--metrics-file", str(file))
        with (
            closing(psycopg.connect(one.dsn, autocommit=True)) as sleeper,
            bench.background(*words, *metrics) as process,
            socket.socket() as silent,
        ):
            sleeper.pgconn.send_query(b"select pg_sleep(600)")
            values = eventually(lambda: windows_of_both(scrape(port)))
            first, second = places(values)
            later = eventually(lambda: grown(scrape(port), values, first))
            for key, value in values.items():
                if key[0].endswith("_total"):
                    assert later[key] >= value, key
            silent.connect(("127.0.0.1", port))
            process.send_signal(signal.SIGINT)
            output, messages = process.communicate(timeout=240)
    assert process.returncode == 0, messages + output
    slept = [of_server(later, p, "dbdyno_session_seconds_total", event="PgSleep") for p in (first, second)]
    assert min(slept) == 0 < max(slept)
    where = first if slept[0] else second
    accounts = of_server(later, where, "dbdyno_session_seconds_total")
    wall = of_server(later, where, "dbdyno_session_wall_seconds_total")
    assert accounts == pytest.approx(wall, rel=0.05)
    assert of_server(later, where, "dbdyno_observer_cpu_seconds_total") > 0
    assert f'server="{where}"' in file.read_text()
    assert TOKEN not in output + messages and str(token) in messages


def places(values: Scrape) -> list[str]:
    return sorted({dict(labels)["server"] for name, labels in values if name == "dbdyno_windows_total"})


def windows_of_both(values: Scrape) -> Scrape | None:
    return values if len(places(values)) == 2 else None


def grown(values: Scrape, before: Scrape, place: str) -> Scrape | None:
    name = "dbdyno_windows_total"
    return values if of_server(values, place, name) > of_server(before, place, name) else None
