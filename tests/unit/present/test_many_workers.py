"""Many short-lived processes of a kind are one row among the microstates, their mean over time."""

from __future__ import annotations

from typing import Any

import pytest

from dbdyno.present.run.processes import _MOST_ALIKE, _summed


def process(pid: int, wall_s: float, cpu_wait: float, **more: Any) -> dict[str, Any]:
    own = {"pid": pid, "wall_s": wall_s, "cpu_wait": cpu_wait, "cpu_wait_low": cpu_wait, "usr": None}
    return {"role": "session", "session": 1, "worker": True, "name": "worker", **own, **more}


def test_the_workers_of_a_leader_are_one_row_weighted_by_time() -> None:
    leader = process(1, 5.0, 0.1, worker=False)
    workers = [process(10 + n, 1.0, 0.2) for n in range(9)] + [process(30, 9.0, 0.6)]
    elsewhere = process(40, 1.0, 0.3, session=2)
    first, summed, last = _summed([leader, *workers, elsewhere])
    assert (first, last) == (leader, elsewhere)
    assert summed["name"].startswith("10 ") and summed["pid"] is None
    assert summed["cpu_wait"] == pytest.approx((9 * 0.2 + 9 * 0.6) / 18)
    assert (summed["wall_s"], summed["usr"], summed["cpu_wait_low"]) == (18.0, None, None)


def test_few_workers_and_processes_of_other_roles_keep_their_rows() -> None:
    few = [process(n, 1.0, 0.2) for n in range(_MOST_ALIKE)]
    helpers = [process(50 + n, 1.0, 0.2, role="helper", worker=False, session=None) for n in range(9)]
    assert _summed([*few, *helpers]) == [*few, *helpers]
