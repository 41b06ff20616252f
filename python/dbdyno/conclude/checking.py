"""Registers checks. A check answers one question about a run and is registered beside its function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from dbdyno.conclude.catalogue import claim, entries
from dbdyno.model.errors import DbdynoError
from dbdyno.model.results.claim import Claim
from dbdyno.model.text.visible import shortened

if TYPE_CHECKING:
    from dbdyno.conclude.run.case import Case
    from dbdyno.model.plan.kinds import Kind

Function = Callable[["Case"], Iterator[Claim]]
Scope = Literal["cells", "whole"]


class Check(NamedTuple):
    """A registered check.

    ``claims`` are the ids of the catalogue that the check may yield; the first gives its place in the order.
    ``of`` is ``cells`` if the check needs facts of single cells, which are recorded when a cell is derived,
    and ``whole`` if it needs all cells at once. ``kinds`` names the kinds of runs, or their tags, for which
    the check makes sense (:mod:`dbdyno.model.plan.kinds`); empty means all.
    """

    function: Function
    claims: tuple[str, ...]
    of: Scope
    kinds: tuple[str, ...]

    def drawn(self, case: Case) -> Iterator[Claim]:
        """Yields the claims. An error in the check's own code becomes a claim that names it, so that it does
        not cost the other claims and the figures."""
        try:
            yield from self.function(case)
        except DbdynoError:
            raise
        except Exception as e:
            if RAISES:
                raise
            why = f"{type(e).__name__}: {shortened(str(e), 200)}"
            yield claim("claim-failed", {"id": self.claims[0], "why": why}, each=self.claims[0])


RAISES = False
"""Whether an error in a check's code is raised: so it is in tests."""
_REGISTERED: list[Check] = []


def check(*claims: str, of: Scope = "cells", kinds: tuple[str, ...] = ()) -> Callable[[Function], Function]:
    """Registers a function as the check that may yield these claims; see :class:`Check`."""

    def register(function: Function) -> Function:
        _REGISTERED.append(Check(function, claims, of, kinds))
        return function

    return register


def checks(kind: Kind) -> list[Check]:
    """Returns all registered checks of a kind of run, in the order of the catalogue. Raises KeyError with the
    id if the catalogue lacks a claim."""
    place = {id: n for n, id in enumerate(entries())}
    return sorted((c for c in _REGISTERED if kind.among(c.kinds)), key=lambda c: place[c.claims[0]])
