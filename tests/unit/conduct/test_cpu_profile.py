"""The CPU profile adds up to the ledger, counts recursion once, and has a row for unsampled time."""

from __future__ import annotations

import sys

import polars as pl
import pytest
from tests.fakery import climb
from tests.unit.profiles import with_profile

from dbdyno.account.cpu_profile import cpu_profile, kernel_areas
from dbdyno.conclude.compare.cpu_profile import unit_cost
from dbdyno.conduct.derive.derive import derive, part_of
from dbdyno.engines import code_areas
from dbdyno.model.results.raw import RawCell
from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import rows
from dbdyno.model.sources.code_areas import parsed, plain_name

pytestmark = pytest.mark.queries

SHARES = {"scan": 0.5, "lock": 0.2, "copy": 0.1, "read": 0.15, "again": 0.05}
KINDS = ("mode", "session", "wait", "statement", "stack", "function", "module")
AREAS = parsed("[access/heap]\nheap*\n[executor]\nExec* main\n[storage/lmgr]\nLWLock*", "postgres")


@pytest.fixture(scope="module")
def climbed():
    return climb("fake:cpus=4,cpu=10ms", [1, 4], repeats=2)


@pytest.fixture(scope="module")
def results(climbed) -> Results:
    return derive_cells(climbed, [with_profile(c, SHARES, seed=n) for n, c in enumerate(climbed.cells)])


def derive_cells(climbed, cells: list[RawCell]) -> Results:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["dbdyno.conduct.derive.derive"], "code_areas", lambda _: AREAS)
        return derive(climbed.info, climbed.plan, climbed.environment, cells)


def ledger(results: Results, cell: str) -> tuple[float, float]:
    rows = results.tables["ledger"].filter((pl.col("cell") == cell) & (pl.col("scope") == "rung"))
    user, system = (rows.filter(pl.col("account") == f"run.{m}")["aas"].item() for m in ("user", "system"))
    return user, system


def profile(results: Results, cell: str, by: str) -> pl.DataFrame:
    return results.tables["cpu_profile"].filter(
        (pl.col("cell") == cell) & (pl.col("by") == by) & (pl.col("scope") == "rung")
    )


def row(results: Results, cell: str, by: str, name: str) -> dict:
    return profile(results, cell, by).filter(pl.col("name") == name).row(0, named=True)


@pytest.mark.whole
def test_every_kind_of_row_adds_up_to_the_ledger(results: Results):
    for cell in results.tables["windows"]["cell"]:
        user, system = ledger(results, cell)
        for by in KINDS:
            rows = profile(results, cell, by)
            assert rows["aas"].sum() == pytest.approx(user + system, rel=1e-9), by
            assert rows["kernel"].sum() == pytest.approx(system, rel=1e-9), by
        stacks = results.whole("cpu_stacks").filter(pl.col("cell") == cell)
        assert stacks["aas"].sum() == pytest.approx(user + system, rel=1e-9)


def test_repeats_together_are_their_mean(results: Results):
    both = results.tables["cpu_profile"].filter((pl.col("sessions") == 4) & (pl.col("by") == "function"))
    heap = both.filter(pl.col("name") == "heapgettup").sort("cell")
    *each, together = heap["aas"].to_list()
    assert heap["cell"][-1] == "all"
    assert together == pytest.approx(sum(each) / 2)
    widths = (heap["high"] - heap["low"]).to_list()
    assert widths[-1] < min(widths[:-1]), "more samples"


def test_a_functions_time_includes_its_callees_and_counts_recursion_once(results: Results):
    cell = results.tables["windows"]["cell"][-1]
    rows = profile(results, cell, "function")
    cpu = rows["aas"].sum()
    scan = row(results, cell, "function", "ExecScan")
    assert scan["aas"] == 0 and scan["total"] == pytest.approx(cpu)
    assert rows.filter(pl.col("name") == "heapgettup")["module"].to_list() == ["postgres:access/heap"]
    heap = row(results, cell, "function", "heapgettup")
    assert heap["low"] < heap["aas"] < heap["high"]
    assert row(results, cell, "function", "memcpy")["module"] == "libc"
    read_call = row(results, cell, "function", "pread64")
    assert read_call["aas"] == 0 and read_call["total_kernel"] == pytest.approx(read_call["total"])
    assert row(results, cell, "function", "vfs_read")["module"] == "kernel:vfs"
    assert set(profile(results, cell, "module")["name"]) == {
        *("postgres:executor", "postgres:access/heap", "postgres:storage/lmgr"),
        *("libc", "kernel:vfs", "kernel:ext4"),
    }


