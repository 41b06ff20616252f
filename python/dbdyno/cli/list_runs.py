"""``dbdyno runs``: what is in the store, by the JSON files of each run; nothing that takes time is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from dbdyno.cli.options import json_option, print_json, store_option
from dbdyno.cli.text_table import aligned, width
from dbdyno.model.units import format_ns, format_rate
from dbdyno.store.listing import Listed, Outline, default_root, list_runs, outline

_HEADS = ("run", "lasted", "sessions", "peak", "status", "server")
_LISTED = 5  # numbers of sessions; of more the first and the last


@click.command()
@store_option
@json_option
def runs(store: Path | None, as_json: bool) -> None:
    """List the runs of the store, oldest first.

    \b
    Examples:
      dbdyno runs
      dbdyno runs --json | jq -r '.[].id'
    """
    root = default_root() if store is None else store
    found = list_runs(root)
    if as_json:
        print_json([dict(run.document) for run in found])
    elif not found:
        click.echo(f"no runs in {root}; make one: dbdyno run lio")
    else:
        for line in _table([_row(run, outline(run.path)) for run in found], width()):
            click.echo(line)


def _table(rows: Sequence[Sequence[str]], columns: int | None) -> list[str]:
    """In ``columns`` columns: a terminal too narrow for all goes without the duration."""
    lines = aligned(_HEADS, rows, [False] * len(_HEADS), columns)
    if columns is not None and max(map(len, lines)) > columns:
        heads, *rest = ([cell for head, cell in zip(_HEADS, row, strict=True) if head != "lasted"]
                        for row in (_HEADS, *rows))  # fmt: skip
        lines = aligned(heads, rest, [False] * len(heads), columns)
    return lines


def _row(run: Listed, seen: Outline) -> tuple[str, ...]:
    """The id begins with the start in UTC."""
    lasted = format_ns((run.ended - run.started).total_seconds() * 1e9) if run.ended else ""
    sessions = ", ".join(map(str, seen.sessions))
    if len(seen.sessions) > _LISTED:
        sessions = f"{seen.sessions[0]} to {seen.sessions[-1]}"
    peak = "" if seen.peak is None else f"{format_rate(seen.peak)} calls/s"
    return run.id, lasted, sessions, peak, run.status, "; ".join(filter(None, (seen.server, run.reason)))
