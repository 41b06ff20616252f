"""Scaling of a run's ladders: a reason where no rung can be used."""

from dataclasses import replace

import polars as pl
import pytest
from tests.unit import report_results
from tests.unit.scaling_ladders import ladder
from tests.unit.shown import as_html

from dbdyno import present
from dbdyno.conclude.ladder import ladders
from dbdyno.conclude.scaled import scalings_of
from dbdyno.model.results.analyses import POINTS, Ladder


@pytest.mark.parametrize(
    ("points", "refusal"),
    [
        (ladder([], []), "at least 4 different loads; 0 load levels measured"),
        (ladder([1, 2], [10.0, 19.0]), "at least 4 different loads; 2 load levels measured"),
        (ladder([1, 2, 4, 8], [10.0, 19.0, 0.0, 40.0]), "throughput"),
    ],
)
def test_a_run_without_a_usable_ladder_is_shown_with_the_reason(
    points: Ladder, refusal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = pl.concat(
        [pl.DataFrame(schema=POINTS), points.points.cast({"load": float})], how="diagonal_relaxed"
    )
    points = replace(points, points=whole)
    monkeypatch.setattr(ladders, "ladders_of", lambda _: (points,))
    (scaling,) = scalings_of(report_results.results())
    assert scaling.best is None and refusal in scaling.refused[0]
    assert scaling.curve.is_empty() and scaling.residuals.is_empty()
    assert refusal in as_html(present.scaling((scaling,)).blocks)
    assert isinstance(present.scaling_json((scaling,))["scalings"][0]["points"], list)
    assert scaling.ladder.points["throughput"].to_list() == [x for x in points.points["throughput"] if x > 0]
