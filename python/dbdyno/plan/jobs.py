"""Jobs: turns axes into variants and fills placeholders; decides how many jobs run at once, how often, in
which order."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import product
from pathlib import PurePath
from typing import NamedTuple

from dbdyno.model.errors import UsageError, did_you_mean
from dbdyno.model.plan.driving import MAX_VARIANTS
from dbdyno.model.plan.jobs import Arrangement, JobSpec, PlannedJob
from dbdyno.model.plan.plan import Choice, Experiment, Value, Variant, VariantSpec
from dbdyno.model.units import parse_duration_ns
from dbdyno.plan.job_rules import all_jobs, check, check_without, exactly
from dbdyno.plan.job_words import AT_START, filled, placeholders, split, words
from dbdyno.plan.ladder import Place

ONCE_NS = 24 * 3600 * 10**9
"""Maximum duration of a measurement in which jobs run to their end."""
REPEATS = 5
"""The default number of repeats if commands or parameters are compared."""
_LONGEST_NAME, _LONGEST_VALUE = 40, 16
_TEXTS = ("directory", "input", "prepare", "conclude", "verify", "work_bytes")


class Commands(NamedTuple):
    """The commands that a variant runs."""

    jobs: tuple[PlannedJob, ...]
    setup: tuple[str, ...] = ()
    cleanup: tuple[str, ...] = ()


# -- axes are variants --


def spread(experiment: Experiment, accepted: Mapping[str, Collection[str]]) -> Experiment:
    """Returns the experiment with a variant for each value of its axes, or for each combination if there are
    several axes. A variant has only the axes that its jobs have placeholders for. ``accepted`` lists the
    parameters of the jobs that come with the engine, by job name. Raises :class:`UsageError` for parameters
    that no job has."""
    _check_used(experiment, accepted)
    axes = _axes(experiment)
    specs = experiment.variants or {"": VariantSpec()}
    variants: dict[str, VariantSpec] = {}
    combined = 0
    for name, spec in specs.items():
        used = _used(experiment, spec.jobs or experiment.job_set, accepted)
        own = {axis: values for axis, values in axes.items() if axis in used and axis not in spec.params}
        combined += math.prod(map(len, own.values()))
        if combined > MAX_VARIANTS:  # before they are listed
            raise UsageError(f"{combined:,} combinations of parameters", f"at most {MAX_VARIANTS:,}")
        for values in product(*own.values()):
            point = dict(zip(own, values, strict=True))
            variants[_free(_name(name, point, hide=experiment.hide_args), variants)] = spec.model_copy(
                update={"params": {**spec.params, **point}}
            )
    return experiment.model_copy(update={"variants": variants} if list(variants) != ["base"] else {})


def _axes(experiment: Experiment) -> dict[str, tuple[Value, ...]]:
    """Returns the axes. If orders are chosen, the axis of threads has only their values. Raises
    :class:`UsageError`."""
    axes = dict(experiment.axes)
    for name, values in axes.items():
        if not values:
            raise UsageError(f"the parameter {name} has no values", f"{name} = [1, 2, 4]")
    if experiment.orders and (axis := threads_axis(experiment)) is not None:
        points = _points(experiment)
        axes[axis] = tuple(v for v in axes[axis] if any(v == value for value, _ in points))
    return axes


def _used(
    experiment: Experiment, jobs: Sequence[JobSpec], accepted: Mapping[str, Collection[str]]
) -> set[str]:
    """Returns the names of the placeholders in these jobs, and in the experiment's set-up and clean-up."""
    texts = [experiment.setup, experiment.cleanup]
    texts += [t for j in jobs for t in (j.command, *(getattr(j, f) for f in _TEXTS), *j.env.values())]
    in_texts = {name for text in texts if text for name in placeholders(text)}
    return in_texts | {n for j in jobs for n in accepted.get(j.command.strip().removeprefix("@"), ())}


def _check_used(experiment: Experiment, accepted: Mapping[str, Collection[str]]) -> None:
    used = _used(experiment, all_jobs(experiment), accepted) - {*AT_START, "job"}
    given = [
        *experiment.params,
        *experiment.axes,
        *(n for v in experiment.variants.values() for n in v.params),
    ]
    for name in given:
        if name in (*AT_START, "job"):
            raise UsageError(f"{{{name}}} is filled in by dbdyno", "give the parameter another name")
        if name not in used:
            cure = did_you_mean(name, used) if used else f"write {{{name}}} where its value is to stand"
            raise UsageError(f"no command has the placeholder {{{name}}}", cure)
        if name in experiment.params and name in experiment.axes:
            raise UsageError(f"{name} is in both params and axes", "give one of them")


