"""Texts in place of numbers, in options and recipes."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from dbdyno.model.plan.plan import Experiment
from dbdyno.plan.recipe import refusal


def test_a_quota_that_is_no_number_is_refused_with_one_that_is() -> None:
    with pytest.raises(ValidationError) as raised:
        Experiment.model_validate({"limits": {"quota": "50%"}})
    assert refusal(raised.value) == (
        "limits.quota: '50%' is not a number",
        "a number of CPUs, such as 0.5",
    )
