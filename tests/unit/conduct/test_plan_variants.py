"""Variants, blocks and their order; limits as recipes write them; ends of a run."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.observe.test_plan import LIO

from dbdyno import conduct, engines
from dbdyno.conduct.request import job_specs, script_texts
from dbdyno.model.errors import RecipeError, UsageError
from dbdyno.model.plan.job_workload import workload_of_jobs
from dbdyno.model.plan.plan import Experiment, Plan
from dbdyno.model.plan.script_workload import workload_of
from dbdyno.plan import SCHEMA_FILE, all_jobs, parse_recipe, recipe_schema, resolve
from dbdyno.plan.ladder import places

RECIPES = Path(conduct.__file__).parents[1] / "recipes"


def _plan(toml: str, cpus: float = 4, allowed: tuple[int, ...] = (0, 2, 4, 6)) -> Plan:
    return resolve(parse_recipe('workload = "lio"\n' + toml, "x"), LIO, cpus, "", allowed=allowed)


def test_a_variant_inherits_keys_that_it_does_not_set() -> None:
    plan = _plan(
        """
sessions = "1"
[settings]
work_mem = "4MB"
jit = false
[limits]
quota = 2.0
cpus = "0-3"
[driver]
protocol = "extended"
think = "5ms"
[variants.a]
[variants.b]
settings = { work_mem = "64MB" }
limits = { quota = 1.5, bind = "pack" }
driver = { validation = "select 1", think = "1ms" }
"""
    )
    a, b = plan.variants
    assert a.settings == {"work_mem": "4MB", "jit": "off"}
    assert b.settings == {"work_mem": "64MB", "jit": "off"}
    assert (a.limits.quota, a.limits.cpus, a.limits.bind) == (2.0, "0-3", None)
    assert (b.limits.quota, b.limits.cpus, b.limits.bind) == (1.5, "0-3", "pack")
    assert (a.driver.protocol, a.driver.validation) == ("extended", None)
    assert (b.driver.protocol, b.driver.validation) == ("extended", "select 1")
    assert [c.think_ns for c in plan.cells] == [5_000_000, 1_000_000]
    assert plan.cells[1].driver == b.driver
    assert b.words() == (
        "cpus 0-3, quota 1.5, bind pack, work_mem=64MB, jit=off, extended, validated by select 1"
    )


@pytest.mark.parametrize("order", ["interleaved", "shuffled"])
@given(
    variants=st.integers(1, 5), rungs=st.integers(1, 4), repeats=st.integers(1, 5), seed=st.integers(0, 99)
)
def test_every_variant_is_in_each_block_once(
    order: str, variants: int, rungs: int, repeats: int, seed: int
) -> None:
    names = [f"v{n}" for n in range(variants)]
    ladder = [2**n for n in range(rungs)]
    order_of_cells = list(places(order, names, ladder, repeats, seed))  # type: ignore[arg-type]
    # a block is contiguous in time
    blocks = [order_of_cells[n : n + variants] for n in range(0, len(order_of_cells), variants)]
    assert len(blocks) == rungs * repeats
    for number, block in enumerate(blocks, start=1):
        assert sorted(p.variant for p in block) == names
        assert {(p.block, p.sessions, p.repeat) for p in block} == {
            (number, block[0].sessions, block[0].repeat)
        }
    assert Counter((p.sessions, p.repeat) for p in order_of_cells) == Counter(
        {(s, r): variants for s in ladder for r in range(1, repeats + 1)}
    )


def test_interleaved_each_variant_is_first_equally_often() -> None:
    order_of_cells = list(places("interleaved", ["a", "b", "c"], [1, 2, 4], 3, 1))
    firsts = Counter(p.variant for p in order_of_cells[::3])
    assert firsts == {"a": 3, "b": 3, "c": 3}


def test_a_shuffled_order_depends_on_its_seed() -> None:
    one, same, other = (list(places("shuffled", ["a", "b", "c"], [1, 2, 4], 4, s)) for s in (1, 1, 2))
    assert one == same
    assert one != other


def test_the_order_is_interleaved_where_there_is_something_to_compare() -> None:
    assert _plan('sessions="1"').order == "ladder"
    plan = _plan('sessions="1"\n[variants.a]\n[variants.b]\nlimits={quota=1}')
    assert plan.order == "interleaved"
    assert "drift" in next(c.reason for c in plan.choices if c.name == "order")
    chosen = _plan('sessions="1"\norder="ladder"\n[variants.a]\n[variants.b]\nlimits={quota=1}')
    assert [c.name for c in chosen.choices].count("order") == 1  # the chosen order has a warning


def test_first_cpus_are_those_that_may_be_used() -> None:
    plan = _plan('sessions="1"\n[limits]\ncpus="first:2"')
    assert plan.variants[0].limits.cpus == "0,2"
    assert any("first:2" in c.reason for c in plan.choices)
    with pytest.raises(UsageError, match="4 CPU"):
        _plan('sessions="1"\n[limits]\ncpus="first:5"')


def test_the_tightest_variant_sets_the_call_target() -> None:
    """At 4 sessions a quota of 0.5 CPUs makes a call 8 times as long: 10 s / 20 / 8 = 62.5 ms."""
    plan = _plan('sessions="4"\n[variants.none]\n[variants.half]\nlimits={quota=0.5}')
    assert plan.call_target_ns == 62_500_000


def test_equal_variants_are_named_in_the_plan() -> None:
    plan = _plan('sessions="1"\n[variants.a]\n[variants.b]\n[variants.c]\nlimits={quota=1}')
    assert [c.value for c in plan.choices if c.name == "equal variants"] == ["a, b"]


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ('[limits]\nperiod="50ms"', "period without a quota"),
        ('[limits]\ncpus="3-1"', "not a range"),
        ('[limits]\npool_mode="session"', "pool mode without a pool"),
        ('[variants."a/b"]\n', "not a name"),
        ('baseline="b"\n[variants.a]\n', "no variant"),
        ('until="2"\nrepeats=9', "not a share"),
        ('until="0%"\nrepeats=9', "not a share"),
        ('until="2%"\nrepeats=3', "4 at least"),
        ('budget="5s"\nmeasure="10s"', "one repeat alone"),
        ('cool_down="x"', "not a duration"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_before_a_server_is_asked(toml: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as e:
        _plan(toml if toml.startswith("[") else 'sessions="1"\n' + toml)
    assert e.value.cure or message == "4 at least"


@pytest.mark.parametrize(
    ("toml", "message", "cure"),
    [
        ("[variants.a]\n[variants.a]\n", "two variants of the same name: a", "rename"),
        ("[variants.a]\nlimits={cpu='0'}", "unknown key variants.a.limits.cpu", "cpus"),
        ("[variants.a]\nsetings={a=1}", "unknown key variants.a.setings", "settings"),
        ("[driver]\nprotocol='binary'", "driver.protocol", "binary"),
        ("[limits]\nquota=-1", "greater than 0", "-1"),
        ("[limits]\nbind='spraed'", "limits.bind", "spraed"),
        ("[limits]\npool=0", "limits.pool", "0"),
        ("variants=3", "tables", "variants"),
    ],
)
def test_a_recipe_with_unknown_or_wrong_keys_is_refused(toml: str, message: str, cure: str) -> None:
    with pytest.raises(RecipeError, match=message) as e:
        parse_recipe(toml, "x")
    assert cure in (e.value.cure or "")


def test_until_repeats_20_times_unless_repeats_are_given() -> None:
    assert max(c.repeat for c in _plan('sessions="1"\nuntil="2%"').cells) == 20
    assert max(c.repeat for c in _plan('sessions="1"\nuntil="2%"\nrepeats=7').cells) == 7


def test_a_budget_is_the_longest_that_is_expected() -> None:
    unlimited = _plan('sessions="1"\nrepeats=100')
    capped = _plan('sessions="1"\nrepeats=100\nbudget="2min"')
    assert capped.expected_ns == 120_000_000_000 < unlimited.expected_ns


def test_the_schema_for_editors_is_up_to_date_with_the_models() -> None:
    assert json.loads((RECIPES / SCHEMA_FILE).read_text()) == recipe_schema(), "tools/recipe_schema.py"
    assert recipe_schema()["additionalProperties"] is False
    described = recipe_schema()["$defs"]["LimitSpec"]["properties"]
    assert all(p.get("description") for p in described.values())


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda p: p.stem)
def test_recipes_that_come_with_dbdyno_can_be_planned_on_few_and_many_cpus(
    path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a question and names its schema; it can be planned for 2 CPUs and for 160."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    experiment = parse_recipe(path.read_text(), path.stem)
    assert experiment.doc
    assert path.read_text().startswith(f"#:schema ./{SCHEMA_FILE}\n")
    scripts = script_texts.read(experiment)
    mix = [scripts[s] for s in experiment.mix]
    if all_jobs(experiment):
        experiment = job_specs.spread_out(experiment.model_copy(update={"engine": engines.COMMAND}))
        commands = job_specs.commands(experiment)
        unit = workload_of_jobs([j for c in commands.values() for j in c.jobs])
    else:
        commands = {}
        unit = workload_of(mix) if mix else conduct.workloads()[experiment.workload or ""]
    for cpus in (2, 160):
        plan = resolve(
            experiment, unit, cpus, "", scripts, range(cpus), memory_bytes=cpus << 30, commands=commands
        )
        assert plan.cells
        assert plan.expected_ns < 30 * 60 * 1e9, "a user waits for it"


def test_an_old_plan_has_no_variants_and_is_read_all_the_same() -> None:
    plan = _plan('sessions="1"')
    old = json.loads(plan.model_dump_json(exclude={"variants", "order"}))
    assert Plan.model_validate(old).variant("base").words() == ""
    assert Experiment().variants == {}
