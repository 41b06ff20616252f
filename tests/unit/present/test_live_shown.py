"""The live chart of a long observation: few stretches, means by time, gaps left open."""

from __future__ import annotations

import pytest

from dbdyno.model.sources.wait_families import WaitFamilies
from dbdyno.present.observation.live import DRAWN, Moment, chart


def test_many_windows_are_drawn_as_few_stretches_none_of_which_spans_a_gap() -> None:
    before = [Moment(10.0 * n, 10.0 * n + 10, {"run": 1.0, "sleep:IO": 2.0}) for n in range(1_000)]
    after = [Moment(20_000 + 10.0 * n, 20_010 + 10.0 * n, {"run": 4.0}) for n in range(1_000)]
    drawn = chart([*before, *after], WaitFamilies(), 2.0)
    times = drawn["times"]
    run, io = (next(s["values"] for s in drawn["series"] if s["key"] == k) for k in ("run", "sleep:IO"))
    assert DRAWN / 2 < len(times) <= DRAWN + 4
    assert times == sorted(times) and times[0] == 0.0 and times[-1] == 30_000.0 and run[-1] is None
    gap = times.index(10_000.0)
    assert run[gap] is None and io[gap] is None and times[gap + 1] == 20_000.0
    assert set(run[:gap]) == {1.0} and set(run[gap + 1 : -1]) == {4.0}
    assert set(io[:gap]) == {2.0} and set(io[gap + 1 : -1]) == {0.0}, (
        "a window without that wait had none of it"
    )


def test_stretches_are_means_by_the_length_of_their_windows() -> None:
    windows = [Moment(0.0, 1.0, {"run": 3.0}), Moment(1.0, 4.0, {"run": 1.0}), Moment(4.0, 5.0, {})]
    many = [Moment(m.start_s + 5 * n, m.end_s + 5 * n, m.values) for n in range(DRAWN) for m in windows]
    (series,) = chart(many, WaitFamilies(), None)["series"]
    assert series["values"][0] == pytest.approx((3 + 3 + 0) / 5) and len(series["values"]) == DRAWN + 1
