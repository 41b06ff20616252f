"""Observations are not compared: their windows follow one another and are no repeats."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit import report_observation, report_results

from dbdyno.conclude.compare import compare_runs
from dbdyno.model.errors import UsageError
from dbdyno.model.results.results import Results


def _named(results: Results, id: str) -> Results:
    return replace(results, info=results.info.model_copy(update={"id": id}))


def test_two_observations_are_refused_with_another_way() -> None:
    first, second = (_named(report_observation.results(), id) for id in ("monday", "tuesday"))
    with pytest.raises(UsageError) as refused:
        compare_runs(first, second)
    assert "monday and tuesday" in refused.value.message
    assert "dbdyno snapshot" in str(refused.value.cure) and "dbdyno compare" in str(refused.value.cure)


def test_the_observation_beside_a_run_is_named() -> None:
    run, observed = _named(report_results.results(), "load"), _named(report_observation.results(), "monday")
    with pytest.raises(UsageError) as refused:
        compare_runs(run, observed)
    assert "monday is" in refused.value.message and "load" not in refused.value.message
