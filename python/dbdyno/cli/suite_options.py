"""Options of `dbdyno run` for suites of small benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import click

from dbdyno.cli import completion
from dbdyno.cli.flags import Option
from dbdyno.model.plan.flags import WHAT

_F = TypeVar("_F", bound=Callable[..., Any])


def suite_options(f: _F) -> _F:
    option = partial(click.option, cls=Option, group=WHAT)
    f = option("--list", "list_suite", is_flag=True, help="List the suites, or the benchmarks of --suite.")(f)
    f = option(
        "--only",
        metavar="NAME,NAME",
        shell_complete=completion.BENCHMARKS,
        help="Only these benchmarks of the suite.",
    )(f)
    return option(
        "--suite",
        metavar="NAME",
        common=True,
        shell_complete=completion.SUITES,
        help="Run a suite of small benchmarks, each a run of its own; the result is a matrix of benchmarks "
        "by variants (dbdyno help suite).",
        brief="Run a suite of small benchmarks: micro. --list lists them.",
    )(f)
