"""Tasks that the observers know, and since when: the load's sessions at once, others as the samples meet
them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dbdyno.model.results.brief import MAIN
from tests.fake_engine.machine import Task
from tests.fake_engine.world import World


@dataclass(frozen=True, eq=False)
class Known:
    """A task as the observers see it, from an instant on."""

    task: Task
    role: str
    session: int | None
    since_ns: int


def roster(
    world: World,
    sampled_ns: Sequence[int],
    chosen: Callable[[Task], bool] | None,
    known: Mapping[int, int],
) -> list[Known]:
    """Returns all tasks that a sample, or the load itself, shows.

    ``chosen`` selects client backends that become sessions, numbered in the order of meeting, from the
    highest number in ``known`` (session by pid) on. None leaves only the load's own sessions.
    """
    met = [_meeting(world, task, sampled_ns) for task in world.machine.tasks]
    order = sorted((since, i) for i, since in enumerate(met) if since is not None)
    number = max(known.values(), default=-1) + 1
    given: set[int] = set()
    roster = []
    for since, i in order:
        task = world.machine.tasks[i]
        role, session = task.role, task.session
        if chosen is not None and _is_client(task) and chosen(task):
            role, session = "session", known.get(task.pid) if since == sampled_ns[0] else None
            if session is None or session in given:
                session, number = number, number + 1
            given.add(session)
        roster.append(Known(task, role, session, since))
    return roster


def _meeting(world: World, task: Task, sampled_ns: Sequence[int]) -> int | None:
    """Returns when it is first seen; None if never."""
    if task.role in ("session", "driver", MAIN):
        return world.born_ns
    i = bisect_left(sampled_ns, task.timeline.born_ns)
    met = i < len(sampled_ns) and task.timeline.alive_at(sampled_ns[i])
    return sampled_ns[i] if met else None


def _is_client(task: Task) -> bool:
    return task.role in ("session", "other")
