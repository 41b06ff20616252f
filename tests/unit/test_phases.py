"""Phases: what a recipe may say, and what the plan and the driver make of it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.test_plan import LIO

from dbdyno.engines import paced
from dbdyno.model.errors import RecipeError, UsageError
from dbdyno.model.plan import Experiment, Plan
from dbdyno.plan import parse_recipe, resolve, whole

S = 1_000_000_000
HEAD = 'workload = "lio"\n'
RAMP = '[[phases]]\nname = "ramp"\nduration = "60s"\nfrom = 100\nto = 500\n'
HOLD = '[[phases]]\nname = "hold"\nduration = "2min"\nrate = "500/s"\n'


def _plan(text: str, **said: Any) -> Plan:
    experiment = parse_recipe(HEAD + text, "x")
    return resolve(experiment.model_copy(update=said), LIO, 4, "")


def test_a_phase_is_a_cell_and_all_of_them_are_one_measurement() -> None:
    plan = _plan(RAMP + HOLD, repeats=2, settle="3s")
    assert [(c.variant, c.repeat) for c in plan.cells] == [("ramp", 1), ("hold", 1), ("ramp", 2), ("hold", 2)]
    assert [v.doc for v in plan.variants] == ["100/s to 500/s in 60.0 s", "500/s for 120 s"]
    spec = paced.spec(whole(plan.cells[:2]))
    assert spec["windows_ns"] == [60 * S, 120 * S]
    assert spec["arrivals"]["rate"] == [[3, 100, 100], [60, 100, 500], [120, 500, 500]]
    assert plan.expected_ns > 2 * 180 * S
    assert Plan.model_validate_json(plan.model_dump_json()) == plan


def test_without_phases_the_driver_is_told_of_no_windows() -> None:
    plan = resolve(Experiment(workload="lio", rate="50"), LIO, 4, "")
    assert "windows_ns" not in paced.spec(plan.cells[0])


@pytest.mark.parametrize(
    ("text", "line", "words", "cure"),
    [
        (HOLD + RAMP.replace("to = 500", "too = 500"), 10, "unknown key phases.1.too", "'to'"),
        (HOLD + RAMP.replace('duration = "60s"\n', ""), 6, "phase ramp has no duration", "60s"),
        (HOLD + HOLD.replace("hold", "spike") + "from = 5\nto = 6\n", 9, "both rate and from", "one of them"),
        (HOLD.replace('"500/s"', "-5"), 5, "rate = -5.0: not a rate", "calls per second"),
        (HOLD + HOLD, 7, "two phases are named hold", "hold-2"),
        (RAMP.replace("to = 500\n", ""), 2, "phase ramp has no to", "from = 100 and to = 500"),
        (HOLD.replace("2min", "2 minutes"), 4, "phase hold", "2min"),
        (HOLD.replace("2min", "0.5s"), 4, "too short", "at least 1s"),
        (HOLD.replace('name = "hold"\n', ""), 2, "phase 1 has no name", "name = "),
        (HOLD.replace("hold", "a b"), 3, "not a name", "letters"),
    ],
)
def test_a_wrong_phase_is_said_with_its_line_and_the_cure(
    text: str, line: int, words: str, cure: str
) -> None:
    with pytest.raises(RecipeError) as e:
        parse_recipe(HEAD + text, "x", "x.toml")
    assert f"x.toml:{line}: " in e.value.message and words in e.value.message
    assert cure in (e.value.cure or "")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"rate": "5"}, "rate with phases"),
        ({"rates": "5,10"}, "rates with phases"),
        ({"sessions": "1,2"}, "a ladder of both"),
        ({"measure": "3s"}, "measure with phases"),
        ({"log_calls": True}, "log_calls with phases"),
        ({"think": "5ms"}, "think time"),
        ({"until": "2%"}, "until with phases"),
    ],
)
def test_what_does_not_go_with_phases_is_refused(said: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as e:
        _plan(HOLD, **said)
    assert words in e.value.message and e.value.cure


def test_a_target_is_for_each_phase() -> None:
    plan = _plan(HOLD, target="p99<20ms")
    assert plan.adaptive is None and plan.goal is not None and plan.goal.met(19e6)