def _name(variant: str, point: Mapping[str, Value], *, hide: bool) -> str:
    """Returns a name such as ``threads=4,level=9``. A path appears as its last component."""
    parts = [f"{axis}={_slug(value, hide=hide)}" for axis, value in point.items()]
    return ",".join([*([variant] if variant else []), *parts])[:_LONGEST_NAME].rstrip(",=") or "base"


def _slug(value: Value, *, hide: bool) -> str:
    if hide and isinstance(value, str):
        return "value"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    last = PurePath(text).name if "/" in text else text
    return slug(last)[:_LONGEST_VALUE] or "empty"


def slug(text: str) -> str:
    """Returns the text with each run of characters that a name may not have replaced by a hyphen."""
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", text).strip("-")


def _free(name: str, taken: Collection[str]) -> str:
    """Returns a name that is not taken, by appending a number."""
    number = 2
    free = name
    while free in taken:
        free = f"{name[: _LONGEST_NAME - 5]}-{number}"
        number += 1
    return free


def names(commands: Sequence[str], *, hide: bool = False) -> list[str]:
    """Returns a name for each command: its program, or if programs repeat, the program with its first
    arguments."""
    programs = [program(c) for c in commands]
    if len({*programs}) == len(programs):
        bases = programs
    else:
        bases = (
            programs
            if hide
            else [re.sub("-+", "-", slug(c.replace("/", "-")))[:_LONGEST_NAME].strip("-.") for c in commands]
        )
    distinct: dict[str, None] = {}  # in their order
    for name in bases:
        distinct[_free(name or "command", distinct)] = None
    return [*distinct]


def program(command: str) -> str:
    """Returns the program's name without its directory, or the name of a job that comes with the engine."""
    first = (split(command, "--command") or ["command"])[0]
    return slug(PurePath(first.removeprefix("@")).name)[:_LONGEST_NAME] or "command"


# -- how many at once, how often --


def threads_axis(experiment: Experiment) -> str | None:
    """Returns the parameter that sets how parallel a job is: ``threads``, or the only parameter; None if
    there is none."""
    axes = experiment.axes
    return "threads" if "threads" in axes else next(iter(axes)) if len(axes) == 1 else None


def _points(experiment: Experiment) -> list[tuple[Value | None, int]]:
    """Returns the (threads, sessions) of the chosen orders. Raises :class:`UsageError`."""
    jobs, axis = len(experiment.job_set), threads_axis(experiment)
    if jobs < 2:
        raise UsageError(
            f"--orders {','.join(experiment.orders)}: there is one job",
            "orders are of several jobs: [[jobs]] in a recipe, or --jobs FILE.toml",
        )
    values = experiment.axes[axis] if axis is not None else ()
    if any(isinstance(v, str) for v in values):
        raise UsageError(f"--orders: {axis} is no number", "orders need a parameter such as threads=1,8")
    wide = [o for o in experiment.orders if o in ("parallel", "both")]
    if wide and len(values) < 2:
        raise UsageError(
            f"--orders {wide[0]}: nothing says how many threads a job has",
            "a parameter with two values, threads=1,8, and {threads} in the commands",
        )
    low, high = (min(values), max(values)) if values else (None, None)
    at: dict[Arrangement, tuple[Value | None, int]] = {
        "serial": (low, 1),
        "parallel": (high, 1),
        "concurrent": (low, jobs),
        "both": (high, jobs),
    }
    return [at[order] for order in experiment.orders]


def wanted(
    experiment: Experiment, all_places: Sequence[Place], variants: Mapping[str, Variant]
) -> list[Place]:
    """Returns the places that belong to the chosen orders, or all without orders."""
    if not experiment.orders:
        return [*all_places]
    axis, points = threads_axis(experiment), _points(experiment)
    return [p for p in all_places if (variants[p.variant].params.get(axis or ""), p.sessions) in points]


def with_defaults(experiment: Experiment, choices: list[Choice]) -> Experiment:
    """Returns the experiment with the defaults for jobs, and adds the reasons to ``choices``. Raises
    :class:`UsageError`."""
    if not all_jobs(experiment):
        check_without(experiment)
        return experiment
    given, new = experiment.model_fields_set, dict[str, object]()
    if experiment.orders:
        new |= {"once": True, "sessions": ",".join(map(str, sorted({s for _, s in _points(experiment)})))}
    elif _alone(experiment):
        new["sessions"] = "1"
        why = "one execution at a time; --sessions 1,2,4 runs so many at once"
        choices.append(Choice(name="sessions", value="1", reason=why))
    fixed = exactly(experiment) or bool(experiment.orders)
    if experiment.warmup is None:
        new["warmup"] = 0 if fixed else 1
    if fixed or "settle" not in given:
        new["settle"] = "0s"
    if len(experiment.variants) > 1 and "repeats" not in given and experiment.until is None:
        new["repeats"] = REPEATS
        why = f"{len(experiment.variants)} variants are compared; fewer repeats often cannot decide"
        choices.append(Choice(name="repeats", value=str(REPEATS), reason=f"{why}; --repeats 1: none"))
    experiment = experiment.model_copy(update=new)
    check(experiment)
    return experiment


