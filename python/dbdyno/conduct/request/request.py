"""Turns a request into a plan: recipe, options, workload and script, and the CPUs of this machine."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import resources
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from dbdyno import engines, limits, observe
from dbdyno.conclude.catalogue import entry
from dbdyno.conduct.request import job_specs, script_texts, servers
from dbdyno.conduct.request.patch import Patch, merged
from dbdyno.conduct.request.script_texts import read_text
from dbdyno.model.engine.environment import Host
from dbdyno.model.errors import RecipeError, UsageError, did_you_mean, nearest
from dbdyno.model.plan.cluster import ClusterSpec
from dbdyno.model.plan.job_workload import workload_of_jobs
from dbdyno.model.plan.literals import ALL_CPUS
from dbdyno.model.plan.plan import Choice, Experiment, Plan, PlannedScript, ScriptSpec, Workload
from dbdyno.model.plan.script_workload import workload_of
from dbdyno.plan import (
    Commands,
    Fault,
    all_jobs,
    key_lines,
    line_of,
    parse_recipe,
    read_toml,
    recipe_error,
    refusal,
    resolve,
)


def workloads(engine: str = "") -> dict[str, Workload]:
    """Returns all workloads of dbdyno and of the engine, by name."""
    built_in = (Workload.model_validate(tomllib.loads(text)) for _, text in _toml("workloads"))
    return {w.name: w for w in built_in} | engines.workloads(engine)


def workload(name: str, engine: str = "") -> Workload:
    """Raises :class:`UsageError` with the nearest name."""
    known = workloads(engine)
    if name not in known and name in recipes():
        raise UsageError(f"{name!r} is a recipe, not a workload", f"dbdyno run --recipe {name}")
    if name not in known:
        raise UsageError(f"no workload {name!r}", _file_meant(name) or did_you_mean(name, known))
    return known[name]


_MOST_FILES = 1_000  # of a directory that are compared with a name


def _file_meant(name: str) -> str:
    """Returns a sentence with the script or recipe that ``name`` means; "" if it looks like no file's."""
    path = Path(name)
    with suppress(OSError, ValueError):  # a name that no file can have
        if path.is_file():
            return f"a script: -f {quote(name)}"
        files = islice(path.parent.iterdir(), _MOST_FILES) if path.suffix else ()
        near = nearest(path.name, (f.name for f in files if f.suffix in (".toml", ".sql")))
        if near is not None:
            script = "-f " if near.endswith(".sql") else ""
            return f"did you mean {script}{quote(str(path.with_name(near)))}?"
    return ""


def recipes() -> dict[str, Experiment]:
    """Returns all recipes of dbdyno, by name."""
    return {name: parse_recipe(text, name) for name, text in _toml("recipes")}


def find_recipe(name_or_path: str) -> tuple[Experiment, Path]:
    """Returns a recipe by name or file, and the directory that its paths are relative to."""
    path = Path(name_or_path)
    if path.suffix == ".toml" or "/" in name_or_path:
        if not path.exists() and path.stem in dict(_toml("recipes")):
            raise UsageError(
                f"there is no file {path}", f"that recipe comes with dbdyno: dbdyno run --recipe {path.stem}"
            )
        return parse_recipe(read_text(path, "recipe"), path.stem, str(path), entry), path.parent
    known = recipes()
    if name_or_path not in known:
        cure = did_you_mean(name_or_path, known)
        raise RecipeError(f"no recipe {name_or_path!r} (a file's name ends in .toml)", cure)
    return known[name_or_path], Path.cwd()


def recipe_text(name: str) -> str:
    """Returns the text of a recipe of dbdyno."""
    known = dict(_toml("recipes"))
    if name not in known:
        raise RecipeError(f"no recipe {name!r}", did_you_mean(name, known))
    return known[name]


def _toml(folder: str) -> list[tuple[str, str]]:
    files = sorted(resources.files("dbdyno").joinpath(folder).iterdir(), key=lambda f: f.name)
    return [
        (f.name.removesuffix(".toml"), f.read_text(encoding="utf-8"))
        for f in files
        if f.name.endswith(".toml")
    ]


@dataclass(frozen=True)
class Request:
    """A request for a run. ``patch`` has the changes that options make to the recipe's experiment."""

    workload: str | None = None  # name, or a recipe's file
    recipe: str | None = None  # name or file
    patch: Patch = field(default_factory=Patch)


def experiment_of(request: Request) -> Experiment:
    """Returns the requested experiment with an absolute path of its script. Raises :class:`UsageError`."""
    _, recipe = _workload_and_recipe(request)
    return _override(request, *(find_recipe(recipe) if recipe else (Experiment(), Path.cwd())))


