"""The auto ladder in a run: its plan, the cells that a run measures, and what a stopped run keeps."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.fake_engine import FakeServer
from tests.fakery import climb_one, environment_of, info_of, plan_cell
from tests.unit.observe.test_plan import LIO
from tests.unit.plan.test_adaptive import MS, Law, S, plateau

from dbdyno import conduct
from dbdyno.cli.app import app
from dbdyno.conclude.catalogue import worded
from dbdyno.conduct import NullProgressListener
from dbdyno.conduct.derive.rebuild import derived_anew
from dbdyno.conduct.measure.prepare import fitted
from dbdyno.conduct.measure.schedule import AdaptiveCourse
from dbdyno.drive import Interrupt, Interrupted
from dbdyno.model.engine.protocols import Target
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.plan import Adaptive, Cell, Experiment, Plan, VariantSpec
from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import rows
from dbdyno.plan import Findings, Next, Seen, grown, next_rung, repeated, resolve
from dbdyno.store import Run, RunStore

pytestmark = pytest.mark.whole


def _plan(**keys: Any) -> Plan:
    return resolve(Experiment.model_validate({"workload": "lio", "sessions": "auto"} | keys), LIO, 4, "")


def test_an_auto_plan_holds_its_first_cells_and_the_rule() -> None:
    plan = _plan(measure="2s")
    assert [c.sessions for c in plan.cells] == [1]
    assert plan.adaptive == Adaptive(top=32, most_rungs=16, near=4, repeats=1, marks=(4,))
    assert plan.top == 32
    assert plan.call_target_ns == 2 * S // 20 // 8
    assert plan.expected_ns > 16 * 4 * S  # an upper bound
    assert _plan(sessions="auto:5", rungs=7).adaptive == Adaptive(
        top=5, most_rungs=7, near=4, repeats=1, marks=(4,)
    )
    assert _plan(sessions="auto:2cpus").top == 8
    goal = _plan(sessions=None, target="p95<20ms")
    assert goal.adaptive is not None
    assert (goal.adaptive.top, goal.adaptive.repeats, goal.call_target_ns) == (128, 3, 5 * MS)
    assert Plan.model_validate_json(goal.model_dump_json()) == goal


@pytest.mark.parametrize(
    "keys",
    [
        {"sessions": "auto:0"},
        {"sessions": "auto:x"},
        {"sessions": "auto:"},
        {"sessions": "auto:1,2"},
        {"sessions": "1,2", "target": "p95<20ms"},
        {"sessions": "1,2", "rungs": 5},
        {"target": "p95<20ms", "until": "2%"},
        {"target": "p97<20ms"},
        {"order": "ladder", "variants": {"a": VariantSpec(), "b": VariantSpec()}},
    ],
)
def test_what_an_auto_ladder_cannot_do_is_refused_with_the_cure(keys: Mapping[str, Any]) -> None:
    with pytest.raises(UsageError) as e:
        _plan(**keys)
    assert e.value.cure


def test_a_plan_grows_by_blocks_of_all_variants() -> None:
    plan = _plan(variants={"a": VariantSpec(), "b": VariantSpec()})
    more, cells = grown(plan, 4, 1)
    assert [(c.variant, c.sessions, c.block) for c in cells] == [("b", 4, 2), ("a", 4, 2)]
    again, cells = repeated(more, 2)
    assert [(c.variant, c.sessions, c.repeat) for c in cells] == [
        ("a", 1, 2),
        ("b", 1, 2),
        ("b", 4, 2),
        ("a", 4, 2),
    ]
    assert len({c.id for c in again.cells}) == len(again.cells) == 8
    assert len({plan.digest, more.digest, again.digest}) == 3
    assert again == again.sealed()


class Ticking:
    """A clock that a cell moves by ten seconds."""

    def __init__(self) -> None:
        self.ns = 0

    def now_ns(self) -> int:
        return self.ns

    def sleep(self, seconds: float) -> None:
        self.ns += round(seconds * S)


def _results_of_cell(plan: Plan, cell: Cell, rate: float) -> Results:
    key = {k: getattr(cell, k) for k in ("workload", "variant", "sessions", "repeat")} | {"cell": cell.id}
    window = key | {"t0_ns": 0, "t1_ns": 10 * S, "wall_s": 10.0, "status": "ok", "reason": None}
    figures = {"calls_per_s": rate, "calls": 10 * rate, "errors": 0.0, "response_mean_ns": 1e9 / rate}
    rates = [
        key | {"scope": "rung", "name": n, "unit": "", "value": v, "status": "ok", "source": "driver"}
        for n, v in figures.items()
    ]
    tables = {
        "windows": rows("windows", [window]),
        "rates": rows("rates", rates),
        "histogram": rows("cell_histogram", []),
    }
    server = FakeServer(Target(dsn="fake:cpus=4"))
    return Results(info_of(), plan, environment_of(server), tables, ())


def _climb_ladder(plan: Plan, laws: Mapping[str, Law]) -> tuple[list[Cell], AdaptiveCourse, list[Plan]]:
    clock, plans, cells = Ticking(), [plan], []
    assert plan.adaptive is not None
    course = AdaptiveCourse(plan, plan.adaptive, clock, plans.append)
    for cell in course.cells():
        assert cell in plans[-1].cells  # a plan with the cell is reported before the cell runs
        clock.sleep(10)
        cells.append(cell)
        course.measured(_results_of_cell(plans[-1], cell, laws[cell.variant](cell.sessions)))
    return cells, course, plans


def test_every_rung_is_measured_under_every_variant() -> None:
    plan = _plan(variants={"a": VariantSpec(), "b": VariantSpec()})
    cells, course, plans = _climb_ladder(plan, {"a": plateau(2), "b": plateau(4)})
    sessions_by_variant = {v: [c.sessions for c in cells if c.variant == v] for v in ("a", "b")}
    assert sessions_by_variant["a"] == sessions_by_variant["b"]
    assert {1, 2, 3, 4, 5} <= set(sessions_by_variant["a"])
    assert list(plans[-1].cells) == cells
    assert course.stopped is not None
    assert course.stopped.startswith("because the search is over. a: Knee at 2 sessions:")
    assert "b: Knee at 4 sessions:" in course.stopped


def test_later_repeats_climb_the_rungs_of_the_first() -> None:
    cells, _, _ = _climb_ladder(_plan(repeats=3), {"base": plateau(4)})
    rungs = {r: sorted(c.sessions for c in cells if c.repeat == r) for r in (1, 2, 3)}
    assert rungs[1] == rungs[2] == rungs[3] == [1, 2, 3, 4, 5, 6, 8, 16]


@pytest.mark.parametrize(
    ("options", "case", "values"),
    [({}, "knee", {"first", "within"}), ({"target": "p95<10ms"}, "highest", {"near", "goal", "repeats"}),
     ({"target": "throughput>5/s"}, "lowest", {"near", "goal", "repeats"})],
)  # fmt: skip
def test_the_plan_holds_its_rule_as_values_and_the_catalogue_its_words(
    options: dict[str, str], case: str, values: set[str]
) -> None:
    plan = _plan(**options)
    (rule,) = (c for c in plan.choices if c.name == "sessions")
    assert (rule.says, rule.case, rule.reason) == ("auto-ladder-rule", case, "")
    assert set(rule.slots) == {"most", "top", *values} and rule.slots["top"] == plan.top
    (choice,) = (c for c in worded(plan).choices if c.name == "sessions")
    assert f"up to {plan.top} sessions" in choice.reason
    assert worded(plan).digest == plan.digest and Plan.model_validate_json(plan.model_dump_json()) == plan


def test_a_plan_of_an_older_version_keeps_its_stored_reasons() -> None:
    plan = _plan()
    choices = [{"name": c.name, "value": c.value, "reason": f"why {c.name}"} for c in plan.choices]
    older = Plan.model_validate({**plan.model_dump(), "choices": choices})
    assert [c.reason for c in worded(older).choices] == [f"why {c.name}" for c in plan.choices]


def test_a_repeat_with_tight_intervals_is_the_last() -> None:
    cells, course, _ = _climb_ladder(_plan(until="2%"), {"base": plateau(4)})
    assert max(c.repeat for c in cells) == 4
    assert course.stopped is not None
    assert "after 4 of 20 repeats every interval is within 2.0 %" in course.stopped


def test_a_budget_ends_the_search_with_the_knee_known_by_then() -> None:
    cells, course, _ = _climb_ladder(_plan(budget="35s"), {"base": plateau(4)})
    assert [c.sessions for c in cells] == [1, 4, 8]
    assert course.stopped is not None
    assert course.stopped.startswith("because another load would end after the budget. So far: Knee at 4")


def test_the_ladder_ends_at_what_the_server_has_room_for() -> None:
    server = FakeServer(Target(dsn="fake:maximum=12"))
    room = server.capacity().free - 3 - 2  # reserved for dbdyno's own connections, and for others
    plan = fitted(server, _plan())
    assert plan.top == room < 12
    assert "2 are left for others" in plan.choices[-1].reason
    assert plan.choices[-1].name == "most sessions"
    assert fitted(server, _plan(sessions="auto:4")).top == 4
    assert fitted(server, _plan(sessions="1,50")).top == 50  # a later check refuses it


@pytest.mark.parametrize(
    ("dsn", "knee"), [("cpus=3,cpu=10ms", 3), ("cpus=8,cpu=1ms,lock=LWLock/x:4ms", 1), ("cpus=2,cpu=5ms", 2)]
)
def test_the_knee_of_a_simulated_server(dsn: str, knee: int) -> None:
    server = FakeServer(Target(dsn=f"fake:{dsn}"))
    rule = Adaptive(top=32, most_rungs=16, near=4, repeats=1)
    measured: list[Seen] = []
    while isinstance(step := next_rung(Findings(rule, tuple(measured))), Next):
        cell = climb_one(server, plan_cell(step.load, measure_ns=S), os=False)
        measured.append(Seen(step.load, float(cell.tables["sessions"]["calls"].sum())))
    assert step.at == knee
    assert len(measured) <= 8


class Stopping(NullProgressListener):
    """Asks for an end after ``after`` cells."""

    def __init__(self, interrupt: Interrupt, after: int) -> None:
        self._interrupt, self._left = interrupt, after

    def measured(self, _results: Results) -> None:
        self._left -= 1
        if self._left == 0:
            self._interrupt.request()


def _run(tmp_path: Path, after: int) -> Run:
    options = {"engine": "fake", "measure": "1s", "settle": "0s", "call_target": "10ms", "observe": False}
    plan = _plan(**options, sessions="auto:3")
    interrupt = Interrupt()
    target, host = Target(dsn="fake:cpus=1,cpu=10ms"), environment_of(FakeServer(Target())).host
    store, listener = RunStore(tmp_path), Stopping(interrupt, after)
    with contextlib.suppress(Interrupted):
        conduct.run(plan, LIO, conduct.RunContext(host, target, store, listener, interrupt))
    return store.open("last")


def test_an_auto_ladder_ends_with_the_knee_it_looked_for(tmp_path: Path) -> None:
    record = _run(tmp_path, after=9)
    assert [c.sessions for c in record.plan.cells] == [1, 3, 2]
    assert record.cells() == [c.id for c in record.plan.cells]
    assert record.info.status == "complete"
    assert "Knee at 1 session:" in (record.info.stopped or "")
    claim = {f.id: f for f in derived_anew(record).findings}["auto-ladder"]
    assert (claim.value.value, claim.value.unit, claim.severity) == (1, "sessions", "good")


def test_a_run_that_is_stopped_can_be_read(tmp_path: Path) -> None:
    record = _run(tmp_path, after=1)
    assert (record.info.status, record.info.stopped) == ("cut short", None)
    assert [c.sessions for c in record.plan.cells] == [1]
    claim = {f.id: f for f in derived_anew(record).findings}["auto-ladder"]
    assert (claim.value, claim.severity) == (None, "note")
    assert (claim.case, claim.slots["next"]) == ("none", 3)


def test_a_dry_run_prints_the_rule_of_an_auto_ladder() -> None:
    words = ("run", "lio", "--ladder", "auto:64", "--target", "p95<20ms", "--dry-run")
    output = CliRunner().invoke(app, words, catch_exceptions=False).output
    assert "auto ladder around p95 < 20 ms, at most 16 load levels up to 64 sessions" in output
    assert "; at most " in output
