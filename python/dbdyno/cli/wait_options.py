"""Options that let a run wait before it begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dbdyno import conduct
from dbdyno.cli.flags import Option
from dbdyno.model.plan.flags import MEASUREMENT

if TYPE_CHECKING:
    from dbdyno.conduct.before import Quiet

_F = TypeVar("_F", bound=Callable[..., Any])


def _quiet(_context: click.Context, _option: click.Parameter, value: str | None) -> Quiet | None:
    return None if value is None else conduct.parse_quiet(value)


def wait_options(f: _F) -> _F:
    """Adds ``--wait`` and ``--wait-quiet``."""
    f = click.option(
        "--wait-quiet",
        cls=Option,
        group=MEASUREMENT,
        metavar="SHARE[,TIME]",
        callback=_quiet,
        help="Wait until other processes use less than this share of the CPUs: 5%, or 5%,30min. If they "
        "still use more after TIME (10min), nothing is measured, and the exit code is 2.",
    )(f)
    return click.option(
        "--wait",
        cls=Option,
        group=MEASUREMENT,
        is_flag=True,
        help="Wait for the end of other runs of this user on this machine.  [default: only a warning]",
    )(f)
