"""Options of paced load and think time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])
_MADE = (
    click.option(
        "-R",
        "--rate",
        metavar="CALLS/S",
        help="Begin calls at this rate whether or not earlier ones have ended: response times count from "
        "when a call was due (docs/paced.md).",
    ),
    click.option(
        "--rates",
        metavar="LADDER",
        help="Rates, over a fixed number of sessions: 100,200,400 | FROM:TO:STEP | FROM:TO:x1.5 | auto | "
        "auto:TOP. auto searches the highest rate that is delivered, or that meets the target.",
    ),
    click.option(
        "--arrivals",
        type=click.Choice(["poisson", "constant"]),
        help="With a rate: calls come at random, or at equal distances.  [default: poisson]",
    ),
    click.option(
        "-L",
        "--latency-limit",
        metavar="TIME",
        help="With a rate: drop a call that is due for longer than this, and count it; a number is "
        "milliseconds.  [default: none]",
    ),
    click.option(
        "--think",
        metavar="TIME",
        help="Think time between two calls of a session: 10ms, 'exponential 10ms', 'uniform 5ms 15ms'.  "
        "[default: none]",
    ),
)
RATE_OPTIONS = ("rate", "rates", "arrivals", "latency_limit", "think")


def rate_options(f: _F) -> _F:
    for option in reversed(_MADE):
        f = option(f)
    return f