def server_ssh(request: Request) -> str | None:
    """Returns the server's host in the form of ssh, from the option or else the recipe."""
    _, recipe = _workload_and_recipe(request)
    if (given := request.patch.fields.get("server_ssh")) is not None or recipe is None:
        return given
    return find_recipe(recipe)[0].server_ssh


def cluster_of(request: Request) -> ClusterSpec | None:
    """Returns the cluster to drive from; None without one. Errors of a recipe are reported when it is
    planned."""
    try:
        return experiment_of(request).cluster
    except UsageError:
        return None


def recipe_has_jobs(workload: str | None, recipe: str | None) -> bool:
    """Returns whether a recipe runs commands."""
    _, named = _workload_and_recipe(Request(workload=workload, recipe=recipe))
    return named is not None and bool(all_jobs(find_recipe(named)[0]))


def _workload_and_recipe(request: Request) -> tuple[str | None, str | None]:
    """Returns workload and recipe; the name of a workload may be a recipe's file."""
    if request.workload is not None and request.workload.endswith(".toml"):
        return None, request.workload
    return request.workload, request.recipe


def _override(request: Request, base: Experiment, directory: Path) -> Experiment:
    named, recipe = _workload_and_recipe(request)
    base = job_specs.with_directory(script_texts.with_directory(base, directory), directory)
    given = job_specs.fields_set(base, request.patch)
    runs_jobs = bool(given.get("jobs") or given.get("variants") or all_jobs(base))
    jobs_engine = engines.COMMAND if runs_jobs else ""
    given["engine"] = engines.checked(given.get("engine") or base.engine or jobs_engine)
    _check_engine(given["engine"], named, runs_jobs=runs_jobs)
    given = merged(base, given)
    if (cluster := given.get("cluster")) and "address" not in cluster:
        option = next(iter(cluster)).replace("_", "-")
        raise UsageError(
            f"--{option} is for a cluster, and none was named", "--cluster ray://HOST:10001, or auto"
        )
    if named is not None and given.get("scripts"):
        raise UsageError(
            f"both a workload and scripts were given: {named}",
            "give one of them; a database is named by --dsn dbname=NAME",
        )
    requested = named if runs_jobs or named or base.mix or given.get("scripts") else base.workload
    if requested is not None:
        builtin = script_texts.builtin_of(requested, given["engine"], workloads(given["engine"]))
        scripts = () if builtin is None else (ScriptSpec(builtin=builtin),)
        given |= {"workload": requested if builtin is None else None, "script": None, "scripts": scripts}
    elif given.get("scripts"):
        given |= {"workload": None, "script": None}
    experiment = _validate(base.model_dump(exclude_unset=True) | given)
    # of the command line, or of a recipe whose engine is known only now
    experiment = servers.with_directory(experiment, Path.cwd() if "servers" in given else directory)
    if experiment.observation is not None:
        raise UsageError(f"recipe {recipe} observes a load", f"dbdyno observe --recipe {quote(str(recipe))}")
    if experiment.workload is None and not experiment.mix and not all_jobs(experiment):
        cure = "name a workload (dbdyno workload list), -f FILE, --command 'PROGRAM ...' or --recipe NAME"
        raise UsageError("nothing to run", cure)
    return experiment


def _check_engine(engine: str, workload: str | None, *, runs_jobs: bool) -> None:
    """Raises :class:`UsageError` for jobs beside a workload, and for an engine that runs only the other
    kind."""
    if runs_jobs and not engines.runs_commands(engine):
        raise UsageError(f"the engine {engine} runs no commands", "leave out --engine")
    if workload is None:
        return
    if runs_jobs:
        raise UsageError(
            f"both a workload and a command were given: {workload}",
            "a command is one word: --command 'sort --parallel=4 FILE'; its parameters are NAME=VALUES",
        )
    if engines.runs_commands(engine):
        cure = "--command 'PROGRAM ...'; or leave out --engine"
        raise UsageError(f"the engine {engine} runs commands, and {workload} is a workload", cure)


def _validate(data: dict[str, Any]) -> Experiment:
    """Raises :class:`UsageError` for a wrong value of an option."""
    try:
        experiment = Experiment.model_validate(data)
    except ValidationError as e:
        raise UsageError(*refusal(e)) from e
    try:
        experiment.model_dump_json()
    except PydanticSerializationError as e:
        cure = "a plan is stored as UTF-8: rename the file, or convert the text"
        raise UsageError("a name or text of the experiment is not UTF-8", cure) from e
    return experiment


_MOST_TRIED = 100  # keys; each is tried with a plan of its own


