"""Standard errors from what happened second by second."""

from __future__ import annotations

import math

import polars as pl
from tests.fakery import S, made_cell, session_row

from dbdyno.account import window


def rates(ended: list[int], in_call_ns: list[int]) -> dict[str, tuple[float | None, str]]:
    """Returns rates of a window from 10 s to 20 s with a row of progress a second, by calls ended in each."""
    totals = [(sum(ended[:n]), sum(in_call_ns[:n])) for n in range(len(ended) + 1)]
    progress = [
        {"at_ns": (10 + n) * S, "calls": c, "errors": 0, "live": 1, "in_call_ns": t}
        for n, (c, t) in enumerate(totals)
    ]
    before = {"at_ns": 9 * S, "calls": -500, "errors": 0, "live": 1, "in_call_ns": 0}  # outside: never seen
    cell = made_cell({"sessions": [session_row()], "progress": [before, *progress]})
    table = window.rates([cell]).filter(pl.col("scope") == "rung")
    return {name: (value, status) for name, value, status in table.select("name", "value", "status").rows()}


def test_seconds_that_alternate_have_a_smaller_error_than_independent_ones() -> None:
    result = rates([8, 12] * 5, [S] * 10)
    error, effective = result["calls_per_s_se"][0], result["effective_bins"][0]
    assert error is not None and effective is not None
    assert error < math.sqrt(40 / 9 / 10) and effective > 10  # below s / sqrt(n): the mean hardly moves


def test_seconds_that_drift_have_a_larger_error() -> None:
    result = rates(list(range(5, 15)), [S] * 10)
    error, effective = result["calls_per_s_se"][0], result["effective_bins"][0]
    assert error is not None and effective is not None
    assert error > math.sqrt(82.5 / 9 / 10) and effective < 6


def test_a_response_time_that_is_the_same_in_all_seconds_has_no_error() -> None:
    """Twice the calls in twice the time."""
    result = rates([8, 12] * 5, [8 * S, 12 * S] * 5)
    assert result["response_mean_se_ns"] == (0.0, "ok")


def test_few_seconds_have_no_standard_error() -> None:
    result = rates([9, 11, 10], [S] * 3)
    assert result["calls_per_s_se"] == (None, "too few seconds")
