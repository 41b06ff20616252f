"""The small curve of a run in the list of runs."""

from __future__ import annotations

from typing import Any

from dbdyno.conduct.history.curves import curve_of


def row(variant: str, sessions: int, calls_per_s: float, workload: str = "lio") -> dict[str, Any]:
    return {
        "workload": workload,
        "variant": variant,
        "sessions": sessions,
        "rate_per_s": None,
        "work_per_s": None,
        "calls_per_s": calls_per_s,
        "status": "ok",
    }


def test_the_words_are_of_the_highest_line_and_say_how_many_are_drawn() -> None:
    tops = {"plain": 220.0, "a": 210.0, "b": 100.0, "c": 300.0, "d": 358.0}
    rows = [row(v, n, top * n / 2) for v, top in tops.items() for n in (1, 2)]
    curve = curve_of(rows, "LIO")
    assert curve is not None
    assert [line[-1][1] for line in curve.lines] == [220.0, 210.0, 300.0, 358.0]
    assert curve.text == (
        "variant d: 179 calls/s at 1 session to 358 calls/s at 2 sessions; the highest of 5 lines, "
        "of which 4 are drawn"
    )


def test_one_line_needs_no_name() -> None:
    curve = curve_of([row("base", 1, 100.0), row("base", 2, 150.0), row("other", 2, 900.0)], "LIO")
    assert curve is not None
    assert curve.text == "100 calls/s at 1 session to 150 calls/s at 2 sessions"
