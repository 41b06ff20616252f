"""The option and the recipe's key for the CPU profile: --profile, --profile=HZ, --profile 30s."""

from __future__ import annotations

import click
import pytest
from tests.unit.observe.test_observe_sources import tables

from dbdyno.cli.app import app
from dbdyno.cli.observe import observe_command
from dbdyno.cli.run import run
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.plan import Experiment, Observation
from dbdyno.model.schema.data_sources import CPU_PROFILE
from dbdyno.observe import How
from dbdyno.observe.sources import WatchState, judged
from dbdyno.plan import sampled_for

assert CPU_PROFILE.option
HZ = CPU_PROFILE.option.hz


def program() -> click.Context:
    """Returns the context of the program, in which a command is called."""
    return click.Context(app, **app.context_settings)


@pytest.mark.parametrize(
    ("words", "chosen", "workload"),
    [
        (["lio"], None, "lio"),
        (["--profile", "lio"], HZ, "lio"),
        (["lio", "--profile"], HZ, "lio"),
        (["--profile", "--sessions", "2", "lio"], HZ, "lio"),
        (["lio", "--profile", "99"], 99.0, "lio"),
        (["--profile=99", "lio"], 99.0, "lio"),
        (["--profile=30s", "lio"], "30s", "lio"),
    ],
)
def test_the_frequency_of_the_profile_may_be_left_out(
    words: list[str], chosen: object, workload: str
) -> None:
    params = run.make_context("run", words, parent=program()).params
    assert (params["profile"], params["workload"]) == (chosen, workload)


@pytest.mark.parametrize("words", [["--profile", "30s"], ["--profile=30s", "--lines"]])
def test_an_observation_may_be_profiled_for_a_time(words: list[str]) -> None:
    assert observe_command.make_context("observe", words, parent=program()).params["profile"] == "30s"


@pytest.mark.parametrize("hz", ["0", "1001"])
def test_a_frequency_out_of_range_is_refused(hz: str) -> None:
    with pytest.raises(click.BadParameter):
        run.make_context("run", [f"--profile={hz}", "lio"], parent=program())


def test_a_profile_for_a_time_is_refused_but_for_an_observation() -> None:
    observed = Experiment(profile="30s", observation=Observation())  # type: ignore[call-arg]
    assert sampled_for(observed) == {"profile": 30_000_000_000}
    for wrong in (
        Experiment.model_validate({"profile": "30s"}),
        observed.model_copy(update={"profile": "x"}),
    ):
        with pytest.raises(UsageError):
            sampled_for(wrong)


@pytest.mark.parametrize(("chosen", "hz"), [(True, HZ), (99, 99.0), ("30s", HZ)])
def test_the_recipes_key_goes_to_the_watch(chosen: object, hz: float) -> None:
    how = How.of(Experiment.model_validate({"profile": chosen}))
    assert how.spec()["profile"] == {"hz": hz, "until_ns": None}
    assert how.until({"profile": 5}, 4).spec()["profile"] == {"hz": hz, "until_ns": 5}
    assert "profile" not in how.until({"profile": 5}, 5).spec(), "it has ended"


@pytest.mark.parametrize("status", ["ok", "not permitted", "not supported", "not here"])
def test_the_profiles_row_of_sources_is_the_status_that_it_reports(status: str) -> None:
    state = WatchState(states={CPU_PROFILE.name: (status, "so it is")})
    (row,) = (s for s in judged((), tables(), reported=state) if s.name == CPU_PROFILE.name)
    assert (row.status, row.detail, row.provenance) == (status, "so it is", CPU_PROFILE.provenance)
    assert CPU_PROFILE.name not in {s.name for s in judged((), tables())}, "not asked for"
