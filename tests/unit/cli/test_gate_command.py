"""``--fail-on``: exit codes, the lines for a log, JSON, and files with the gate."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests import in_process
from tests.unit.snapshot_cases import snapshot

from dbdyno.model.errors import EXIT_GATE, EXIT_INTERRUPTED
from dbdyno.store import SnapshotStore

Invoke = Callable[..., subprocess.CompletedProcess[str]]
FAKE = ("run", "lio", "--engine", "fake", "--dsn", "fake:cpus=2,cpu=5ms", "--call-target", "5ms")
OLD = "10.0 10.1 9.9 10.2 9.8"
NEW = "12.0 12.1 11.9 12.2 11.8"
"""A fifth more, and lower is better: worse by 20 %."""


@pytest.fixture
def invoke(tmp_path: Path) -> Invoke:
    """Runs the program in a folder with two files of numbers and a store of its own."""
    for name, numbers in (("old.txt", OLD), ("new.txt", NEW)):
        (tmp_path / name).write_text(numbers.replace(" ", "\n"))
    env = {**os.environ, "DBDYNO_STORE": str(tmp_path / "store"), "COLUMNS": "100"}
    return lambda *words: in_process.dbdyno(words, env, tmp_path)


@pytest.mark.parametrize(
    ("rule", "code"),
    [("worse", EXIT_GATE), ("worse:15%", EXIT_GATE), ("worse:50%", 0), ("better", 0), ("p99:worse", 2)],
)
def test_the_exit_code_of_a_comparison(invoke: Invoke, rule: str, code: int) -> None:
    assert invoke("compare", "old.txt", "new.txt", "--fail-on", rule).returncode == code


def test_the_log_ends_with_the_gate_and_quiet_prints_it_alone(invoke: Invoke) -> None:
    whole = invoke("compare", "old.txt", "new.txt", "--fail-on", "worse:5%").stdout
    alone = invoke("-q", "compare", "old.txt", "new.txt", "--fail-on", "worse:5%").stdout
    assert whole.endswith(alone) and len(whole) > 2 * len(alone)
    verdict, rule, command = alone.splitlines()
    assert verdict == "gate failed" and rule.startswith("failed  worse:5%  new.txt: 1.200 times old.txt (1.")
    assert command == "all of it: dbdyno compare old.txt new.txt -o comparison.html"


def test_json_has_the_gate_and_the_log_beside_it(invoke: Invoke) -> None:
    done = invoke("compare", "old.txt", "new.txt", "--fail-on", "worse:5%", "--json")
    gate = json.loads(done.stdout)["gate"]
    assert (gate["verdict"], gate["exit_code"], done.returncode) == ("failed", EXIT_GATE, EXIT_GATE)
    assert gate["rules"][0]["findings"][0]["ratio"] == pytest.approx(1.2)
    assert done.stderr.splitlines() == gate["summary"]
    without = json.loads(invoke("compare", "old.txt", "new.txt", "--json").stdout)
    assert "gate" not in without


def test_files_have_the_gate(invoke: Invoke, tmp_path: Path) -> None:
    rule = ("compare", "old.txt", "new.txt", "--fail-on", "worse:5%", "-o")
    assert invoke(*rule, "c.md").returncode == EXIT_GATE
    text = (tmp_path / "c.md").read_text()
    assert "Gate failed." in text and "| worse:5% | failed |" in text
    assert invoke(*rule, "c.xml").returncode == EXIT_GATE
    suites = ElementTree.fromstring((tmp_path / "c.xml").read_bytes())
    assert [s.get("failures") for s in suites] == ["1"]
    done = invoke(*rule, "c.xml")  # JUnit has the rules alone
    assert done.stdout.endswith("all of it: dbdyno compare old.txt new.txt -o comparison.html\n")
    refused = invoke("compare", "old.txt", "new.txt", "-o", "d.xml")
    assert refused.returncode == 2 and "--fail-on" in refused.stderr and not (tmp_path / "d.xml").exists()


@pytest.mark.parametrize("command", [("compare", "old.txt", "new.txt"), ("trend",)])
def test_a_file_is_refused_before_anything_is_compared(
    invoke: Invoke, tmp_path: Path, command: tuple[str, ...]
) -> None:
    for name, words in (("x.pdf", "ends in .pdf; it is .html, .md, .xlsx"), ("none/x.xml", "no directory")):
        refused = invoke(*command, "-o", name)
        assert refused.returncode == 2 and words in " ".join(refused.stderr.split())
        assert not (tmp_path / name).exists()


def test_a_rule_is_checked_before_anything_is_measured(invoke: Invoke, tmp_path: Path) -> None:
    for rule, words in (
        ("claim:erors", "did you mean 'errors'?"),
        ("p9:worse", "did you mean 'p99'?"),
        ("worse:1%", "--margin 1%"),
        ("worse", "this run has one variant"),
    ):
        refused = invoke(*FAKE, "--fail-on", rule)
        assert refused.returncode == 2 and words in refused.stderr
    assert not list((tmp_path / "store").glob("*-lio-*"))


def test_claims_of_a_run_when_it_ends_and_when_it_is_shown(invoke: Invoke) -> None:
    short = ("--sessions", "1", "--measure", "1s")
    done = invoke(*FAKE, *short, "--fail-on", "claim:peak", "--fail-on", "claim:errors")
    assert done.returncode == EXIT_GATE
    assert "passed  claim:errors" in done.stdout and "report: " in done.stdout  # all of it was written
    assert invoke("show", "last", "--fail-on", "claim:errors").returncode == 0
    shown = invoke("show", "last", "--claims", "--fail-on", "claim:peak")
    assert shown.returncode == EXIT_GATE and "dbdyno show" in shown.stdout
    assert invoke("report", "last", "--fail-on", "claim:peak").returncode == EXIT_GATE
    assert invoke("show", "last", "--fail-on", "worse").returncode == 2  # nothing to compare is no success
    young = invoke("trend", "--fail-on", "change", "--fail-on", "unknown")
    assert young.returncode == EXIT_GATE and "1 run, and a change needs 6" in young.stdout


def test_calls_that_all_fail_are_an_error_and_no_broken_rule(invoke: Invoke) -> None:
    failing = (
        *FAKE[:5],
        "fake:cpus=2,cpu=5ms,error_every=1",
        *FAKE[6:],
        "--sessions",
        "1",
        "--measure",
        "1s",
    )
    done = invoke(*failing, "--fail-on", "claim:peak")
    assert done.returncode == 5, done.stdout + done.stderr


def test_a_gate_of_a_history_as_junit(invoke: Invoke, tmp_path: Path) -> None:
    for _ in range(3):
        invoke(*FAKE, "--sessions", "1", "--measure", "1s")
    trend = ("trend", "--fail-on", "change:worse:5%", "-o")
    assert invoke(*trend, "t.xml").returncode == 0
    (suite,) = ElementTree.fromstring((tmp_path / "t.xml").read_bytes())
    assert (suite.get("name"), suite.get("skipped"), suite.get("failures")) == ("change:worse:5%", "1", "0")
    assert "3 runs, and a change needs 6 at least" in suite.find("testcase/skipped").get("message")
    assert invoke("trend", "--fail-on", "unknown", *trend[1:], "t.xml").returncode == EXIT_GATE
    (suite,) = ElementTree.fromstring((tmp_path / "t.xml").read_bytes())
    assert suite.get("failures") == "1"
    refused = invoke("trend", "-o", "none.xml")
    assert refused.returncode == 2 and "--fail-on" in refused.stderr and not (tmp_path / "none.xml").exists()
    done = invoke("trend", "--json", "--fail-on", "change")
    assert json.loads(done.stdout)["gate"]["summary"] == done.stderr.splitlines()


def test_a_run_that_is_stopped_says_that_nothing_was_judged(invoke: Invoke, tmp_path: Path) -> None:
    """Ctrl-C as soon as the first of many measurements is saved."""
    done = threading.Event()

    def stop() -> None:
        while not done.wait(0.05):
            if any((tmp_path / "store").glob("*-lio-*/cells/*")):
                os.kill(os.getpid(), signal.SIGINT)
                return

    watcher = threading.Thread(target=stop)
    watcher.start()
    try:
        stopped = invoke(
            *FAKE, "--sessions", "1,2,4,8", "--measure", "1s", "--repeats", "9", "--fail-on", "claim:peak"
        )
    finally:
        done.set()
        watcher.join()
    assert stopped.returncode == EXIT_INTERRUPTED, stopped.stderr
    assert "cut short" in stopped.stderr and "--fail-on was not judged" in stopped.stderr
    assert "gate" not in stopped.stdout


def test_json_of_a_run_with_a_gate_is_json_alone(invoke: Invoke) -> None:
    short = ("--sessions", "1", "--measure", "1s", "--json")
    done = invoke(*FAKE, *short, "--fail-on", "claim:peak")
    assert done.returncode == EXIT_GATE
    assert json.loads(done.stdout)["gate"]["verdict"] == "failed" and "gate failed" in done.stderr


def test_a_claim_that_a_run_never_has_is_refused_before_it(invoke: Invoke, tmp_path: Path) -> None:
    refused = invoke(*FAKE, "--fail-on", "claim:executions-failed")
    assert refused.returncode == 2 and "runs of the kind database never have this claim" in refused.stderr
    assert invoke("compare", "old.txt", "new.txt", "--fail-on", "claim:errors").returncode == 2
    assert not list((tmp_path / "store").glob("*-lio-*"))


def test_claims_between_two_snapshots(invoke: Invoke, tmp_path: Path) -> None:
    snapshots = SnapshotStore(tmp_path / "store")
    for n, name in enumerate(("before", "after")):
        shop = {"database_id": 5, "database": "shop", "commits": 1000 * n, "deadlocks": 3 * n}
        snapshots.add(snapshot(600.0 * n, info={"name": name}, databases=[shop]))
    for rule, code in (("claim:snapshot-deadlocks", EXIT_GATE), ("claim:snapshot-slot", 0), ("worse", 2)):
        assert invoke("report", "before..after", "--fail-on", rule).returncode == code, rule
