"""``dbdyno demo``: the shortest road to a first page."""

from __future__ import annotations

import os
from pathlib import Path

import click

from dbdyno.cli import screen
from dbdyno.cli.browser import open_option
from dbdyno.cli.options import bin_dir_option, dsn_option, store_option
from dbdyno.cli.run import run

_RECIPE = "demo"
_MANY_CPUS = 4
"""With more CPUs all load levels up to four times the CPUs would take longer than a minute."""
_TOP = 128
_NEXT = (
    ("dbdyno open last", "this page in the browser"),
    ("dbdyno show last --profile", "where session time went, by wait"),
    ('dbdyno run lio --dsn "host=HOST dbname=DB"', "the same load on your server"),
    ('dbdyno observe --dsn "host=HOST dbname=DB"', "an existing workload, live"),
)


@click.command()
@dsn_option
@bin_dir_option
@open_option
@store_option
@click.pass_context
def demo(
    context: click.Context, dsn: str | None, bin_dir: Path | None, open_page: bool, store: Path | None
) -> None:
    """Measure PostgreSQL for less than a minute, and write a first report.

    Starts the embedded PostgreSQL, runs the recipe demo (logical I/O with one session, then more and more),
    stops the server again, and prints the answer and the path of the report. Needs no database; with --dsn or
    --pg-bin it takes yours.

    \b
    Examples:
      dbdyno demo
      dbdyno demo --open
      dbdyno demo --pg-bin /usr/lib/postgresql/17/bin
    """
    cpus = len(os.sched_getaffinity(0))
    levels = _fewer_levels(cpus) if cpus > _MANY_CPUS else {}
    context.invoke(run, recipe=_RECIPE, dsn=dsn, bin_dir=bin_dir, store=store, open_page=open_page, **levels)
    screen.say("\nNext:")
    width = max(len(command) for command, _ in _NEXT)
    for command, what in _NEXT:
        screen.say(f"  {command:{width}}  {what}")


def _fewer_levels(cpus: int) -> dict[str, str]:
    """Returns options that keep the demo below a minute on a machine with many CPUs."""
    top = min(2 * cpus, _TOP)
    return {"sessions": ",".join(map(str, (1, *(top // n for n in (8, 4, 2, 1))))), "measure": "4s"}
