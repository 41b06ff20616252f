"""Rules on the options of jobs: which ones need a command, and which ones have no meaning with one."""

from __future__ import annotations

from dbdyno.model.errors import UsageError
from dbdyno.model.plan.jobs import JobSpec
from dbdyno.model.plan.plan import Experiment, VariantSpec
from dbdyno.plan.job_words import parse_bytes


def all_jobs(experiment: Experiment) -> tuple[JobSpec, ...]:
    """Returns the jobs of the experiment, then those of its variants."""
    return (*experiment.job_set, *(j for v in experiment.variants.values() for j in v.jobs))


def exactly(experiment: Experiment) -> bool:
    """Returns whether each job runs a fixed number of times instead of for a time."""
    return experiment.once or experiment.runs is not None


def check_without(experiment: Experiment) -> None:
    fields = ("once", "runs", "orders", "warmup", "setup", "cleanup", "keep_output", "hide_args", "axes")
    for name in fields:
        if getattr(experiment, name):
            raise UsageError(
                f"--{name.replace('_', '-')} without a command",
                "it is for commands: --command 'PROGRAM ...', or [[jobs]] in a recipe",
            )


_FOR_DATABASES = {
    "settings": "settings are a database server's; a command's are its arguments and --env NAME=VALUE",
    "reset": "nothing is loaded that could be loaded again; --prepare runs a command before each execution",
    "expect": "whether a file is read from disk depends on --prepare: it may drop it from the cache",
    "scripts": "SQL is run by a database: leave out the command, or the script",
    "script": "SQL is run by a database: leave out the command, or the script",
    "variables": "parameters of commands are NAME=VALUES, and {NAME} in the command",
    "scale": "parameters of commands are NAME=VALUES, and {NAME} in the command",
    "call_target": "a command is as long as it is: its arguments say how much it does",
}
_DRIVER = ("protocol", "pipeline", "validation", "max_tries", "reconnect", "allow_shell")


def check(experiment: Experiment) -> None:
    """Raises :class:`UsageError` for options that have no meaning with commands, or with jobs that run a
    fixed number of times."""
    for name, cure in _FOR_DATABASES.items():
        if getattr(experiment, name):
            raise UsageError(f"--{name.replace('_', '-')} with a command", cure)
    specs: list[Experiment | VariantSpec] = [experiment, *experiment.variants.values()]
    for name in _DRIVER:
        if any(getattr(s.driver, name) is not None for s in specs):
            raise UsageError(f"--driver {name} with a command", "it is about the statements of a database")
    if any(s.limits.pool is not None or s.limits.pool_mode is not None for s in specs):
        raise UsageError(
            "--limit pool with a command", "commands have no connections; --sessions limits them"
        )
    if any(s.settings for s in experiment.variants.values()):
        raise UsageError("settings of a variant with commands", _FOR_DATABASES["settings"])
    if experiment.keep_output is not None:
        parse_bytes(experiment.keep_output, "--keep-output")
    if exactly(experiment):
        _check_exactly(experiment)


def _check_exactly(experiment: Experiment) -> None:
    option = "--once" if experiment.runs is None else "--runs"
    for name, value in (
        ("--rate", experiment.rate),
        ("--rates", experiment.rates),
        ("phases", experiment.phases or None),
        ("--target", experiment.target),
        ("--think", experiment.think),
        ("--sessions auto", (experiment.sessions or "").startswith("auto") or None),
        ("--driver rounds", experiment.driver.rounds),
    ):
        if value is not None:
            raise UsageError(
                f"{name} with {option}: each job runs a fixed number of times",
                f"leave out one of them: without {option} sessions run commands for the time of --measure",
            )


def check_sessions(experiment: Experiment, top: int) -> None:
    """Raises :class:`UsageError` if there are more sessions than executions."""
    if not exactly(experiment):
        return
    jobs = [len(v.jobs) for v in experiment.variants.values() if v.jobs] or [len(experiment.job_set)]
    calls = min(jobs) * (experiment.runs or 1)
    if top > calls:
        at_most = f"--sessions {calls}" if calls == 1 else f"--sessions 1:{calls}"
        raise UsageError(
            f"{top} sessions, and {calls} execution{'s' if calls > 1 else ''} in a measurement",
            f"{at_most}, or --runs {-(-top // min(jobs))} of each job",
        )
