"""Paced load in plans: rates, arrivals, think times, keys that exclude each other, the driver's
specification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from click.testing import CliRunner
from tests.unit.observe.test_plan import LIO

from dbdyno.cli.app import app
from dbdyno.engines import paced
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.pacing import Think
from dbdyno.model.plan.plan import DriverSpec, Experiment, Plan, VariantSpec
from dbdyno.plan import Findings, Next, Seen, fewer_sessions, grown, next_rung, resolve
from dbdyno.plan.rates import parse_rate, parse_rates, parse_think

S, MS = 1_000_000_000, 1_000_000


def _plan(**keys: Any) -> Plan:
    return resolve(Experiment.model_validate({"workload": "lio"} | keys), LIO, 4, "")


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        ("100,200,400", (100, 200, 400)),
        ("400/s, 100/s", (100, 400)),
        ("100:300:100", (100, 200, 300)),
        ("100:350:100", (100, 200, 300, 350)),
        ("100:400:x2", (100, 200, 400)),
        ("100:500:x2", (100, 200, 400, 500)),
        ("1k,0.5", (0.5, 1000)),
    ],
)
def test_rates_are_listed_or_spanned_by_step_or_factor(text: str, rates: tuple[float, ...]) -> None:
    assert parse_rates(text) == rates


@pytest.mark.parametrize(
    "text", ["", "x", "0", "-5", "100:200", "200:100:x2", "100:200:x1", "100:200:0", "1e9"]
)
def test_a_text_that_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as e:
        parse_rates(text)
    assert e.value.cure


def test_a_rate_is_a_number_with_or_without_its_unit() -> None:
    assert (parse_rate("500"), parse_rate("500/s"), parse_rate(" 2.5 ")) == (500, 500, 2.5)
    with pytest.raises(UsageError):
        parse_rate("500/min")


def test_think_times_have_a_distribution_and_wrong_ones_are_refused() -> None:
    assert parse_think("10ms") == (10 * MS, None)
    assert parse_think("constant 10ms") == (10 * MS, None)
    assert parse_think("exponential 10ms") == (10 * MS, Think(kind="exponential"))
    assert parse_think("uniform 5ms 15ms") == (10 * MS, Think(kind="uniform", low_ns=5 * MS, high_ns=15 * MS))
    for wrong in ("uniform 15ms 5ms", "uniform 5ms", "exponential", "exponential x", "normal 1ms"):
        with pytest.raises(UsageError) as e:
            parse_think(wrong)
        assert e.value.cure


def test_rates_without_sessions_get_a_number_that_the_planner_chooses() -> None:
    plan = _plan(rates="100:400:x2", measure="2s", repeats=2)
    assert [(c.sessions, c.rate_per_s, c.repeat) for c in plan.cells] == [
        (32, rate, repeat) for repeat in (1, 2) for rate in (100, 200, 400)
    ]
    assert plan.cells[0].id == "0001-lio-base-s32-100ps-r1"
    assert plan.by_rate
    assert plan.top == 32
    assert len({c.seed for c in plan.cells}) == 6, "each measurement has its own arrivals"
    (choice,) = (c for c in plan.choices if c.name == "sessions")
    assert "--sessions" in choice.reason
    assert Plan.model_validate_json(plan.model_dump_json()) == plan
    assert _plan().cells[0].rate_per_s is None


def test_a_rate_at_several_numbers_of_sessions_is_a_cell_for_each() -> None:
    plan = _plan(rate="50/s", sessions="2,4")
    assert [(c.sessions, c.rate_per_s) for c in plan.cells] == [(2, 50), (4, 50)]
    assert not plan.by_rate


@pytest.mark.parametrize(
    "keys",
    [
        {"rate": "5", "rates": "5,6"},
        {"rates": "5,6", "sessions": "1,2"},
        {"rates": "5,6", "sessions": "auto"},
        {"rates": "5,6", "think": "1ms"},
        {"rate": "5", "driver": DriverSpec(rounds=True)},
        {"rate": "5", "variants": {"a": VariantSpec(driver=DriverSpec(think="1ms"))}},
        {"rates": "5,6", "variants": {"a": VariantSpec(), "b": VariantSpec()}},
        {"arrivals": "constant"},
        {"latency_limit": "5ms"},
        {"rate": "5", "latency_limit": "0ms"},
        {"rate": "5", "latency_limit": "x"},
        {"rate": "5", "target": "p99<5ms"},
        {"rates": "5,6", "target": "p99<5ms"},
        {"rates": "5,6", "rungs": 5},
        {"rates": "auto", "target": "throughput>5"},
        {"rates": "auto:x"},
    ],
)
def test_keys_that_do_not_go_together_are_refused_with_the_cure(keys: Mapping[str, Any]) -> None:
    with pytest.raises(UsageError) as e:
        _plan(**keys)
    assert e.value.cure


def test_the_drivers_specification_holds_arrivals_and_think_times() -> None:
    (cell,) = _plan(rate="500", arrivals="constant", latency_limit="50ms", measure="3s", sessions="8").cells
    spec = paced.spec(cell)
    assert spec == {
        "rounds": False,
        "think_us": 0,
        "arrivals": {
            "kind": "constant",
            "rate": [[2.0, 500.0, 500.0], [3.0, 500.0, 500.0]],
            "seed": cell.seed,
            "latency_limit_us": 50_000,
        },
    }
    thinks = paced.spec(_plan(think="exponential 10ms").cells[0])
    assert thinks["think"] == {"kind": "exponential", "mean_us": 10_000}
    assert "think_us" not in thinks
    uniform = paced.spec(_plan(think="uniform 5ms 15ms").cells[0])
    assert uniform["think"] == {"kind": "uniform", "low_us": 5_000, "high_us": 15_000}
    assert paced.spec(_plan(think="10ms").cells[0])["think_us"] == 10_000


def test_variants_may_think_differently() -> None:
    lazy = VariantSpec(driver=DriverSpec(think="exponential 4ms"))
    plan = _plan(think="2ms", variants={"a": VariantSpec(), "b": lazy}, sessions="1")
    assert [(c.variant, c.think_ns, c.think is None) for c in plan.cells] == [
        ("a", 2 * MS, True),
        ("b", 4 * MS, False),
    ]


@pytest.mark.parametrize("capacity", [73, 850, 6400])
def test_the_search_finds_the_highest_rate_that_meets_a_target(capacity: int) -> None:
    """The response time of M/M/1 is 1 / (capacity - rate)."""
    plan = _plan(rates="auto", target="mean<20ms")
    assert plan.adaptive is not None
    assert plan.cells[0].rate_per_s == plan.adaptive.first
    measured: list[Seen] = []
    while isinstance(step := next_rung(Findings(plan.adaptive, tuple(measured))), Next):
        over = step.load >= capacity
        figure = 10.0 * S if over else S / (capacity - step.load)
        measured.append(Seen(step.load, min(step.load, capacity), figure, failed=0.3 if over else 0.0))
        assert len(measured) < 40
    best = capacity - 50
    assert step.at is not None and step.high is not None
    assert step.at <= best <= step.high <= 1.07 * step.at + 1
    assert step.id == "rate-target"


def test_the_search_without_a_target_finds_where_throughput_ends_to_follow() -> None:
    plan = _plan(rates="auto:20000")
    assert plan.adaptive is not None
    measured: list[Seen] = []
    while isinstance(step := next_rung(Findings(plan.adaptive, tuple(measured))), Next):
        measured.append(Seen(step.load, float(min(step.load, 850))))
        assert len(measured) < 40
    assert step.id == "auto-rates"
    assert step.at == pytest.approx(850, rel=0.15)


def test_a_plan_of_rates_grows_by_a_cell_of_the_rate_asked_for() -> None:
    plan, (cell,) = grown(_plan(rates="auto"), 640, 1)
    assert (cell.rate_per_s, cell.sessions, cell.id) == (640, 32, "0002-lio-base-s32-640ps-r1")
    assert plan.cells[-1] == cell


def test_the_sessions_that_were_not_asked_for_are_no_more_than_the_server_takes() -> None:
    asked = _plan(rate="50", sessions="40")
    assert fewer_sessions(asked, 7, "10 are free") == asked
    plan = fewer_sessions(_plan(rates="100,200"), 7, "10 are free")
    assert [(c.sessions, c.rate_per_s, c.id) for c in plan.cells] == [
        (7, 100, "0001-lio-base-s7-100ps-r1"),
        (7, 200, "0002-lio-base-s7-200ps-r1"),
    ]
    assert [(c.value, c.reason) for c in plan.choices if c.name == "most sessions"] == [("7", "10 are free")]
    searched = fewer_sessions(_plan(rates="auto"), 7, "10 are free")
    assert searched.adaptive is not None
    assert (searched.top, searched.adaptive.top) == (7, 1_000_000), "the rate is not cut"


def test_a_dry_run_prints_rates_and_the_rule_of_their_search() -> None:
    def output(*words: str) -> str:
        return CliRunner().invoke(app, ("run", "lio", *words, "--dry-run"), catch_exceptions=False).output

    assert "2 measurements, rates 100, 200/s, sessions 16" in output("--rates", "100,200", "--sessions", "16")
    searched = output("--rates", "auto:2000", "--target", "p99<20ms")
    assert "search of rates around p99 < 20 ms, at most 16 load levels up to 2000/s" in searched
    assert "From 10/s 4 times as many each time, then bisection" in searched


def test_a_call_is_of_a_size_that_the_rates_can_be_delivered_with() -> None:
    """A quarter of 4 CPUs at 400 calls/s is 2.5 ms a call."""
    assert _plan(rates="100:400:x2").call_target_ns == 2.5 * MS
    assert _plan(rate="0.5").call_target_ns == 300 * MS
    assert _plan(rate="500", call_target="1ms").call_target_ns == MS
    (choice,) = (c for c in _plan(rate="400").choices if c.name == "call target")
    assert "25%" in choice.reason
