"""Threads against cores: yield, inflation, cores in use by CPU figures and by POWER's registers."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fakery import MS, S, made_cell, task_row
from tests.unit.answer_cases import SMT8, points
from tests.unit.observe_trees import unpack

from dbdyno.account.window.cores import cores_of, looks
from dbdyno.account.window.counters import cut_levels
from dbdyno.conclude.scaling import smt
from dbdyno.model.engine.topology import Purr, PurrRead, cores_bracket, cores_met, purr_use
from dbdyno.model.errors import UsageError
from dbdyno.model.results.analyses import Ladder
from dbdyno.observe import per_cpu
from dbdyno.observe.host import Partition, busy_ns, partition, read, register

GOLDEN = Path(__file__).parents[2] / "golden"
POWER7 = {1: (1.0, 0.62), 2: (1.4, 0.88), 4: (1.6, 1.0)}
"""Busy threads of a core: relative throughput and core busy, as published."""
PAIRS = ((0, 2), (1, 3))


@pytest.mark.parametrize("threads", [2, 4])
def test_cpu_per_unit_of_work_rises_by_threads_over_yield(threads: int) -> None:
    throughput = POWER7[threads][0]
    assert smt.inflation(throughput, threads) == pytest.approx(threads / throughput)


def test_a_yield_of_zero_is_refused() -> None:
    with pytest.raises(UsageError, match="yield of 0"):
        smt.inflation(0.0)


@pytest.mark.parametrize(
    ("text", "threads", "core_yield", "times"),
    [("1.31", None, 1.31, 2 / 1.31), ("800:1048", None, 1.31, 2 / 1.31), ("1.6", 4, 1.6, 2.5),
     ("0.9", None, 0.9, 2 / 0.9), ("1000:1600", 4, 1.6, 2.5), ("2", 2, 2.0, 1.0), ("1", None, 1.0, 2.0)],
)  # fmt: skip
def test_a_yield_alone_gives_the_inflation(
    text: str, threads: int | None, core_yield: float, times: float
) -> None:
    smt_yield, inflated = smt.given(text, threads)
    assert (smt_yield.id, smt_yield.case, inflated.id) == ("smt-yield", "given", "cpu-inflation")
    assert smt_yield.value is not None and smt_yield.value.value == pytest.approx(core_yield)
    assert inflated.value is not None and inflated.value.value == pytest.approx(times)
    assert smt_yield.slots["adds"] == ("adds" if core_yield >= 1 else "takes away")


@pytest.mark.parametrize(
    ("text", "threads"),
    [("0", None), ("-1", None), ("2.01", None), ("4.1", 4), ("1.3", 1), ("x", None), ("1,31", None),
     ("nan", None), ("inf", None), ("1:2:3", None), ("0:5", None), ("800:1601", 2), ("", None)],
)  # fmt: skip
def test_an_impossible_yield_is_refused(text: str, threads: int | None) -> None:
    with pytest.raises(UsageError, match="--smt-yield"):
        smt.given(text, threads)


@pytest.mark.parametrize(
    ("unit", "top", "agrees"),
    [("CPUs", 16, True), ("CPUs", 17, False), ("cores", 9, False), ("processors", 64, False),
     ("sessions", 64, True), ("threads", 64, True)],
)  # fmt: skip
def test_loads_that_are_cpus_are_no_more_than_there_are(unit: str, top: int, agrees: bool) -> None:
    rows = points(*({"load": float(n), "throughput": 100.0 * n} for n in (1, 4, top)))
    ladder = Ladder("mine", rows, load_unit=unit, machine=SMT8)
    if agrees:
        smt.agree(ladder)
        return
    with pytest.raises(UsageError, match=f"up to {top}"):
        smt.agree(ladder)


# -- CPU by CPU -----------------------------------------------------------------------------------


def test_core_seconds_lie_between_the_busiest_thread_and_all_of_them() -> None:
    bracket = cores_bracket({0: 0.5, 2: 0.25, 1: 0.9, 3: 0.8}, PAIRS)
    assert (bracket.threads, bracket.low, bracket.high) == pytest.approx((2.45, 1.4, 1.75))
    assert bracket.cores is None


def test_without_smt_core_seconds_are_thread_seconds() -> None:
    bracket = cores_bracket({0: 0.5, 1: 0.3}, ((0,), (1,)))
    assert bracket.cores == pytest.approx(0.8) == pytest.approx(bracket.threads)


def test_samples_give_threads_and_cores_met_together() -> None:
    assert cores_met([{0, 2}, {0, 3}, set(), {0, 1, 2, 3}, {9}], PAIRS) == [
        (2, 1),
        (2, 2),
        (0, 0),
        (4, 2),
        (0, 0),
    ]


def test_busy_time_of_each_cpu_of_proc_stat() -> None:
    busy = busy_ns((GOLDEN / "host/stat-160cpu.txt").read_text())
    assert len(busy) == 160
    # user 1000+n, nice n, system 500+n, softirq n mod 3: ticks of 10 ms; not idle, iowait and steal
    assert busy[7] == (1007 + 7 + 507 + 1) * 10 * MS


def test_cpus_of_this_machine_are_read() -> None:
    table = per_cpu()
    assert table["key"].str.contains(r"^cpu\d+\.busy_ns$").all() and table["value"].min() > 0  # type: ignore[operator]


def _levels(**busy_s: float) -> list[dict[str, object]]:
    """Reads at t0 = 10 s and t1 = 20 s, by CPU and the seconds that it was busy in between."""
    levels = []
    for name, grown in busy_s.items():
        for at, value in ((10 * S, 5 * S), (20 * S, 5 * S + round(grown * S))):
            row = {"before_ns": at, "after_ns": at, "key": f"{name}.busy_ns", "value": value, "status": "ok"}
            levels.append(row)
    return levels


def _tasks(seen: dict[int, list[int]]) -> list[dict[str, object]]:
    """Looks at (second): CPUs with a task that was running; dbdyno's own thread runs on CPU 3 in each."""
    tasks = []
    for second, cpus in seen.items():
        at = second * S
        own = task_row(at, 1, 1, pid=1, tid=1, role="dbdyno", session=None, cpu=3, state="R")
        tasks += [own, task_row(at, 1, 1, pid=99, tid=99, cpu=2, state="S")]
        tasks += [task_row(at + MS * c, 1, 1, pid=100 + c, tid=100 + c, cpu=c, state="R") for c in cpus]
    return tasks


