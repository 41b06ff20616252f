"""Phases: what a recipe may say, and what the plan and the driver make of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.observe.test_plan import LIO

from dbdyno.conclude.run import phases
from dbdyno.engines import paced
from dbdyno.model.errors import RecipeError, UsageError
from dbdyno.model.plan.plan import Experiment, Plan
from dbdyno.plan import parse_recipe, resolve, whole

S = 1_000_000_000
HEAD = 'workload = "lio"\n'
RAMP = '[[phases]]\nname = "ramp"\nduration = "60s"\nfrom = 100\nto = 500\n'
HOLD = '[[phases]]\nname = "hold"\nduration = "2min"\nrate = "500/s"\n'


def _plan(text: str, **changes: Any) -> Plan:
    experiment = parse_recipe(HEAD + text, "x")
    return resolve(experiment.model_copy(update=changes), LIO, 4, "")


def test_a_phase_is_a_cell_and_all_of_them_are_one_measurement() -> None:
    plan = _plan(RAMP + HOLD, repeats=2, settle="3s")
    assert [(c.variant, c.repeat) for c in plan.cells] == [("ramp", 1), ("hold", 1), ("ramp", 2), ("hold", 2)]
    assert [v.doc for v in plan.variants] == ["100/s to 500/s in 60.0 s", "500/s for 120 s"]
    spec = paced.spec(whole(plan.cells[:2]))
    assert spec["windows_ns"] == [60 * S, 120 * S]
    assert spec["arrivals"]["rate"] == [[3, 100, 100], [60, 100, 500], [120, 500, 500]]
    assert plan.expected_ns > 2 * 180 * S
    assert Plan.model_validate_json(plan.model_dump_json()) == plan


def test_without_phases_the_driver_gets_no_windows() -> None:
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
def test_a_wrong_phase_is_refused_with_its_line_and_the_cure(
    text: str, line: int, words: str, cure: str
) -> None:
    with pytest.raises(RecipeError) as e:
        parse_recipe(HEAD + text, "x", "x.toml")
    assert f"x.toml:{line}: " in e.value.message and words in e.value.message
    assert cure in (e.value.cure or "")


@pytest.mark.parametrize(
    ("changes", "words"),
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
def test_options_that_do_not_go_with_phases_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as e:
        _plan(HOLD, **changes)
    assert words in e.value.message and e.value.cure


def test_a_target_is_for_each_phase() -> None:
    plan = _plan(HOLD, target="p99<20ms")
    assert plan.adaptive is None and plan.goal is not None and plan.goal.met(19e6)


def _case(rows: list[dict[str, Any]], drained: dict[str, float | None], **changes: Any) -> Any:
    """Rungs of phases of 10 s each, over 2 sessions."""
    cells = [{"cell": r["variant"], "variant": r["variant"], "wall_s": 10.0, "sessions": 2} for r in rows]
    accounts = dict.fromkeys(("run_aas", "runq_aas", "sleep_aas", "client_aas", "unaccounted_aas"), 0.4)
    whole_rows = [
        {"sessions": 2, "dropped": 0.0, "top_wait": None, "response_p50_ns": 1e6, "response_p99_ns": 5e6}
        | {"response_p95_ns": 2e6, "calls_per_s": r["offered_per_s"]}
        | accounts
        | r
        for r in rows
    ]
    return SimpleNamespace(
        rungs=lambda: [("", [r]) for r in whole_rows],
        usable=cells,
        figures=lambda cell: {"drained_s": drained.get(cell)},
        plan=_plan(HOLD, **changes),
    )


def _row(name: str, due: float, begin: float, end: float, **more: Any) -> dict[str, Any]:
    return {"variant": name, "offered_per_s": due, "backlog_begin": begin, "backlog_end": end} | more


SPIKE = [
    _row("hold", 100, 0, 1, response_p95_ns=3e6),
    _row("spike", 500, 1, 2000, calls_per_s=300.0),
    _row("after", 100, 2000, 40, calls_per_s=296.0, response_p95_ns=4e9),
    _row("last", 100, 40, 0),
]


def test_each_phase_has_its_delivery_and_the_end_of_its_backlog() -> None:
    claims = list(phases.headline(_case(SPIKE, {"after": None, "last": 0.25})))
    hold, spike, after = (
        {c.subject: c for c in claims if c.id == "phase"}[n] for n in ("hold", "spike", "after")
    )
    assert (hold.case, hold.slots["offered"]) == ("kept-up", 100)
    assert (spike.case, after.case) == ("grew", "carried")
    assert [spike.slots[n] for n in ("offered", "delivered", "begin", "end")] == [500, 300, 1, 2000]
    assert [after.slots[n] for n in ("begin", "end")] == [2000, 40]
    assert [c.subject for c in claims if c.id == "session-time"] == ["spike"]
    (recovery,) = (c for c in claims if c.id == "phase-recovery")
    assert recovery.value is not None
    assert recovery.value.value == 10.25, "all of the phase after it, and a quarter of a second of the last"
    assert (recovery.slots["calm"], recovery.slots["calm_p95"]) == ("hold", 3_000_000)


def test_a_backlog_that_lasts_to_the_end_is_claimed() -> None:
    rows = [*SPIKE[:2], _row("after", 300, 2000, 1990)]
    (recovery,) = (c for c in phases.headline(_case(rows, {})) if c.id == "phase-recovery")
    assert (recovery.case, recovery.value, recovery.slots["end"]) == ("not", None, 1990)


def test_each_phase_is_judged_by_the_target() -> None:
    claims = list(phases.headline(_case(SPIKE, {"after": 1.0}, target="p95<10ms")))
    targets = {c.subject: c.severity for c in claims if c.id == "phase-target"}
    assert targets == {"hold": "good", "spike": "good", "after": "warning", "last": "good"}
