"""``observe`` with several ``--dsn``: a server that goes away and comes back leaves the other alone."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import polars as pl
import pytest

from dbdyno.model.errors import StoreError
from dbdyno.store import Run, RunStore
from tests.clusters import server_dir
from tests.conftest import Servers
from tests.contract.plain_server import plain_server
from tests.db.conftest import Bench
from tests.waiting import eventually

pytestmark = pytest.mark.db
WINDOW_NS = 1_000_000_000


def runs(bench: Bench) -> Mapping[str, Run]:
    """Returns the runs by the port of their server, once each has a window."""
    store = RunStore(Path(bench.env["XDG_DATA_HOME"]) / "dbdyno")
    with suppress(StoreError):
        opened = [store.open(listed.id) for listed in store.list()]
        if all(run.cells() for run in opened):
            return {run.environment.server.where.split(", ")[1].removeprefix("port "): run for run in opened}
    return {}


def windows(run: Run) -> pl.DataFrame:
    metas = [run.read_cell(cell).meta for cell in run.cells()]
    return pl.DataFrame([{"t0_ns": m.t0_ns, "t1_ns": m.t1_ns, "status": m.status} for m in metas])


def test_a_server_that_goes_away_pauses_its_own_observation_alone(servers: Servers, tmp_path: Path) -> None:
    bench = Bench(tmp_path / "home", server_dir(tmp_path / "servers"))
    with plain_server(servers.bin_dir(18)) as steady, plain_server(servers.bin_dir(18)) as gone:
        a, b = str(steady.port), str(gone.port)
        words = ("observe", "--dsn", steady.dsn, "--dsn", gone.dsn, "--window", "1s", "--no-memory")
        with bench.background(*words, "--no-snapshots") as process:
            eventually(lambda: len(runs(bench)) == 2)
            gone.stop()
            before = len(runs(bench)[a].cells())
            eventually(lambda: len(runs(bench)[a].cells()) > before + 1)
            gone.start()
            cells_before = len(runs(bench)[b].cells())
            eventually(lambda: len(runs(bench)[b].cells()) > cells_before + 2)
            process.send_signal(signal.SIGINT)
            output, messages = process.communicate(timeout=240)
    assert process.returncode == 0, messages + output
    by_port = runs(bench)
    assert {r.info.status for r in by_port.values()} == {"complete"}
    assert len({r.info.group for r in by_port.values()}) == 1
    one, other = windows(by_port[a]), windows(by_port[b])
    assert (other["t0_ns"].diff().drop_nulls() > 2 * WINDOW_NS).any()
    ends = [w["t1_ns"] for frame in (one, other) for w in frame[:-1].filter(status="ok").to_dicts()]
    assert len({t1_ns % WINDOW_NS for t1_ns in ends}) == 1, (one, other)
    assert "the server is back" in messages
