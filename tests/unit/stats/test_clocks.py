"""Clocks of other machines: known offsets and drifts come back within their bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dbdyno.stats.clocks import Exchange, Mapping, Offset

NS_PER_S = 1_000_000_000
LEGS = st.integers(0, 5_000_000)


def exchange(ours_ns: int, out_ns: int, back_ns: int, offset_ns: int, drift: float) -> Exchange:
    """An exchange with a clock that was ``offset_ns`` ahead at 0 and gains ``drift``."""
    read_ns = ours_ns + out_ns
    return Exchange(ours_ns, read_ns + offset_ns + round(drift * read_ns), read_ns + back_ns)


@given(
    st.lists(st.tuples(LEGS, LEGS), min_size=1, max_size=8),
    st.lists(st.tuples(LEGS, LEGS), min_size=1, max_size=8),
    st.integers(-(10**15), 10**15),
    st.sampled_from([0.0, 2e-4, -5e-5]),
    st.floats(0, 1),
)
def test_a_time_between_comes_back_within_the_bound(first, last, offset_ns, drift, share) -> None:  # type: ignore[no-untyped-def]
    begin = [exchange(k * 10_000_000, *legs, offset_ns, drift) for k, legs in enumerate(first)]
    end_ns = 60 * NS_PER_S
    end = [exchange(end_ns + k * 10_000_000, *legs, offset_ns, drift) for k, legs in enumerate(last)]
    result = Mapping(Offset.of(begin), Offset.of(end))
    low, high = begin[-1].received_ns, end_ns
    ours_ns = round(low + share * (high - low))
    there_ns = ours_ns + offset_ns + round(drift * ours_ns)
    within = result.bound_ns * (1 + abs(drift)) + 3  # rounded to nanoseconds
    assert abs(result.to_ours(there_ns) - ours_ns) <= within


def test_the_shortest_exchange_counts() -> None:
    result = Offset.of([Exchange(0, 1_000_900, 1000), Exchange(5000, 1_005_010, 5020)])
    assert (result.ns, result.bound_ns) == (1_000_000, 10)


@given(st.integers(-(10**15), 10**15), st.floats(-5e-4, 5e-4), st.integers(0, 10**14))
def test_mapping_there_and_back_gives_the_same_time(ns: int, drift: float, there_ns: int) -> None:
    result = Mapping(Offset(10**12, ns, 1), Offset(2 * 10**12, ns + round(drift * 10**12), 1))
    assert abs(result.to_theirs(result.to_ours(there_ns)) - there_ns) <= 2
    assert abs(result.to_ours(result.to_theirs(there_ns)) - there_ns) <= 2
