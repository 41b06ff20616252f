"""The CPU profile of a stored run: ``dbdyno hot`` and ``dbdyno flame``."""

from __future__ import annotations

from pathlib import Path

import click

from dbdyno import conduct, present
from dbdyno.cli import screen
from dbdyno.cli.options import json_option, open_store, print_json, run_argument, store_option
from dbdyno.cli.runs import chosen, measurement_options


@click.command()
@run_argument
@click.option(
    "--by",
    type=click.Choice(["function", "module", "session", "wait"]),
    default="function",
    show_default=True,
    help="What to add up.",
)
@click.option("--top", type=click.IntRange(1), default=20, show_default=True, help="Rows.")
@measurement_options
@store_option
@json_option
def hot(
    run: str,
    by: str,
    top: int,
    measurement: str | None,
    sessions: int | None,
    window: int | None,
    store: Path | None,
    as_json: bool,
) -> None:
    """Show which functions, modules, sessions or wait labels used the CPU.

    For runs with --profile. Samples are scaled to the exact CPU time of each process. CPU: without callees;
    total: with callees; 95 %: interval. Without options, for the highest number of sessions, or for all
    windows of an observation.

    \b
    Examples:
      dbdyno hot last
      dbdyno hot last --by module --sessions 8
      dbdyno hot last --json | jq '.function[0]'
    """
    results = conduct.results_of(open_store(store).open(run))
    shown, rows = present.hot(results, by, top, chosen(results, measurement, sessions, window))
    if as_json:
        print_json({"run": results.info.id, by: rows})
    else:
        screen.out().print(shown)


@click.command()
@run_argument
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="File: .html or .svg.")
@measurement_options
@store_option
def flame(
    run: str,
    output: Path | None,
    measurement: str | None,
    sessions: int | None,
    window: int | None,
    store: Path | None,
) -> None:
    """Write a flame graph of the CPU profile of a run.

    HTML: one file that loads nothing, with search and zoom. SVG: a drawing. For other programs: dbdyno export
    --to folded, pprof or firefox.

    \b
    Examples:
      dbdyno flame last
      dbdyno flame last --sessions 8 -o flame.svg
    """
    record = open_store(store).open(run)
    results = conduct.results_of(record)
    path = output if output is not None else Path(f"{record.id}-flame.html")
    click.echo(present.write_flame(results, path, chosen(results, measurement, sessions, window)))
