"""Triggers in a run and in an observation, on the fake server in virtual time: count, lateness, effects."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner
from tests.fake_engine import FakeServer
from tests.fakery import environment_of
from tests.waiting import eventually

from dbdyno import conduct, observe, present
from dbdyno.cli.app import app
from dbdyno.conduct.captures import trigger_actions
from dbdyno.conduct.captures.trigger_actions import Around, command
from dbdyno.conduct.captures.trigger_checks import check_triggers
from dbdyno.conduct.captures.triggers import Triggers
from dbdyno.conduct.measure.cell import MachineClock, clock_of
from dbdyno.drive import Interrupt
from dbdyno.kernel import processes
from dbdyno.model.engine.protocols import Clock, Target
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.plan import Plan
from dbdyno.model.plan.triggers import Fired, TriggerSpec
from dbdyno.model.schema.tables import CoreColumn, from_core, to_core
from dbdyno.model.sources.source import HIDDEN
from dbdyno.observe.watch import NoWatch
from dbdyno.plan.triggers import parse_action
from dbdyno.store import Run, RunStore, read_fired

pytestmark = [pytest.mark.whole, pytest.mark.usefixtures("pages_unwritten")]

S = 1_000_000_000
LAW = "fake:cpus=4,foreign=3,cpu=2ms,think=5ms"


def cli(store: Path, *words: str) -> Any:
    return CliRunner().invoke(app, [*words, "--store", str(store)], catch_exceptions=False)


def plan(*specs: TriggerSpec, **options: Any) -> Plan:
    experiment = conduct.observation_of(
        {"engine": "fake", "triggers": tuple(s.model_dump() for s in specs), **options},
        duration="10s",
        window="5s",
    )
    return conduct.observation_plan(experiment, observe.host())


def run_observation(store: Path, *specs: TriggerSpec, **options: Any) -> tuple[Run, list[Fired], list[str]]:
    notices: list[str] = []

    class Notices(conduct.NullObservationListener):
        def notice(self, text: str) -> None:
            notices.append(text)

    observation = conduct.observe_server(
        plan(*specs, **options),
        conduct.RunContext(observe.host(), Target(dsn=LAW), RunStore(store), Notices(), Interrupt()),
    )
    return observation.record, read_fired(observation.record), notices


class Ramp(NoWatch):
    """Ten samples a second; one more session every 300 ms, beginning with one."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._begin_ns = clock, clock.now_ns()

    def reached_ns(self, count: int) -> int:
        return self._begin_ns + (count - 1) * 3 * S // 10

    def recent(self, since_ns: int) -> Mapping[str, Mapping[str, CoreColumn]]:
        now_ns = self._clock.now_ns()
        times = [t for t in range(self._begin_ns, now_ns, S // 10) if t >= since_ns]
        asked = [
            {"sample": t, "due_ns": t, "start_ns": t, "end_ns": t, "status": "ok", "via": "sql"}
            for t in times
        ]
        samples = [
            {**row, "sample": t, "sql_before_ns": t, "sql_after_ns": t, "session": n, "pid": 100 + n}
            for t in times
            for n in range(1 + (t - self._begin_ns) // (3 * S // 10))
            for row in [{"role": "session", "via": "sql", "state": "idle", "status": "ok"}]
        ]
        return {"samples": to_core("samples", samples), "sampler": to_core("sampler", asked)}


def test_a_ramp_fires_once_at_each_number_and_not_late(tmp_path: Path) -> None:
    server = FakeServer(Target(dsn=LAW))
    clock, observed_plan = clock_of(server), plan(TriggerSpec(when="sessions in (10,20,30)", do="memory"))
    record = RunStore(tmp_path).create(observed_plan)
    record.write_environment(environment_of(server))
    watch = Ramp(clock)
    with Triggers(server, observed_plan, record, clock, lambda _words: None, Target) as triggers:
        for _ in range(130):  # up to 43 sessions
            triggers.look(watch, lambda _how: NoWatch())
            clock.sleep(0.1)
    fired = read_fired(record)
    assert [(f.matched, f.status) for f in fired] == [(f"sessions = {n}", "ok") for n in (10, 20, 30)]
    for n, f in zip((10, 20, 30), fired, strict=True):
        assert watch.reached_ns(n) <= f.at_ns < watch.reached_ns(n) + S // 5
        assert f.noticed_ns - watch.reached_ns(n) < S


def test_an_observation_fires_captures_and_never_fires(tmp_path: Path) -> None:
    record, fired, notices = run_observation(
        tmp_path,
        TriggerSpec(when="active >= 1", do=("trace 2s", "memory"), cool_down="10min"),
        TriggerSpec(when="sessions > 1000", do="memory"),
    )
    assert [(f.trigger, f.action, f.status) for f in fired] == [(1, "trace 2s", "ok"), (1, "memory", "ok")]
    assert any("trigger 1" in text for text in notices)
    claims = {f.id: f for f in conduct.results_of(record).findings}
    assert claims["trigger-never-fired"].slots["trigger"] == 2
    capture = conduct.capture_of(record, 1)
    assert capture.read_cells()[0][0].meta.t1_ns - capture.read_cells()[0][0].meta.t0_ns == 2 * S
    assert "trigger 1" in capture.info.note
    assert "What fired" in cli(tmp_path, "show", "last", "--captures").output
    assert cli(tmp_path, "show", "last", "--capture", "1").exit_code == 0
    with pytest.raises(UsageError, match="there are 1, 2"):
        conduct.capture_of(record, 9)
    page = conduct.reported(record, conduct.results_of(record)).read_text()
    assert "What triggers captured" in page


class Hidden(Ramp):
    """The same ramp for a role that may not see the sessions' activity."""

    def recent(self, since_ns: int) -> Mapping[str, Mapping[str, CoreColumn]]:
        tables = super().recent(since_ns)
        hidden = from_core("samples", tables["samples"]).with_columns(state=pl.lit(HIDDEN))
        return {**tables, "samples": to_core("samples", hidden.to_dicts())}


def test_a_condition_that_cannot_be_met_is_named_and_does_not_fire(tmp_path: Path) -> None:
    server = FakeServer(Target(dsn=LAW))
    specs = [TriggerSpec(when=w, do="memory") for w in ("active < 5", "wait(Nosuch) > 1", "sessions = 3")]
    clock, observed_plan, notices = clock_of(server), plan(*specs), list[str]()
    record = RunStore(tmp_path).create(observed_plan)
    record.write_environment(environment_of(server))
    watch = Hidden(clock)
    with Triggers(server, observed_plan, record, clock, notices.append, Target) as triggers:
        for _ in range(60):
            triggers.look(watch, lambda _how: NoWatch())
            clock.sleep(0.1)
    assert [f.matched for f in read_fired(record)] == ["sessions = 3"]
    unknown = [text for text in notices if "is unknown" in text]
    assert len(unknown) == 2 and "active" in unknown[0] and "wait(Nosuch)" in unknown[1]


@pytest.mark.parametrize(
    ("when", "do", "named"),
    [
        ("wait(Lok) > 3", "memory", "no such class of waits"),
        ("active > 3", "exec ./missing.sh", "there is no program ./missing.sh"),
        ("active > 3", "exec 5s missing-program --now", "there is no program missing-program in PATH"),
        ("active > 3", f"exec {__file__}", "may not be executed"),
        ("active > 3", "exec echo 'open", "No closing quotation"),
    ],
)
def test_a_trigger_that_cannot_work_ends_the_run_before_it_begins(when: str, do: str, named: str) -> None:
    with pytest.raises(UsageError, match=re.escape(named)):
        check_triggers(FakeServer(Target(dsn=LAW)), plan(TriggerSpec(when=when, do=do)).experiment)


@pytest.mark.parametrize(
    "command", ["echo hi", "cd / && ls", "A=b env", '"$HOME"/x', "if true; then :; fi", "{ ls; }"]
)
def test_commands_of_the_shell_are_left_to_it(command: str) -> None:
    spec = TriggerSpec(when="wait(lock) > 3", do=f"exec {command}")
    check_triggers(FakeServer(Target(dsn=LAW)), plan(spec).experiment)


def test_the_budget_ends_actions_and_is_a_claim(tmp_path: Path) -> None:
    spec = TriggerSpec(when="active >= 1", do=("memory", "memory", "memory"))
    record, fired, notices = run_observation(tmp_path, spec, trigger_actions=1)
    assert [f.status for f in fired][:3] == ["ok", "over budget", "over budget"]
    assert sum("budget" in text for text in notices) == 1
    assert "trigger-budget-used" in {f.id for f in conduct.results_of(record).findings}


def test_an_action_that_fails_says_so_once_and_the_observation_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = {"scheduler trace": ("not permitted", "CAP_BPF is missing")}
    monkeypatch.setattr(trigger_actions, "_refusal", lambda *_: refused["scheduler trace"][1])
    spec = TriggerSpec(when="active >= 1", do="trace 1s", cool_down="1s")
    record, fired, notices = run_observation(tmp_path, spec)
    assert {f.status for f in fired} == {"failed"}
    assert sum("CAP_BPF" in text for text in notices) == 1
    assert record.info.status == "complete"
    assert "CAP_BPF" in {f.id: f for f in conduct.results_of(record).findings}["trigger-action-failed"].text


@pytest.fixture(scope="module")
def triggered_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of one observation with one trigger that fired once."""
    root = tmp_path_factory.mktemp("once")
    run_observation(root, TriggerSpec(when="active >= 1", do="memory", cool_down="10min"))
    return root


def test_an_action_that_was_under_way_when_dbdyno_was_killed_is_listed_as_failed(
    triggered_store: Path, tmp_path: Path
) -> None:
    record = RunStore(shutil.copytree(triggered_store, tmp_path / "store")).open("last")
    path = record.path / "triggers" / "0001.json"
    under_way = {"status": "under way", "capture": None, "action": "exec ./gather.sh"}
    path.write_text(json.dumps(json.loads(path.read_text()) | under_way))
    (record.path / "triggers" / "0002.json").write_text("{")  # damaged
    results, _ = conduct.rebuild(record, lambda _words: None)
    (row,) = results.tables["triggers_fired"].to_dicts()
    assert row["detail"] == "dbdyno ended before the action did"
    claims = {f.id: f for f in results.findings}
    assert "--captures" in claims["trigger-action-failed"].advice


def test_a_trigger_that_fired_is_marked_in_the_charts_of_time(triggered_store: Path) -> None:
    record = RunStore(triggered_store).open("last")
    document = present.run_document(conduct.results_of(record))
    assert "a trigger fired" in json.dumps(document, default=lambda o: getattr(o, "__dict__", str(o)))
    assert len(read_fired(record)) == 1


# -- commands, in real time --


@pytest.fixture
def around(tmp_path: Path) -> Around:
    observed_plan = plan()
    record = RunStore(tmp_path).create(observed_plan)
    return Around(
        FakeServer(Target(dsn=LAW)), observed_plan, record, MachineClock(), Target, lambda _how: NoWatch()
    )


FIRED = Fired(
    number=3,
    trigger=1,
    condition="sessions = 10",
    matched="sessions = 10",
    values={"sessions": 10.0},
    at_ns=1,
    noticed_ns=2,
    action="exec x",
)


def run_command(around: Around, text: str, stop: Callable[[int], bool] = lambda _n: False) -> dict[str, Any]:
    work = command(around, parse_action(text), FIRED)
    try:
        next(work)
        for n in range(1000):
            time.sleep(0.01)
            work.send(stop(n))
    except StopIteration as end:
        return dict(end.value)
    raise AssertionError("it did not end")


def test_a_command_reads_what_fired_and_its_last_lines_are_kept(around: Around) -> None:
    result = run_command(around, "exec cat; seq 1 100; echo two words")
    assert result["status"] == "ok"
    assert result["lines"][-1] == "two words"
    document = json.loads(run_command(around, "exec cat")["lines"][0])
    assert (document["matched"], document["values"], document["run"]["id"]) == (
        "sessions = 10",
        {"sessions": 10.0},
        around.record.id,
    )


def test_a_command_that_fails_has_its_exit_status(around: Around) -> None:
    assert run_command(around, "exec exit 3")["detail"] == "exit status 3"
    assert run_command(around, "exec no-such-command-here")["detail"] == "exit status 127"


def test_a_command_that_hangs_is_ended_with_its_processes(around: Around, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    result = run_command(around, f"exec 300ms sleep 1000 & echo $! > {mark}; wait")
    assert (result["status"], result["detail"]) == ("failed", "ended after 300 ms")
    eventually(lambda: processes.identity(int(mark.read_text())) is None)


def test_a_command_ends_with_the_run(around: Around) -> None:
    cut = run_command(around, "exec sleep 1000", stop=lambda n: n > 2)
    assert (cut["status"], cut["detail"]) == ("short", "the measurement ended first")


def test_a_run_without_triggers_has_no_rows_of_them(tmp_path: Path) -> None:
    record, _, _ = run_observation(tmp_path)
    results = conduct.results_of(record)
    assert results.tables["triggers_fired"].is_empty()
    assert results.tables["captured"].filter(pl.col("number") > 0).is_empty()
