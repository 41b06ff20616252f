"""A ladder of which only the first load scales for certain is not praised up to that load."""

from __future__ import annotations

import polars as pl

from dbdyno.conclude.scaling.capacity import scales_to
from dbdyno.model.results.analyses import POINTS, Ladder
from dbdyno.model.results.claim import Claim


def _scales_to(rates: dict[float, float]) -> Claim:
    points = [{"load": n, "repeat": 1, "throughput": x} for n, x in rates.items()]
    (claim,) = scales_to(Ladder("l", pl.DataFrame(points, schema=POINTS)))
    return claim


def test_where_the_first_load_is_the_last_good_one_the_sentence_is_about_the_fall() -> None:
    """Efficiency at 2 is 62 %, at 4 it is 64 %: these average to less, and only 8 is below beyond noise."""
    claim = _scales_to({1: 181.0, 2: 225.0, 4: 462.0, 8: 421.0})
    assert claim.value is not None and claim.value.value == 1
    assert claim.case in ("early", "none")
    assert "100 %" not in claim.text and "up to 1" not in claim.text
    assert "62 %" in claim.text


def test_a_ladder_that_scales_to_a_higher_load_says_so() -> None:
    claim = _scales_to({1: 100.0, 2: 199.0, 4: 396.0, 8: 420.0})
    assert claim.value is not None and claim.value.value == 4
    assert claim.case not in ("early", "none") and "99 %" in claim.text


def test_the_highest_load_is_compared_with_the_lowest_where_each_session_does_more_at_it() -> None:
    claim = _scales_to({1: 1000.0, 4: 4520.0})
    assert "113 %" in claim.text and "against" not in claim.text and "100 %" not in claim.text
