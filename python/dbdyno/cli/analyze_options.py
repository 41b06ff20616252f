"""Options of ``dbdyno analyze`` that say what the columns of a file are, and what it was measured on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dbdyno.model.errors import UsageError
from dbdyno.model.units import parse_duration_ns

if TYPE_CHECKING:
    from dbdyno.model.scaling import Machine
    from dbdyno.store.ladder_csv import Columns

_F = TypeVar("_F", bound=Callable[..., Any])

_COLUMNS = {
    "load": "sessions, clients, threads, N",
    "throughput": "tps, rate, X",
    "response": "response time, mean",
    "response_p95": "response time, 95th percentile",
    "cpu": "CPU seconds per second",
    "repeat": "number of the repeat",
}


def column_options(f: _F) -> _F:
    """Which column is what, and how numbers are written."""
    f = click.option(
        "--where", metavar="COL=VALUE", multiple=True, help="Only lines with this value in this column."
    )(f)
    f = click.option("--decimal", type=click.Choice([".", ","]), help="Decimal sign.  [default: detected]")(f)
    f = click.option("--response-unit", metavar="s|ms|us|ns", help="Unit of response times without one.")(f)
    for name, what in reversed(_COLUMNS.items()):
        option = f"--{name.replace('_', '-')}"
        f = click.option(option, name, metavar="COL", help=f"Column of a file: {what}.")(f)
    return f


def machine_options(f: _F) -> _F:
    """What a file does not say."""
    f = click.option("--throughput-unit", metavar="UNIT", help="Unit of throughput: orders/s.")(f)
    f = click.option("--load-unit", metavar="UNIT", help="Unit of load: threads.")(f)
    f = click.option("--think", metavar="TIME", help="Think time between calls: 10ms.")(f)
    f = click.option("--threads-per-core", type=click.IntRange(1, 16), help="Hardware threads of a core.")(f)
    f = click.option("--cores", type=float, metavar="N", help="Cores of the measured machine.")(f)
    return click.option(
        "--cpus", type=float, metavar="N", help="CPUs (hardware threads) available to the system."
    )(f)


def columns_of(given: Mapping[str, Any]) -> Columns:
    """Raises UsageError: a --where without a value."""
    from dbdyno.store.ladder_csv import Columns

    where = {}
    for text in given["where"]:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise UsageError(f"--where {text!r}: not a condition", "write COLUMN=VALUE")
        where[name.strip()] = value
    names = {name: given[name] for name in (*_COLUMNS, "response_unit", "decimal")}
    return Columns(**names, where=where)


def machine_of(given: Mapping[str, Any]) -> Machine:
    """Of CPUs, cores and threads a core any two give the third. Raises UsageError: they contradict."""
    from dbdyno.model.scaling import Machine

    cpus, cores, threads = given["cpus"], given["cores"], given["threads_per_core"]
    for name, value in (("--cpus", cpus), ("--cores", cores)):
        if value is not None and not 0 < value < 1e6:
            raise UsageError(f"{name} {value:g}: not a possible number", "more than 0")
    if cpus and cores and cpus < cores:
        raise UsageError(
            f"{cpus:g} CPUs of {cores:g} cores", "CPUs are hardware threads: --cpus is the larger"
        )
    if cpus and cores and threads and cpus > cores * threads:
        raise UsageError(
            f"{cpus:g} CPUs are more than {cores:g} cores of {threads} threads", "leave one of the three out"
        )
    if cpus is None and cores and threads:
        cpus = cores * threads
    if cores is None and cpus and threads:
        cores = cpus / threads
    if threads is None and cpus and cores and (cpus / cores).is_integer():
        threads = int(cpus / cores)
    return Machine(cpus=cpus, cores=cores, threads_per_core=threads)


def think_s(given: Mapping[str, Any]) -> float | None:
    return None if given["think"] is None else parse_duration_ns(given["think"]) / 1e9


def of_files(given: Mapping[str, Any]) -> list[str]:
    """Options given that only a file takes."""
    return [f"--{name.replace('_', '-')}" for name, value in given.items() if value not in (None, ())]
