"""Runs of one workload on one machine make calls of one size, so that they can be compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.fake_engine import FakeServer
from tests.fakery import environment_of
from tests.unit.observe.test_plan import LIO

from dbdyno.cli.app import app
from dbdyno.conduct import NullProgressListener
from dbdyno.conduct.measure.prepare import Preparation
from dbdyno.drive import Interrupt
from dbdyno.model.engine.protocols import Target
from dbdyno.model.plan.plan import Experiment
from dbdyno.plan import resolve
from dbdyno.store import RunStore

pytestmark = [pytest.mark.whole, pytest.mark.usefixtures("pages_unwritten")]

Invoke = Callable[..., Result]


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    monkeypatch.setenv("DBDYNO_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(app, words)


def measured_call_size(invoke: Invoke, *words: str, cpu: str = "1ms") -> int:
    """Returns the size of a call of a new run."""
    options = ("--engine", "fake", "--dsn", f"fake:cpus=4,cpu={cpu}", "--measure", "2s", "--settle", "100ms")
    done = invoke("run", "lio", *options, *words)
    assert done.exit_code == 0, done.output
    (calibration,) = json.loads(_newest().joinpath("run.json").read_text("utf-8"))["calibrations"].values()
    return int(calibration["size"])


def _newest() -> Path:
    """Returns the run that was made last; ids of runs of one second have no order."""
    return max((p for p in Path("store").iterdir() if p.is_dir()), key=lambda p: p.stat().st_ctime_ns)


def test_a_later_run_keeps_the_size_of_its_target_while_its_call_fits(invoke: Invoke) -> None:
    """A call target that is asked for has a size of its own. The default target depends on the window."""
    assert measured_call_size(invoke, "--sessions", "1", "--call-target", "20ms") == 20
    default = measured_call_size(invoke, "--sessions", "1")
    assert default > 20
    assert measured_call_size(invoke, "--sessions", "1", "--call-target", "20ms") == 20
    assert measured_call_size(invoke, "--sessions", "1", "--measure", "3s") == default
    assert measured_call_size(invoke, "--sessions", "1", "--measure", "3s", "--recalibrate") == 1.5 * default
    assert measured_call_size(invoke, "--sessions", "1", "--call-target", "20ms", cpu="4ms") == 20 / 4


def test_a_call_has_the_size_that_it_has_on_the_baseline(tmp_path: Path) -> None:
    asked = {"workload": "lio", "engine": "fake", "sessions": "1", "variants": {"a": {}, "b": {}}}
    plan = resolve(Experiment.model_validate(asked | {"baseline": "b"}), LIO, 2.0, "")
    server, store, events = FakeServer(Target()), RunStore(tmp_path), list[str]()
    listener = NullProgressListener()
    listener.preparing = events.append  # type: ignore[method-assign]
    preparation = Preparation(
        server, plan, environment_of(server), store, listener, Interrupt(), lambda v: events.append(v.name)
    )
    units = preparation.units(LIO, store.create(plan))
    calibrating = "calibrating a call of lio at one session"
    assert events == ["b", "preparing lio for variant base", calibrating, "a", "preparing lio for variant a"]
    assert list(units) == ["a", "b"] and units["a"] is units["b"]


def test_a_damaged_memory_is_no_fault(invoke: Invoke) -> None:
    first = measured_call_size(invoke, "--sessions", "1")
    Path("store/.call-sizes.json").write_text("{", "utf-8")
    assert measured_call_size(invoke, "--sessions", "1") == first


def test_calls_of_different_size_are_compared_by_their_work_alone(invoke: Invoke) -> None:
    for target in ("20ms", "20ms", "40ms"):
        measured_call_size(invoke, "--sessions", "1", "--repeats", "2", "--call-target", target)
    ids = sorted((p for p in Path("store").iterdir() if p.is_dir()), key=lambda p: p.stat().st_ctime_ns)
    first, same, other = (p.name for p in ids)

    def metrics_and_claims(run: str) -> tuple[set[str], set[str]]:
        document = json.loads(invoke("compare", first, run, "--json").output)
        return {m["metric"] for m in document["metrics"]}, {c["id"] for c in document["conclusions"]}

    metrics, claims = metrics_and_claims(same)
    assert {"work_per_s", "calls_per_s", "response_mean_ns"} <= metrics and "calls-differ" not in claims
    metrics, claims = metrics_and_claims(other)
    assert metrics == {"work_per_s", "cpu_per_work_ns"} and "calls-differ" in claims
