"""The registry of makers: functions that make derived tables. Their order follows from the tables they read.

A maker takes its inputs by the names of its parameters: ``cells``, ``plan``, ``environment`` and other
values of the caller; a table by its name; or ``tables``, all of them. Of the tables made at its own stage,
it may read only those that ``reads`` or a parameter names.
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
"""Stages whose makers read each other's tables. Makers of totals read only tables without totals."""
_F = TypeVar("_F", bound=Callable[..., Any])


class Maker(NamedTuple):
    """A function, the tables that it makes, and the tables of the same stage that it reads. It returns one
    table as a frame, several as a mapping or in the order of ``makes``."""

    function: Callable[..., Any]
    makes: tuple[str, ...]
    reads: frozenset[str]
    stage: Stage


_REGISTERED: list[Maker] = []


def makes(*tables: str, reads: tuple[str, ...] = (), stage: Stage = "cells") -> Callable[[_F], _F]:
    """Registers a function as the maker of these tables. Raises ValueError if a table has no record,
    already has a maker at that stage, or has totals that its record does not declare."""

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
        n: {by_table[t] for t in maker.reads if t in by_table}
        - {n}  # its own table is read as the stage before left it
        for n, maker in enumerate(makers)
    }
    try:
        return [makers[n] for n in TopologicalSorter(needs).static_order()]
    except CycleError as error:
        around = " reads ".join(makers[n].makes[0] for n in reversed(error.args[1]))
        raise ValueError(f"tables that need each other: {around}") from error


def make(
    stage: Stage, tables: Mapping[str, pl.DataFrame], given: Mapping[str, Any], only: str = ""
) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yields the tables of a stage by name. Makers read from ``tables``; the caller adds each table to it
    before asking for the next. ``given``: further values by the names of parameters. ``only``: the table
    whose maker is called, by default all."""
    for maker in in_order(stage):
        if only and only not in maker.makes:
            continue
        called = _Call(maker, tables, given)
        result = maker.function(**called.arguments)
        if isinstance(result, pl.DataFrame):
            yield maker.makes[0], result
        elif isinstance(result, Mapping):
            yield from result.items()
        else:
            yield from zip(maker.makes, result, strict=True)


class UndeclaredRead(RuntimeError):
    """A maker read a table that its registration does not name, so its order would be left to chance."""


class _Call(NamedTuple):
    maker: Maker
    tables: Mapping[str, pl.DataFrame]
    given: Mapping[str, Any]

    @property
    def arguments(self) -> dict[str, Any]:
        ordered = self.maker.stage in _ORDERED
        declared = _Declared(self.tables, self.maker) if ordered else self.tables
        values: dict[str, Any] = {"tables": declared, **self.given}
        parameters = signature(self.maker.function).parameters
        return {
            name: values[name] if name in values else declared[name]
            for name, parameter in parameters.items()
            if name in values or parameter.default is Parameter.empty
        }


class _Declared(Mapping[str, pl.DataFrame]):
    """The tables of earlier stages, and those of the maker's own stage that it declares to read."""

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
