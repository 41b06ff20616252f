"""Plans triggers from a recipe, and runs the state machine from samples to firings. All functions are pure.

A trigger fires when its condition has been true for the requested time. It is armed again when the condition
has been false with a margin (:data:`.trigger_conditions.MARGIN`) and the cool-down is over. Each value of
``=`` and ``in`` is armed separately: a step from 10 to 20 sessions matches a second value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dbdyno.model.errors import UsageError, did_you_mean
from dbdyno.model.plan.plan import Choice, Experiment
from dbdyno.model.plan.triggers import TriggerSpec
from dbdyno.model.units import NS_PER_S, format_ns, format_size, parse_duration_ns
from dbdyno.plan.trigger_conditions import (
    FIGURES,
    Condition,
    Exact,
    Figure,
    Values,
    evaluate,
    exact_words,
    parse_condition,
    value_words,
)

TIMED = {"profile": "profile", "off-cpu": "off_cpu", "trace": "syscalls"}
"""Actions with a duration, each with the key of the data source that it switches on."""
_OTHER_NAMES = {"syscalls": "trace", "offcpu": "off-cpu", "off_cpu": "off-cpu"}
ACTIONS = (*TIMED, "snapshot", "memory", "exec")
SHORTEST_NS, LONGEST_NS = NS_PER_S, 600 * NS_PER_S
COMMAND_NS = 60 * NS_PER_S
"""Time after which a command of ``exec`` is ended if it names no time."""
_EXAMPLES = "profile 10s, off-cpu 10s, trace 10s, snapshot, memory, exec COMMAND"
_SIZE = re.compile(r"\s*(\d{1,9}(?:\.\d+)?)\s*(k|M|G)i?B?\s*\Z", re.IGNORECASE)
_FACTORS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class Action(NamedTuple):
    text: str
    name: str  # of ACTIONS
    ns: int = 0  # how long it lasts; of exec, after which time it is ended
    command: str = ""
    secrets: tuple[str, ...] = ()  # of exec: variables that its command gets nevertheless


class Trigger(NamedTuple):
    number: int  # from 1
    condition: Condition
    actions: tuple[Action, ...]
    for_ns: int
    cool_down_ns: int


class Triggers(NamedTuple):
    """The triggers of a run and the limits on their actions."""

    all: tuple[Trigger, ...] = ()
    most_actions: int = 10
    most_bytes: int = 256 << 20

    def figures(self) -> tuple[Figure, ...]:
        return tuple(dict.fromkeys(f for t in self.all for f in t.condition.figures()))


def triggers_of(experiment: Experiment) -> Triggers:
    """Returns the triggers of an experiment. Raises :class:`UsageError` for invalid ones."""
    driven = experiment.observation is None
    if experiment.triggers and not experiment.observe:
        raise UsageError(
            "triggers need the live samples of sessions", "leave out --no-observe (observe = false)"
        )
    triggers = tuple(_trigger(n, spec, driven=driven) for n, spec in enumerate(experiment.triggers, 1))
    return Triggers(triggers, experiment.trigger_actions, _bytes(experiment.trigger_budget))


def _trigger(number: int, spec: TriggerSpec, *, driven: bool) -> Trigger:
    condition = parse_condition(spec.when)
    for figure in condition.figures():
        if FIGURES[figure.name].driven and not driven:
            raise UsageError(
                f"--when {spec.when!r}: {figure.name} is of dbdyno's own calls, and observe makes none",
                "dbdyno run has it; here: db_time, active, cpu_wait, wait(CLASS)",
            )
    if not spec.actions:
        raise UsageError(f"--when {spec.when!r} has no --do", f"what to do then: {_EXAMPLES}")
    for_ns = max(condition.for_ns, parse_duration_ns(spec.for_, "for"))
    cool_down_ns = parse_duration_ns(spec.cool_down, "cool_down")
    actions = tuple(map(parse_action, spec.actions))
    if spec.secrets and not any(a.name == "exec" for a in actions):
        raise UsageError(
            f"--when {spec.when!r}: secrets are for exec, and it has none",
            "leave them out, or --do 'exec COMMAND'",
        )
    actions = tuple(a._replace(secrets=spec.secrets) if a.name == "exec" else a for a in actions)
    return Trigger(number, condition, actions, for_ns, cool_down_ns)


def parse_action(text: str) -> Action:
    """Returns the action of a text such as ``profile 10s``. Raises :class:`UsageError`."""
    name, _, rest = text.strip().partition(" ")
    name, rest = _OTHER_NAMES.get(name.lower(), name.lower()), rest.strip()
    if name not in ACTIONS:
        raise UsageError(f"--do {text!r}: {name or 'nothing'} is no action", did_you_mean(name, ACTIONS))
    if name == "exec":
        return _command(text, rest)
    if name not in TIMED:
        if rest:
            raise UsageError(f"--do {text!r}: {name} takes nothing more", f"--do {name}")
        return Action(name, name)
    if not rest:
        raise UsageError(f"--do {text!r}: for how long?", f"--do '{name} 10s'")
    ns = parse_duration_ns(rest, f"--do {text!r}")
    if not SHORTEST_NS <= ns <= LONGEST_NS:
        raise UsageError(f"--do {text!r}: from 1s to 10min", f"--do '{name} 10s'")
    return Action(f"{name} {rest}", name, ns)


def _command(text: str, rest: str) -> Action:
    first, _, more = rest.partition(" ")
    timed = re.fullmatch(r"[0-9.]+(ms|s|min|h)", first) is not None
    command = more.strip() if timed else rest
    if not command:
        raise UsageError(
            f"--do {text!r}: exec needs a command", "--do 'exec ./gather.sh', --do 'exec 30s ./gather.sh'"
        )
    return Action(text.strip(), "exec", parse_duration_ns(first) if timed else COMMAND_NS, command)


def _bytes(text: str) -> int:
    match = _SIZE.match(text)
    if match is None:
        raise UsageError(f"trigger_budget: not a size: {text!r}", "a number and a unit: 256MB, 1GB")
    return int(float(match[1]) * _FACTORS[match[2].lower()])


# From samples to firings.


class Firing(NamedTuple):
    trigger: Trigger
    at_ns: int
    exact: frozenset[Exact]
    values: dict[str, float]

    @property
    def matched(self) -> str:
        return exact_words(sorted(self.exact)) or self.trigger.condition.text

    @property
    def measured(self) -> str:
        return ", ".join(value_words(k, v) for k, v in self.values.items())


_WHOLE: Exact = ("", 0.0)
"""Stands for the condition itself if no comparison by = or in holds."""


@dataclass(frozen=True)
class Armed:
    """The state of one trigger."""

    since_ns: Mapping[Exact, int] = field(default_factory=dict)  # true from then on
    held: frozenset[Exact] = frozenset()  # has fired, and is not over
    fired_ns: Mapping[Exact, int] = field(default_factory=dict)  # last time
    before: Values | None = None  # the sample before


def step(trigger: Trigger, state: Armed, at_ns: int, values: Values) -> tuple[Armed, Firing | None]:
    """Processes one sample and returns the new state, and the firing if there is one. Samples must be in
    order of time."""
    node = trigger.condition.node
    verdict, near = evaluate(node, values, state.before), evaluate(node, values, near=True)
    held = state.held
    if near.truth is False:
        held = frozenset()
    elif near.truth:
        held &= near.exact | {_WHOLE}
    if verdict.truth is None:
        return replace(state, before=values, held=held), None
    if not verdict.truth:
        return replace(state, before=values, held=held, since_ns={}), None
    met = verdict.exact or frozenset({_WHOLE})
    since = {m: state.since_ns.get(m, at_ns) for m in met}
    due = frozenset(
        m
        for m in met - held
        if at_ns - since[m] >= trigger.for_ns
        and (m not in state.fired_ns or at_ns - state.fired_ns[m] >= trigger.cool_down_ns)
    )
    if not due:
        return replace(state, before=values, held=held, since_ns=since), None
    fired = {**state.fired_ns, **dict.fromkeys(due, at_ns)}
    measured = {f.key: v for f in trigger.condition.figures() if (v := values.get(f.key)) is not None}
    firing = Firing(trigger, at_ns, due - {_WHOLE}, measured)
    return Armed(since, held | due, fired, values), firing


def firings(trigger: Trigger, samples: Sequence[tuple[int, Values]]) -> list[Firing]:
    """Returns all firings for a sequence of samples (time in ns, values)."""
    state, fired = Armed(), []
    for at_ns, values in samples:
        state, firing = step(trigger, state, at_ns, values)
        fired += [] if firing is None else [firing]
    return fired


@dataclass(frozen=True)
class Budget:
    """The number of actions and bytes that a run has left."""

    actions: int
    bytes: int

    @staticmethod
    def of(triggers: Triggers) -> Budget:
        return Budget(triggers.most_actions, triggers.most_bytes)

    def refusal(self, triggers: Triggers) -> str:
        """Returns why no further action may begin; empty if one may."""
        if self.actions <= 0:
            return f"the budget of {triggers.most_actions} actions is used up (trigger_actions)"
        if self.bytes <= 0:
            return f"the budget of {format_size(triggers.most_bytes)} is used up (trigger_budget)"
        return ""

    def begun(self) -> Budget:
        return replace(self, actions=self.actions - 1)

    def stored(self, size_bytes: int) -> Budget:
        return replace(self, bytes=self.bytes - size_bytes)


def trigger_choices(experiment: Experiment) -> list[Choice]:
    """Returns a line of the plan for each trigger. Raises :class:`UsageError` like :func:`triggers_of`."""
    planned = triggers_of(experiment)
    limit = f"at most {planned.most_actions} actions and {format_size(planned.most_bytes)} in all"
    return [Choice(name=f"trigger {t.number}", value=_in_words(t), reason=limit) for t in planned.all]


def _in_words(trigger: Trigger) -> str:
    """Returns a trigger in words: ``sessions in (10,20,30) for 3 s -> profile 10s, snapshot``."""
    lasting = f" for {format_ns(trigger.for_ns)}" if trigger.for_ns and not trigger.condition.for_ns else ""
    return f"{trigger.condition.text}{lasting} -> {', '.join(a.text for a in trigger.actions)}"
