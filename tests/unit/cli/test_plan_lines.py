"""The lines before a run: what the user needs, and no word of what everybody expects."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.observe.test_plan import LIO
from tests.unit.report_machine import environment

from dbdyno import present
from dbdyno.cli import screen
from dbdyno.conduct.request.request import cpus_reason
from dbdyno.model.engine.environment import Host
from dbdyno.model.plan.plan import Experiment, Plan
from dbdyno.plan import fewer_sessions, resolve


def host(allowed: int, online: int) -> Host:
    here = environment(online, os_tasks=True).host
    limits = here.limits.model_copy(update={"affinity": tuple(range(allowed))})
    return here.model_copy(update={"limits": limits})


def plan_of(allowed: int = 2, online: int = 2, **fields: Any) -> Plan:
    experiment = Experiment.model_validate({"workload": "lio"} | fields)
    return resolve(experiment, LIO, allowed, cpus_reason(host(allowed, online)))


def chosen(plan: Plan) -> list[str]:
    """The lines after those of load and duration."""
    return screen.plan_lines(plan)[2:]


def test_a_plan_of_defaults_has_two_lines_and_the_size_of_a_call() -> None:
    plan = plan_of()
    load, duration, *rest = screen.plan_lines(plan)
    assert "1, 2, 4, 8" in load and "2 CPUs" in duration
    (call,) = rest
    assert "--call-target" in call and "20 or more" in call


def test_a_size_that_the_user_chose_needs_no_words() -> None:
    assert chosen(plan_of(call_target="10ms", sessions="1,2")) == []


def test_calls_that_are_too_few_for_the_window_are_said_to_be() -> None:
    (call,) = chosen(plan_of(sessions="1,4000", measure="2s"))
    assert "fewer than 20" in call and "4,000" in call


def test_fewer_cpus_than_the_machine_has_are_named_with_the_reason() -> None:
    (line,) = chosen(plan_of(2, 64, call_target="10ms"))
    assert "affinity allows 2 of 64" in line


def test_fewer_sessions_than_usual_are_named_with_the_reason() -> None:
    plan = fewer_sessions(plan_of(rates="100,200"), 7, "10 are free")
    assert any("7" in line and "10 are free" in line for line in chosen(plan))


@pytest.mark.parametrize("fields", [{"variants": {"a": {}, "b": {}}}, {"sessions": "auto"}, {"rate": "50"}])
def test_verbose_lists_every_choice_with_its_reason(fields: dict[str, Any]) -> None:
    plan = plan_of(**fields)
    lines = screen.plan_lines(plan, every_choice=True)
    for choice in plan.choices:
        assert any(line.startswith(f"{choice.name} = {choice.value}: ") for line in lines)
    assert len(lines) > len(screen.plan_lines(plan))


def test_a_load_of_scripts_is_named_by_their_files() -> None:
    plan = plan_of()
    assert present.load_words(plan) == "lio"
    experiment = plan.experiment.model_copy(update={"workload": None, "script": "q.sql"})
    of_script = plan.model_copy(update={"experiment": experiment, "script_text": "select 1"})
    assert present.load_words(of_script) == "script q.sql"
