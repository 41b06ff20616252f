"""Finds the jobs that recipes and options name: commands, lists of them, and the engine's own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from dbdyno import engines
from dbdyno.conduct.request.patch import Patch
from dbdyno.conduct.request.script_texts import read_text
from dbdyno.model.errors import UsageError, did_you_mean, nearest
from dbdyno.model.plan.jobs import JobSpec
from dbdyno.model.plan.parameter import Parameter
from dbdyno.model.plan.plan import Experiment, VariantSpec, Workload
from dbdyno.plan import Commands, all_jobs, commands_of, spread, typed


def with_directory(experiment: Experiment, directory: Path) -> Experiment:
    """Returns the experiment with relative directories of its jobs below ``directory``."""

    def under(jobs: tuple[JobSpec, ...]) -> tuple[JobSpec, ...]:
        return tuple(
            j if j.directory is None else j.model_copy(update={"directory": str(directory / j.directory)})
            for j in jobs
        )

    if not any(j.directory for j in all_jobs(experiment)):
        return experiment
    variants = {n: v.model_copy(update={"jobs": under(v.jobs)}) for n, v in experiment.variants.items()}
    return experiment.model_copy(update={"jobs": under(experiment.jobs), "variants": variants})


def fields_set(base: Experiment, patch: Patch) -> dict[str, Any]:
    """Returns the fields that a patch sets, with its changes of jobs and their parameters.

    Raises :class:`UsageError`.
    """
    options, file = dict(patch.fields), patch.job_list
    listed = None if file is None else _read_list(Path(file))
    if options.get("jobs") or options.get("variants"):
        options["command"] = None
    if listed is not None:
        if options.get("jobs") or options.get("variants"):
            raise UsageError(
                f"both --command and --jobs {file}", "write all commands into the file, each a [[jobs]]"
            )
        options = {**listed, **options, "command": None}
    if base.workload is not None and (options.get("jobs") or options.get("variants")):
        options |= {"workload": None}
    if options.get("variants") and base.variants:
        raise UsageError(
            "several commands, and the variants of a recipe", "leave out --recipe, or one of them"
        )
    if patch.job:
        options |= _apply_to_jobs(base, options, patch.job)
    return _with_axes(base, options, patch.values)


def _read_list(file: Path) -> dict[str, Any]:
    """Reads a job list: a recipe that may consist of ``[[jobs]]`` alone."""
    from dbdyno.conclude.catalogue import entry
    from dbdyno.plan import parse_recipe

    parsed = parse_recipe(read_text(file, "job list"), file.stem, str(file), entry)
    recipe = with_directory(parsed, file.parent)
    if not recipe.job_set:
        raise UsageError(
            f"{file} lists no jobs", "write [[jobs]] and below it command = 'PROGRAM ...', once for each"
        )
    return recipe.model_dump(exclude_unset=True) | {
        "jobs": [j.model_dump(exclude_unset=True) for j in recipe.job_set]
    }


def _apply_to_jobs(
    base: Experiment, options: Mapping[str, Any], changed: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the fields in which options of a job are applied to all jobs."""
    fields: dict[str, Any] = {}
    if not (options.get("jobs") or options.get("variants") or all_jobs(base)):
        name = next(iter(changed)).replace("_", "-")
        raise UsageError(
            f"--{name} without a command", "it goes with --command 'PROGRAM ...', or --jobs FILE"
        )
    own = options.get("jobs") or [j.model_dump(exclude_unset=True) for j in base.job_set]
    if own:
        fields = {"jobs": [{**job, **_merge(job, changed)} for job in own], "command": None}
    variants = options.get("variants") or {
        n: v.model_dump(exclude_unset=True) for n, v in base.variants.items() if v.jobs
    }
    if variants:
        fields["variants"] = {
            **{n: v.model_dump(exclude_unset=True) for n, v in base.variants.items()},
            **{
                n: {**v, "jobs": [{**job, **_merge(job, changed)} for job in v.get("jobs", ())]}
                for n, v in variants.items()
            },
        }
    return fields


def _merge(job: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, Any]:
    env = {**job.get("env", {}), **changed.get("env", {})}
    return {**changed, **({"env": env} if env else {})}


