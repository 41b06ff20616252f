"""What is derived when: after each measurement what the ladder needs, the rest once."""

from __future__ import annotations

import polars as pl
import pytest
from tests.fakery import Climb, climb

from dbdyno.account.ladder import just_measured
from dbdyno.conduct import derive
from dbdyno.model.results import Results

ACCOUNTS = ("run_aas", "runq_aas", "sleep_aas", "client_aas")


@pytest.fixture(scope="module")
def made() -> Climb:
    return climb("fake:cpus=2,cpu=4ms,wait=IO/DataFileRead:5ms", (2, 4))


@pytest.fixture(scope="module")
def whole(made: Climb) -> Results:
    return derive(made.info, made.plan, made.environment, made.cells)


def test_the_rates_of_a_measurement_are_those_of_the_whole(made: Climb, whole: Results) -> None:
    for cell in made.cells:
        quick = just_measured(cell, made.plan)
        rates = whole.tables["rates"].filter(pl.col("cell") == cell.id, pl.col("name") != "driver_delay")
        mine = quick["rates"].filter(pl.col("name") != "driver_delay")
        assert mine.sort("scope", "session", "name").equals(rates.sort("scope", "session", "name"))
        assert quick["windows"].equals(whole.tables["windows"].filter(pl.col("cell") == cell.id))


def test_its_row_shows_the_sessions_time_within_the_samples_error(made: Climb, whole: Results) -> None:
    rungs = whole.tables["rungs"]
    for cell in made.cells:
        row = just_measured(cell, made.plan)["rungs"].row(0, named=True)
        full = rungs.filter(pl.col("sessions") == row["sessions"]).row(0, named=True)
        for name in ACCOUNTS:
            assert row[name] == pytest.approx(full[name], abs=0.05 * row["sessions"]), name
        assert row["calls_per_s"] == full["calls_per_s"]
