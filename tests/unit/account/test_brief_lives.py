"""Lives that follow each other in a window that is hardly longer: each counts for its part of the window."""

from __future__ import annotations

import polars as pl
import pytest

from dbdyno.account.window.deltas import task_growth
from dbdyno.model.units import TICK_NS

MS = 1_000_000
T0 = 1_000 * TICK_NS


def lives(tasks: list[tuple[int, int, int]], stated: bool = True) -> pl.DataFrame:
    """Reads at birth and end of (pid, from, to) in ms since t0: each ran for half of it."""
    rows = [
        {
            "pid": pid,
            "tid": pid,
            "start_ticks": (T0 + a * MS) // TICK_NS,
            "at_ns": T0 + at * MS,
            "run_ns": ran * MS // 2,
            "state": state,
        }
        for pid, a, b in tasks
        for at, ran, state in ((a, 0, "S"), (b, b - a, "X"))
    ]
    result = pl.DataFrame(rows)
    return result if stated else result.drop("state")


def cpu_per_s(reads: pl.DataFrame, window_ms: int) -> float:
    """CPU seconds per second."""
    result = task_growth(reads, T0, T0 + window_ms * MS, ["run_ns"], shortest_ns=1, come_and_go=True)
    return float((result["run_ns"] / result["over_ns"]).sum())


@pytest.mark.parametrize("stated", [True, False])
def test_ten_lives_of_a_tenth_of_the_window_are_one_task(stated: bool) -> None:
    reads = lives([(n, 30 * n, 30 * n + 30) for n in range(10)], stated)
    assert cpu_per_s(reads, 300) == pytest.approx(0.5)


@pytest.mark.parametrize("stated", [True, False])
def test_a_life_in_the_middle_of_a_window_of_a_second_is_its_part(stated: bool) -> None:
    assert cpu_per_s(lives([(1, 190, 810)], stated), 1000) == pytest.approx(0.31)


def test_one_that_was_there_before_and_ends_near_the_end_is_its_part() -> None:
    assert cpu_per_s(lives([(1, -500, 850)]), 1000) == pytest.approx(0.675)  # its reads: from -500 to 850