def _alone(experiment: Experiment) -> bool:
    """Returns whether no option sets the number of executions at once."""
    counts = (
        experiment.sessions,
        experiment.rate,
        experiment.rates,
        experiment.target,
        experiment.phases or None,
    )
    return all(given is None for given in counts)


# -- jobs with their values --


def planned(specs: Sequence[JobSpec], values: Mapping[str, Value], *, hide: bool) -> tuple[PlannedJob, ...]:
    """Returns each job with the values of a variant. Jobs of the same name get a number. Raises
    :class:`UsageError`."""
    by_name: dict[str, PlannedJob] = {}
    for spec in specs:
        name = _free(spec.name or program(spec.command), by_name)
        by_name[name] = _planned(spec, name, {**values, "job": name}, hide=hide)
    return tuple(by_name.values())


def _planned(spec: JobSpec, name: str, values: Mapping[str, Value], *, hide: bool) -> PlannedJob:
    what = f"job {name}"
    if spec.work_bytes is not None and spec.work_regex is not None:
        raise UsageError(f"{what}: both work_bytes and work_regex", "the work is one of them")
    _check_regex(what, spec)
    argv = words(spec.command, values, f"{what}: command", spec.shell)

    def text(given: str | None, key: str) -> str | None:
        return None if given is None else filled(given, values, f"{what}: {key}", "sh")

    def beside(key: str) -> tuple[str, ...]:
        given = getattr(spec, key)
        return () if not given else words(given, values, f"{what}: {key}", spec.shell)

    return PlannedJob(
        name=name,
        argv=argv,
        shown=program(spec.command) if hide else filled(spec.command, values, what, "sh"),
        directory=text(spec.directory, "directory"),
        env={k: filled(v, values, f"{what}: env", "sh") for k, v in spec.env.items()},
        input=text(spec.input, "input"),
        prepare=beside("prepare"),
        conclude=beside("conclude"),
        verify=beside("verify"),
        timeout_ns=_timeout_ns(what, spec.timeout),
        shell=spec.shell,
        work_file=text(spec.work_bytes, "work_bytes"),
        work_regex=spec.work_regex,
        work_unit="bytes" if spec.work_bytes is not None else spec.work_unit or _unit(spec),
    )


def _unit(spec: JobSpec) -> str:
    return "runs" if spec.work_regex is None else "units"


def _timeout_ns(what: str, text: str | None) -> int | None:
    if text is None:
        return None
    timeout_ns = parse_duration_ns(text, "--timeout")
    if not timeout_ns:
        raise UsageError(f"{what}: a timeout of 0", "write a duration: --timeout 30s")
    return timeout_ns


def _check_regex(what: str, spec: JobSpec) -> None:
    if spec.work_unit is not None and spec.work_regex is None:
        raise UsageError(f"{what}: work_unit without work_regex", "it names what the printed number counts")
    if spec.work_regex is None:
        return
    try:
        groups = re.compile(spec.work_regex).groups
    except re.error as e:
        raise UsageError(
            f"{what}: --work-regex {spec.work_regex}: {e}", r"for example 'done (\d+)'"
        ) from None
    if groups != 1:
        raise UsageError(
            f"{what}: --work-regex {spec.work_regex}: it has {groups} groups",
            r"one, around the number: 'done (\d+)'; (?: ) groups without counting",
        )


def commands_of(
    experiment: Experiment, spec: VariantSpec, jobs: Sequence[JobSpec], *, shell_of: JobSpec
) -> Commands:
    """Returns the commands that a variant runs. ``jobs`` are its jobs, with those that come with the engine
    resolved for this machine."""
    values = {**experiment.params, **spec.params}
    planned_jobs = planned(jobs, values, hide=experiment.hide_args)

    def beside(key: str) -> tuple[str, ...]:
        given = getattr(experiment, key)
        return () if not given else words(given, values, key, shell_of.shell)

    return Commands(planned_jobs, beside("setup"), beside("cleanup"))
