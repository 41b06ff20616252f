"""Paced load on real servers: stops show in percentiles, overload is reported, a lost server leaves a run.

Bounds are one-sided: a slower machine only takes longer, delivers less and leaves more calls over.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner, Result

from dbdyno.cli.app import app
from dbdyno.model.results.raw import RawCell
from dbdyno.store import RunStore
from tests.conftest import Servers
from tests.contract.plain_server import PlainServer, plain_server
from tests.windows import in_the_window

pytestmark = pytest.mark.db
S = 1_000_000_000


@pytest.fixture(scope="module")
def server(servers: Servers) -> Iterator[PlainServer]:
    with plain_server(servers.bin_dir(18)) as server:
        yield server


def _run(dsn: str, store: Path, sleep_s: float, *words: str) -> Result:
    script = store / "brief.sql"
    script.write_text(f"select pg_sleep({sleep_s});\n")
    given = ("--script", str(script), "--dsn", dsn, "--arrivals", "constant", "--settle", "300ms")
    return CliRunner().invoke(app, ["run", *given, "--store", str(store), *words])


def _cell(store: Path) -> RawCell:
    (cell,), _ = RunStore(store).open("last").read_cells()
    return cell


def _rung(store: Path) -> dict[str, Any]:
    derived = RunStore(store).open("last").read_derived()
    assert derived is not None
    (rung,) = derived[0]["rungs"].to_dicts()
    return dict(rung)


def _slow(cell: RawCell, table: str, at_least_s: float) -> int:
    return int(cell.tables[table].filter(pl.col("low_ns") >= at_least_s * S)["count"].sum())


def test_a_server_that_stops_for_2_s_shows_in_the_percentiles(server: PlainServer, tmp_path: Path) -> None:
    """Calls that become due meanwhile take from 0 to 2 s, evenly; they are 2 of 5. A closed loop of 4
    sessions would have 4 slow calls of 1,100."""
    sessions, rate, measured_s = 4, 220, 5
    stopped = [0, 0]

    def stop() -> None:
        main = int((server.data / "postmaster.pid").read_text().split()[0])
        pids = [main, *map(int, Path(f"/proc/{main}/task/{main}/children").read_text().split())]
        try:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            stopped[0] = time.monotonic_ns()
            time.sleep(2)
            stopped[1] = time.monotonic_ns()
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    words = ("--rate", str(rate), "--sessions", str(sessions), "--measure", f"{measured_s}s")
    with in_the_window(stop, 0.7):
        done = _run(server.dsn, tmp_path, 0.005, *words)
    assert done.exit_code == 0, done.output
    cell, rung = _cell(tmp_path), _rung(tmp_path)
    stall_s, due = (stopped[1] - stopped[0]) / S, rate * measured_s
    share = rate * stall_s / due
    assert cell.tables["pace"]["arrivals"].sum() == pytest.approx(due, abs=1)
    for percent in (95, 99):
        theory_s = stall_s * (1 - (1 - percent / 100) / share)
        assert rung[f"response_p{percent}_ns"] / S >= theory_s - 3 / rate, "a few calls were begun before"
    assert rung["response_max_ns"] / S >= stall_s - 3 / rate
    assert rung["late"] >= rate * stall_s - sessions - 2
    half = stall_s / 2
    assert _slow(cell, "histogram", half) >= rate * half - sessions - 2
    assert _slow(cell, "service_histogram", 0.95 * stall_s) <= sessions, "from the real start it hides"


@pytest.mark.parametrize("major", [15, 18])
def test_a_rate_above_the_capacity_leaves_calls_over_and_says_so(
    servers: Servers, tmp_path: Path, major: int
) -> None:
    """Two sessions that sleep 20 ms begin at most 100 calls a second."""
    words = ("--rate", "200", "--sessions", "2", "--measure", "2s")
    done = _run(servers.dsn(major), tmp_path, 0.02, *words)
    assert done.exit_code == 0, done.output
    cell, rung = _cell(tmp_path), _rung(tmp_path)
    pace = cell.tables["pace"].sum().row(0, named=True)
    assert pace["arrivals"] == pace["begun"] + pace["dropped"] + pace["backlog_end"]
    assert pace["arrivals"] == pytest.approx(400, abs=1)
    assert rung["calls_per_s"] <= 101
    assert rung["backlog_end"] >= 460 - 2 * 2.3 / 0.02 - 2, "2.3 s with the warm-up"
    assert rung["response_p50_ns"] >= rung["service_p50_ns"] > 0.02 * S
    claims = {c.id: c for c in RunStore(tmp_path).open("last").read_derived()[1]}  # type: ignore[index]
    assert (claims["paced-capacity"].case, claims["paced-capacity"].slots["over"]) == ("not", 200)
    assert claims["paced-overload"].value.value == rung["backlog_end"]  # type: ignore[union-attr]
    assert "lower bounds" in done.output


def test_a_server_that_is_killed_in_mid_run_leaves_a_readable_run(servers: Servers, tmp_path: Path) -> None:
    """It has room for fewer sessions than would be chosen, so the rates are run over those."""
    with plain_server(servers.bin_dir(18), {"max_connections": "14"}) as server:
        words = ("--rates", "50,100", "--measure", "2s", "--no-memory", "--no-snapshots")
        with in_the_window(server.stop, 0.3, lambda tick: tick.number == 2):
            done = _run(server.dsn, tmp_path, 0.005, *words)
    assert done.exit_code == 5, done.output
    page = tmp_path / "run.html"
    shown = CliRunner().invoke(app, ["report", "last", "--store", str(tmp_path), "-o", str(page)])
    assert shown.exit_code == 0, shown.output
    assert "Calls delivered against calls due" in page.read_text()
    first = _rungs_of(tmp_path)[0]
    assert first["rate_per_s"] == 50
    assert first["sessions"] == 14 - 1 - 3 - 2, "the program's, 3 of its own, 2 left for others"
    assert "max_connections = 14" in done.output, "why there are so few sessions"


def test_a_server_that_is_restarted_ends_the_measurement_with_the_reason(
    servers: Servers, tmp_path: Path
) -> None:
    """No session connects again. Lost sessions are counted, and no later rate is measured on a cold
    server."""
    with plain_server(servers.bin_dir(15)) as server:

        def restart() -> None:
            server.stop("fast")
            time.sleep(1)
            server.start()

        with in_the_window(restart):
            done = _run(
                server.dsn, tmp_path, 0.005, "--rates", "50,100", "--sessions", "4", "--measure", "5s"
            )
        assert server.ask("select 1") == [(1,)], "it is there again"
    assert done.exit_code == 5, done.output
    (cell,), _ = RunStore(tmp_path).open("last").read_cells()
    assert cell.meta.status == "short" and cell.meta.t1_ns - cell.meta.t0_ns < 4 * S
    assert "all sessions were lost" in str(cell.meta.reason)
    assert set(cell.tables["sessions"]["end_reason"]) == {"lost"}
    pace = cell.tables["pace"].sum().row(0, named=True)
    assert pace["arrivals"] == pace["begun"] + pace["dropped"] + pace["backlog_end"]
    assert "all sessions were lost" in " ".join(done.output.split())


def _rungs_of(store: Path) -> list[dict[str, Any]]:
    results: Any = RunStore(store).open("last").read_derived()
    return list(results[0]["rungs"].to_dicts())