def test_a_functions_cost_is_given_per_call_and_unit_of_work(results: Results):
    cell = results.tables["windows"]["cell"][-1]
    rates = dict(
        results.tables["rates"]
        .filter((pl.col("cell") == cell) & (pl.col("scope") == "rung"))
        .select("name", "value")
        .iter_rows()
    )
    heap = row(results, cell, "function", "heapgettup")
    assert heap["per_call_ns"] == pytest.approx(heap["aas"] * 1e9 / rates["calls_per_s"])
    assert heap["per_work_ns"] == pytest.approx(heap["aas"] * 1e9 / rates["work_per_s"])


def test_a_task_that_no_sample_met_is_not_sampled(climbed):
    cell = with_profile(climbed.cells[-1], SHARES)
    raw = cell.tables["profile_samples"]
    without = {**cell.tables, "profile_samples": raw.filter(pl.col("session") != 0)}
    results = derive_cells(climbed, [RawCell(cell.meta, without)])
    missing = row(results, cell.id, "function", "not sampled")
    cpu = sum(ledger(results, cell.id))
    assert missing["aas"] == pytest.approx(cpu / 4, rel=0.05)
    for by in KINDS:
        assert profile(results, cell.id, by)["aas"].sum() == pytest.approx(cpu), by


def test_without_kernel_samples_kernel_time_is_not_sampled(climbed):
    """kernel.perf_event_paranoid may forbid kernel samples."""
    results = derive_cells(climbed, [with_profile(climbed.cells[-1], {"scan": 1.0})])
    cell = climbed.cells[-1].id
    user, system = ledger(results, cell)
    assert row(results, cell, "mode", "user")["aas"] == pytest.approx(user)
    missing = row(results, cell, "mode", "not sampled")
    assert missing["aas"] == pytest.approx(system) and missing["kernel"] == pytest.approx(system)


def test_a_kernel_sample_without_kernel_frames_is_of_an_unknown_place_in_the_kernel(climbed):
    results = derive_cells(climbed, [with_profile(climbed.cells[-1], {"scan": 1.0}, mode="kernel")])
    unknown = row(results, climbed.cells[-1].id, "function", "unknown")
    assert unknown["module"] == "kernel" and unknown["aas"] == pytest.approx(unknown["kernel"])
    heap = row(results, climbed.cells[-1].id, "function", "heapgettup")
    assert heap["aas"] == 0 and heap["total"] == pytest.approx(unknown["aas"])


def test_samples_outside_the_window_do_not_count(climbed):
    results = derive_cells(climbed, [with_profile(climbed.cells[-1], SHARES, t_ns=1)])
    rows = profile(results, climbed.cells[-1].id, "function")
    assert rows["name"].to_list() == ["not sampled"]


@pytest.mark.whole
@pytest.mark.parametrize("n", [40, 400])
def test_intervals_hold_the_truth(climbed, n: int):
    """At least 85 % of 60 intervals hold the truth: 95 % less the part of chance."""
    cell = climbed.cells[0]
    tables = part_of([cell], climbed.plan, climbed.environment).tables
    user = tables["ledger"].filter((pl.col("scope") == "rung") & (pl.col("account") == "run.user"))["aas"][0]
    containing = 0
    for seed in range(60):
        sampled = with_profile(cell, {"scan": 0.7, "lock": 0.3}, n=n, seed=seed)
        rows = cpu_profile([sampled], tables, lambda: AREAS)["cpu_profile"]
        lock = rows.filter(pl.col("name") == "LWLockAttemptLock").row(0, named=True)
        containing += lock["low"] <= 0.3 * user <= lock["high"]
    assert containing >= 51


# How a unit of work gets dearer.

HEAVY = {**SHARES, "lock": 0.6}


@pytest.fixture(scope="module")
def dearer(climbed) -> Results:
    shares = {1: SHARES, 4: HEAVY}
    cells = [with_profile(c, shares[c.meta.cell.sessions], 4000, n) for n, c in enumerate(climbed.cells)]
    return derive_cells(climbed, cells)


