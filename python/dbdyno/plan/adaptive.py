"""An auto ladder: which rung comes next, by what was measured so far."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from dbdyno.model.errors import UsageError
from dbdyno.model.plan import Adaptive, Cell, Choice, Experiment, Plan
from dbdyno.plan.adaptive_findings import Done, Findings, Next
from dbdyno.plan.adaptive_goal import next_for_goal, parse_goal
from dbdyno.plan.adaptive_knee import TIGHT, next_for_knee
from dbdyno.plan.adaptive_words import goal_found, knee_found
from dbdyno.plan.ladder import MAX_SESSIONS, parse_ladder
from dbdyno.stats.knee import KNEE

AUTO = "auto"
MOST_RUNGS = 16
PER_CPU, PER_CPU_GOAL = 8, 32
"""The highest rung, unless said otherwise: so many sessions a CPU."""
GOAL_REPEATS = 3
CALLS_PER_LIMIT = 4
"""A calibrated call takes this part of a response time's limit, so that it is met at one session and missed
within the ladder."""


def next_rung(findings: Findings) -> Next | Done:
    """What an auto ladder does next. Pure; called again with every cell that was measured.

    Without a goal it looks for the knee: upwards (one session, the CPUs, twice as many each time) until
    throughput no longer grows; where the lines of the growing and the flat part cross; then the neighbours of
    the knee, until rungs within 10 % of it (one session at least) were measured on both sides. With a goal:
    doubling, bisection to neighbouring session counts, and repeats of both.
    """
    goal = findings.rule.goal
    wanted = next_for_knee(findings) if goal is None else next_for_goal(findings, goal)
    spent = wanted is not None and _spent(findings, wanted.sessions)
    if wanted is not None and not spent:
        return wanted
    return so_far(findings, cut=spent)


def so_far(findings: Findings, *, cut: bool = False) -> Done:
    """The verdict of what there is; ``cut``: it has as many rungs as it may, and wanted another."""
    goal = findings.rule.goal
    return knee_found(findings, cut=cut) if goal is None else goal_found(findings, goal, cut=cut)


def _spent(findings: Findings, sessions: int) -> bool:
    return len(findings.tried | {sessions}) > max(findings.rule.most_rungs, len(findings.tried))


def is_auto(experiment: Experiment) -> bool:
    said = experiment.sessions
    return said.strip().partition(":")[0] == AUTO if said is not None else experiment.target is not None


def adaptive_of(experiment: Experiment, cpus: float, repeats: int, choices: list[Choice]) -> Adaptive | None:
    """The rule of this experiment's ladder; ``None``: it has a ladder of its own.

    Raises :class:`UsageError` for a target or a number of rungs of a ladder that is not auto.
    """
    if not is_auto(experiment):
        for name, value in (("--target", experiment.target), ("--rungs", experiment.rungs)):
            if value is not None:
                raise UsageError(
                    f"{name} {value}: --sessions {experiment.sessions} already lists every load level",
                    "--ladder auto, or leave one of them out",
                )
        return None
    goal = None if experiment.target is None else parse_goal(experiment.target)
    if goal is not None and experiment.until is not None:
        raise UsageError(
            "--until with --target: only the loads next to the target are repeated", "use --repeats"
        )
    top = _top(experiment.sessions or AUTO, cpus, PER_CPU if goal is None else PER_CPU_GOAL)
    again = GOAL_REPEATS if goal is not None and repeats == 1 else repeats
    rule = Adaptive(
        top=top,
        most_rungs=experiment.rungs or MOST_RUNGS,
        near=min(top, max(2, math.floor(cpus))),
        repeats=again,
        goal=goal,
    )
    choices.append(Choice(name="sessions", value=AUTO, reason=rule_words(rule)))
    return rule


def _top(text: str, cpus: float, per_cpu: int) -> int:
    """``auto`` | ``auto:64`` | ``auto:4cpus``."""
    _, colon, said = text.strip().partition(":")
    if not colon:
        return min(MAX_SESSIONS, per_cpu * max(1, math.ceil(cpus)))
    tops = parse_ladder(said, cpus)
    if len(tops) != 1:
        raise UsageError(
            f"--sessions {text}: {said!r} is not one session count", "auto, or auto:64: up to 64"
        )
    return tops[0]


def rule_words(rule: Adaptive) -> str:
    """The rule in words, for the plan."""
    limits = f"at most {rule.most_rungs} load levels up to {rule.top} sessions (--rungs, --ladder auto:TOP)"
    if rule.goal is None:
        return (
            f"1, {rule.near}, then doubling until throughput stops growing; then loads on both sides "
            f"of the knee, until they are within {TIGHT[KNEE]:.0%} of it or one session; {limits}"
        )
    which = "lowest" if rule.goal.metric == "throughput" else "highest"
    return (
        f"1, {rule.near}, then doubling, then bisection to the {which} load that meets "
        f"{rule.goal.text}; it and its neighbour {rule.repeats} times; {limits}"
    )


def grown(plan: Plan, sessions: int, repeat: int) -> tuple[Plan, Sequence[Cell]]:
    """``plan`` with a block more: this rung under every variant, another of them first each time."""
    first = [next(c for c in plan.cells if c.variant == v.name) for v in plan.variants]
    block = max(c.block for c in plan.cells) + 1
    turn = (block - 1) % len(first)
    number = len(plan.cells)
    made = [
        cell.model_copy(
            update={
                "id": f"{number + n:04}-{cell.workload}-{cell.variant}-s{sessions}-r{repeat}",
                "sessions": sessions,
                "repeat": repeat,
                "block": block,
            }
        )
        for n, cell in enumerate([*first[turn:], *first[:turn]], start=1)
    ]
    return plan.model_copy(update={"cells": (*plan.cells, *made)}).sealed(), made


def repeated(plan: Plan, repeat: int) -> tuple[Plan, Sequence[Cell]]:
    """``plan`` with every rung measured so far once more, ascending or by the chance of the plan's order."""
    rungs = sorted({c.sessions for c in plan.cells})
    if plan.order == "shuffled":
        random.Random(f"{plan.experiment.seed}/{repeat}").shuffle(rungs)
    made: list[Cell] = []
    for sessions in rungs:
        plan, cells = grown(plan, sessions, repeat)
        made += cells
    return plan, made


def capped(plan: Plan, top: int, reason: str) -> Plan:
    """No rung above ``top``, because of what the server has room for."""
    assert plan.adaptive is not None
    rule = plan.adaptive.model_copy(update={"top": top, "near": min(top, plan.adaptive.near)})
    choice = Choice(name="highest rung", value=str(top), reason=reason)
    return plan.model_copy(update={"adaptive": rule, "choices": (*plan.choices, choice)}).sealed()
