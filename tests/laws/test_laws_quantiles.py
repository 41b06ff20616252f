"""Law of the quantiles' intervals: those that are shown hold, also if calls are slow together.

Truth is the quantile of the law by which the calls are made. An interval that is refused counts as little as
one that was never asked for.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.quantile_intervals import DRIFTING, HELD, LEAST_SHOWN, STALLING, STEADY, tried

from dbdyno.model.schema.quantiles import QUANTILES
from dbdyno.stats.tail_intervals import design_effect, ranks

TRIES = 80
LAWS = {law.name: law for law in (*STEADY, *DRIFTING, *STALLING)}
SLACK = 0.05
"""Two standard errors of a share of 0.95 in 80 tries."""


@pytest.mark.parametrize(
    "name",
    ["levels of 3 s", "levels of 10 s", "levels of 30 s", "low levels of 30 s", "stalls every 10 s, random"],
)
@pytest.mark.parametrize(("seconds", "repeats"), [(60, 1), (120, 1), (10, 5)])
def test_intervals_that_are_shown_hold(name: str, seconds: int, repeats: int) -> None:
    for quantile, found in zip(QUANTILES, tried(LAWS[name], seconds, repeats, TRIES), strict=True):
        # of few intervals, one more or less says nothing
        if found.shown > LEAST_SHOWN + SLACK:
            assert found.held is not None and found.held >= HELD - SLACK / found.shown**0.5, quantile.name


@pytest.mark.parametrize(("seconds", "repeats"), [(60, 1), (10, 5)])
def test_independent_calls_have_intervals(seconds: int, repeats: int) -> None:
    for found in tried(replace(STEADY[1], rate=1000.0), seconds, repeats, TRIES)[:3]:
        assert found.shown >= 0.35 and found.held is not None and found.held >= HELD


def test_levels_as_long_as_the_window_have_no_interval() -> None:
    assert max(found.shown for found in tried(LAWS["levels of 30 s"], 60, 1, TRIES)) <= 2 * LEAST_SHOWN


def test_ranks_of_independent_calls_are_those_of_the_binomial_distribution() -> None:
    """Of 10,000 calls, 10 lie above p99.9 on average, and in 95 of 100 cases 4 to 17 (Poisson's table)."""
    between = ranks(10_000, 0.999, 1.0)
    assert between is not None and between.low is not None and between.high is not None
    assert 10_000 - between.high + 1 in (4, 5) and 10_000 - between.low + 1 in (17, 18)


def test_one_burst_of_slow_calls_has_no_interval() -> None:
    above = np.zeros(60)
    above[17] = 60
    effect = design_effect(above, np.full(60, 1000.0))
    assert effect is None or ranks(60_000, 0.999, effect) is None
