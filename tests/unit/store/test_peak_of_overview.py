"""The list of runs shows a peak that was measured on a busy machine as a lower limit."""

from __future__ import annotations

import pytest

from dbdyno.store.overview import _peak


@pytest.mark.parametrize(
    ("case", "shown"),
    [("times", "4.6 M LIO/s"), ("disturbed", ">= 4.6 M LIO/s"), ("only-disturbed", ">= 4.6 M LIO/s")],
)
def test_a_disturbed_peak_is_at_least_that(case: str, shown: str) -> None:
    slots = {"rate": "4.6 M LIO/s, 122 calls/s,", "calls": 122.0, "sessions": 4}
    peak = _peak([{"id": "peak", "case": case, "value": {"value": 4.6e6}, "said": slots}])
    assert (peak["peak"], peak["peak_calls_per_s"], peak["peak_sessions"]) == (shown, 122.0, 4)
