"""The checks of `dbdyno doctor` on real servers: settings as they are, and flags of files that are open."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import Servers
from tests.contract.plain_server import PlainServer, plain_server
from tests.db.conftest import Bench

pytestmark = pytest.mark.db
UNSAFE = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "autovacuum": "off"}
LOGGING = {"log_statement": "all", "log_min_duration_statement": "0", "log_planner_stats": "on"}


def doctor_checks(bench: Bench, *words: str, code: int = 0) -> dict[str, dict[str, Any]]:
    done = bench.here("doctor", "--json", *words)
    assert done.returncode == code, done.stderr
    return {c["id"]: c for c in json.loads(done.stdout)["checks"]}


@pytest.mark.parametrize("version", [14, 18])
def test_settings_that_spoil_measurements_and_the_commands_that_cure_them(
    servers: Servers, bench: Bench, version: int
) -> None:
    asked = UNSAFE | LOGGING | {"track_counts": "off", "track_wal_io_timing": "off"}
    with plain_server(servers.bin_dir(version), asked, ["local all all trust"]) as plain:
        plain.ask("create role some_user login")
        checks = doctor_checks(bench, "--dsn", plain.dsn)
        bad = {id for id, c in checks.items() if c["state"] == "bad"}
        assert bad >= {"fsync", "full-page-writes", "track-counts"}
        assert "assertions" not in bad and checks["assertions"]["state"] == "ok"
        for id in ("synchronous-commit", "autovacuum", "statement-log", "statement-statistics-log"):
            assert checks[id]["state"] == "worth a look", checks[id]
        assert "log_statement = all, log_min_duration_statement = 0" in checks["statement-log"]["value"]
        assert checks["direct-io"]["state"] == ("not supported" if version == 14 else "ok")
        doctor_checks(bench, "--strict", "--dsn", plain.dsn, code=6)
        for command in _sql(checks):
            plain.ask(command)
        plain.ask("select pg_reload_conf()")
        again = doctor_checks(bench, "--dsn", plain.dsn.replace("user=boss", "user=some_user"))
        cured = [id for id, c in again.items() if id in checks and c["state"] == "bad"]
        assert not set(cured) & {"fsync", "full-page-writes", "track-counts"}
        assert again["optimised-build"]["state"] == "unknown", "this role may not call pg_config()"
        assert "ERROR" not in plain.log()


def _sql(checks: dict[str, dict[str, Any]]) -> list[str]:
    commands = [c["command"] for check in checks.values() for c in check["commands"]]
    return [c for c in commands if c.startswith("ALTER SYSTEM")]


def test_direct_io_off_then_asked_for_then_on(servers: Servers, bench: Bench) -> None:
    with plain_server(servers.bin_dir(18), on_disk=True) as plain:
        check = doctor_checks(bench, "--dsn", plain.dsn)["direct-io"]
        assert check["state"] == "ok" and check["value"].startswith("O_DIRECT seen on 0 of "), check
        plain.ask("alter system set debug_io_direct = 'data'")
        plain.ask("select pg_reload_conf()")
        waiting = doctor_checks(bench, "--dsn", plain.dsn)
        assert waiting["direct-io"]["state"] == waiting["pending-restart"]["state"] == "worth a look"
        assert waiting["pending-restart"]["value"] == "debug_io_direct"
        _restart(plain)
        on = doctor_checks(bench, "--dsn", plain.dsn)["direct-io"]
        seen, _, whole = on["value"].removeprefix("O_DIRECT seen on ").partition(" of ")
        assert on["state"] == "ok" and seen == whole.split()[0] != "0", on


def _restart(plain: PlainServer) -> None:
    plain.stop("fast")
    plain.start()


def test_a_flush_is_timed_only_where_dbdyno_may_write(servers: Servers, bench: Bench) -> None:
    with plain_server(servers.bin_dir(18), on_disk=True) as plain:
        before = sorted(p.name for p in plain.data.iterdir())
        refused = doctor_checks(bench, "--flush", "--dsn", plain.dsn)["flush"]
        assert (refused["state"], sorted(p.name for p in plain.data.iterdir())) == ("unknown", before)
        assert "name a directory" in refused["value"]
        timed = doctor_checks(bench, "--dsn", plain.dsn, "--flush", str(bench.home))["flush"]
        assert "for 8 kB" in timed["value"]
