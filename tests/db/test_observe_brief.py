"""Sessions that connect for one transaction each: their CPU time against that of the server's group."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.db.conftest import Bench
from tests.db.pgbench import load

pytestmark = [pytest.mark.db, pytest.mark.root, pytest.mark.alone]
WORK = "select count(*) from generate_series(1, 12000) as g where sqrt(g) > 3;\n"
TOLERANCE = 0.15
UNACCOUNTED = 0.01
"""Seconds per second of brief sessions in the exact tier."""


class Group:
    """A control group of the server alone, its CPU time read 50 times a second."""

    def __init__(self, main_pid: int) -> None:
        root = Path("/sys/fs/cgroup/cpuacct")
        self._v1 = root.is_dir()
        self.path = (root if self._v1 else Path("/sys/fs/cgroup")) / f"dbdyno-test-brief-{os.getpid()}"
        self._home = self._of(main_pid)
        self._pids = [main_pid, *map(int, _children(main_pid))]
        self._read: list[tuple[int, int]] = []
        self._over = threading.Event()

    def __enter__(self) -> Group:
        try:
            self.path.mkdir()
        except OSError as e:
            pytest.skip(f"no control group can be made here: {e}")
        self._move(self._pids, self.path)
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for _try in range(100):  # sessions may still come and go
            self._move(map(int, (self.path / "cgroup.procs").read_text().split()), self._home)
            with contextlib.suppress(OSError):
                self.path.rmdir()
                return
            time.sleep(0.05)

    def cpus(self, t0_ns: int, t1_ns: int) -> float:
        return (self._at(t1_ns) - self._at(t0_ns)) / (t1_ns - t0_ns)

    def _at(self, at_ns: int) -> float:
        """Returns CPU time at an instant. The reader may have waited for a CPU, so the time is taken to
        grow evenly between two reads."""
        (a, used_a), (b, used_b) = next(p for p in pairwise(self._read) if p[0][0] <= at_ns < p[1][0])
        return used_a + (used_b - used_a) * (at_ns - a) / (b - a)

    def _of(self, pid: int) -> Path:
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            if "cpuacct" in controllers.split(",") or (not self._v1 and number == "0"):
                return self.path.parent / path.lstrip("/")
        return self.path.parent

    @staticmethod
    def _move(pids: Any, to: Path) -> None:
        for pid in pids:
            with contextlib.suppress(OSError):
                (to / "cgroup.procs").write_text(str(pid))

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            self._read.append((time.monotonic_ns(), self._usage()))

    def _usage(self) -> int:
        if self._v1:
            return int((self.path / "cpuacct.usage").read_text())
        return 1000 * int((self.path / "cpu.stat").read_text().split()[1])


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


@pytest.fixture(scope="module")
def group(bench: Bench) -> Iterator[Group]:
    with Group(int(bench.ask("select split_part(pg_read_file('postmaster.pid'), e'\\n', 1)")[0][0])) as group:
        yield group


@pytest.fixture(scope="module")
def observed(bench: Bench, group: Group, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Returns the documents of three observations of the same load at the same time."""
    script = tmp_path_factory.mktemp("load") / "work.sql"
    script.write_text(WORK)
    assert group.path.is_dir()  # its CPU time is read from before the load on
    words = (
        "observe",
        "--json",
        "--for",
        "3s",
        "--window",
        "3s",
        "--sample-hz",
        "2",
        "--dsn",
        bench.dsn,
        "--waits",
    )
    ways = {"exact": ("exact",), "sampled": ("sampled",), "another": ("sampled", "--only-application", "x")}
    with load(bench.dsn, "-C", "-n", "-c", "4", "-R", "100", "-f", str(script)), ThreadPoolExecutor() as pool:
        done = {way: pool.submit(bench.dbdyno, *words, *more) for way, more in ways.items()}
    for way, result in done.items():
        assert result.result().returncode == 0, result.result().stderr
        assert way == "another" or "nobody" not in result.result().stderr
    return {way: json.loads(result.result().stdout) for way, result in done.items()}