def test_the_highest_load_against_the_lowest_names_the_function(dearer: Results):
    [claim] = [f for f in dearer.findings if f.id == "unit-cost"]
    assert claim.case == "named"
    assert str(claim.slots["named"]).startswith("LWLockAttemptLock +")
    assert (claim.slots["place"], claim.slots["against"]) == ("4 sessions", "1 session")


def test_the_module_with_most_cpu_time_is_a_claim(dearer: Results):
    [claim] = [f for f in dearer.findings if f.id == "cpu-profile"]
    assert claim.slots["module"] == "postgres:storage/lmgr"
    assert claim.value is not None and claim.value.low < claim.value.value < claim.value.high


def test_cut_stacks_and_missing_samples_are_claims(climbed):
    cell = with_profile(climbed.cells[-1], SHARES, cut=True)
    raw = cell.tables["profile_samples"].filter(pl.col("session") != 0)
    results = derive_cells(climbed, [RawCell(cell.meta, {**cell.tables, "profile_samples": raw})])
    assert {"profile-cut", "profile-unsampled"} <= {f.id for f in results.findings}


def test_lost_samples_are_a_claim(climbed):
    cell = with_profile(climbed.cells[-1], SHARES)
    source = {
        "name": "CPU profile",
        "provenance": "",
        "status": "ok",
        "detail": "199 Hz; 900 samples, 100 lost; x",
    }
    sources = pl.concat([cell.tables["sources"], rows("sources", [source])])
    results = derive_cells(climbed, [RawCell(cell.meta, {**cell.tables, "sources": sources})])
    [claim] = [f for f in results.findings if f.id == "profile-lost"]
    assert claim.value is not None and claim.value.value == pytest.approx(0.1)


def with_losses(cell: RawCell, lost: int, from_ns: int, to_ns: int) -> RawCell:
    row = {"start_ns": from_ns, "end_ns": to_ns, "reason": "lost", "lost": lost}
    return RawCell(cell.meta, {**cell.tables, "profile_losses": rows("profile_losses", [row])})


def test_intervals_hold_missing_samples_wherever_they_belong(climbed):
    """Samples of one function are removed; the intervals hold its truth and that of all others."""
    cell = with_profile(climbed.cells[-1], SHARES, 4000)
    complete = derive_cells(climbed, [cell]).tables["cpu_profile"]
    samples = cell.tables["profile_samples"]
    remaining = samples.filter((pl.col("stack") != 0) | (pl.int_range(pl.len()) % 2 == 0))
    gone = samples.height - remaining.height
    t0, t1 = cell.meta.t0_ns, cell.meta.t1_ns
    less = RawCell(cell.meta, {**cell.tables, "profile_samples": remaining})
    known = derive_cells(climbed, [with_losses(less, gone, t0, t1)]).tables["cpu_profile"]
    unknown = derive_cells(climbed, [less]).tables["cpu_profile"]
    by = ["by", "name", "module"]

    def misses(profiled: pl.DataFrame) -> int:
        """Returns the number of functions whose time in all samples is outside the interval."""
        sampled_functions = (
            (pl.col("by") == "function") & (pl.col("status") == "ok") & (pl.col("cell") != "all")
        )
        both = profiled.filter(sampled_functions).join(
            complete.filter(sampled_functions).select(*by, truth="aas"), on=by, nulls_equal=True
        )
        return both.filter(~pl.col("truth").is_between(pl.col("low") * 0.999, pl.col("high") * 1.001)).height

    assert misses(unknown) > 0 and misses(known) == 0
    share = gone / samples.height
    assert known.filter(status="ok")["lost"].unique().to_list() == pytest.approx([share])
    assert set(complete.filter(status="ok")["lost"]) == {0.0}


def test_losses_outside_the_window_do_not_count(climbed):
    cell = with_profile(climbed.cells[-1], SHARES)
    t0, n = cell.meta.t0_ns, cell.tables["profile_samples"].height
    before = derive_cells(climbed, [with_losses(cell, 1000, t0 - 100, t0)]).tables["cpu_profile"]
    assert set(before.filter(status="ok")["lost"]) == {0.0}
    half = derive_cells(climbed, [with_losses(cell, 1000, t0 - 100, t0 + 100)]).tables["cpu_profile"]
    assert half.filter(status="ok")["lost"].unique().to_list() == pytest.approx([500 / (n + 500)])


