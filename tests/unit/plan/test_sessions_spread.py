"""How sessions are spread over the drivers of a cluster."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbdyno.model.errors import UsageError
from dbdyno.model.plan.literals import Spread
from dbdyno.plan.spread import spread

CPUS = st.lists(st.integers(0, 256).map(float), min_size=1, max_size=40)


@pytest.mark.parametrize(
    ("sessions", "cpus", "how", "per_driver", "expected"),
    [
        (9, [2, 2, 2], "even", None, [3, 3, 3]),
        (10, [2, 2, 2], "even", None, [4, 3, 3]),
        (2, [2, 2, 2], "even", None, [1, 1, 0]),
        (12, [4, 8, 0], "cpus", None, [4, 8, 0]),
        (12, [4, 8, 0], "cpus", 6, [6, 6, 0]),
        (12, [4, 8, 0], "cpus", 5, [5, 5, 2]),
        (12, [0, 0, 0], "cpus", None, [4, 4, 4]),
        (2500, [1, 1, 1], "pack", 1000, [1000, 1000, 500]),
        (700, [1, 1, 1], "pack", 1000, [700, 0, 0]),
    ],
)
def test_sessions_of_each_driver(
    sessions: int, cpus: list[float], how: str, per_driver: int | None, expected: list[int]
) -> None:
    assert spread(sessions, cpus, how, per_driver) == expected  # type: ignore[arg-type]


@given(st.integers(1, 100_000), CPUS, st.sampled_from(get_args(Spread)), st.integers(1, 5000))
def test_no_session_is_lost_and_no_driver_overfull(
    sessions: int, cpus: list[float], how: str, per_driver: int
) -> None:
    if sessions > per_driver * len(cpus):
        with pytest.raises(UsageError, match="too many"):
            spread(sessions, cpus, how, per_driver)  # type: ignore[arg-type]
        return
    shares = spread(sessions, cpus, how, per_driver)  # type: ignore[arg-type]
    assert sum(shares) == sessions
    assert len(shares) == len(cpus)
    assert all(0 <= n <= per_driver for n in shares)


@given(st.integers(1, 100_000), CPUS)
def test_even_shares_differ_by_one_at_most(sessions: int, cpus: list[float]) -> None:
    shares = spread(sessions, cpus)
    assert max(shares) - min(shares) <= 1


def test_pack_needs_to_know_when_a_driver_is_full() -> None:
    with pytest.raises(UsageError) as e:
        spread(10, [1, 1], "pack")
    assert "--per-driver" in str(e.value.cure)


def test_without_drivers_the_cure_is_named() -> None:
    with pytest.raises(UsageError) as e:
        spread(10, [])
    assert "cluster status" in str(e.value.cure)
