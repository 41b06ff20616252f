"""Late ends of a window, their cause, and the claim of an observation about the gap that follows."""

import time
from types import SimpleNamespace

import pytest

from dbdyno.conclude.run.coverage import gaps
from dbdyno.conduct.measure.presence import late_words, own_times_ns
from dbdyno.model.text.interruptions import AWAY, LATE, SLOW

S = 1_000_000_000


@pytest.mark.parametrize(
    ("run_s", "queued_s", "late"),
    [(0.5, 8.5, LATE), (6.0, 0.0, LATE), (0.5, 0.5, SLOW)],
)
def test_who_was_late_is_known_from_its_own_run_queue(run_s: float, queued_s: float, late: str) -> None:
    after = (round((7 + run_s) * S), round((3 + queued_s) * S))
    words = late_words(round(9.4 * S), (7 * S, 3 * S), after)
    assert words.startswith(late)
    assert "9.40 s" in words
    assert late_words(round(9.4 * S), None, after).startswith(SLOW)


def test_work_of_this_thread_counts_and_sleep_does_not() -> None:
    before = own_times_ns()
    began_ns = time.thread_time_ns()
    while time.thread_time_ns() - began_ns < 50_000_000:
        pass
    time.sleep(0.2)
    after = own_times_ns()
    assert before is not None
    assert after is not None
    assert 40_000_000 < after[0] - before[0] < 180_000_000


@pytest.mark.parametrize(
    ("reason", "case", "advice"),
    [
        (f"{LATE}by 9.4 s at its end", "late", "--window"),
        (f"{SLOW}9.4 s late at its end", "slow", "overloaded"),
        (f"{AWAY[0]} for 3 s", "away", ""),
        ("the server went away (connection refused)", "lost", "see its log"),
    ],
)
def test_a_gap_is_blamed_on_who_was_late(reason: str, case: str, advice: str) -> None:
    cells = [
        {"cell": f"c{n}", "repeat": n, "t0_ns": t0 * S, "t1_ns": (t0 + 10) * S, "reason": why}
        for n, t0, why in ((1, 0, reason), (2, 20, None))
    ]
    (claim,) = gaps(SimpleNamespace(cells=cells, observed=True))  # type: ignore[arg-type]
    assert (claim.case, claim.value and claim.value.value) == (case, 10)
    assert advice in (claim.advice or "")
    assert "was down or unreachable: see" not in f"{claim.text} {claim.advice}"
