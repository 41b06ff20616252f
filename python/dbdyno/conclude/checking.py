"""The registry of checks: a check answers one question about a run, and registers beside its function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from dbdyno.conclude.catalogue import entries
from dbdyno.model.results.claim import Claim

if TYPE_CHECKING:
    from dbdyno.conclude.run.case import Case
    from dbdyno.model.plan.kinds import Kind

Function = Callable[["Case"], Iterator[Claim]]
Scope = Literal["cells", "whole"]


class Check(NamedTuple):
    """A registered check.

    ``claims``: ids of the catalogue that it may yield, the first of which gives its place in the order.
    ``of``: ``cells`` where it asks something of single cells, which is then answered when a cell is derived;
    ``whole`` where it waits until all of them are there. ``kinds`` of runs, or their tags, for which it makes
    sense (:mod:`dbdyno.model.plan.kinds`); empty: all.
    """

    function: Function
    claims: tuple[str, ...]
    of: Scope
    kinds: tuple[str, ...]


_REGISTERED: list[Check] = []


def check(*claims: str, of: Scope = "cells", kinds: tuple[str, ...] = ()) -> Callable[[Function], Function]:
    """Registers a function as the check that may yield these claims; see :class:`Check`."""

    def register(function: Function) -> Function:
        _REGISTERED.append(Check(function, claims, of, kinds))
        return function

    return register


def checks(kind: Kind) -> list[Check]:
    """Returns all registered checks of a kind of run, in the order of the catalogue. Raises KeyError with the
    claim that the catalogue lacks."""
    place = {id: n for n, id in enumerate(entries())}
    return sorted((c for c in _REGISTERED if kind.among(c.kinds)), key=lambda c: place[c.claims[0]])
