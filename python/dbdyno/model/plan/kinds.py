"""The kinds of runs as values: which runs are of a kind, and the nouns in which people speak of them.

Checks, and parts, columns and methods of documents, say by a kind's name, or by a tag that several kinds
have, where they apply; without one they apply to all. Sentences and headings have slots for the nouns
(:mod:`dbdyno.model.text.nouns`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from dbdyno.model.schema.table import DATABASE as DATABASE
from dbdyno.model.schema.table import DRIVEN as DRIVEN
from dbdyno.model.schema.table import SERVED as SERVED
from dbdyno.model.text.nouns import OF_COMMANDS, OF_SESSIONS, nouns_of

if TYPE_CHECKING:
    from dbdyno.model.plan.plan import Plan

PACED = "paced"
"""The same, whose calls become due at a rate."""
PHASES = "phases"
"""The same, whose rate goes through phases; calls of one wait on into the next."""
OBSERVATION = "observation"
"""An existing workload of a database."""
COMMANDS = "commands"
"""Executions of commands."""
LADDER = "ladder"
"""Tag: the load is a ladder, of which pages and screens have the table of rungs."""
T = TypeVar("T")


class Kind(NamedTuple):
    """A kind of run. ``tags``: names of what else holds for it, the nearest first. ``nouns`` in place of
    those of databases, by slot; all that are missing stay."""

    name: str
    applies: Callable[[Plan], bool]
    nouns: Mapping[str, str] = OF_SESSIONS
    tags: tuple[str, ...] = (LADDER, DRIVEN)

    def noun(self, slot: str) -> str:
        """Returns its noun of a slot. Raises KeyError if there is no such slot."""
        return self.nouns[slot] if slot in self.nouns else OF_SESSIONS[slot]

    def among(self, kinds: Collection[str]) -> bool:
        """Returns whether one of these names or tags is its own; none at all stand for every kind."""
        return not kinds or self.name in kinds or not {*self.tags}.isdisjoint(kinds)

    def choice(self, options: Mapping[str, T], otherwise: T) -> T:
        """Returns the option of its name, else that of its first tag that has one, else ``otherwise``."""
        return next((options[name] for name in (self.name, *self.tags) if name in options), otherwise)


KINDS = [
    Kind(DATABASE, lambda _: True, tags=(LADDER, SERVED, DRIVEN)),
    Kind(
        PACED,
        lambda plan: plan.experiment.rate is not None or plan.experiment.rates is not None,
        tags=(DATABASE, LADDER, SERVED, DRIVEN),
    ),
    Kind(PHASES, lambda plan: bool(plan.experiment.phases), tags=(PACED, DATABASE, LADDER, SERVED, DRIVEN)),
    Kind(OBSERVATION, lambda plan: plan.experiment.observation is not None, tags=(SERVED,)),
    Kind(COMMANDS, lambda plan: bool(plan.jobs), OF_COMMANDS, tags=(DRIVEN,)),
]
"""All kinds. A run is of the last one that applies."""
_CURRENT: ContextVar[Kind] = ContextVar("kind", default=KINDS[0])


def kind_of(plan: Plan) -> Kind:
    """Returns the kind of a run."""
    return next(kind for kind in reversed(KINDS) if kind.applies(plan))


def kind_named(name: str) -> Kind:
    """Returns the kind of a name. Raises KeyError if there is none."""
    return {kind.name: kind for kind in KINDS}[name]


@contextmanager
def speaking_of(kind: Kind) -> Iterator[None]:
    """Makes sentences and tables for this kind of run: with its nouns, with the columns that apply to it."""
    token = _CURRENT.set(kind)
    try:
        with nouns_of(kind.nouns):
            yield
    finally:
        _CURRENT.reset(token)


def current_kind() -> Kind:
    """Returns the kind of run of which sentences and tables are made at present."""
    return _CURRENT.get()
