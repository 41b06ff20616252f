"""Servers as variants, for real: one at a time, one start a repeat, told apart on the page, nothing left."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dbdyno.engines.postgres import PostgresServer
from dbdyno.engines.postgres.chosen.servers import Servers as of_variants
from dbdyno.model.engine.protocols import Target
from dbdyno.model.errors import ServerBusy
from tests.conftest import Servers
from tests.db.conftest import LIGHT_CALLS, QUICK, SHORT, Bench, eventually

pytestmark = pytest.mark.db
SMALL = (*QUICK, "--sessions", "1", *LIGHT_CALLS, "--param", "blocks=200")


@pytest.fixture(scope="module")
def two(servers: Servers) -> str:
    """Returns the directories of programs of an old and of a new version, as ``--servers`` takes them."""
    return f"{servers.bin_dir(15)},{servers.bin_dir(18)}"


def _running(bench: Bench) -> list[str]:
    """Returns the command lines of servers of this bench."""
    lines = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in lines.splitlines() if f"-D {bench.server_dir}/" in line]


def test_two_versions_are_compared_on_a_start_of_each_in_every_repeat(fresh_bench: Bench, two: str) -> None:
    done = fresh_bench.dbdyno(
        "run", "lio", "--servers", two, "--setting", "io_method=sync", "--settings", "same",
        *SMALL, "--sessions", "1,2", "--repeats", "2", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    choices = {c["name"]: c for c in document["plan"]["choices"]}
    assert "15." in choices["setting io_method"]["reason"]
    assert "effective_io_concurrency=1" in choices["settings of the servers"]["value"]
    environment = document["environment"]
    assert [s["version"].split(".")[0] for s in environment["servers"].values()] == ["15", "18"]
    assert environment["server"] == environment["servers"]["pg15"]
    differ = {d["name"]: d for d in environment["differences"]}
    assert differ["io_method"]["values"] == {"pg15": None, "pg18": "sync"}
    depth = differ["effective_io_concurrency"]  # the default of 18 is 16
    assert (depth["values"], depth["defaults"]["pg18"]) == ({"pg15": "1", "pg18": "1"}, "16")
    record = fresh_bench.last()
    assert {v: a["starts"] for v, a in record["run"]["applied"].items()} == {"pg15": 2, "pg18": 2}
    order = [w["variant"] for w in sorted(record["windows"], key=lambda w: w["t0_ns"])]
    assert order == ["pg15", "pg15", "pg18", "pg18", "pg18", "pg18", "pg15", "pg15"]
    sizes = {c["size"] for c in record["run"]["calibrations"].values()}
    assert len(sizes) == 1  # equal work
    works = {r["work_per_call"] for r in record["rungs"]}
    assert len(works) == 1
    page = fresh_bench.here("compare", "last").stdout
    assert "Starts of each variant's server: 2 starts" in page
    assert "did not alternate" not in page
    assert not _running(fresh_bench)


def test_a_suite_has_a_column_for_each_server(fresh_bench: Bench, two: str) -> None:
    only = ("--only", "point-select,update-plain", "--repeats", "2", *SHORT)
    done = fresh_bench.dbdyno("run", "--suite", "micro", *only, "--servers", two, "--json")
    assert done.returncode == 0, done.stderr
    matrix = json.loads(done.stdout)
    assert matrix["variants"] == ["pg15", "pg18"]
    assert matrix["server"].startswith("PostgreSQL 15.") and " and 18." in matrix["server"]
    assert {r["benchmark"] for r in matrix["rows"]} == {"point-select", "update-plain"}
    for row in matrix["rows"]:
        assert row["reason"] or {*row["means"]} == {"pg15", "pg18"}  # the client may be the limit
        assert all(mean > 0 for mean in row["means"].values())
        run = json.loads(fresh_bench.here("show", row["run"], "--json").stdout)["run"]
        assert [a["starts"] for a in run["applied"].values()] == [2, 2]
    assert not _running(fresh_bench)


def test_data_directories_are_listed_and_removed_by_clean(fresh_bench: Bench, two: str) -> None:
    done = fresh_bench.dbdyno("run", "cpu", "--servers", two, *QUICK, "--sessions", "1", *LIGHT_CALLS)
    assert done.returncode == 0, done.stderr
    directories = fresh_bench.status()["of_variants"]
    assert [Path(d).parent.name.partition("-")[0] for d in directories] == ["18", "15"]
    printed = fresh_bench.here("clean").stdout
    assert all(f"removed data directory {d}" in printed for d in directories)
    assert "of_variants" not in fresh_bench.status()


def test_unusable_servers_are_left_out_if_two_remain(fresh_bench: Bench, two: str) -> None:
    home = fresh_bench.home
    for name in ("foreign", "half"):
        (home / name).mkdir()
    elf = bytearray(Path("/bin/true").read_bytes())
    elf[18:20] = (0xF3).to_bytes(2, "little")  # e_machine: RISC-V
    for program in (home / "foreign/postgres", home / "foreign/initdb", home / "half/postgres"):
        program.write_bytes(elf)
        program.chmod(0o755)
    words = ("run", "cpu", *QUICK, "--sessions", "1", *LIGHT_CALLS, "--servers")
    done = fresh_bench.dbdyno(*words, f"{two},./foreign,./half,99")
    assert done.returncode == 0, done.stderr
    printed = " ".join(done.stderr.split())
    assert "variant pg-foreign is left out" in printed
    assert "Exec format error; is it made for this machine?" in printed
    assert "variant pg-half is left out" in printed
    assert "it needs the programs postgres and initdb" in printed
    assert "variant pg99 is left out: PostgreSQL 99 is not installed; there are:" in printed
    alone = fresh_bench.dbdyno(*words, f"{two.split(',')[0]},./half")
    assert alone.returncode == 2
    assert "variant pg-half: no PostgreSQL server in" in alone.stderr
    assert not _running(fresh_bench)


def test_a_server_that_does_not_start_with_a_setting_shows_its_log(fresh_bench: Bench, two: str) -> None:
    old, new = two.split(",")
    recipe = fresh_bench.home / "servers.toml"
    recipe.write_text(
        f"""