def planned(request: Request, host: Host) -> tuple[Plan, Workload]:
    """Returns :func:`make_plan` of a request. Errors of a recipe have its file and line."""
    try:
        return make_plan(experiment_of(request), host)
    except RecipeError:
        raise
    except UsageError as e:
        raise (_in_recipe(request, host, e) or e) from None


def _in_recipe(request: Request, host: Host, error: UsageError | None) -> RecipeError | None:
    """Finds the keys that cause an error: each is taken out in turn, until there is no error or another
    one."""
    _, recipe = _workload_and_recipe(request)
    path = Path(recipe or "")
    if path.suffix != ".toml":
        return None
    text = read_text(path, "recipe")
    lines, data, faults = key_lines(text), read_toml(text), []
    if len([*_keys(data)]) > _MOST_TRIED:
        return None

    def attempt(tried: dict[str, Any]) -> UsageError | None:
        try:
            base = _validate({"name": path.stem, **tried})
            make_plan(_override(request, base, path.parent), host)
        except UsageError as e:
            return e
        return None

    while error is not None:
        others = {key: attempt(_without(data, key)) for key in _keys(data)}
        guilty = [k for k, e in others.items() if e is None]
        guilty += [k for k, e in others.items() if e is not None and e.message != error.message]
        if not guilty:
            break
        key = min(
            guilty, key=lambda k: (others[k] is not None, k in (("workload",), ("script",), ("scripts",)))
        )
        faults.append(Fault(line_of(lines, key), error.message, error.cure))
        data, error = _without(data, key), others[key]
    return recipe_error(str(path), faults) if faults else None


def _keys(data: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yields all keys with values; a table itself only if it is empty, or a variant."""
    for name, value in data.items():
        path = (*above, name)
        if isinstance(value, dict) and value:
            yield from _keys(value, path)
        if not isinstance(value, dict) or not value or above == ("variants",):
            yield path


def _without(data: Mapping[str, Any], key: tuple[str, ...]) -> dict[str, Any]:
    """Returns the recipe with the nearest workload in place of an unknown one, so that further errors
    show."""
    name, *below = key
    if key == ("workload",) and (near := nearest(str(data[name]), workloads())) is not None:
        return {**data, name: near}
    if not below:
        return {k: v for k, v in data.items() if k != name}
    return {**data, name: _without(data[name], tuple(below))}


def make_plan(experiment: Experiment, host: Host) -> tuple[Plan, Workload]:
    """Returns the resolved plan on this host. The server checks a script's statements later."""
    scripts = script_texts.read(experiment)
    experiment = servers.as_variants(experiment)
    experiment, commands = _commands(experiment)
    unit = _workload(experiment, [scripts[s] for s in experiment.mix], commands)
    here = host.limits
    experiment, why = script_texts.with_protocol(experiment, scripts)
    plan = resolve(
        experiment,
        unit,
        here.usable_cpus,
        cpus_reason(host),
        scripts,
        here.affinity,
        host.siblings,
        min((b for b in (host.memory_bytes, here.memory_bytes) if b is not None), default=None),
        commands,
        servers.programs_by_server(experiment),
    )
    if why is not None:
        choice = Choice(name="protocol", value="simple", reason=why)
        plan = plan.model_copy(update={"choices": (*plan.choices, choice)}).sealed()
    if any(v.limits.of_system for v in plan.variants):
        topology = observe.topology()
        for variant in plan.variants:
            limits.check_spec(variant.limits, topology)
    return plan, unit


def _commands(experiment: Experiment) -> tuple[Experiment, Mapping[str, Commands]]:
    """Returns the experiment with the variants of its axes and the commands of each; unchanged if it runs no
    jobs."""
    if not all_jobs(experiment):
        return experiment, {}
    experiment = job_specs.spread_out(experiment)
    return experiment, job_specs.commands(experiment)


def _workload(
    experiment: Experiment, mix: Sequence[PlannedScript], commands: Mapping[str, Commands]
) -> Workload:
    if commands:
        return workload_of_jobs([j for c in commands.values() for j in c.jobs])
    return workload_of(mix) if mix else workload(experiment.workload or "", experiment.engine)


def cpus_reason(host: Host) -> str:
    """Returns why the CPUs of this machine count as this number."""
    limits = host.limits
    if limits.quota_cpus is not None and limits.quota_cpus < len(limits.affinity):
        return f"cgroup quota of {limits.quota_cpus:g} ({limits.quota_where})"
    online = host.cpu.logical
    fewer = len(limits.affinity) < online
    return f"affinity allows {len(limits.affinity)} of {online}" if fewer else ALL_CPUS
