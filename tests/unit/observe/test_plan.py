"""Plans are data: ladders, parameters, recipes, cells."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.observe_trees import golden

from dbdyno.model.errors import RecipeError, UsageError
from dbdyno.model.plan.plan import Experiment, Parameter, Plan, Workload
from dbdyno.observe.cpus import siblings
from dbdyno.plan import default_ladder, parse_ladder, parse_params, parse_recipe, resolve

LIO = Workload(
    name="lio",
    title="logical I/O",
    doc="",
    work_unit="logical reads",
    work_short="LIO",
    work_constant=True,
    calibrated=True,
    parameters={
        "tables": Parameter(doc="whose table", type="choice", default="shared", choices=("shared", "own")),
        "blocks": Parameter(doc="size", type="int", default=1024, minimum=64),
    },
)


@pytest.mark.parametrize(
    ("text", "rungs"),
    [
        ("1:4", (1, 2, 3, 4)),
        ("1,2,4,8", (1, 2, 4, 8)),
        ("8,2,2", (2, 8)),
        ("1:16:5", (1, 6, 11, 16)),
        ("1:10:4", (1, 5, 9, 10)),  # TO is always a rung
        ("1:40:x2", (1, 2, 4, 8, 16, 32, 40)),
        ("1:3,10", (1, 2, 3, 10)),
        ("5", (5,)),
        ("1:2cpus", tuple(range(1, 7))),  # 2.5 CPUs are 3
        ("cpus,2cpus", (3, 6)),
    ],
)
def test_a_ladder_is_read(text: str, rungs: tuple[int, ...]) -> None:
    assert parse_ladder(text, cpus=2.5) == rungs


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0:4",
        "4:1",
        "1:x",
        "a",
        "1:4:0",
        "1:2:3:4",
        "1:9:x1",
        "6000",
        "-1",
        "1,,2",
        "1:5000",
        "0cpus",
        "2cpusx",
    ],
)
def test_wrong_ladders_are_refused_with_the_cure(text: str) -> None:
    with pytest.raises(UsageError) as e:
        parse_ladder(text)
    assert e.value.cure


@given(st.integers(1, 200), st.integers(0, 200), st.integers(1, 50))
def test_a_ladder_keeps_its_ends_and_ascends(low: int, more: int, step: int) -> None:
    rungs = parse_ladder(f"{low}:{low + more}:{step}")
    assert rungs[0] == low
    assert rungs[-1] == low + more
    assert list(rungs) == sorted(set(rungs))


@pytest.mark.parametrize(
    ("cpus", "rungs"),
    [(2, (1, 2, 4, 8)), (1, (1, 2, 4)), (0.5, (1, 2, 4)), (6, (1, 2, 4, 6, 8, 16, 24)), (1.5, (1, 2, 4, 8))],
)
def test_default_ladder_climbs_to_four_times_the_cpus(cpus: float, rungs: tuple[int, ...]) -> None:
    assert default_ladder(cpus) == rungs


@pytest.mark.parametrize(
    ("machine", "cpus", "limits", "marks"),
    [
        ("ec2-c4-4xlarge", 16, {}, (8, 16)),
        ("ec2-c4-4xlarge", 16, {"cpus": "0-3,8-11"}, (4, 8)),  # two threads of four cores
        ("ec2-c4-4xlarge", 16, {"cpus": "0-2"}, (3,)),  # a thread each
        ("ec2-c4-4xlarge", 16, {"quota": 10.5}, (8, 10)),
        ("ec2-c4-4xlarge", 16, {"quota": 1.5}, (1,)),
        ("power9-lpar-smt4", 40, {}, (10, 40)),
        ("v2-container-cpuset", 64, {}, (32, 64)),
        ("arm64-altra-2x80", 160, {}, (160,)),  # no SMT
        ("no-sys", 6, {}, (6,)),  # which CPUs share a core is unknown
    ],
)
def test_ladders_have_the_cores_and_the_cpus_of_every_variant(
    machine: str, cpus: int, limits: dict[str, Any], marks: tuple[int, ...]
) -> None:
    here = siblings(golden(machine))

    def plan_of(**fields: Any) -> Plan:
        variants = {"some": {"limits": limits}, "all": {}}
        given = Experiment.model_validate({"workload": "lio", "variants": variants} | fields)
        return resolve(given, LIO, cpus, "", allowed=range(1000), siblings=here)

    ladder = {c.sessions for c in plan_of().cells}
    assert {1, *marks, cpus} <= ladder and 4 * cpus in ladder
    rule = plan_of(sessions="auto").adaptive
    assert rule is not None and set(marks) <= set(rule.marks)
    cores = 1 if here is None else len(here)
    assert {c.sessions for c in plan_of(sessions="1,cores,2cpus").cells} == {
        1,
        cores if here else cpus,
        2 * cpus,
    }


def test_a_plan_lists_every_cell_and_the_reasons_of_choices() -> None:
    plan = resolve(Experiment(workload="lio", repeats=2, sessions="1,2"), LIO, 2, "2 online")
    assert [(c.sessions, c.repeat) for c in plan.cells] == [(1, 1), (2, 1), (1, 2), (2, 2)]
    assert len({c.id for c in plan.cells}) == 4
    assert plan.cells[0].params == {"tables": "shared", "blocks": 1024}
    assert {c.name for c in plan.choices} == {"CPUs", "call target"}
    assert plan.expected_ns > 4 * 12_000_000_000


def test_the_call_target_shrinks_with_the_ladders_top() -> None:
    """Window 10 s, 20 calls in it, 50 sessions on 2 CPUs stretch a call 25 times: 10 s / 20 / 25 = 20 ms."""
    plan = resolve(Experiment(workload="lio", sessions="1,50"), LIO, 2, "")
    assert plan.call_target_ns == 20_000_000
    assert resolve(Experiment(workload="lio", sessions="1"), LIO, 2, "").call_target_ns == 300_000_000


def test_the_digest_covers_the_plan() -> None:
    a, b = (resolve(Experiment(workload="lio", seed=s), LIO, 2, "") for s in (1, 2))
    assert a.digest != b.digest
    assert a.digest == a.sealed().digest


def test_shuffled_order_is_reproducible_and_holds_every_rung() -> None:
    e = Experiment(workload="lio", sessions="1:9", order="shuffled", seed=7)
    a, b = (resolve(e, LIO, 2, "").cells for _ in range(2))
    assert a == b
    assert sorted(c.sessions for c in a) == list(range(1, 10))
    assert [c.sessions for c in a] != list(range(1, 10))


@pytest.mark.parametrize(
    ("field", "value"), [("measure", "500ms"), ("measure", "ten"), ("call_target", "1h"), ("settle", "-1s")]
)
def test_wrong_times_are_refused(field: str, value: str) -> None:
    with pytest.raises(UsageError):
        resolve(Experiment.model_validate({"workload": "lio", field: value}), LIO, 2, "")


@pytest.mark.parametrize("text", ["tables=owm", "blocks=many", "blocks=3", "blocks=1.5", "tabels=own"])
def test_wrong_parameters_are_refused(text: str) -> None:
    with pytest.raises(UsageError) as e:
        resolve(Experiment(workload="lio", params=parse_params([text])), LIO, 2, "")
    assert e.value.cure


def test_the_nearest_parameter_is_named() -> None:
    with pytest.raises(UsageError, match="did you mean 'tables'"):
        resolve(Experiment(workload="lio", params={"tabels": "own"}), LIO, 2, "")


def test_variants_inherit_once() -> None:
    recipe = """
workload = "lio"
sessions = "1"
[params]
blocks = 128
[variants.shared]
[variants.own]
params = { tables = "own" }
"""
    plan = resolve(parse_recipe(recipe, "two"), LIO, 2, "")
    assert [(c.variant, c.params["tables"], c.params["blocks"]) for c in plan.cells] == [
        ("shared", "shared", 128),
        ("own", "own", 128),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mesure = '5s'", "did you mean 'measure'"),
        ("[variants.a]\nparms = {}", "did you mean 'params'"),
        ("a = 1\nmeasure = x", "r:2"),
        ("measure = '5s'\n[variants.a]\nlimits = { qota = 1 }", "(?s)r:3: .*did you mean 'quota'"),
        ('notes = """\nmesure = 3\n"""\nmesure = \'5s\'\nrepeets = 2', "(?s)2 errors.*r:4.*r:5"),
        ("repeats = 0", "repeats"),
        ("variants = 3", "variants must be tables"),
    ],
)
def test_recipe_errors_name_the_place_and_the_cure(text: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        parse_recipe(text, "r")
