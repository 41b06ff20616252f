"""The kinds of runs as values: the runs that belong to each kind, and its nouns.

Checks, and the parts, columns and methods of documents, name the kinds that they apply to, or a tag that
several kinds have. Without a name they apply to all kinds. Sentences and headings have slots for the nouns
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
"""Kind of runs on a database in which calls become due at a rate."""
PHASES = "phases"
"""Kind of runs on a database in which the rate goes through phases. Calls that wait at the end of one phase
remain for the next."""
OBSERVATION = "observation"
"""Kind of runs that observe an existing workload of a database."""
NOISE = "noise"
"""Kind of runs on a database that measure how much equal measurements differ."""
COMMANDS = "commands"
"""Kind of runs that execute commands."""
LADDER = "ladder"
"""Tag of kinds whose load is a ladder. Their pages and screens have the table of rungs."""
EVERY_CALL_FAILED = "every call ended in an error"
T = TypeVar("T")


class Kind(NamedTuple):
    """A kind of run. ``tags`` are further names that apply to it, the most specific first. ``nouns`` replace
    those of databases, by slot. A slot that is missing keeps the noun of databases."""

    name: str
    applies: Callable[[Plan], bool]
    nouns: Mapping[str, str] = OF_SESSIONS
    tags: tuple[str, ...] = (LADDER, DRIVEN)

    def noun(self, slot: str) -> str:
        """Returns the noun of a slot. Raises KeyError if there is no such slot."""
        return self.nouns[slot] if slot in self.nouns else OF_SESSIONS[slot]

    def among(self, kinds: Collection[str]) -> bool:
        """Returns whether the kind has one of these names or tags. An empty collection stands for every
        kind."""
        return not kinds or self.name in kinds or not {*self.tags}.isdisjoint(kinds)

    def choice(self, options: Mapping[str, T], otherwise: T) -> T:
        """Returns the option for the kind's name, else for the first of its tags that has one, else
        ``otherwise``."""
        return next((options[name] for name in (self.name, *self.tags) if name in options), otherwise)


KINDS = [
    Kind(DATABASE, lambda _: True, tags=(LADDER, SERVED, DRIVEN)),
    Kind(
        PACED,
        lambda plan: plan.experiment.rate is not None or plan.experiment.rates is not None,
        tags=(DATABASE, LADDER, SERVED, DRIVEN),
    ),
    Kind(PHASES, lambda plan: bool(plan.experiment.phases), tags=(PACED, DATABASE, LADDER, SERVED, DRIVEN)),
    Kind(NOISE, lambda plan: plan.experiment.noise is not None, tags=(DATABASE, LADDER, SERVED, DRIVEN)),
    Kind(OBSERVATION, lambda plan: plan.experiment.observation is not None, tags=(SERVED,)),
    Kind(COMMANDS, lambda plan: bool(plan.jobs), OF_COMMANDS, tags=(DRIVEN,)),
]
"""All kinds. A run belongs to the last kind that applies."""
_CURRENT: ContextVar[Kind] = ContextVar("kind", default=KINDS[0])


def kind_of(plan: Plan) -> Kind:
    """Returns the kind of a run."""
    return next(kind for kind in reversed(KINDS) if kind.applies(plan))


def kind_named(name: str) -> Kind:
    """Returns the kind with this name. Raises KeyError if there is none."""
    return {kind.name: kind for kind in KINDS}[name]


@contextmanager
def speaking_of(kind: Kind) -> Iterator[None]:
    """Uses the nouns and the columns of this kind of run for sentences and tables within the context."""
    token = _CURRENT.set(kind)
    try:
        with nouns_of(kind.nouns):
            yield
    finally:
        _CURRENT.reset(token)


def current_kind() -> Kind:
    """Returns the kind of run that sentences and tables are currently written for."""
    return _CURRENT.get()


def every_one_failed(plan: Plan) -> str:
    """Returns the words for a run, or a part of one, in which no call or execution ended well."""
    return "every execution failed" if plan.jobs else EVERY_CALL_FAILED
