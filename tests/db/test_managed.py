"""A server as managed services give it: see tests/managed_service.py.

What is not seen is unknown, figures are the server's and not this machine's, and no cure asks for what nobody
can do there.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dbdyno.engines.postgres import password_file
from tests.conftest import Servers
from tests.db.conftest import LIGHT_CALLS, Bench
from tests.elsewhere import in_namespaces, needs, needs_root
from tests.managed_service import Managed, managed

pytestmark = [pytest.mark.db, pytest.mark.root, needs_root]
IMPOSSIBLE = ("ALTER SYSTEM", "restart the server's", "on its host", "--server-ssh", "superuser", "sudo")
LOAD = ("run", "lio", "--settle", "100ms", *LIGHT_CALLS)
RUN = (*LOAD, "--sessions", "2", "--measure", "1s", "--json")
HOST = ("run", "runq")


@pytest.fixture(scope="module")
def service(servers: Servers, server_home: Path) -> Iterator[Managed]:
    """Yields a server of Debian's 15, because the wheel's builds have no TLS."""
    needs(in_namespaces(pid=True, net=True))
    with managed(servers.bin_dir(15), server_home) as service:
        yield service


@pytest.fixture(scope="module")
def client(service: Managed, bench: Bench) -> Bench:
    """Returns a bench whose password file lets it in."""
    bench.env["PGPASSFILE"] = str(service.pgpass(bench.home))
    return bench


def document(client: Bench, *words: str) -> dict[str, Any]:
    done = client.here(*words)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def accounts(document: dict[str, Any], name: str) -> set[tuple[float | None, str]]:
    rows = (r for r in document["ledger"] if (r["scope"], r["account"]) == ("rung", name))
    return {(r["aas"], r["status"]) for r in rows}


@pytest.mark.parametrize("role", ["rds_superuser", "cloudsqlsuperuser", "azure_pg_admin"])
def test_doctor_asks_for_nothing_that_nobody_can_do_there(service: Managed, client: Bench, role: str) -> None:
    service.administrators_are(role)
    found = document(client, "doctor", "--dsn", service.dsn(), "--json")
    sources = {s["name"]: s for s in found["sources"]}
    assert {sources[n]["state"] for n in ("os tasks", "cgroup", "scheduler trace")} == {"remote"}
    assert found["server"]["service"] in sources["os tasks"]["why"]
    assert {sources[n]["state"] for n in ("activity samples", "statement counters")} == {"on"}
    steps = [c["command"] for s in (*found["sources"], *found["checks"]) for c in s["commands"]]
    assert [s for s in steps if any(word in s for word in IMPOSSIBLE)] == []
    assert any("track_io_timing = on" in s for s in steps)


def test_a_run_measures_throughput_and_leaves_the_host_unknown(service: Managed, client: Bench) -> None:
    found = document(client, *RUN, "--dsn", service.dsn())
    assert found["environment"]["server"]["tls"].endswith("sslmode=verify-full")
    assert all(r["calls_per_s"] > 0 for r in found["rungs"])
    for name in HOST:
        assert accounts(found, name) == {(None, "not here")}


def test_an_observation_has_waits_and_statements_and_no_cpu(service: Managed, client: Bench) -> None:
    with contextlib.closing(psycopg.connect(service.boss, dbname="app", autocommit=True)) as session:
        session.pgconn.send_query(b"select pg_sleep(100)")
        found = document(client, "observe", "--for", "2s", "--json", "--dsn", service.dsn())
        session.cancel_safe()
    for name in HOST:
        assert accounts(found, name) == {(None, "not here")}
    (slept,) = [r for r in found["ledger"] if (r["scope"], r["detail"]) == ("rung", "Timeout/PgSleep")]
    assert slept["aas"] == pytest.approx(1, abs=0.3)
    assert not [f for f in found["findings"] if f["id"] == "equivalent-cores"]  # they would be this machine's


def test_settings_of_variants_are_refused_with_the_place_that_changes_them(
    service: Managed, client: Bench
) -> None:
    done = client.here(*RUN, "--dsn", service.dsn(), "--setting", "work_mem=8MB")
    assert done.returncode in (2, 3)
    assert "in the " in done.stderr and "compare RUN RUN" in done.stderr


def test_memory_of_this_machine_is_not_taken_for_the_servers(service: Managed, client: Bench) -> None:
    found = document(client, "memory", "--json", "--dsn", service.dsn())
    machine = [r for r in found["memory"] if r["scope"] == "machine"]
    assert {r["value"] for r in machine} <= {None}


def test_snapshots_need_no_further_right(service: Managed, client: Bench) -> None:
    taken = [client.here("snapshot", "--dsn", service.dsn()) for _ in range(2)]
    assert [t.returncode for t in taken] == [0, 0], taken
    names = [t.stdout.split()[0] for t in taken]
    report = client.here("report", *names, "-o", str(client.home / "span.html"))
    assert report.returncode == 0, report.stderr


def test_a_suite_leaves_out_what_starts_a_program_at_the_server(service: Managed, client: Bench) -> None:
    words = ("--suite", "micro", "--only", "copy-in,point-select", "--repeats", "1")
    done = client.here("run", *words, "--json", "--dsn", service.dsn())
    assert done.returncode == 5, done.stderr
    rows = {r["benchmark"]: r for r in json.loads(done.stdout)["rows"]}
    assert "pg_execute_server_program" in json.dumps(rows["copy-in"])
    assert rows["point-select"]


def test_a_token_that_is_renewed_in_the_password_file_lets_a_run_go_on(
    service: Managed, client: Bench, tmp_path: Path
) -> None:
    """The role's password changes after the first measurement, as a token expires."""
    file = service.pgpass(tmp_path)
    service.as_provider("grant create on database postgres to token")
    renewed = "second:" + "t" * 1500
    words = (
        *LOAD,
        "--sessions",
        "1,2",
        "--measure",
        "1s",
        "--json",
        "--dsn",
        service.dsn("token", dbname="postgres"),
    )

    def renew() -> None:
        service.as_provider(f"alter role token password '{renewed}'")
        service.pgpass(tmp_path, renewed)

    timer = threading.Timer(1.5, renew)
    timer.start()
    try:
        done = client.here(*words, PGPASSFILE=str(file))
    finally:
        timer.join()
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["rungs"]) == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*:*:*:*:a", "a"),
        ("other:*:*:*:a\ndb:5432:app:me:b\\:\\\\c", "b:\\c"),
        ("db:5432:app:me", None),
        ("db:5433:app:me:a", None),
        ("", None),
    ],
)
def test_lines_of_a_password_file_are_read_as_libpq_reads_them(text: str, expected: str | None) -> None:
    assert password_file.found(text, ("db", "5432", "app", "me")) == expected
