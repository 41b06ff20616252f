"""The kinds of runs as values: which runs are of a kind, and the nouns in which people speak of them.

Checks and parts of documents say by a kind's name where they apply. Sentences and headings have slots for the
nouns (:mod:`dbdyno.model.text.nouns`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from dbdyno.model.text.nouns import OF_COMMANDS, OF_SESSIONS

if TYPE_CHECKING:
    from dbdyno.model.plan.plan import Plan

DATABASE = "database"
"""A load of our own on a database."""
OBSERVATION = "observation"
"""An existing workload of a database."""
COMMANDS = "commands"
"""Executions of commands."""
OF_SERVERS = (DATABASE, OBSERVATION)
"""Kinds whose sessions a server serves."""


class Kind(NamedTuple):
    """A kind of run. ``nouns`` in place of those of databases, by slot; all that are missing stay."""

    name: str
    applies: Callable[[Plan], bool]
    nouns: Mapping[str, str] = OF_SESSIONS


KINDS = [
    Kind(DATABASE, lambda _: True),
    Kind(OBSERVATION, lambda plan: plan.experiment.observation is not None),
    Kind(COMMANDS, lambda plan: bool(plan.jobs), OF_COMMANDS),
]
"""All kinds. A run is of the last one that applies."""


def kind_of(plan: Plan) -> Kind:
    """Returns the kind of a run."""
    return next(kind for kind in reversed(KINDS) if kind.applies(plan))
