"""Servers as variants: lists of them, their order, and what is compared with what."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from tests.unit.observe.test_plan import LIO

from dbdyno.model.plan.plan import Experiment, Plan, VariantSpec
from dbdyno.model.plan.resetting import PlannedReset
from dbdyno.model.plan.servers import is_directory, is_dsn, is_started, is_version, listed
from dbdyno.plan import begins, resolve


def _plan(
    servers: dict[str, str | None], programs: dict[str | None, str] | None = None, **keys: object
) -> Plan:
    variants = {name: VariantSpec(server=server) for name, server in servers.items()}
    given = {"workload": "lio", "sessions": "1,2", "repeats": 3, "variants": variants, **keys}
    return resolve(Experiment.model_validate(given), LIO, 4, "", programs=programs or {})


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("17,18", ["17", "18"]),
        ("17.6, /opt/pg/bin ,18", ["17.6", "/opt/pg/bin", "18"]),
        ("host=a,b dbname=x,17", ["host=a,b dbname=x", "17"]),
        ("17,postgresql://u@h1:1,h2:2/db,./pg", ["17", "postgresql://u@h1:1,h2:2/db", "./pg"]),
        ("service=a,service=b", ["service=a", "service=b"]),
        ("17,", ["17", ""]),
    ],
)
def test_a_comma_parts_servers_and_not_the_hosts_of_one(text: str, servers: list[str]) -> None:
    assert listed(text) == servers


def test_a_text_is_a_version_a_directory_or_a_connection_string() -> None:
    texts = [
        "17",
        "17.6",
        "/opt/pg=17/bin",
        "./pg",
        "pg/bin",
        "host=/tmp dbname=a",
        "postgresql://h/d",
        "pg17",
    ]
    kinds = [(is_version(t), is_directory(t), is_dsn(t)) for t in texts]
    version, directory, dsn, none = (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 0)
    assert kinds == [version, version, directory, directory, directory, dsn, dsn, none]
    assert [is_started(t) for t in ("17", "/opt/pg", "service=a", None)] == [True, True, False, False]


def test_each_repeat_measures_the_ladder_on_one_start_of_each_server() -> None:
    plan = _plan({"a": "15", "b": "17", "c": "18"})
    assert plan.order == "ladder"
    order = ["".join(dict.fromkeys(c.variant for c in plan.cells if c.repeat == r)) for r in (1, 2, 3)]
    assert order == ["abc", "bca", "cab"]
    visits = [(c.repeat, c.variant) for c in plan.cells]
    assert all(visits[n] == visits[n + 1] for n in range(0, len(visits), 2))  # both loads in a row
    blocks = Counter((c.block, c.sessions, c.repeat) for c in plan.cells)
    assert len(blocks) == 6
    assert set(blocks.values()) == {3}  # every server once in each block


def test_servers_that_run_already_alternate_as_other_variants_do() -> None:
    plan = _plan({"a": "service=a", "b": "service=b"})
    assert plan.order == "interleaved"
    assert not plan.starts_servers
    assert plan.servers == {"a": "service=a", "b": "service=b"}


def test_an_auto_ladder_measures_all_servers_at_a_load_before_the_next() -> None:
    plan = _plan({"a": "15", "b": "18"}, sessions="auto")
    assert plan.order == "interleaved"
    assert plan.starts_servers


def test_the_plan_says_why_servers_follow_one_another() -> None:
    (order,) = [c for c in _plan({"a": "15", "b": "18"}).choices if c.name == "order"]
    assert re.search("one start of each server", order.reason)


def test_an_order_of_both_kinds_starts_only_servers_of_dbdyno() -> None:
    plan = _plan({"a": "15", "b": "service=b"})
    (order,) = [c for c in plan.choices if c.name == "order"]
    assert "one start of those that dbdyno starts" in order.reason


def test_texts_that_lead_to_the_same_programs_are_equal_variants() -> None:
    texts: dict[str, str | None] = {"a": "17", "b": "/opt/17/bin", "c": "18", "d": "18"}
    plan = _plan(texts, {"17": "/opt/17/bin", "/opt/17/bin": "/opt/17/bin", "18": "/opt/18/bin"})
    assert [c.value for c in plan.choices if c.name == "equal variants"] == ["a, b", "c, d"]


def test_variants_are_unmeasured_beside_others_that_were_measured() -> None:
    plan = _plan({"a": None, "b": None, "c": None})
    assert plan.unmeasured({"b"}) == ["a", "c"]
    assert plan.unmeasured(()) == plan.unmeasured("abc") == []


def test_the_data_of_each_server_are_reset_by_themselves() -> None:
    plan = _plan({"a": "service=a", "b": "service=b"})
    plan = plan.model_copy(update={"reset": PlannedReset(when="block", each_ns=1)})
    cells = plan.cells
    assert all(begins(plan, before, cell) for before, cell in zip((None, *cells), cells, strict=False))


def test_numbers_and_lists_are_natural_in_recipes() -> None:
    variant = VariantSpec.model_validate({"server": 17})
    assert variant.server == "17"
    assert Experiment.model_validate({"servers": [17, "/opt/pg"]}).servers == "17,/opt/pg"
    with pytest.raises(ValueError, match="valid string"):
        VariantSpec.model_validate({"server": 17.10})  # TOML reads it as 17.1