def _with_axes(
    base: Experiment, options: dict[str, Any], given: Mapping[str, tuple[Any, ...]]
) -> dict[str, Any]:
    """Makes a parameter with several values an axis; an axis that gets one value becomes a parameter."""
    if not given:
        return options
    several = {n: v for n, v in given.items() if len(v) > 1}
    one = {n: v[0] for n, v in given.items() if len(v) == 1}
    axes = {**{n: v for n, v in base.axes.items() if n not in one}, **several}
    params = {n: v for n, v in {**base.params, **(options.get("params") or {})}.items() if n not in several}
    changed = {**options, "axes": axes, "params": {**params, **one}}
    named = (base.baseline or "").partition("=")[0] in given
    return changed | ({"baseline": None} if named and not options.get("baseline") else {})


def parameters(engine: str) -> Mapping[str, Mapping[str, Parameter]]:
    """Returns the parameters of the engine's own jobs, by the job's name."""
    return {name: job.parameters for name, job in engines.jobs(engine).items()}


def spread_out(experiment: Experiment) -> Experiment:
    """See :func:`dbdyno.plan.spread`."""
    accepted = parameters(experiment.engine)
    for job in all_jobs(experiment):
        name = job.command.strip()
        if name.startswith("@") and name[1:] not in accepted:
            raise UsageError(f"no job {name} comes with dbdyno", _cure(name[1:], accepted))
    return spread(experiment, accepted)


def _cure(name: str, known: Collection[str]) -> str:
    first, *words = name.split() or [""]
    if words and first in known:
        return f"its parameters are NAME=VALUES: --command @{first} threads=4"
    listed = "there are " + ", ".join(f"@{n}" for n in sorted(known))
    return listed if nearest(first, known) is None else f"{did_you_mean(first, known)} {listed}"


def commands(experiment: Experiment) -> Mapping[str, Commands]:
    """Returns the jobs of each variant of an expanded experiment. Raises :class:`UsageError`."""
    specs = experiment.variants or {"base": VariantSpec()}
    jobs_by_variant = {}
    for name, spec in specs.items():
        jobs = spec.jobs or experiment.job_set
        if not jobs:
            raise UsageError(
                f"variant {name} has no command", f"[[variants.{name}.jobs]], or [[jobs]] for all"
            )
        values = {**experiment.params, **spec.params}
        jobs_by_variant[name] = [(j, _here(j, experiment.engine, values)) for j in jobs]
    several = len({_kind(here) for jobs in jobs_by_variant.values() for _, here in jobs}) > 1
    return {
        name: commands_of(
            experiment,
            specs[name],
            [_in_runs(j, here) if several else here for j, here in jobs],
            shell_of=jobs[0][0],
        )
        for name, jobs in jobs_by_variant.items()
    }


_WORK = ("work_bytes", "work_regex", "work_unit")


def _kind(job: JobSpec) -> str:
    return "bytes" if job.work_bytes is not None else job.work_unit or "runs"


def _in_runs(spec: JobSpec, here: JobSpec) -> JobSpec:
    """Returns the job without its own unit of work: beside jobs of other units its work is one run."""
    own = [n for n in _WORK if getattr(spec, n) is None] if spec.command.startswith("@") else []
    return here.model_copy(update=dict.fromkeys(own))


def _here(spec: JobSpec, engine: str, values: Mapping[str, Any]) -> JobSpec:
    """Returns the engine's own job as it is on this machine; what the recipe adds has priority."""
    if not spec.command.startswith("@"):
        return _absolute(spec)
    job = engines.jobs(engine)[spec.command.strip()[1:]]
    own = {n: v for n, v in values.items() if n in job.parameters}
    resolved = job.resolve(typed(_as_workload(spec.command, job.parameters), own))
    given = {n: getattr(spec, n) for n in spec.model_fields_set - {"command"} if getattr(spec, n) is not None}
    return _absolute(resolved.model_copy(update=given))


def _absolute(spec: JobSpec) -> JobSpec:
    if spec.directory is None or Path(spec.directory).is_absolute():
        return spec
    return spec.model_copy(update={"directory": str(Path(spec.directory).absolute())})


def _as_workload(name: str, known: Mapping[str, Parameter]) -> Workload:
    return Workload(
        name=name,
        title=name,
        doc="",
        work_unit="runs",
        work_short="runs",
        work_constant=False,
        calibrated=False,
        parameters=dict(known),
    )