def test_a_difference_that_missing_samples_could_make_is_none(dearer: Results):
    """Costs of a function differ beyond chance, unless the other side's missing samples may all be of it."""
    frames = [
        dearer.tables["cpu_profile"].filter(pl.col("cell") == c) for c in dearer.tables["windows"]["cell"]
    ]
    sides = [frames[0]], [frames[-1]]
    sure = unit_cost(*sides, "per_work_ns")
    losing = [[f.with_columns(lost=pl.lit(0.9)) for f in side] for side in sides]
    doubtful = unit_cost(*losing, "per_work_ns")
    assert sure is not None and doubtful is not None
    assert min(c.p_holm for c in sure[2] if c.p_holm is not None) < 0.05
    assert all(c.p_holm is None or c.p_holm > 0.05 for c in doubtful[2])
    by_name = {(c.name, c.module): c for c in sure[2]}
    for c in doubtful[2]:
        assert c.low_ns < by_name[c.name, c.module].low_ns and c.high_ns > by_name[c.name, c.module].high_ns


@pytest.mark.whole
def test_equal_profiles_name_no_function(climbed):
    """At most 5 of 40 comparisons may name one: all functions together have 5 %."""
    tables = part_of([climbed.cells[0]], climbed.plan, climbed.environment).tables
    named = 0
    for seed in range(40):
        sides = [
            cpu_profile([with_profile(climbed.cells[0], SHARES, 500, 2 * seed + n)], tables, lambda: AREAS)
            for n in range(2)
        ]
        a, b = ([side["cpu_profile"]] for side in sides)
        change = unit_cost(a, b, "per_work_ns")
        assert change is not None
        named += any(c.p_holm is not None and c.p_holm < 0.05 for c in change[2])
    assert named <= 5


def test_differences_of_functions_add_up_to_the_whole(dearer: Results):
    rows = dearer.tables["cpu_profile"]
    a, b = (
        [rows.filter(pl.col("cell") == c) for c in dearer.tables["windows"].filter(sessions=n)["cell"]]
        for n in (1, 4)
    )
    change = unit_cost(a, b, "per_work_ns")
    assert change is not None
    first, second, parts = change
    assert sum(p.difference_ns for p in parts) == pytest.approx(second.mean - first.mean, rel=1e-6)
    assert all(p.low_ns <= p.difference_ns <= p.high_ns for p in parts)


def test_a_function_belongs_to_the_part_of_its_source_or_longest_beginning():
    areas = parsed("# c\n[a]\nfoo* bar\n[b]\nfoo_b*\n[?]\nbaz", "p", ("src/backend",))
    assert [areas.of(n) for n in ("foo_a", "foo_bc", "bar", "bart", "baz")] == ["a", "b", "a", None, None]
    assert areas.of("foo_a", "/build/src/backend/storage/lmgr/lwlock.c") == "storage/lmgr"


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("s_lock.part.0", "s_lock"),
        ("memcpy@@GLIBC_2.14", "memcpy"),
        ("f.constprop.0.isra.3", "f"),
        ("a.b", "a.b"),
    ],
)
def test_names_are_shown_without_what_compilers_add(name: str, plain: str):
    assert plain_name(name) == plain


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("LWLockAttemptLock", "storage/lmgr"),
        ("s_lock", "storage/lmgr"),
        ("heapgettup_pagemode", "access/heap"),
        ("XLogInsertRecord", "wal"),
        ("ExecInterpExpr", "executor"),
        ("PinBuffer", "storage/buffer"),
        ("palloc", "utils/mmgr"),
        ("make_result", None),  # several parts have a function of this name
        ("no_such_function", None),
    ],
)
def test_functions_of_the_server_have_a_part_by_their_name(name: str, part: str | None):
    assert code_areas("postgres").of(name) == part


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("vfs_read", "vfs"),
        ("ext4_file_read_iter", "ext4"),
        ("entry_SYSCALL_64_after_hwframe", "syscall entry"),
        ("finish_task_switch", "sched"),
        ("tcp_sendmsg_locked", "net"),
        ("hrtimer_interrupt", "timers"),
        ("filemap_get_pages", "page cache"),
        ("submit_bio_noacct", "block"),
        ("handle_mm_fault", "mm"),
    ],
)
def test_functions_of_the_kernel_have_a_part_by_their_name(name: str, part: str):
    assert kernel_areas().of(name) == part
