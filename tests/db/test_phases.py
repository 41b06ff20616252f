"""Phases on real servers: the backlog of a spike is carried over, a lost server leaves whole phases.

Bounds are one-sided: a slower machine only takes longer, delivers less and leaves more calls over.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner, Result

from dbdyno.cli.app import app
from dbdyno.model.results.raw import RawCell
from dbdyno.store import RunStore
from tests.conftest import Servers
from tests.contract.plain_server import plain_server
from tests.windows import in_the_window

pytestmark = pytest.mark.db
RATES = {"calm": 20, "spike": 250, "after": 10, "end": 20}


def _run(store: Path, dsn: str, seconds: dict[str, int], *words: str) -> Result:
    (store / "brief.sql").write_text("select pg_sleep(0.02);\n")
    phases = [
        f'[[phases]]\nname = "{name}"\nduration = "{s}s"\nrate = {RATES[name]}\n'
        for name, s in seconds.items()
    ]
    head = 'script = "brief.sql"\nsessions = "2"\nsettle = "300ms"\narrivals = "constant"\n'
    recipe = store / "phases.toml"
    recipe.write_text(head + "".join(phases))
    return CliRunner().invoke(
        app, ["run", "--recipe", str(recipe), "--dsn", dsn, "--store", str(store), *words]
    )


def _cells(store: Path) -> list[RawCell]:
    return list(RunStore(store).open("last").read_cells()[0])


def _pace(cell: RawCell) -> dict[str, Any]:
    return dict(cell.tables["pace"].row(0, named=True))


def test_a_spike_leaves_a_backlog_that_the_next_phase_works_off(servers: Servers, tmp_path: Path) -> None:
    """Two sessions that sleep 20 ms begin at most 100 calls a second: 250/s for 1 s leave 150 and more."""
    seconds = {"calm": 1, "spike": 1, "after": 6}
    done = _run(tmp_path, servers.dsn(18), seconds, "--target", "p99<100ms")
    assert done.exit_code == 0, done.output
    cells = _cells(tmp_path)
    paces = [_pace(c) for c in cells]
    assert [c.meta.cell.variant for c in cells] == list(seconds)
    for pace in paces:
        came = pace["backlog_begin"] + pace["arrivals"]
        assert came == pace["begun"] + pace["dropped"] + pace["backlog_end"]
    assert [p["arrivals"] for p in paces] == [pytest.approx(RATES[n] * s, abs=1) for n, s in seconds.items()]
    assert paces[1]["backlog_end"] == paces[2]["backlog_begin"] >= 140
    ended = sum(int(c.tables["sessions"]["calls"].sum()) for c in cells)
    begun = sum(p["begun"] for p in paces)
    assert begun - 2 <= ended <= begun + 2, "those under way at t0 may end after it"
    for before, after in pairwise(cells):
        assert before.meta.t1_ns == after.meta.t0_ns
        assert after.tables["progress"].height > 1
    tables, claims, *_ = RunStore(tmp_path).open("last").read_derived()  # type: ignore[misc]
    slowest = tables["rungs"].filter(variant="after")["response_max_ns"].item()
    assert slowest > 0.5e9, "calls of the spike end here, with the time that they waited in it"
    by_subject = {(c.id, c.subject): c for c in claims}
    assert by_subject["phase", "spike"].case == "grew"
    missed = by_subject["phase-target", "spike"]
    assert missed.case in ("not-time", "not-lower") and missed.slots["goal"] == "p99 < 100 ms"
    recovery = by_subject["phase-recovery", ""]
    if paces[2]["idle_ns"] is not None:  # else the machine was too slow for the test's 6 s
        assert recovery.value is not None and recovery.value.value > 0.5
        assert (recovery.case, recovery.slots["cause"]) == ("gone", "spike")
    assert not {c.id for c in claims} & {"peak", "knee", "scales-to", "paced-capacity", "paced-overload"}
    assert "before" in done.output and "variant" not in done.output


def test_a_server_that_is_restarted_in_a_phase_leaves_the_whole_ones(
    servers: Servers, tmp_path: Path
) -> None:
    """Its sessions are lost with it. The phase under way is marked, and later ones are absent."""
    with plain_server(servers.bin_dir(18)) as server:

        def restart() -> None:
            server.stop()
            server.start()

        with in_the_window(restart, which=lambda tick: tick.cell.variant == "end"):
            done = _run(tmp_path, server.dsn, {"calm": 1, "end": 60, "after": 60})
    assert done.exit_code != 0
    whole, cut = _cells(tmp_path)
    assert (whole.meta.cell.variant, whole.meta.status) == ("calm", "ok")
    assert cut.meta.cell.variant == "end" and cut.meta.status in ("short", "invalid")
    assert "lost" in (cut.meta.reason or "")
    assert not cut.tables["sessions"].filter(pl.col("end_reason") != "lost").height
    again = CliRunner().invoke(app, ["rebuild", "last", "--store", str(tmp_path)])
    assert again.exit_code == 0 and "calm" in again.output, again.output
