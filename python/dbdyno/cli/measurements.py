"""Options that choose one measurement of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dbdyno.model.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

    from dbdyno.model.results import Results

_F = TypeVar("_F", bound=Callable[..., Any])


def measurement_options(f: _F) -> _F:
    f = click.option("--window", type=int, metavar="N", help="Window N of an observation.")(f)
    f = click.option("--sessions", type=int, metavar="N", help="At N sessions.")(f)
    return click.option("--measurement", metavar="ID", help="One measurement, by its id.")(f)


def chosen(results: Results, measurement: str | None, sessions: int | None, window: int | None) -> str | None:
    """The cell's id; ``None``: none was chosen. The first good one of several repeats or variants.

    Raises :class:`UsageError` naming those that there are.
    """
    if sum(choice is not None for choice in (measurement, sessions, window)) > 1:
        raise UsageError("--measurement, --sessions and --window exclude each other", "give one of them")
    import polars as pl

    windows = results.tables["windows"].sort("t0_ns").sort(pl.col("status") == "invalid", maintain_order=True)
    if sessions is not None:
        return _first(windows, "sessions", sessions, "measurement at", "sessions")
    if window is not None:
        return _first(windows.filter(pl.col("sessions") == 0), "repeat", window, "window", "")
    if measurement is not None and measurement not in set(windows["cell"]):
        raise UsageError(
            f"the run has no measurement {measurement!r}", f"there are {_listed(windows['cell'].to_list())}"
        )
    return measurement


def _first(windows: pl.DataFrame, column: str, wanted: int, before: str, after: str) -> str:
    found = windows.filter(windows[column] == wanted)["cell"]
    if found.is_empty():
        there = sorted(set(windows[column].to_list()))
        raise UsageError(f"the run has no {before} {wanted} {after}".rstrip(), f"there are {_listed(there)}")
    return str(found[0])


def _listed(values: list[Any]) -> str:
    if not values:
        return "none"
    shown = ", ".join(str(v) for v in values[:12])
    return shown if len(values) <= 12 else f"{shown} ... {values[-1]}"
