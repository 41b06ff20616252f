"""``dbdyno doctor`` lists states, and commands that have the promised effect. It changes nothing unasked."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Servers
from tests.contract.plain_server import PlainServer, plain_server
from tests.db.conftest import PROGRAM, Bench

pytestmark = pytest.mark.db
COUNTERS = "statement counters"
LIBRARIES = {"auto_explain", "$libdir/pg_prewarm"}
SERVERS_OWN = {"activity samples", "engine counters, server-wide", COUNTERS}
WIDTH = 80


def doctor_sources(bench: Bench, *words: str, code: int = 0) -> dict[str, dict[str, Any]]:
    """Returns its sources by name."""
    done = bench.here("doctor", "--json", *words)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return {s["name"]: s for s in json.loads(done.stdout)["sources"]}


def commands_of(source: dict[str, Any]) -> list[str]:
    return [c["command"] for c in source["commands"]]


def test_the_embedded_server_needs_nothing(bench: Bench) -> None:
    sources = doctor_sources(bench)
    assert SERVERS_OWN | {"os tasks", "host", "control groups"} <= set(sources)
    assert [sources[n]["state"] for n in sorted(SERVERS_OWN)] == ["on"] * 3
    assert all(s["adds"] and s["reads"] for s in sources.values())
    assert [s for s in sources.values() if not s["commands"] and s["state"] != "on"] == []
    assert sources["system calls"]["state"] in ("available", "not permitted")
    wide = [line for line in bench.here("doctor").stdout.splitlines() if len(line) > WIDTH]
    assert wide == []


@pytest.mark.parametrize("version", [14, 16, 18])
def test_the_commands_bring_statement_counters_and_lose_no_library(
    servers: Servers, bench: Bench, version: int
) -> None:
    programs = servers.bin_dir(version)
    contrib = any(Path(programs).parent.rglob("auto_explain.so"))
    before = 'auto_explain, "$libdir/pg_prewarm"' if contrib else ""
    with plain_server(programs, {"shared_preload_libraries": before}) as plain:
        source = doctor_sources(bench, "--dsn", plain.dsn)[COUNTERS]
        if not plain.ask("select 1 from pg_available_extensions where name = 'pg_stat_statements'"):
            assert source["state"] == "not supported"
            assert not any("ALTER SYSTEM" in command for command in commands_of(source))
            return
        assert (source["state"], len(commands_of(source))) == ("not loaded", 3), source
        alter, _restart, create = commands_of(source)
        plain.ask(alter)
        plain.ask("select pg_reload_conf()")
        assert not any("ALTER" in c for c in commands_of(doctor_sources(bench, "--dsn", plain.dsn)[COUNTERS]))
        _restart_it(plain)
        assert commands_of(doctor_sources(bench, "--dsn", plain.dsn)[COUNTERS]) == [create]
        plain.ask(create)
        assert doctor_sources(bench, "--dsn", plain.dsn)[COUNTERS]["state"] == "on"
        ((loaded,),) = plain.ask("show shared_preload_libraries")
        assert {e.strip(' "') for e in loaded.split(",")} == LIBRARIES | {"pg_stat_statements"}


def _restart_it(plain: PlainServer) -> None:
    plain.stop("fast")
    plain.start()


@pytest.mark.parametrize("version", [14, 15, 18])
def test_a_role_with_few_rights_gets_grants_and_leaves_no_error_in_the_log(
    servers: Servers, bench: Bench, version: int
) -> None:
    with plain_server(servers.bin_dir(version), hba=["local all all trust"]) as plain:
        plain.ask('create role "Few Rights" login')
        sources = doctor_sources(bench, "--dsn", plain.dsn.replace("user=boss", "user='Few Rights'"))
        hidden = sources["sessions of other users"]
        assert (hidden["state"], commands_of(hidden)) == (
            "not permitted",
            ['GRANT pg_monitor TO "Few Rights";'],
        )
        assert not any(
            "ALTER SYSTEM" in c for c in commands_of(sources[COUNTERS])
        )  # it would lose a hidden list
        assert "ERROR" not in plain.log(), plain.log()
        plain.ask(commands_of(hidden)[0])
        sources = doctor_sources(bench, "--dsn", plain.dsn.replace("user=boss", "user='Few Rights'"))
        assert "sessions of other users" not in sources


def test_without_a_server_the_sources_of_the_machine_are_listed(bench: Bench) -> None:
    done = bench.here("doctor", "--dsn", "host=127.0.0.1 port=1")
    assert done.returncode == 3
    assert "refused" in done.stderr
    sources = doctor_sources(bench, "--dsn", "host=127.0.0.1 port=1", code=3)
    assert sources["host"]["state"] == sources["os tasks"]["state"] == "on"
    assert not SERVERS_OWN & set(sources)


def test_a_wrong_password_is_an_error_that_does_not_repeat_it(servers: Servers, bench: Bench) -> None:
    hba = ["local all all scram-sha-256"]
    with plain_server(servers.bin_dir(18), hba=hba) as plain:
        plain.ask("create role app login password 'righthorse'")
        dsn = plain.dsn.replace("user=boss", "user=app password=hunter2hunter2")
        done = bench.here("doctor", "--dsn", dsn)
        assert (done.returncode, "hunter2hunter2" in done.stdout + done.stderr.partition("\n")[2]) == (
            3,
            False,
        )
        assert "password authentication failed" in done.stderr
        done = bench.here("doctor", "--json", "--dsn", dsn.replace("hunter2hunter2", "righthorse"))
        assert done.returncode == 0
        assert "righthorse" not in done.stdout  # which users send with a report of a fault


def test_strict_fails_for_what_is_missing_and_not_for_what_is_off_by_choice(
    servers: Servers, bench: Bench
) -> None:
    with plain_server(servers.bin_dir(18)) as plain:
        assert bench.here("doctor", "--dsn", plain.dsn).returncode == 0
        assert bench.here("doctor", "--strict", "--dsn", plain.dsn).returncode == 6


def fix_with(bench: Bench, plain: PlainServer, answers: str) -> str:
    """Returns its output on a terminal for these answers."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, answers.encode())
        done = subprocess.run(
            [PROGRAM, "doctor", "--fix", "--dsn", plain.dsn],
            stdin=theirs,
            env=bench.env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_fix_asks_and_does_only_what_is_agreed_to(servers: Servers, bench: Bench) -> None:
    with plain_server(servers.bin_dir(18)) as plain:
        settings = (
            "select name, setting from pg_settings where name in ('track_io_timing', 'compute_query_id')"
        )
        auto = Path(plain.data / "postgresql.auto.conf")
        before = auto.read_text(), plain.ask(settings)
        done = bench.here("doctor", "--fix", "--dsn", plain.dsn)
        assert (done.returncode, "nothing was changed" in done.stderr) == (0, True)
        delayacct = Path("/proc/sys/kernel/task_delayacct").read_text()
        fix_with(bench, plain, "n\n" * 20)
        assert (auto.read_text(), plain.ask(settings)) == before
        output = fix_with(bench, plain, _answers(bench, plain))
        assert "track_io_timing" in output
        assert dict(plain.ask(settings)) == {"compute_query_id": "auto", "track_io_timing": "on"}
        assert Path("/proc/sys/kernel/task_delayacct").read_text() == delayacct


def _answers(bench: Bench, plain: PlainServer) -> str:
    """Returns answers that say yes to I/O timing only."""
    sources = doctor_sources(bench, "--dsn", plain.dsn).values()
    asked = [
        s["name"]
        for s in sources
        for c in s["commands"]
        if c["how"] == "sql" or (c["how"] == "root" and os.geteuid() == 0)
    ]
    of_checks = "n\n" * 20
    return "".join("y\n" if name == "I/O timing" else "n\n" for name in asked) + of_checks
