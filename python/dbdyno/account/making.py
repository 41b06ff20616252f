"""The registry of makers: functions that make derived tables. What each reads gives the order.

A maker takes what it needs by the names of its parameters: ``cells``, ``plan``, ``environment`` and whatever
else the caller gives; the table of that name; or ``tables``, all of them. Of the tables that are made at its
own stage it may read those alone that ``reads``, or a parameter, names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from inspect import Parameter, signature
from pkgutil import walk_packages
from typing import Any, Literal, NamedTuple, TypeVar

import polars as pl

import dbdyno.account
from dbdyno.model.schema.tables import REGISTERED

Stage = Literal["cut", "cells", "run", "total", "end"]
"""``cut``: from raw cells, before all others; ``cells``: from these, cell by cell; ``run``: from all cells of
a run; ``total``: rows of all repeats of a load together, which are appended; ``end``: in place of a table,
once its totals are in it."""
_ORDERED = ("cells", "run")
"""Stages whose makers read each other's tables. Totals are made of tables without totals."""
_F = TypeVar("_F", bound=Callable[..., Any])


class Maker(NamedTuple):
    """A function, the tables that it makes (one as a frame, several as a mapping or in that order), and the
    tables of the same stage that it reads."""

    function: Callable[..., Any]
    makes: tuple[str, ...]
    reads: frozenset[str]
    stage: Stage


_REGISTERED: list[Maker] = []


def makes(*tables: str, reads: tuple[str, ...] = (), stage: Stage = "cells") -> Callable[[_F], _F]:
    """Registers a function as the maker of these tables. Raises ValueError if a table has no record, has
    another maker of that stage, or totals that its record does not know of."""

    def register(function: _F) -> _F:
        for name in (*tables, *reads):
            if name not in REGISTERED:
                raise ValueError(f"{function.__qualname__}: no record of a table {name}")
        for name in tables:
            if any(name in m.makes for m in _REGISTERED if m.stage == stage):
                raise ValueError(f"{function.__qualname__}: {name} would have two makers")
            if stage == "total" and not REGISTERED[name].together:
                raise ValueError(f"{function.__qualname__}: the record of {name} says it has no totals")
        named = {p for p in signature(function).parameters if p in REGISTERED}
        _REGISTERED.append(Maker(function, tables, frozenset((*reads, *named)), stage))
        return function

    return register


def load_makers() -> None:
    """Imports the modules of this room, which registers their makers."""
    for module in walk_packages(dbdyno.account.__path__, "dbdyno.account."):
        import_module(module.name)


def made_at(stage: Stage) -> frozenset[str]:
    """Returns the names of the tables that are made at a stage."""
    return frozenset(name for maker in _REGISTERED if maker.stage == stage for name in maker.makes)


def in_order(stage: Stage) -> list[Maker]:
    """Returns the makers of a stage, each after those whose tables it reads. Raises ValueError naming the
    tables that need each other."""
    makers = [m for m in _REGISTERED if m.stage == stage]
    if stage not in _ORDERED:
        return makers
    by_table = {name: n for n, maker in enumerate(makers) for name in maker.makes}
    needs = {
        n: {by_table[t] for t in maker.reads if t in by_table} - {n}  # its own: as the stage before left it
        for n, maker in enumerate(makers)
    }
    try:
        return [makers[n] for n in TopologicalSorter(needs).static_order()]
    except CycleError as error:
        around = " reads ".join(makers[n].makes[0] for n in reversed(error.args[1]))
        raise ValueError(f"tables that need each other: {around}") from error


def make(
    stage: Stage, tables: Mapping[str, pl.DataFrame], given: Mapping[str, Any]
) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yields the tables of a stage by name. ``tables`` is what makers read: whoever calls adds each to it
    before the next is asked for. ``given``: further values by the names of parameters."""
    for maker in in_order(stage):
        called = _Call(maker, tables, given)
        result = maker.function(**called.arguments)
        if isinstance(result, pl.DataFrame):
            yield maker.makes[0], result
        elif isinstance(result, Mapping):
            yield from result.items()
        else:
            yield from zip(maker.makes, result, strict=True)


class UndeclaredRead(RuntimeError):
    """A maker read a table that its registration does not name: the order would be left to chance."""


class _Call(NamedTuple):
    maker: Maker
    tables: Mapping[str, pl.DataFrame]
    given: Mapping[str, Any]

    @property
    def arguments(self) -> dict[str, Any]:
        ordered = self.maker.stage in _ORDERED
        declared = _Declared(self.tables, self.maker) if ordered else self.tables
        found: dict[str, Any] = {"tables": declared, **self.given}
        parameters = signature(self.maker.function).parameters
        return {
            name: found[name] if name in found else declared[name]
            for name, parameter in parameters.items()
            if name in found or parameter.default is Parameter.empty
        }


class _Declared(Mapping[str, pl.DataFrame]):
    """The tables of earlier stages, and those of its own that a maker says it reads."""

    def __init__(self, tables: Mapping[str, pl.DataFrame], maker: Maker) -> None:
        self._tables, self._maker = tables, maker
        self._hidden = made_at(maker.stage) - maker.reads - set(maker.makes)

    def __getitem__(self, table: str) -> pl.DataFrame:
        self._check(table)
        return self._tables[table]

    def __contains__(self, table: object) -> bool:
        self._check(table)
        return table in self._tables

    def __iter__(self) -> Iterator[str]:
        return (table for table in self._tables if table not in self._hidden)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _check(self, table: object) -> None:
        if table in self._hidden:
            raise UndeclaredRead(f"the maker of {self._maker.makes[0]} reads {table}, which it does not name")
