"""Resolves variants: fills in the values that each inherits from the experiment, and refuses invalid ones."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from dbdyno.model.errors import UsageError, did_you_mean
from dbdyno.model.plan.hidden_args import harmless
from dbdyno.model.plan.plan import (
    Choice,
    DriverSetup,
    DriverSpec,
    Experiment,
    LimitSpec,
    PlannedScript,
    ScriptSpec,
    Strict,
    Value,
    Variant,
    VariantSpec,
    Workload,
)
from dbdyno.plan.jobs import Commands
from dbdyno.plan.ladder import first_of
from dbdyno.plan.rates import think_of
from dbdyno.plan.recipe import typed

_MOST_TEXT = 64 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+=,-]{0,39}\Z")  # of a directory, too


def variants_of(
    experiment: Experiment,
    workload: Workload,
    allowed: Sequence[int],
    choices: list[Choice],
    planned: Mapping[ScriptSpec, PlannedScript] = MappingProxyType({}),
    commands: Mapping[str, Commands] = MappingProxyType({}),
    programs: Mapping[str | None, str] = MappingProxyType({}),
) -> tuple[Variant, ...]:
    """Returns all variants in the recipe's order, or ``base`` if the recipe names none.

    ``allowed`` lists the CPUs that this process may use, for limits such as ``first:2``. ``planned`` has the
    text of each script, ``commands`` the commands of each variant, ``programs`` the directory of the programs
    of a server: texts that lead to the same one name one server. Raises :class:`UsageError` for errors that
    are evident without a server.
    """
    specs: Mapping[str, VariantSpec] = experiment.variants or {"base": VariantSpec()}
    resolved = tuple(
        _variant(name, s, experiment, workload, allowed, planned, commands.get(name))
        for name, s in specs.items()
    )
    if experiment.baseline is not None and experiment.baseline not in specs:
        raise UsageError(
            f"the baseline {experiment.baseline!r} is no variant", did_you_mean(experiment.baseline, specs)
        )
    _check_texts(resolved)
    equal: dict[str, list[str]] = {}
    for v in resolved:
        bare = _bare(v).model_copy(update={"server": programs.get(v.server, v.server)})
        key = f"{think_of(experiment, specs[v.name])} {bare.model_dump_json()}"
        equal.setdefault(key, []).append(v.name)
    for names in (names for names in equal.values() if len(names) > 1):
        why = "any difference between them is chance (an A/A test)"
        choices.append(Choice(name="equal variants", value=", ".join(names), reason=why))
    for v in resolved:
        if v.limits.cpus is not None and v.limits.cpus != _merged(specs[v.name], experiment).cpus:
            why = f"{_merged(specs[v.name], experiment).cpus} of those that may be used here"
            choices.append(Choice(name=f"CPUs of {v.name}", value=v.limits.cpus, reason=why))
    return resolved


def _check_texts(variants: Sequence[Variant]) -> None:
    """Raises :class:`UsageError` if the scripts of all variants, which the plan contains, are too long."""
    size = sum(len(s.text) for v in variants for s in v.scripts)
    if size > _MOST_TEXT:
        raise UsageError(
            f"the scripts of {len(variants)} variants are {size:,} characters; at most {_MOST_TEXT:,}",
            "fewer variants, or shorter scripts",
        )


def texts(settings: Mapping[str, Value]) -> dict[str, str]:
    """Returns settings as texts for a server: true becomes ``on``."""
    return {
        name: ("on" if value else "off") if isinstance(value, bool) else str(value)
        for name, value in settings.items()
    }


def _variant(
    name: str,
    spec: VariantSpec,
    experiment: Experiment,
    workload: Workload,
    allowed: Sequence[int],
    planned: Mapping[ScriptSpec, PlannedScript],
    commands: Commands | None,
) -> Variant:
    if not _NAME.match(name):
        raise UsageError(
            f"variant {name!r}: not a name", "up to 40 letters, digits, and . _ + - = , after the first"
        )
    limits = _merged(spec, experiment)
    _check_limits(name, limits)
    if limits.cpus is not None:
        limits = limits.model_copy(update={"cpus": first_of(limits.cpus, allowed, f"variant {name}")})
    driver = DriverSpec.model_validate(_over(experiment.driver, spec.driver))
    scripts = _apart([planned[s] for s in spec.scripts or experiment.mix])
    given = {**_given(experiment), **_given(spec)}
    if experiment.hide_args:
        given = harmless(given, experiment.axes)
    return Variant(
        name=name,
        doc=spec.doc,
        server=spec.server,
        scripts=scripts,
        **({} if commands is None else commands._asdict()),
        params=given if scripts or commands is not None else typed(workload, given),
        settings=texts({**experiment.settings, **spec.settings}),
        driver=DriverSetup.of(driver),
        limits=limits,
    )


def _apart(scripts: Sequence[PlannedScript]) -> tuple[PlannedScript, ...]:
    """Returns the scripts with distinct names: a second script of the same name is called ``name (2)``."""
    seen = [s.name for s in scripts]
    return tuple(
        s.model_copy(update={"name": f"{s.name} ({earlier + 1})"})
        if (earlier := seen[:i].count(s.name))
        else s
        for i, s in enumerate(scripts)
    )


def _given(spec: Experiment | VariantSpec) -> dict[str, Value]:
    """Returns parameters and variables together, because a workload of scripts does not distinguish them."""
    scale: dict[str, Value] = {} if spec.scale is None else {"scale": spec.scale}
    return {**spec.params, **scale, **spec.variables}


def _merged(spec: VariantSpec, experiment: Experiment) -> LimitSpec:
    return LimitSpec.model_validate(_over(experiment.limits, spec.limits))


def _over(base: Strict, variant: Strict) -> dict[str, object]:
    """Returns the variant's values over those of the experiment: one level of inheritance."""
    own = {k: v for k, v in variant.model_dump().items() if v is not None}
    return base.model_dump() | own


def _bare(variant: Variant) -> Variant:
    return variant.model_copy(update={"name": "", "doc": ""})


def _check_limits(name: str, limits: LimitSpec) -> None:
    if limits.period is not None and limits.quota is None:
        raise UsageError(f"variant {name}: a period without a quota", "add quota = CPUs")
    if limits.pool_mode is not None and limits.pool is None:
        raise UsageError(f"variant {name}: a pool mode without a pool", "add pool = CONNECTIONS")