def rows(document: dict[str, Any], table: str, **which: Any) -> list[dict[str, Any]]:
    return [r for r in document[table] if all(r[k] == v for k, v in which.items())]


def run(document: dict[str, Any], scope: str) -> float:
    return float(sum(r["aas"] or 0.0 for r in rows(document, "ledger", scope=scope, account="run")))


@pytest.mark.parametrize("witness", ["exact", "sampled"])
def test_cpu_time_of_brief_sessions_is_that_of_the_control_group(
    observed: dict[str, Any], group: Group, witness: str
) -> None:
    document = observed[witness]
    (window,) = document["windows"]
    truth = group.cpus(window["t0_ns"], window["t1_ns"])
    sessions, brief = run(document, "rung"), run(document, "brief")
    served = sessions + run(document, "helper")
    assert served < (1 + TOLERANCE) * truth
    # the group counts the backends of all three observations, too, which read the counters at both ends
    assert served + run(document, "beside") > (1 - 2 * TOLERANCE) * truth
    assert 0.3 * sessions < brief <= sessions
    (finding,) = rows(document, "findings", id="brief-sessions")
    assert finding["value"] > 20
    assert not rows(document, "findings", id="nobody-observed")
    profile = {r["name"]: r for r in rows(document, "profile", cell=window["cell"])}
    assert profile["DB CPU"]["per_s"] == pytest.approx(sessions, rel=1e-6)
    if witness == "sampled":  # how long they waited is known to nobody, and it is no zero
        assert profile["CPU WAIT"]["total"] is None
        assert profile["DB time"]["total"] is None
        assert profile["DB time"]["status"] == "too brief"
    else:
        assert profile["CPU WAIT"]["per_s"] > 0
        accounts = {r["account"]: r["status"] for r in rows(document, "ledger", scope="brief")}
        if profile["DB time"]["per_s"] is not None:
            assert profile["DB time"]["per_s"] >= sessions
            (left,) = rows(document, "ledger", scope="brief", account="unaccounted")
            assert abs(left["aas"]) < UNACCOUNTED
            assert accounts["sleep"] == accounts["client"] == "ok"
        else:  # the trace could not read the waits of many
            assert profile["DB time"]["status"] == "too brief"
            assert {r["aas"] for r in rows(document, "ledger", scope="brief", account="sleep")} == {None}


def test_a_filter_leaves_brief_sessions_beside(observed: dict[str, Any]) -> None:
    document = observed["another"]
    assert not rows(document, "ledger", scope="brief")
    assert not rows(document, "findings", id="brief-sessions")
    beside = rows(document, "ledger", scope="beside", who="other", account="run")
    assert sum(r["aas"] or 0.0 for r in beside) > 0.01


def test_brief_sessions_beside_a_driven_run_are_others_and_their_cpu_time_is_counted(
    bench: Bench, group: Group, tmp_path: Path
) -> None:
    brief, driven = tmp_path / "work.sql", tmp_path / "driven.sql"
    brief.write_text(WORK)
    driven.write_text("select pg_sleep(0.02);\n")
    with load(bench.dsn, "-C", "-n", "-c", "4", "-R", "100", "-f", str(brief)):
        done = bench.dbdyno(
            "run",
            "--script",
            str(driven),
            "--sessions",
            "1",
            "--measure",
            "2s",
            "--settle",
            "100ms",
            "--waits",
            "sampled",
            "--dsn",
            bench.dsn,
            "--json",
        )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    (window,) = document["windows"]
    (others,) = rows(document, "ledger", scope="beside", who="other", account="run")
    truth = group.cpus(window["t0_ns"], window["t1_ns"])
    assert others["aas"] < (1 + TOLERANCE) * truth
    everything = sum(run(document, scope) for scope in ("rung", "helper", "beside"))
    assert everything > (1 - TOLERANCE) * truth  # the driver and dbdyno are in it, too
    (waited,) = rows(document, "ledger", scope="beside", who="other", account="runq")
    assert waited["aas"] is None  # how long they waited is not known, and no zero
    assert waited["status"] == "too brief"