def test_cores_in_use_from_looks_at_the_tasks() -> None:
    """CPUs 0 and 1 are two cores: met busy together they are two, and 0 with its sibling 2 is one."""
    seen = {10 + i: [0, 1] if i % 2 else [0, 2] for i in range(11)}
    seen[15] = [0, 1, 2, 3]
    busy = _levels(cpu0=10.0, cpu1=5.0, cpu2=6.0, cpu3=1.0)
    cell = made_cell({"host": busy, "tasks": _tasks(seen)})
    assert looks(cell)[0] == {0, 2} and looks(cell)[5] == {0, 1, 2, 3} and len(looks(cell)) == 11
    few = cores_of([cell], cut_levels([cell]), PAIRS).to_dicts()[0]
    assert few["threads"] == pytest.approx(2.2) and "independent" in few["source"]  # 24 threads were met
    assert (few["low"], few["high"]) == pytest.approx((1.5, 1.6))
    assert few["cores"] == pytest.approx(1 + (1 - 0.5 * 0.9))
    again = [
        {**r, "before_ns": r["before_ns"] + S // 2, "after_ns": r["after_ns"] + S // 2}  # type: ignore[operator]
        for r in _tasks(seen)
    ]
    cell = made_cell(
        {"host": _levels(cpu0=4.0, cpu1=1.5, cpu2=3.0, cpu3=1.5), "tasks": [*_tasks(seen), *again]}
    )
    many = cores_of([cell], cut_levels([cell]), PAIRS).to_dicts()[0]
    assert "running together" in many["source"] and many["looks"] == 21
    # by hand: 11 looks of two threads on one core, 8 of two on two, 2 of four on two; the last lies outside
    assert many["cores"] == pytest.approx(1.0 * (11 * 1 + 8 * 2 + 2 * 2) / (11 * 2 + 8 * 2 + 2 * 4))
    assert 0.55 <= many["low"] < many["cores"] < many["high"] <= 1.0


def test_cores_unknown_without_topology_and_without_reads() -> None:
    cell = made_cell({"host": _levels(cpu0=10.0, cpu1=5.0)})
    levels = cut_levels([cell])
    blind = cores_of([cell], levels, None).to_dicts()[0]
    assert (blind["status"], blind["cores"]) == ("no topology", None) and blind["threads"] == pytest.approx(
        1.5
    )
    unread = cores_of([cell], levels.clear(), PAIRS).to_dicts()[0]
    assert (unread["status"], unread["threads"]) == ("off", None)


# -- POWER ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", POWER7)
def test_busy_time_of_a_core_of_power7_is_read_from_purr(threads: int, tmp_path: Path) -> None:
    first, last = (
        read(unpack(f"power7-{threads}-busy-{when}", tmp_path / when), at)
        for when, at in (("first", 100.0), ("last", 110.0))
    )
    assert first is not None and last is not None and first.timebase_hz == 512_000_000
    use = purr_use(first, last)
    assert use.cores == pytest.approx(POWER7[threads][1], abs=1e-6)
    assert use.entitled == pytest.approx(1.0, abs=1e-6)  # all threads of a core together: the time base
    assert use.speed == pytest.approx(1.1, abs=1e-6)


def test_purr_of_a_run_gives_the_table_cores(tmp_path: Path) -> None:
    parts = []
    for when, at in (("first", 10 * S), ("last", 20 * S)):
        root = unpack(f"power7-2-busy-{when}", tmp_path / when)
        (root / "proc/stat").write_text(
            "cpu 1 0 0 9\n" + "".join(f"cpu{n} {100 + at // S} 0 0 9\n" for n in range(4))
        )
        parts += [r | {"before_ns": at, "after_ns": at} for r in per_cpu(root).to_dicts()]
    cell = made_cell({"host": parts})
    cores = cores_of([cell], cut_levels([cell]), ((0, 1, 2, 3),)).to_dicts()[0]
    assert cores["cores"] == pytest.approx(0.88, abs=1e-4) and cores["source"].startswith("PURR")


def test_without_an_idle_part_purr_gives_no_busy_time() -> None:
    first, last = (PurrRead(at, 100, {0: Purr(ticks), 1: Purr(ticks)}) for at, ticks in ((0.0, 7), (1.0, 57)))
    use = purr_use(first, last)
    assert use.cores is None and use.entitled == pytest.approx(1.0)
    with pytest.raises(UsageError, match="without time"):
        purr_use(first, first)


def test_idle_that_outgrew_purr_is_cut_to_it() -> None:
    first, last = PurrRead(0.0, 100, {0: Purr(0, 0)}), PurrRead(1.0, 100, {0: Purr(50, 51)})
    assert purr_use(first, last).cores == 0.0


def test_a_partition_is_read_from_what_the_kernel_prints() -> None:
    assert register("1ab1834d5e\n") == 0x1AB1834D5E
    assert register("") is None and register("<not supported>") is None
    of_golden = partition((GOLDEN / "power/lparcfg-shared.txt").read_text())
    assert of_golden == Partition(True, False, 1.5, 2, 981_734_567_890_123)
    assert partition("garbage\n") == Partition(None, None, None, None, None)
