"""Random ladders, ugly ones among them, through every answer; and changes that leave answers as they are."""

from __future__ import annotations

import random
from dataclasses import replace

import polars as pl
import pytest
from benchmarks.fuzz import check, ladder
from tests.examples import LADDERS, tries

from dbdyno.conclude.scaled import scaled
from dbdyno.conclude.scaling import NAMES
from dbdyno.model.results.analyses import Estimate, Ladder
from dbdyno.store.ladder_csv import ladder_of


@pytest.mark.whole
@pytest.mark.parametrize("first", range(0, LADDERS, 25))
def test_generated_ladders_raise_no_exception_and_give_no_figure_out_of_range(first: int) -> None:
    failures = {seed: wrong for seed in range(first, min(first + 25, LADDERS)) if (wrong := check(seed))}
    assert not failures


@pytest.mark.whole
@pytest.mark.parametrize("model", NAMES)
def test_generated_ladders_hold_with_a_model_that_is_asked_for(model: str) -> None:
    assert not {seed: wrong for seed in range(tries(3)) if (wrong := check(seed, model))}


def _figures(ladder: Ladder) -> list[tuple[str, list[float]]]:
    """Returns name, and value and ends, of each estimate; -1 stands for a missing end."""
    scaling = scaled(ladder)
    estimates: list[Estimate] = [a.value for a in scaling.answers if a.value is not None]
    estimates += list(scaling.best.parameters) if scaling.best is not None else []
    return [(e.name, [-1.0 if v is None else v for v in (e.value, e.low, e.high)]) for e in estimates]


@pytest.mark.parametrize("seed", range(tries(4)))
def test_the_order_of_rows_does_not_matter(seed: int) -> None:
    one = ladder(seed)
    mixed = replace(one, points=one.points.sample(fraction=1.0, shuffle=True, seed=seed))
    for a, b in zip(_figures(one), _figures(mixed), strict=True):
        assert a[0] == b[0] and a[1] == pytest.approx(b[1], rel=1e-4, abs=1e-6)


def test_a_row_that_stands_twice_is_a_repeat_and_moves_no_mean() -> None:
    one = ladder(12)
    twice = replace(one, points=pl.concat([one.points, one.points.with_columns(pl.col("repeat") + 100)]))
    once, doubled = (
        {a.id: a.value.value for a in scaled(each).answers if a.id in ("peak", "one-session") and a.value}
        for each in (one, twice)
    )
    assert once == pytest.approx(doubled)


@pytest.mark.parametrize("seed", range(tries(3)))
def test_units_of_time_do_not_matter(seed: int) -> None:
    """Response times in ms, in us and in s give the same answers."""
    chance = random.Random(seed)
    loads, rate = (1, 2, 4, 8, 16, 32), chance.uniform(50, 500)
    rows = [(n, rate * min(n, 8) * chance.gauss(1, 0.01)) for n in loads]
    figures = []
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        lines = [f"clients,tps,response_{unit}", *(f"{n},{x:.6f},{n / x * factor:.9f}" for n, x in rows)]
        figures.append(_figures(replace(ladder_of("\n".join(lines), "mine"), name="mine")))
    for other in figures[1:]:
        for a, b in zip(figures[0], other, strict=True):
            assert a[0] == b[0] and a[1] == pytest.approx(b[1], rel=1e-4)


@pytest.mark.parametrize("factor", [1e-6, 60.0, 1e6])
def test_the_unit_of_throughput_does_not_matter(factor: float) -> None:
    one = ladder(3)
    other = replace(one, points=one.points.with_columns(pl.col("throughput") * factor))
    loads = ("scales-to", "knee")
    plain, again = (
        {a.id: a.value.value for a in scaled(each).answers if a.id in loads and a.value}
        for each in (one, other)
    )
    assert plain == again
