"""Known truth beside a session's own time: labels, workers, I/O workers, steal, sessions that end."""

from __future__ import annotations

import polars as pl
import pytest
from tests.fake_engine.truth import Truth
from tests.unit.conduct.test_truth_fake import W_NS, memo, played, rung, sampled, truths
from tests.unit.truth_cases import BY_NAME, OLTP

from dbdyno.account.ledger import ledger
from dbdyno.account.window import cut
from dbdyno.model.results.ledger_rows import queue_labels

pytestmark = pytest.mark.queries


def _value(frame: pl.DataFrame, **where: str) -> float:
    rows = frame.filter(**where).filter(pl.col("session").is_null())
    return float(rows["aas"].item())


@pytest.mark.whole
@pytest.mark.parametrize(("dsn", "sessions"), [(BY_NAME["mixture-crowded"].dsn, 12), (OLTP, 16)])
def test_run_queue_by_label_is_the_truth(dsn: str, sessions: int):
    """Traced to the nanosecond; estimated, within its interval: a woken session keeps its label."""
    run = played(dsn, sessions)
    hidden: dict[str, int] = {}
    for truth in truths(run).values():
        for (wait_class, event), ns in truth.queued_as.items():
            hidden[f"{wait_class}/{event}"] = hidden.get(f"{wait_class}/{event}", 0) + ns
    assert sum(hidden.values()) > W_NS, "there is something to find"
    traced, estimated = (ledger(cut([cell])) for cell in (run.cells[0], sampled(run)))
    for detail, ns in hidden.items():
        exact, row = (queue_labels(f).filter(detail=detail).row(0, named=True) for f in (traced, estimated))
        assert exact["aas"] == pytest.approx(ns / W_NS, abs=1e-9)
        assert row["low"] <= ns / W_NS <= row["high"]


def test_parallel_workers_are_a_part_of_their_session():
    """Calls of 6 s by a leader and two workers on four CPUs: 3 CPUs, two thirds of them the workers'."""
    run = played("fake:cpus=4,cpu=18s,workers=2", 1)
    (whole,) = truths(run, workers=True).values()
    frame = ledger(cut(run.cells))
    assert _value(frame, scope="rung", account="run") == pytest.approx(whole.run / W_NS, abs=1e-9)
    assert memo(frame, "workers.run") == pytest.approx(2.0, abs=0.001)
    assert memo(frame, "wall") == pytest.approx(3.0, abs=0.001)


@pytest.mark.parametrize("exact", [True, False])
def test_io_workers_have_a_line_of_their_own(exact: bool):
    """The session waits for the completion; CPU and block I/O of the read are the I/O workers'."""
    run = played("fake:cpus=4,call=cpu:2ms+IO/DataFileRead:3ms,io_workers=2,io_cpu=0.3,spread=0.3", 3)
    (cell,) = run.cells
    truth = run.server.truth_of_roles(cell.meta.t0_ns, cell.meta.t1_ns)["helper:io worker"]
    frame = ledger(cut([cell if exact else sampled(run)]))
    within = 1e-9 if exact else 0.02 * 2
    helper = {"scope": "helper", "who": "io worker"}
    assert _value(frame, **helper, account="run") == pytest.approx(truth.run / W_NS, abs=1e-9)
    reads = _value(frame, **helper, account="sleep", detail="IO/DataFileRead")
    assert reads == pytest.approx(truth.sleep["IO", "DataFileRead"] / W_NS, abs=within)
    assert rung(frame)["sleep", "IO/AioIoCompletion"]["aas"] > 1.5
    assert _value(frame, scope="rung", account="block_io") == 0


def test_stolen_time_is_not_slept_and_bounds_what_is_left():
    """The trace takes it for time on a CPU, the tasks' own figures leave it out: it is unaccounted there."""
    climb = played("fake:cpus=2,cpu=10ms,wait=IO/DataFileRead:5ms,stolen=0.1", 3)
    true_values = list(truths(climb).values())
    run, stolen = sum(t.run for t in true_values) / W_NS, sum(t.stolen for t in true_values) / W_NS
    assert stolen > 0.15
    traced, estimated = (ledger(cut([cell])) for cell in (climb.cells[0], sampled(climb)))
    assert _value(traced, scope="rung", account="run") == pytest.approx(run + stolen, abs=1e-9)
    assert _value(estimated, scope="rung", account="run") == pytest.approx(run, abs=1e-9)
    left = estimated.filter(scope="rung", account="unaccounted").row(0, named=True)
    assert left["low"] <= stolen <= left["high"]
    slept = estimated.filter(scope="rung", account="sleep", detail="IO/DataFileRead").row(0, named=True)
    truth = sum(t.sleep["IO", "DataFileRead"] for t in true_values) / W_NS
    assert slept["low"] <= truth <= slept["high"]
    assert slept["high"] - slept["low"] < 2 * stolen, "no wider than it must be"


def test_a_session_that_ends_counts_as_long_as_it_was_there():
    """Session 1 is lost after 4 s of the window, and a stranger gets its pid: that time is the stranger's."""
    run = played("fake:cpus=4,cpu=10ms,think=5ms,lose=1@6s,pids=reused", 3)
    true_values: dict[int, Truth] = truths(run)
    frame = ledger(cut(run.cells))
    assert true_values[1].wall == pytest.approx(0.4 * W_NS, rel=1e-6)
    for session, truth in true_values.items():
        selected = frame.filter(scope="session", session=session)
        assert selected.filter(account="run")["aas"].item() == pytest.approx(truth.run / W_NS, abs=1e-9)
        assert selected.filter(account="unaccounted")["aas"].item() == pytest.approx(0, abs=1e-6)
    assert _value(frame, scope="beside", who="other", account="run") == pytest.approx(0.18, abs=0.01)


def test_workers_that_live_a_third_of_a_second_are_traced_whole():
    """Calls of 1 s by a leader and two workers, who are new processes at each call."""
    run = played("fake:cpus=4,cpu=1s,workers=2", 1)
    (whole,) = truths(run, workers=True).values()
    frame = ledger(cut(run.cells))
    assert _value(frame, scope="rung", account="run") == pytest.approx(whole.run / W_NS, abs=1e-6)
    assert memo(frame, "workers.run") == pytest.approx(2.0, abs=0.001)
    assert _value(frame, scope="rung", account="unaccounted") == pytest.approx(0.0, abs=1e-6)