workload = "cpu"
sessions = "1"
measure = "1s"
settle = "100ms"
memory = false
snapshots = false
think = "20ms"
call_target = "1ms"
[variants.old]
server = "{old}"
[variants.new]
server = "{new}"
[variants.nolog]
server = "{old}"
settings = {{ logging_collector = true, log_directory = "/nonexistent/logs" }}
[variants.later]
server = "{old}"
settings = {{ io_method = "sync" }}
"""
    )
    done = fresh_bench.dbdyno("run", str(recipe))
    assert done.returncode == 0, done.stderr
    printed = " ".join(done.stderr.split())
    assert "variant nolog is left out" in printed
    assert "could not open log file" in printed
    assert "variant later is left out: unknown server setting 'io_method'" in printed
    assert not _running(fresh_bench)


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_nothing_is_left_running_after_an_end_in_a_change(
    fresh_bench: Bench, two: str, sign: signal.Signals
) -> None:
    words = ("run", "cpu", "--servers", two, *QUICK, "--sessions", "1", *LIGHT_CALLS, "--repeats", "9")
    with fresh_bench.background(*words) as process:
        _await_change(fresh_bench, process)
        process.send_signal(sign)
        process.wait(60)
    deadline = time.monotonic() + 30
    while _running(fresh_bench) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _running(fresh_bench)
    again = fresh_bench.dbdyno(*words[:-1], "1")
    assert again.returncode == 0, again.stderr


def test_the_first_ctrl_c_ends_a_start_that_hangs(fresh_bench: Bench, servers: Servers) -> None:
    real, hanging = servers.bin_dir(15), fresh_bench.home / "hanging"
    hanging.mkdir()
    (hanging / "initdb").symlink_to(real / "initdb")
    program = f'#!/bin/sh\ncase "$1" in -D) exec tail -f /dev/null;; *) exec {real}/postgres "$@";; esac\n'
    (hanging / "postgres").write_text(program)
    (hanging / "postgres").chmod(0o755)
    words = ("run", "cpu", "--servers", f"{hanging},{servers.bin_dir(18)}", *QUICK, "--sessions", "1")
    with fresh_bench.background(*words) as process:
        eventually(lambda: fresh_bench.status().get("of_variants"), 60)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)  # it is waited for for a minute
    assert process.returncode == 130, errors
    assert "stopped before anything was measured" in errors
    (only,) = fresh_bench.status()["of_variants"]
    assert Path(only).parent.name.startswith("15-")
    assert not _running(fresh_bench)


@pytest.mark.usefixtures("home")
def test_a_run_keeps_all_its_servers_from_the_beginning(servers: Servers) -> None:
    texts = {"old": str(servers.bin_dir(15)), "new": str(servers.bin_dir(18))}
    with closing(of_variants(Target(servers=texts))), pytest.raises(ServerBusy) as e:
        of_variants(Target(servers={"other": texts["new"]}))
    assert e.value.message.startswith("variant other: another run uses the data directory ")
    assert "--wait" in (e.value.cure or "")


def test_a_run_that_ends_early_names_the_variant_that_was_measured(fresh_bench: Bench, two: str) -> None:
    saved = Path(fresh_bench.env["XDG_DATA_HOME"])
    words = ("run", "cpu", "--servers", two, *QUICK, "--sessions", "1,2", *LIGHT_CALLS)
    with fresh_bench.background(*words) as process:
        eventually(lambda: any(saved.rglob("cells/*")), 120)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    for printed in (output, fresh_bench.here("show", "last").stdout):
        printed = " ".join(printed.split())
        assert "Only pg15 of 2 variants was measured; pg18 was not." in printed
        assert re.search(r"on PostgreSQL 15\.\d+, variant pg15 alone, 1 ", printed)
        assert re.search(r"variant sess", printed)
    (listed,) = fresh_bench.runs()
    assert re.fullmatch(r"postgres 15\.\d+", listed["server"])


def _await_change(bench: Bench, process: subprocess.Popen[str]) -> None:
    """Waits until the first measurement is saved and then until no server runs."""
    deadline = time.monotonic() + 120
    saved = Path(bench.env["XDG_DATA_HOME"])
    while not any(saved.rglob("cells/*")) and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.05)
    while _running(bench) and time.monotonic() < deadline:
        time.sleep(0.005)


def test_servers_that_run_already_are_not_started_or_changed(
    fresh_bench: Bench, servers: Servers, dsn18: str
) -> None:
    before = _running(fresh_bench)
    old = servers.dsn(15)
    own = f"{dsn18},{dsn18}&options=-c%20jit%3Doff"  # is another setting of its own sessions
    for texts in (f"{old},{dsn18}", f"{dsn18},{dsn18}&application_name=other", own):
        done = fresh_bench.here("run", "lio", "--servers", texts, *SMALL)
        assert done.returncode == 0, done.stderr
        assert ("are the same server" in done.stderr) == ("application_name" in texts)
    assert _running(fresh_bench) == before
    assert "of_variants" not in fresh_bench.status()
    refused = fresh_bench.here("run", "lio", "--servers", f"{old},{dsn18}", *SMALL, "--setting", "jit=off")
    assert refused.returncode == 2
    assert "--setting is for servers that dbdyno starts" in refused.stderr


def test_a_server_that_runs_already_stays_claimed_while_another_is_in_use(
    servers: Servers, dsn18: str
) -> None:
    old = servers.dsn(15)
    texts = {"old": old, "new": dsn18, "again": f"{old}&application_name=again"}
    with closing(PostgresServer(old)) as other:
        with closing(of_variants(Target(servers=texts))) as compared:
            compared.claim("one")
            for variant in (*texts, "old"):
                assert compared.choosing.use(variant) is False
                with pytest.raises(ServerBusy, match="dbdyno run one "):
                    other.claim("two")
            (holder,) = other.control.execute(
                "select pid from pg_locks where locktype = 'advisory'"
            ).fetchall()
            other.control.execute("select pg_terminate_backend(%s, 5000)", holder)
            compared.choosing.use("again")  # claims anew
            with pytest.raises(ServerBusy, match="dbdyno run one "):
                other.claim("two")
        other.claim("two")


def test_an_error_while_tables_are_made_names_the_variant(
    fresh_bench: Bench, servers: Servers, dsn18: str
) -> None:
    refusing = f"{dsn18}&options=-cdefault_transaction_read_only%3Don"
    both = ("--servers", f"{servers.dsn(15)},{refusing}", *QUICK, "--sessions", "1")
    for words in (("random-read", "--param", "scale=65"), ("lio", "--param", "blocks=201", *LIGHT_CALLS)):
        done = fresh_bench.here("run", *words, *both)
        assert done.returncode == 3
        assert re.search(r"^error: variant \S+: .*read-only", done.stderr, re.MULTILINE), done.stderr
    assert fresh_bench.runs() == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--dsn", "host=x"), "--dsn names another"),
        (("--pg-bin", "/x"), "--pg-bin names another"),
        (("--baseline", "pg7"), "the baseline 'pg7' is no variant"),
    ],
)
def test_one_server_more_is_refused(bench: Bench, words: tuple[str, ...], message: str) -> None:
    done = bench.here("run", "lio", "--servers", "15,18", "--dry-run", *words)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """Yields a file system with room for one data directory."""
    with tempfile.TemporaryDirectory(prefix="dyno-", dir="/tmp") as place:
        Path(place).chmod(0o755)
        mounting = ["mount", "-t", "tmpfs", "-o", "size=120m,mode=755", "tmpfs", place]
        if subprocess.run(mounting, capture_output=True, check=False).returncode != 0:
            pytest.skip("mounts a tmpfs: run the tests as root")
        try:
            yield Path(place)
        finally:
            subprocess.run(["umount", "--lazy", place], check=True)


def test_a_disk_that_is_full_while_data_are_made_names_the_variant(
    fresh_bench: Bench, small_disk: Path, two: str
) -> None:
    words = ("run", "cpu", "--servers", two, *QUICK, "--sessions", "1", *LIGHT_CALLS)
    done = fresh_bench.dbdyno(*words, DBDYNO_SERVER_DIR=str(small_disk / "s"))
    assert done.returncode == 3
    assert "error: variant pg18: " in done.stderr
    assert "No space left on device" in done.stderr
    assert "the file system is full: make room there" in done.stderr
    lines = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert f"-D {small_disk}" not in lines
    assert fresh_bench.runs() == []


@pytest.mark.parametrize("what", [("lio",), ("--suite", "micro")])
def test_a_plan_says_which_servers_are_not_possible_here(
    bench: Bench, two: str, what: tuple[str, ...]
) -> None:
    done = bench.here("run", *what, "--servers", f"{two},99,/nope", "--dry-run")
    assert done.returncode == 0
    printed = " ".join(done.stdout.split())
    assert "Variant pg99 is not possible here: PostgreSQL 99 is not installed" in printed
    assert "Variant pg-nope is not possible here: no PostgreSQL server in /nope" in printed
    assert "Variant pg18" not in printed
    for words in (("18,99", "--json"), (f"{two},99", "--all-variants")):
        refused = bench.here("run", *what, "--dry-run", "--servers", *words)
        assert refused.returncode == 2
        assert "error: variant pg99: PostgreSQL 99 is not installed" in refused.stderr
