"""Makes the findings of a run from its tables, by all registered checks (:mod:`dbdyno.conclude.checking`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules

import polars as pl

import dbdyno.conclude.commands.commands
import dbdyno.conclude.compare.cpu_profile
import dbdyno.conclude.regression.requests
import dbdyno.conclude.run
import dbdyno.conclude.scaling.capacity
import dbdyno.conclude.scaling.cpu_wait
from dbdyno.conclude.checking import Check, checks
from dbdyno.conclude.ladder.ladders import ABOUT_COMMANDS, in_doubt
from dbdyno.conclude.run import coverage
from dbdyno.conclude.run.case import Case, Facts
from dbdyno.model.engine.environment import Environment
from dbdyno.model.plan.kinds import kind_of, speaking_of
from dbdyno.model.plan.plan import Plan, Workload
from dbdyno.model.results.claim import Claim, disturbed_cells

for _module in iter_modules(dbdyno.conclude.run.__path__, "dbdyno.conclude.run."):
    import_module(_module.name)  # those imported above are the only ones elsewhere that register checks

_ORDER = ("invalid", "warning", "note", "good")


def _checks(plan: Plan) -> list[Check]:
    return checks(kind_of(plan))


def doubted(claims: Iterable[Claim]) -> Iterator[Claim]:
    """Yields the claims, those that compare commands with a doubt if others took much of the CPUs."""
    claims = list(claims)
    disturbed = disturbed_cells(claims)
    for c in claims:
        rests = c.id in ABOUT_COMMANDS and disturbed and (not c.cells or not disturbed.isdisjoint(c.cells))
        yield in_doubt(c, "") if rests else c


def asked(
    plan: Plan,
    environment: Environment,
    tables: Mapping[str, pl.DataFrame],
    workloads: Mapping[str, Workload],
) -> Facts:
    """Returns the facts that the checks need of these cells one by one, from the same tables as
    :func:`findings`."""
    case = Case(plan, environment, tables, workloads)
    claims = [claim for c in _checks(plan) if c.of == "cells" for claim in c.drawn(case)]
    for _ in coverage.too_few(case, claims):
        pass  # a generator asks for its facts as it runs; the claims themselves are made at the end
    return case.facts


def findings(
    plan: Plan,
    environment: Environment,
    tables: Mapping[str, pl.DataFrame],
    workloads: Mapping[str, Workload],
    facts: Facts | None = None,
    load: Callable[[str], Mapping[str, pl.DataFrame]] | None = None,
) -> tuple[Claim, ...]:
    """Returns all findings from the tables of windows, ledger and ``rungs``: the gravest first, those of one
    severity in the order of the catalogue.

    ``facts`` are known facts of single cells; facts that the checks need beyond them are added. With complete
    facts ``tables`` need not hold the tables that only checks of single cells read; ``load`` derives those of
    one cell again if they are needed.
    """
    case = Case(plan, environment, tables, workloads, {} if facts is None else facts, load)
    with speaking_of(kind_of(plan)):
        claims = [claim for c in _checks(plan) for claim in c.drawn(case)]
        claims += coverage.too_few(case, claims)
        return tuple(sorted(doubted(claims), key=lambda c: _ORDER.index(c.severity)))
