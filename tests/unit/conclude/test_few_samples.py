"""Advice about too few samples names an option of the command that took them."""

from __future__ import annotations

import pytest
from tests.unit.answer_cases import Rung, results

from dbdyno.conclude.run.case import Case
from dbdyno.conclude.run.coverage import too_few
from dbdyno.model.schema.tables import rows


@pytest.mark.parametrize(("sessions", "option"), [(0, "--window"), (4, "--measure")])
def test_the_cure_is_an_option_of_the_command(sessions: int, option: str) -> None:
    cell = Rung(sessions, 0.0, 0.1, 0.0)
    run = results([cell])
    sample = cell.head() | {"via": "sql", "late_ns": 0, "at_ns": 0, "low_ns": 0, "high_ns": 1}
    tables = {**run.tables, "cut_sampler": rows("cut_sampler", [sample | {"sample": n} for n in range(3)])}
    (few,) = too_few(Case(run.plan, run.environment, tables, {}), ())
    assert few.advice is not None and option in few.advice
    assert few.slots["samples"] == 3
