"""random-read and the driver's protocols through the program, as a user would type it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.db.conftest import LIGHT, QUICK, Bench

pytestmark = pytest.mark.db

LIO = 64 * 3  # a table of 4096 blocks has an index of two levels


def rates(document: dict[str, Any], name: str) -> list[dict[str, Any]]:
    rates = [r for r in document["rates"] if r["name"] == name and r["scope"] == "rung"]
    return sorted(rates, key=lambda r: r["cell"])


ONE_RECORD = 24
"""Bytes of WAL's smallest record: a call that changes rows writes more. A session that only reads may now and
then set a hint bit in a catalogue, which a server with checksums logs."""


def findings(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {f["id"]: f for f in document["findings"]}


@pytest.mark.parametrize(("update", "lio"), [(0, LIO), (20, LIO + 2 * 12.8)])
def test_a_run_verifies_its_work(bench: Bench, update: int, lio: float) -> None:
    words = LIGHT if update else ()  # without: a catalogue's hint bits are to be nothing beside many calls
    done = bench.here(
        "run", "random-read", "--sessions", "1,2", *QUICK, *words, "--param", f"update={update}"
    )
    assert done.returncode == 0, done.stderr
    document = bench.last()
    claims = findings(document)
    assert claims["writes-as-planned"]["severity"] == "good", claims
    exact = claims.get("work-constant")
    nearly = claims.get("work-not-constant", {"severity": "note"})
    assert (exact is not None) if update == 0 else nearly["severity"] == "note"
    assert not [i for i in claims if i.startswith("errors") or i == "sessions-lost"]
    work = rates(document, "work_per_call")
    assert [w["value"] for w in work] == pytest.approx([lio] * 2, rel=0.01 if update else 1e-12)
    wal = rates(document, "wal_bytes_per_call")
    assert all((w["value"] >= ONE_RECORD) == (update > 0) and w["status"] == "ok" for w in wal)


@pytest.mark.parametrize("update", [20])
def test_every_version_has_its_work_per_call_or_the_status_not_supported(
    bench: Bench, kind_dsn: str, update: int
) -> None:
    """Before 18 the work of calls that change rows is unknown, not zero."""
    words = ("--sessions", "2", *QUICK, *LIGHT, "--param", f"update={update}", "--dsn", kind_dsn)
    done = bench.here("run", "random-read", *words)
    assert done.returncode == 0, done.stderr
    document = bench.last()
    major = int(document["environment"]["server"]["version"].split(".")[0])
    assert not [i for i in findings(document) if i.startswith("errors") or i == "sessions-lost"]
    (work,) = rates(document, "work_per_call")
    if update and major < 18:
        assert (work["value"], work["status"]) == (None, "not supported")
    else:
        assert work["value"] == pytest.approx(LIO + 2 * 12.8 * (update > 0), rel=0.01)
    (wal,) = rates(document, "wal_bytes_per_call")
    assert ("server-wide" in wal["source"]) == (major < 18)
    if update:
        assert wal["value"] > 12 * 30
    bench.here("clean", "--dsn", kind_dsn)


def test_what_dbdyno_itself_executes_is_left_out(bench: Bench, kind_dsn: str) -> None:
    """Calls are few and long, so one statement of dbdyno's own that counts along would be several percent
    of them."""
    words = ("--sessions", "2", "--call-target", "100ms", *QUICK, *LIGHT, "--dsn", kind_dsn)
    done = bench.here("run", "lio", *words)
    assert done.returncode == 0, done.stderr
    document = bench.last()
    (executions,) = (r for r in document["profile"] if (r["name"], r["cell"]) == ("executions", "all"))
    bench.here("clean", "--dsn", kind_dsn)
    if executions["status"] == "ok":
        assert executions["per_call"] == pytest.approx(1, rel=1e-6)
    else:
        assert "pg_stat_statements" in executions["status"]


def test_a_variant_says_how_calls_are_sent(bench: Bench) -> None:
    recipe = bench.home / "sent.toml"
    recipe.write_text(
        """
        workload = "random-read"
        sessions = "2"
        measure = "1s"
        settle = "200ms"
        think = "3ms"
        memory = false
        snapshots = false
        params = { blocks = 1, scale = 64 }
        variants.plain.driver = {}
        variants.checked.driver = { validation = "SELECT 1" }
        variants.pipelined.driver = { validation = "SELECT 1", pipeline = true }
        variants.parsed.driver = { protocol = "extended", threads = 1 }
        variants.simple.driver = { protocol = "simple", validation = "SELECT 1" }
        """
    )
    done = bench.here("run", "--recipe", str(recipe))
    assert done.returncode == 0, done.stderr
    document = bench.last()
    trips = {r["variant"]: r["value"] for r in rates(document, "round_trips_per_call")}
    assert trips == {"plain": 1, "checked": 2, "pipelined": 1, "parsed": 1, "simple": 2}
    work = {r["variant"]: r["value"] for r in rates(document, "work_per_call")}
    assert set(work.values()) == {2.0}  # the index is a single page
    client = [r["value"] for r in rates(document, "client_cpu_per_call_ns")]
    assert all(cpu is None or cpu > 0 for cpu in client)  # unknown where the driver was read too late


def test_impossible_parameters_are_refused_before_the_start(bench: Bench) -> None:
    for words, message in (
        (("--param", "update=101"), "more than 100"),
        (("--param", "blocks=0"), "less than 1"),
        (("--param", "scale=64", "--param", "blocks=65"), "only 64 blocks"),
    ):
        done = bench.here("run", "random-read", "--sessions", "1", *QUICK, *words)
        assert done.returncode == 2 and message in done.stderr, done.stderr
