"""Trees of processes: which session figures belong to, that they count once, and that the ledger closes.

All programs have known CPU or sleep. The tests compare the kernel's books with each other, so a busy
machine makes no difference.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest

from dbdyno.account.ledger import accounts
from dbdyno.account.window import cut
from dbdyno.model.results.brief import material
from dbdyno.model.results.ledger_rows import BY_LABEL
from dbdyno.model.results.raw import RawCell
from tests.commands import trees

S = 1_000_000_000
CPUS = os.cpu_count() or 1
NOBODY = 65534
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="to become another user, or to read statistics at exit"
)
TIERS = {
    "trace": {"trace": "auto"},
    "statistics at exit": {"trace": "off"},
    "another user's": {"user": NOBODY},
}


@pytest.fixture(scope="module")
def tool() -> Iterator[str]:
    """Compiles a program in a directory that everybody may read."""
    with TemporaryDirectory(prefix="dbdyno-tree-") as directory:
        Path(directory).chmod(0o755)
        program = Path(directory) / "tool"
        source = Path(trees.__file__).with_name("tool.c")
        subprocess.run(["cc", "-O1", "-pthread", str(source), "-o", str(program)], check=True)
        yield str(program)


def cpu_used(cell: RawCell) -> float:
    """Returns CPU per wall of executions by wait4; of those under way at the ends of the window, the part
    inside."""
    t0, t1 = cell.meta.t0_ns, cell.meta.t1_ns
    start, end = pl.max_horizontal("start_ns", pl.lit(t0)), pl.min_horizontal("end_ns", pl.lit(t1))
    part = (end - start).clip(0) / (pl.col("end_ns") - pl.col("start_ns"))
    cpu = ((pl.col("user_ns") + pl.col("system_ns")) * part).sum() / (t1 - t0)
    return float(cell.tables["executions"].select(cpu).item())


def ledger(cell: RawCell, scope: str = "rung") -> dict[str, float | None]:
    """Returns seconds per second by account."""
    rows = accounts(cut([cell]))["ledger"].filter((pl.col("scope") == scope) & ~BY_LABEL)
    sums = rows.group_by("account").agg(pl.col("aas").sum(), unknown=pl.col("aas").is_null().all())
    return {a: None if unknown else v for a, v, unknown in sums.rows()}


def status(cell: RawCell, source: str) -> str:
    statuses = dict(cell.tables["sources"].select("name", "status").rows())
    return str(statuses.get(source))


def close(cpu: float | None, cell: RawCell, *, read: bool = False) -> None:
    """Checks the ledger's ``cpu`` per wall against wait4.

    Executions that straddle an end of the window count whole or not at all. Those that are ``read``
    while they live count with what they used in it, which is at most all CPUs inside, and all CPUs
    outside.
    """
    t0, t1 = cell.meta.t0_ns, cell.meta.t1_ns
    low = high = 0.0
    for e in cell.tables["executions"].to_dicts():
        wall, used_ns = e["end_ns"] - e["start_ns"], e["user_ns"] + e["system_ns"]
        within = max(0, min(t1, e["end_ns"]) - max(t0, e["start_ns"]))
        most = CPUS * within if read else used_ns * (within > 0)
        least = used_ns - CPUS * (wall - within) if read else used_ns * (within == wall)
        low, high = low + max(0, least) / (t1 - t0), high + min(used_ns, most) / (t1 - t0)
    slack = max(0.05, 0.2 * cpu_used(cell))
    assert cpu is not None and low - slack <= cpu <= high + slack


@needs_root
@pytest.mark.parametrize("tier", TIERS)
def test_lives_of_a_millisecond_are_counted_and_the_ledger_closes(tool: str, tier: str) -> None:
    """Each life is far shorter than the time between two samples. Run, run queue and sleep are all its
    wall time."""
    cell = trees.cell([tool, "spin", "1"], sessions=2, **TIERS[tier])
    assert cell.tables["executions"].height > 20
    aas = ledger(cell)
    close(aas["run"], cell)
    assert aas["runq"] is not None
    if tier != "trace" or status(cell, "scheduler trace") != "ok":
        assert aas["unaccounted"] == pytest.approx(0, abs=0.1)


@needs_root
def test_children_that_nobody_met_are_found_by_their_statistics_at_exit(tool: str) -> None:
    cell = trees.cell([tool, "brood", "5", "4"], sessions=2)
    assert status(cell, "task statistics at exit") == "ok"
    met = cell.tables["tasks"].filter(pl.col("state") == "X")
    executions = cell.tables["executions"]["pid"]
    children = met.filter(~pl.col("pid").is_in(executions.implode()))
    assert children.height > 2 * executions.len()
    aas = ledger(cell)
    close(aas["run"], cell)
    missed = ledger(cell, "brief").get("run") or 0  # on a busy machine there are some
    assert aas["runq"] is not None or material(missed, aas["run"]), str((missed, aas))


@needs_root
def test_without_the_right_their_cpu_time_is_known_and_their_run_queue_is_not_zero(tool: str) -> None:
    cell = trees.cell([tool, "brood", "5", "4"], sessions=2, user=NOBODY)
    assert status(cell, "task statistics at exit") == "not permitted"
    aas = ledger(cell)
    close(aas["run"], cell)
    assert aas["runq"] is None, "most of the CPU time is of tasks whose run queue nobody knows"
    assert (ledger(cell, "brief")["run"] or 0) > 0.05 * cpu_used(cell)


@needs_root
def test_in_another_pid_namespace_it_is_the_same_as_without_the_right(tool: str) -> None:
    before = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*before, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no pid namespaces here")
    cell = trees.cell([tool, "brood", "5", "4"], before=before, trace="auto")
    assert status(cell, "scheduler trace") == "not supported"
    assert status(cell, "task statistics at exit") == "not permitted"
    close(ledger(cell)["run"], cell)


@needs_root
@pytest.mark.parametrize("tier", TIERS)
def test_a_daemon_belongs_to_its_session(tool: str, tier: str) -> None:
    """Its parent, a child in a session of its own, has ended, so its parent is the launcher by then. wait4
    of its execution, which lasts until the daemon has used 150 ms of CPU, does not include them."""
    cell = trees.cell([tool, "daemon", "150"], seconds=2, sessions=1, **TIERS[tier])
    within = (pl.col("start_ns") >= cell.meta.t0_ns) & (pl.col("end_ns") < cell.meta.t1_ns)
    whole = cell.tables["executions"].filter(within).height
    aas = ledger(cell)
    assert (aas["run"] or 0) * 2 > 0.15 * (whole - 1)
    assert (aas["run"] or 0) > 2 * cpu_used(cell)


@needs_root
@pytest.mark.parametrize(("ms", "seconds", "tier"), [(20, 1, "statistics at exit"), (500, 3, "trace")])
def test_threads_are_tasks_of_the_session(tool: str, ms: int, seconds: int, tier: str) -> None:
    """One process is read while it lives, another ends before."""
    cell = trees.cell([tool, "threads", "4", str(ms)], seconds=seconds, sessions=1, **TIERS[tier])
    close(ledger(cell)["run"], cell, read=seconds > 1)
    assert not cut([cell])["cut_tasks"].select("pid", "tid", "start_ticks").is_duplicated().any()
    threads = cell.tables["tasks"].filter((pl.col("pid") != pl.col("tid")) & (pl.col("role") == "session"))
    assert threads["session"].unique().to_list() == [0]


def test_four_on_one_cpu_wait_three_quarters_of_their_time(tool: str) -> None:
    cell = trees.cell([tool, "spin", "300"], sessions=4, seconds=2, before=["taskset", "-c", "0"])
    aas = ledger(cell)
    run, runq = aas["run"] or 0, aas["runq"] or 0
    assert run < 1.1
    assert runq / (run + runq) > 0.68


@pytest.mark.parametrize("what", ["nap", "renamed"])
def test_a_nap_is_asleep_in_a_timer(tool: str, what: str) -> None:
    """The process's name does not matter; it may hold any bytes."""
    cell = trees.cell([tool, what, "200"], sessions=2)
    rows = accounts(cut([cell]))["ledger"].filter(pl.col("scope") == "rung")
    slept = dict(rows.filter(account="sleep").select("detail", "aas").rows())
    assert slept["Sleep/timer"] > 0.6 * sum(slept.values())
    assert rows.filter(account="run")["aas"].item() < 0.2
