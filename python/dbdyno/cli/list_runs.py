"""``dbdyno runs``: what is in the store, by ``run.json`` of each run; nothing that takes time is loaded."""

from __future__ import annotations

from pathlib import Path

import click

from dbdyno.cli.options import json_option, print_json, store_option
from dbdyno.cli.text_table import aligned, width
from dbdyno.model.units import format_ns
from dbdyno.store.listing import Listed, default_root, list_runs


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
        heads = ("run", "started (UTC)", "lasted", "status")
        for line in aligned(heads, [_row(run) for run in found], [False] * len(heads), width()):
            click.echo(line)


def _row(run: Listed) -> tuple[str, str, str, str]:
    lasted = format_ns((run.ended - run.started).total_seconds() * 1e9) if run.ended else ""
    status = run.status + (f": {run.reason}" if run.reason else "")
    return run.id, f"{run.started:%Y-%m-%d %H:%M:%S}", lasted, status
