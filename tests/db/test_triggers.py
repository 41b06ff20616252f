"""Triggers on a real server: a ramp of connections, a ladder, and a stop during an action."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time

import psycopg
import pytest

from dbdyno import conduct
from dbdyno.store import RunStore, read_fired
from tests.db.conftest import LIGHT_CALLS, PROGRAM, QUICK, Bench, eventually

pytestmark = pytest.mark.db
S = 1_000_000_000


WATCHES = "select count(*) from pg_stat_activity where application_name like 'dbdyno activity%'"
FIRED = {n: n // 3 + (n >= 9) for n in range(1, 11)}
"""How often the conditions of the ramp have been met by then."""


def test_a_ramp_of_connections_fires_once_at_each_and_a_capture_survives_ctrl_c(bench: Bench) -> None:
    words = (
        "--when",
        "sessions in (3,6,9)",
        "--do",
        "exec cat",
        "--when",
        "sessions = 9",
        "--do",
        "trace 60s",
    )
    store = bench.home / "ramp"
    under_way = [PROGRAM, "observe", "--dsn", bench.dsn, "--lines", "--store", str(store), *words]
    with subprocess.Popen(
        under_way, env=bench.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        eventually(lambda: list(store.glob("*/environment.json")))
        (watches,) = bench.ask(WATCHES)[0]
        record = RunStore(store).open("last")
        reached: dict[int, int] = {}
        with contextlib.ExitStack() as opened:
            for n in range(1, 11):
                opened.enter_context(psycopg.connect(bench.dsn, autocommit=True))
                reached[n] = time.monotonic_ns()
                eventually(lambda n=n: len(read_fired(record)) >= FIRED[n])
            eventually(lambda: len(read_fired(record)) == 4)
            eventually(lambda: bench.ask(WATCHES)[0][0] > watches)
            time.sleep(2)  # of the trace
            process.send_signal(signal.SIGINT)
            process.wait(120)
    ramp = [f for f in read_fired(record) if f.trigger == 1]
    assert [(f.matched, f.status) for f in ramp] == [(f"sessions = {n}", "ok") for n in (3, 6, 9)]
    assert [reached[n] <= f.at_ns + S // 2 for n, f in zip((3, 6, 9), ramp, strict=True)] == [True] * 3
    (trace,) = (f for f in read_fired(record) if f.trigger == 2)
    assert (trace.status, trace.action) == ("short", "trace 60s"), trace.detail
    assert trace.to_ns is not None and trace.from_ns is not None and trace.to_ns - trace.from_ns >= S
    assert conduct.capture_of(record, trace.number).read_cells()[0]
    shown = bench.here("show", "last", "--store", str(store), "--captures")
    assert "What fired" in shown.stdout


def test_a_ladder_fires_once_at_each_number_of_sessions(bench: Bench) -> None:
    when = (
        "--when",
        "sessions in (2,4)",
        "--do",
        "profile 1s",
        "--when",
        "response > 1h",
        "--do",
        "snapshot",
    )
    store = bench.home / "ladder"
    words = ("--sessions", "1,2,4", *QUICK, *LIGHT_CALLS, "--measure", "2s", "--store", str(store))
    done = bench.here("run", "lio", "--dsn", bench.dsn, *words, *when)
    assert done.returncode == 0, done.stderr
    record = RunStore(store).open("last")
    fired = read_fired(record)
    assert [f.matched for f in fired] == ["sessions = 2", "sessions = 4"]
    cells = {c.meta.cell.sessions: c.meta for c in record.read_cells()[0]}
    for f, n in zip(fired, (2, 4), strict=True):
        assert cells[n].t0_ns <= f.at_ns <= cells[n].t1_ns
    claims = {f.id for f in conduct.results_of(record).findings}
    assert {"trigger-fired", "trigger-never-fired"} <= claims
    assert bench.here("show", "last", "--store", str(store)).returncode == 0
