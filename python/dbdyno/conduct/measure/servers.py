"""The servers that variants name: what is known of them, and the same state after each start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from dbdyno.conduct.companion import Companion
from dbdyno.conduct.measure.opening import facts_now
from dbdyno.conduct.measure.stage import Stage
from dbdyno.conduct.measure.tables import make_tables
from dbdyno.drive import Interrupt
from dbdyno.model.engine.choosing import Choosing, SettingValue
from dbdyno.model.engine.environment import Environment, ServerFacts, SettingDifference
from dbdyno.model.engine.protocols import Server
from dbdyno.model.errors import Abandoned, DbdynoError, naming
from dbdyno.model.plan.plan import Cell, Choice, Plan, Variant, Workload
from dbdyno.model.plan.table_making import TableOptions
from dbdyno.model.units import counted

_KEPT = (
    "not read anew before each start, since other processes use them, or their file system keeps them; "
    "the place alone can make a server some per cent faster or slower"
)


class TableListener(Protocol):
    """Follows the loading of tables before a run."""

    def preparing(self, what: str) -> None: ...

    def noted(self, words: str) -> None: ...


class _Known(NamedTuple):
    """A variant's server as it was found before the run."""

    facts: ServerFacts
    programs: str
    identity: str
    settings: Mapping[str, SettingValue]
    read_anew: bool


def first_of_servers(plan: Plan) -> Sequence[Variant]:
    """Returns the first variant of each server; if variants name none, the first variant."""
    first: dict[str | None, Variant] = {}
    for variant in plan.variants:
        first.setdefault(variant.server, variant)
    return list(first.values())


def load_tables(server: Server, plan: Plan, interrupt: Interrupt, listener: TableListener) -> None:
    """Loads the tables that the scripts of variants use, of one size and by one seed, on each server that
    dbdyno starts. Leaves out servers that cannot be used: :meth:`Stage.check` raises why."""
    choosing, usable = server.choosing, list[Variant]()
    if choosing is None or not plan.scripts:
        return
    for variant in first_of_servers(plan):
        try:
            choosing.use(variant.name)
        except Abandoned:
            raise
        except DbdynoError:
            continue
        with naming(variant.name):
            names = choosing.tables_of([s.text for s in variant.scripts])
            _load(server, names, variant, interrupt, listener)
        usable.append(variant)
    for variant in usable[:1]:
        choosing.use(variant.name)


def _load(
    server: Server, names: Sequence[str], variant: Variant, interrupt: Interrupt, listener: TableListener
) -> None:
    def tick(step: str, rows: int, total: int, _sent: int, _seconds: float) -> None:
        listener.preparing(f"{variant.name}, {step}: {rows:,} of {total:,} rows")

    for name in names:
        options = TableOptions(scale=int(variant.params.get("scale", 1)), on_demand=True)
        made = make_tables(server, name, options, interrupt, tick, listener.noted)
        if made.new:
            rows = counted(sum(t.rows for t in made.tables), "row")
            listener.noted(f"{variant.name}: loaded {rows} of {name}, scale {options.scale}")


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
    for name, where in choosing.left_out().items():
        _choose(stage, f"setting {name}", "left out where it does not exist", where)
    kept = [variant for variant, k in known.items() if not k.read_anew]
    if kept and len({k.programs for k in known.values() if k.programs}) > 1:
        _choose(stage, "place of the programs in memory", f"kept for {', '.join(kept)}", _KEPT)
    for line in _same_servers(stage.plan, known):
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
        known[variant.name] = _Known(
            facts, choosing.programs(), choosing.identity(), choosing.all_settings(), choosing.is_read_anew()
        )
    return known


def _make_same(stage: Stage, choosing: Choosing, known: Mapping[str, _Known]) -> None:
    oldest = min((k.facts for k in known.values()), key=lambda f: f.version_num)
    values = choosing.same_settings()
    text = ", ".join(f"{name}={value}" for name, value in values.items()) or "nothing to set"
    why = f"the defaults of {oldest.product} {oldest.version}, the oldest, for what all servers have"
    _choose(stage, "settings of the servers", text, why)


def _choose(stage: Stage, name: str, value: str, reason: str) -> None:
    """Adds a choice to the plan and notes it."""
    choice = Choice(name=name, value=value, reason=reason)
    stage.plan = stage.plan.model_copy(update={"choices": (*stage.plan.choices, choice)}).sealed()
    stage.listener.noted(f"{name}: {value} ({reason})")


def _same_servers(plan: Plan, known: Mapping[str, _Known]) -> list[str]:
    """Returns a line for each server that several variants name without further differences, also of their
    connections' own settings."""
    thinks = {cell.variant: (cell.think_ns, cell.think) for cell in plan.cells}
    equal: dict[str, list[str]] = {}
    for variant in plan.variants:
        bare = variant.model_copy(update={"name": "", "doc": "", "server": None})
        server = known[variant.name]
        values = {name: setting.value for name, setting in sorted(server.settings.items())}
        key = f"{server.identity} {values} {thinks.get(variant.name)} {bare.model_dump_json()}"
        equal.setdefault(key, []).append(variant.name)
    return [
        f"{' and '.join(names)} are the same server: any difference between them is chance (an A/A test)"
        for names in equal.values()
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
