"""The noise of simulated measurements with known variances, by the code that derives a run."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from benchmarks.noise_simulated import (
    DIFFERENT,
    QUIET,
    WORLDS,
    NoisyWorld,
    Place,
    compared,
    measured,
    promise,
)

from dbdyno.model.schema.data_sources.noise import DRIFT, NEW_SESSIONS, REPEAT, RESTARTS, WINDOWS, WITHIN

WORLD = NoisyWorld(starts=0.02, sessions=0.01, seconds=0.03, neighbours=0.0, drift=0.0)
TRUTH = {
    WITHIN: 0.03 / math.sqrt(5),
    WINDOWS: 0.0,
    NEW_SESSIONS: 0.01,
    RESTARTS: 0.02,
    REPEAT: math.hypot(0.01, 0.03 / math.sqrt(10)),
}
"""Standard deviations of windows of 5 s, two of them a measurement."""


def test_intervals_hold_the_true_parts() -> None:
    chance, runs = np.random.default_rng(1), 60
    held = dict.fromkeys(TRUTH, 0)
    for _ in range(runs):
        for row in measured(WORLD, Place(), chance)["noise"].to_dicts():
            if row["part"] in TRUTH:
                held[row["part"]] += row["low"] - 1e-9 <= TRUTH[row["part"]] <= row["high"]
    # Of 60 intervals of 95 %, fewer than 51 hold their truth with a chance of 1 in 2,000.
    assert {part: count for part, count in held.items() if count < 51} == {}


def test_estimates_are_right_in_the_mean() -> None:
    chance = np.random.default_rng(2)
    rows = pl.concat([measured(WORLD, Place(10, 5), chance)["noise"] for _ in range(30)])
    for part, truth in TRUTH.items():
        variances = rows.filter(part=part)["deviation"] ** 2
        assert float(np.sqrt(variances.mean())) == pytest.approx(truth, rel=0.15, abs=0.006)


def test_levels_with_too_few_values_are_unknown_with_the_reason() -> None:
    rows = measured(WORLD, Place(1, 3, 5, 1), np.random.default_rng(3))
    status = dict(rows["noise"].select("part", "status").rows())
    assert status[WINDOWS] == "one window in a measurement"
    assert status[RESTARTS] == "not measured: it was not restarted"
    assert status[REPEAT] == "3 measurements of 4 that it needs"
    assert rows["noise_plan"].is_empty()
    assert rows["noise_budget"].is_empty()
    known = rows["noise"].filter(pl.col("status") != "ok")
    assert known.select(pl.col("deviation", "low", "high").count()).row(0) == (0, 0, 0)


def test_one_start_has_no_floor_and_no_plan_with_restarts() -> None:
    tables = measured(WORLD, Place(1, 10), np.random.default_rng(4))
    assert tables["noise_budget"]["floor"].to_list() == [None]
    assert not tables["noise_plan"]["restarts"].any()
    assert tables["noise_plan"]["difference"].to_list() == [0.1, 0.05, 0.02, 0.01, 0.005]


def test_overhead_is_the_time_between_measurements() -> None:
    budget = measured(WORLD, Place(), np.random.default_rng(5))["noise_budget"].row(0, named=True)
    assert budget["overhead_s"] == pytest.approx(WORLD.overhead_s)
    assert budget["measure_s"] == pytest.approx(10.0)


def test_a_drift_is_not_taken_for_restarts() -> None:
    steep = NoisyWorld(starts=0.0, sessions=0.002, seconds=0.005, neighbours=0.0, drift=0.0, slope=0.004)
    rows = measured(steep, Place(), np.random.default_rng(6))["noise"]
    drift, restarts = (rows.filter(part=part).row(0, named=True) for part in (DRIFT, RESTARTS))
    # 0.4 % a measurement of 30, the last of which ends 10 s after its beginning of every 12 s.
    assert drift["deviation"] * math.sqrt(12) == pytest.approx(0.004 * 30, rel=0.05)
    assert drift["low"] > 0
    assert restarts["low"] == 0
    assert restarts["deviation"] < 0.003


@pytest.mark.parametrize(("name", "restarts"), [("quiet", False), ("quiet", True), ("noisy", False)])
def test_promises_hold(name: str, restarts: bool) -> None:
    kept = promise(WORLDS[name], 0.02, 25, 4, 1, restarts=restarts)
    # Of 100: fewer than 70 where 80 are promised, or more than 12 where 5 are, has a chance below 1 in 100.
    assert kept.plans == 25
    assert kept.kept >= 70
    assert kept.false <= 12


def test_half_of_a_promised_difference_is_not_promised() -> None:
    chance = np.random.default_rng(7)
    differ = [compared(QUIET, 4, 5.0, 0.0005, chance).verdict in DIFFERENT for _ in range(40)]
    assert sum(differ) < 20
