"""The servers that variants name: what is known of them, and the same state after each start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dbdyno.conduct.companion import Companion
from dbdyno.conduct.measure.opening import facts_now
from dbdyno.conduct.measure.stage import Stage
from dbdyno.model.engine.choosing import Choosing, SettingValue
from dbdyno.model.engine.environment import Environment, ServerFacts, SettingDifference
from dbdyno.model.plan.plan import Cell, Choice, Workload


class _Known(NamedTuple):
    """What is known of a variant's server."""

    facts: ServerFacts
    programs: str
    identity: str
    settings: Mapping[str, SettingValue]


def with_servers(stage: Stage, environment: Environment) -> Environment:
    """Returns the environment with the servers that variants name, and what differs between them; makes
    their settings the same if the plan asks for it. Unchanged if variants name no servers."""
    choosing = stage.server.choosing
    if choosing is None:
        return environment
    known = _look(stage, choosing)
    if stage.plan.experiment.server_settings == "same":
        _make_same(stage, choosing, known)
        known = _look(stage, choosing)
    for variant, k in known.items():
        place = k.programs or k.facts.where
        stage.listener.noted(f"{variant}: {k.facts.product} {k.facts.version}, {place}")
    for line in (*choosing.remarks(), *_same_servers(known)):
        stage.listener.noted(line)
    changed = {
        "server": next(iter(known.values())).facts,
        "servers": {variant: k.facts for variant, k in known.items()},
        "programs": {variant: k.programs for variant, k in known.items() if k.programs},
        "differences": differences({variant: k.settings for variant, k in known.items()}),
    }
    return environment.model_copy(update=changed)


def _look(stage: Stage, choosing: Choosing) -> dict[str, _Known]:
    known = {}
    for variant in stage.plan.variants:
        stage.use(variant)
        facts = facts_now(stage.server, stage.plan)
        known[variant.name] = _Known(facts, choosing.programs(), choosing.identity(), choosing.all_settings())
    return known


def _make_same(stage: Stage, choosing: Choosing, known: Mapping[str, _Known]) -> None:
    oldest = min((k.facts for k in known.values()), key=lambda f: f.version_num)
    values = choosing.same_settings()
    text = ", ".join(f"{name}={value}" for name, value in values.items()) or "nothing to set"
    why = f"the defaults of {oldest.product} {oldest.version}, the oldest, for what all servers have"
    choice = Choice(name="settings of the servers", value=text, reason=why)
    stage.plan = stage.plan.model_copy(update={"choices": (*stage.plan.choices, choice)}).sealed()
    stage.listener.noted(f"{choice.name}: {text} ({why})")


def _same_servers(known: Mapping[str, _Known]) -> list[str]:
    """Returns a line for each server that several variants name without further differences."""
    by_identity: dict[str, list[str]] = {}
    for variant, one in known.items():
        by_identity.setdefault(one.identity, []).append(variant)
    return [
        f"{' and '.join(names)} are the same server: unless something else differs, any difference between "
        "them is chance (an A/A test)"
        for names in by_identity.values()
        if len(names) > 1
    ]


def differences(servers: Mapping[str, Mapping[str, SettingValue]]) -> tuple[SettingDifference, ...]:
    """Returns the settings whose value or default is not the same on all servers, by name."""
    names = sorted({name for settings in servers.values() for name in settings})
    values = {name: {v: settings.get(name) for v, settings in servers.items()} for name in names}
    return tuple(
        SettingDifference(
            name=name,
            values={v: None if one is None else one.value for v, one in of.items()},
            defaults={v: None if one is None else one.default for v, one in of.items()},
        )
        for name, of in values.items()
        if len({*of.values()}) > 1
    )


class WarmStarts(Companion):
    """Brings a server that was started for a variant into the same state each time: the tables of the run
    are in its cache, and nothing is left to write."""

    def __init__(self, stage: Stage, workload: Workload) -> None:
        self._stage, self._workload = stage, workload

    def before(self, cell: Cell) -> None:
        stage = self._stage
        choosing, started = stage.server.choosing, stage.started
        stage.started = False
        if choosing is None or not started:
            return
        stage.listener.preparing(f"warming the server of {cell.variant}")
        resetting, plan = stage.server.resetting, stage.plan
        cold = plan.experiment.expect == "disk" or plan.experiment.reset_cache == "dropped"
        if resetting is not None and not cold:
            texts = [s.text for s in plan.variant(cell.variant).scripts]
            resetting.warm(self._workload.name, cell.params, plan.top, texts)
        choosing.flush()
