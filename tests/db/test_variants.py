"""Real variants: their changes are in force in their cells, and gone when the run is, killed or not."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import psycopg
import pytest

from tests.conftest import Servers
from tests.db.conftest import LIGHT_CALLS, Bench, eventually
from tests.db.limiting import own_groups

pytestmark = pytest.mark.db
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="control groups need root or a delegated group")


def _group(pid: int) -> str:
    return Path(f"/proc/{pid}/cgroup").read_text()


def _recipe(bench: Bench, text: str) -> str:
    file = bench.home / "variants.toml"
    file.write_text(
        'workload = "cpu"\nmeasure = "1s"\nsettle = "100ms"\nmemory = false\nsnapshots = false\n' + text
    )
    return str(file)


def _ask(dsn: str, what: str) -> str:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(what.encode()).fetchone()
    return str(row[0] if row else None)


def _postmaster(dsn: str) -> int:
    backend = int(_ask(dsn, "select pg_backend_pid()"))
    with psycopg.connect(dsn) as connection:
        stat = Path(f"/proc/{connection.info.backend_pid}/stat").read_text()
    assert backend
    return int(stat.rpartition(")")[2].split()[1])


@needs_root
def test_every_variant_is_in_force_in_its_cells_and_nothing_stays(bench: Bench, servers: Servers) -> None:
    dsn = servers.dsn(15)
    main = _postmaster(dsn)
    before, mask = _group(main), os.sched_getaffinity(main)
    recipe = _recipe(
        bench,
        """
sessions = "2"
repeats = 1
[variants.none]
driver = { think = "100ms" }  # only limits need a load that meets them
[variants.half]
limits = { quota = 0.5 }
[variants.one-cpu]
limits = { cpus = "first:1", bind = "pack" }
[variants.untimed]
driver = { think = "100ms" }
settings = { track_io_timing = false, work_mem = "5MB" }
""",
    )
    done = bench.here("run", recipe, "--dsn", dsn, "--json")
    assert done.returncode == 0, done.stderr
    assert _group(main) == before
    assert os.sched_getaffinity(main) == mask
    assert _ask(dsn, "select setting from pg_settings where name = 'track_io_timing'") == "on"
    assert _ask(dsn, "select count(*) from pg_settings where sourcefile like '%auto.conf'") == "0"
    shown = json.loads(done.stdout)
    applied = shown["run"]["applied"]
    assert applied["untimed"]["settings"] == {"track_io_timing": "off", "work_mem": "5MB"}
    assert any("0.5" in words for words in applied["half"]["limits"])
    ran = {r["variant"]: r["run_aas"] for r in shown["rungs"]}
    assert 0 < ran["half"] < 0.65
    assert ran["one-cpu"] < 1.1
    assert not list(bench.home.glob(".local/state/dbdyno/undo/*"))


@needs_root
def test_what_a_killed_run_changed_is_put_back(bench: Bench, servers: Servers) -> None:
    dsn = servers.dsn(15)
    main = _postmaster(dsn)
    before = _group(main)
    recipe = _recipe(
        bench,
        'sessions = "1"\nlimits = { quota = 0.7 }\nsettings = { work_mem = "7MB", track_io_timing = false }',
    )
    with bench.background("run", recipe, "--dsn", dsn, "--measure", "60s", *LIGHT_CALLS) as run:
        eventually(lambda: own_groups(run.pid))
        eventually(lambda: _ask(dsn, "show work_mem") == "7MB")
        eventually(lambda: bench.home.glob("data/dbdyno/*/cells"))
        os.kill(run.pid, signal.SIGKILL)
        run.wait(timeout=60)
    assert own_groups(run.pid)
    assert _ask(dsn, "show work_mem") == "7MB"
    cleaned = bench.here("clean", "--dsn", dsn)
    assert cleaned.returncode == 0, cleaned.stderr
    assert "work_mem" in cleaned.stdout
    assert own_groups(run.pid) == []
    assert _group(main) == before
    eventually(lambda: _ask(dsn, "show work_mem") == "4MB")
    assert _ask(dsn, "show track_io_timing") == "on"
    again = bench.here("clean", "--dsn", dsn)
    assert again.stdout.splitlines() == ["nothing to remove"]


def test_a_run_stops_when_its_intervals_are_tight(bench: Bench) -> None:
    """Its calls sleep, so rates differ by next to nothing."""
    (bench.home / "sleep.sql").write_text("select pg_sleep(0.05)")
    recipe = bench.home / "until.toml"
    recipe.write_text(
        'script = "sleep.sql"\nsessions = "1"\nmeasure = "1s"\nsettle = "100ms"\n[variants.a]\n[variants.b]\n'
    )
    words = ("--until", "20%", "--repeats", "9", "--no-memory", "--no-snapshots", "--json")
    done = bench.here("run", str(recipe), "--dsn", bench.dsn, *words)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["run"]["status"] == "complete"
    assert "of 9 repeats every interval is within" in shown["run"]["stopped"]
    assert len(shown["windows"] if "windows" in shown else shown["cells"]) < 18


def test_a_budget_begins_no_repeat_that_would_end_later(bench: Bench) -> None:
    recipe = _recipe(bench, 'sessions = "1"\nrepeats = 50\nbudget = "7s"\n')
    done = bench.here("run", recipe, "--dsn", bench.dsn, "--json", *LIGHT_CALLS)
    assert done.returncode == 0, done.stderr
    assert "budget of 7.00 s" in json.loads(done.stdout)["run"]["stopped"]


LEFT_OUT = """
workload = "cpu"
sessions = "1"
measure = "1s"
settle = "100ms"
memory = false
snapshots = false
baseline = "pooled"
driver = { protocol = "extended" }
[variants.one]
[variants.two]
driver = { protocol = "simple" }
[variants.pooled]
limits = { pool = 1 }
"""
NO_POOLER = {"DBDYNO_PGBOUNCER": "/nonexistent"}


def test_a_variant_that_cannot_be_had_here_is_left_out(bench: Bench, tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text(LEFT_OUT)
    before = len(bench.runs())
    insisted = bench.here("run", str(recipe), "--all-variants", **NO_POOLER)
    assert (insisted.returncode, "variant pooled" in insisted.stderr) == (2, True), insisted.stderr
    assert len(bench.runs()) == before
    thinking = ("--think", "150ms")  # of long calls: beside short ones a busy machine's driver is the limit
    done = bench.here("run", str(recipe), *thinking, **NO_POOLER)
    assert done.returncode == 0, done.stderr
    assert "variant pooled is left out" in done.stderr
    plan = bench.last()["plan"]
    assert [v["name"] for v in plan["variants"]] == ["one", "two"]
    assert {c["variant"] for c in plan["cells"]} == {"one", "two"}
    assert bench.last()["comparison"]["baseline"] == "one"


def test_one_variant_is_no_comparison(bench: Bench, tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text(LEFT_OUT.replace("[variants.two]", "[variants.two]\nlimits = { pool = 2 }"))
    done = bench.here("run", str(recipe), **NO_POOLER)
    assert (done.returncode, "PgBouncer" in done.stderr) == (2, True), done.stderr
