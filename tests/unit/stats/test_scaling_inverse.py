"""Mapping from one figure to another and back, for every model."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.conclude.test_scaling import LAWS

from dbdyno.stats.scaling import inverse
from dbdyno.stats.scaling.inverse import OutOfReach

EXACT = 1e-9
CURVED = [name for name in LAWS if name not in ("linear",)]


@pytest.mark.parametrize("name", LAWS)
@examples(8)
@given(share=st.floats(0.05, 0.97))
def test_load_to_throughput_and_back(name: str, share: float) -> None:
    law = (name, LAWS[name])
    top = inverse.peak(law)
    end = top[0] if top else {"plateau": 9.3, "queue": 15.0, "repairman": 15.0}.get(name, 60.0)
    load = 0.3 + share * (end - 0.5)
    x = inverse.throughput(law, load)
    assert inverse.load_for_throughput(law, x) == pytest.approx(load, rel=EXACT)
    assert load / x == pytest.approx(inverse.response_s(law, load), rel=EXACT)


@pytest.mark.parametrize("name", ["usl", "two-knees"])
@examples(8)
@given(beyond=st.floats(1.05, 4))
def test_of_two_loads_of_one_throughput_the_one_below_the_peak_is_given(name: str, beyond: float) -> None:
    law = (name, LAWS[name])
    top = inverse.peak(law)
    assert top is not None
    x = inverse.throughput(law, top[0] * beyond)
    assert x < top[1]
    result = inverse.load_for_throughput(law, x)
    assert result < top[0] and inverse.throughput(law, result) == pytest.approx(x, rel=EXACT)


@pytest.mark.parametrize("name", CURVED)
@examples(8)
@given(load=st.floats(17.5, 60), think_s=st.sampled_from([0.0, 0.004]))
def test_load_to_response_and_back(name: str, load: float, think_s: float) -> None:
    law = (name, LAWS[name])
    seconds = inverse.response_s(law, load, think_s)
    assert inverse.load_for_response(law, seconds, think_s) == pytest.approx(load, rel=EXACT)


@examples(40)
@given(
    rate=st.floats(1e-3, 1e6),
    sigma=st.floats(0, 0.9),
    kappa=st.one_of(st.just(0.0), st.floats(1e-7, 0.1)),
    load=st.floats(1.1, 500),
)
def test_the_law_for_any_parameters(rate: float, sigma: float, kappa: float, load: float) -> None:
    assume(sigma > 1e-3 or kappa > 1e-4)
    law: tuple[str, Sequence[float]] = ("usl", (rate, sigma, kappa))
    seconds = inverse.response_s(law, load)
    x = inverse.throughput(law, load)
    if load * (sigma + kappa * load) > 0.05:  # of a flatter curve a response time has no single load
        assert inverse.load_for_response(law, seconds) == pytest.approx(load, rel=EXACT)
    top = inverse.peak(law)
    bend = 0.9 if top is None else abs(top[0] / load - 1)
    if bend > 0.05 and inverse.throughput(law, load * 1.01) != pytest.approx(x, rel=1e-4):
        result = inverse.load_for_throughput(law, x)
        assert inverse.throughput(law, result) == pytest.approx(x, rel=EXACT)
        if top is None or load < top[0]:
            assert result == pytest.approx(load, rel=EXACT)


def test_a_throughput_out_of_reach_is_an_error() -> None:
    law = ("usl", LAWS["usl"])
    top = inverse.peak(law)
    assert top is not None
    with pytest.raises(OutOfReach):
        inverse.load_for_throughput(law, top[1] * 1.001)
    with pytest.raises(OutOfReach):
        inverse.load_for_throughput(("plateau", LAWS["plateau"]), 700 * 9.3 * 1.01)
    with pytest.raises(OutOfReach, match="same at every load"):
        inverse.load_for_response(("linear", (700.0,)), 0.5)
    with pytest.raises(OutOfReach):
        inverse.load_for_response(law, 1e-6)
