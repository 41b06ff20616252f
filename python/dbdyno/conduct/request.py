"""From what the user asked to a plan: recipe or options, workload, the CPUs of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dbdyno import limits, observe
from dbdyno.conduct.catalogue import find_recipe, read_script, workload
from dbdyno.model.environment import Host
from dbdyno.model.errors import UsageError
from dbdyno.model.plan import Experiment, Plan
from dbdyno.model.workload import Workload
from dbdyno.plan import refusal, resolve


@dataclass(frozen=True)
class Request:
    """What to run. ``overrides``: fields of Experiment given as options; they win over the recipe."""

    workload: str | None = None  # name, or a recipe's file
    recipe: str | None = None  # name or file
    overrides: Mapping[str, Any] = field(default_factory=dict)


def experiment_of(request: Request) -> Experiment:
    """The experiment asked for, its script's path made absolute. Raises :class:`UsageError`."""
    named, recipe = request.workload, request.recipe
    if named is not None and named.endswith(".toml"):
        named, recipe = None, named
    base, directory = find_recipe(recipe) if recipe else (Experiment(), Path.cwd())
    if base.script is not None:
        base = base.model_copy(update={"script": str(directory / base.script)})
    given = {k: v for k, v in request.overrides.items() if v is not None}
    for table in ("params", "settings"):
        if given.get(table):
            given[table] = {**getattr(base, table), **given[table]}
    for table in ("limits", "driver"):
        if given.get(table):
            said = getattr(base, table).model_dump(exclude_none=True)
            given[table] = {**said, **given[table]}
    if named is not None:
        given |= {"workload": named, "script": None}
    if given.get("script") is not None:
        given["workload"] = None
    experiment = _validated(base.model_dump() | given)
    if named is not None and request.overrides.get("script") is not None:
        raise UsageError("both a workload and --script were given", "give one of them")
    if experiment.observation is not None:
        raise UsageError(f"recipe {recipe} observes a load", f"dbdyno observe --recipe {recipe}")
    if experiment.workload is None and experiment.script is None:
        raise UsageError(
            "nothing to run", "name a workload (dbdyno workloads), --script FILE or --recipe NAME"
        )
    return experiment


def _validated(data: dict[str, Any]) -> Experiment:
    """Raises :class:`UsageError` for what an option says wrongly."""
    try:
        return Experiment.model_validate(data)
    except ValidationError as e:
        raise UsageError(*refusal(e)) from e


def make_plan(experiment: Experiment, host: Host) -> tuple[Plan, Workload]:
    """The resolved plan on this host. A script's statements are checked later, by the server."""
    text = None
    if experiment.script is not None:
        path = Path(experiment.script)
        text, unit = read_script(path), script_workload(path.stem)
    else:
        unit = workload(experiment.workload or "")
    here = host.limits
    plan = resolve(experiment, unit, here.usable_cpus, cpus_reason(host), text, here.affinity)
    if any(v.limits.of_system for v in plan.variants):
        topology = observe.topology()
        for variant in plan.variants:
            limits.check_spec(variant.limits, topology)
    return plan, unit


def script_workload(name: str) -> Workload:
    """An own script as a workload, as far as it is known before a server has seen it."""
    return Workload(
        name="".join(c if c.isalnum() else "-" for c in name.lower()).strip("-") or "script",
        title=f"own script {name}",
        doc="the user's own SQL",
        work_unit="logical reads",
        work_short="LIO",
        work_constant=False,
        calibrated=False,
    )


def cpus_reason(host: Host) -> str:
    """Why the CPUs of this machine count as that many."""
    limits = host.limits
    if limits.quota_cpus is not None and limits.quota_cpus < len(limits.affinity):
        return f"cgroup quota of {limits.quota_cpus:g} ({limits.quota_where})"
    online = host.cpu.logical
    return (
        f"affinity allows {len(limits.affinity)} of {online}"
        if len(limits.affinity) < online
        else f"{online} online"
    )
