"""Claims about two machines name both, and are no surer than the repeats."""

from __future__ import annotations

import polars as pl
import pytest

from dbdyno.conclude.machines.machines import claims, machines
from dbdyno.model.results.analyses import POINTS, Ladder
from dbdyno.model.results.claim import Claim

LOADS = (1, 2, 4, 8)
OLD, SLOW_START = (10.0, 19.0, 30.0, 33.0), (8.0, 17.0, 30.0, 38.0)


def _ladder(name: str, rates: tuple[float, ...], repeats: int) -> Ladder:
    points = [
        {"load": n, "repeat": r, "throughput": x * (1 + 0.01 * (r - 2))}
        for n, x in zip(LOADS, rates, strict=True)
        for r in range(1, repeats + 1)
    ]
    return Ladder(name, pl.DataFrame(points, schema=POINTS))


def _claims(other: tuple[float, ...], repeats: int) -> list[Claim]:
    a, b = _ladder("old", OLD, repeats), _ladder("new", other, repeats)
    return list(claims(machines(a, b, ("old", "new"))))


@pytest.mark.parametrize("other", [SLOW_START, tuple(1.2 * x for x in OLD), OLD])
@pytest.mark.parametrize("repeats", [1, 3])
def test_every_claim_names_both_machines(other: tuple[float, ...], repeats: int) -> None:
    found = _claims(other, repeats)
    assert {"machine-ratio", "crossover"} <= {c.id for c in found}
    for c in found:
        assert "old" in c.text and "new" in c.text, c.text


def test_a_ratio_without_repeats_has_a_case_of_its_own() -> None:
    cases = {c.case for c in _claims(SLOW_START, 3) if c.id == "machine-ratio"}
    assert "more" in cases and "once" not in cases
    once = [c for c in _claims(SLOW_START, 1) if c.id == "machine-ratio" and c.value]
    assert once and all(c.case == "once" for c in once if c.value and c.value.low is None)
