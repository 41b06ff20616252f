"""Stored runs: show, profile, report, export, rebuild, rm."""

from __future__ import annotations

from pathlib import Path

import click

from dbdyno import conduct, present
from dbdyno.cli import screen
from dbdyno.cli.cells import cell_options, chosen_cell
from dbdyno.cli.options import json_option, open_store, print_json, run_argument, store_option

_PARTS = ("profile", "events", "microstates", "witnesses")
"""Options of ``show``, each printed by a function of the room present."""


@click.command()
@run_argument
@click.option("--profile", is_flag=True, help="Load profile and top events.")
@click.option("--events", is_flag=True, help="Every wait event: time asleep and in the run queue.")
@click.option(
    "--microstates", is_flag=True, help="Time of every process: USR, SYS, CPU WAIT, I/O, lock, sleep."
)
@click.option("--witnesses", is_flag=True, help="Cross-check of data sources.")
@cell_options
@store_option
@json_option
def show(
    run: str,
    cell: str | None,
    rung: int | None,
    window: int | None,
    store: Path | None,
    as_json: bool,
    **parts: bool,
) -> None:
    """Show the results of a run: throughput by load, where the time went, findings.

    RUN is an id, the beginning of one, or "last". With one of the options: that table instead, of the top
    rung, of all windows of an observation, or of the cell that is named.

    \b
    Examples:
      dbdyno show last
      dbdyno show last --events --microstates
      dbdyno show last --events --rung 8
      dbdyno show 20261121-1045 --json | jq .rungs
    """
    results = conduct.results_of(open_store(store).open(run))
    chosen = chosen_cell(results, cell, rung, window)
    wanted = [name for name in _PARTS if parts[name]]
    if chosen is not None and not wanted:
        wanted = list(_PARTS)
    if as_json:
        print_json(present.document(results))
    elif not wanted:
        screen.out().print(present.summary(results))
    for name in () if as_json else wanted:
        screen.out().print(getattr(present, f"{name}_text")(results, chosen))


@click.command()
@run_argument
@cell_options
@store_option
@json_option
def profile(
    run: str, cell: str | None, rung: int | None, window: int | None, store: Path | None, as_json: bool
) -> None:
    """Print a run's load profile: DB time, DB CPU, CPU WAIT, reads, writes per second, transaction and call.

    With the top ten events, where DB CPU and CPU WAIT are ranked rows and each event shows what its label
    hid in the run queue. Of the top rung, of all windows of an observation, or of the cell that is named.

    \b
    Examples:
      dbdyno profile last
      dbdyno profile last --rung 8
      dbdyno profile last --window 3
      dbdyno profile last --json | jq .top_events
    """
    results = conduct.results_of(open_store(store).open(run))
    chosen = chosen_cell(results, cell, rung, window)
    if as_json:
        document = present.document(results)
        tables = {name: document[name] for name in ("profile", "top_events")}
        if chosen is not None:
            tables = {n: [row for row in rows if row["cell"] == chosen] for n, rows in tables.items()}
        print_json({"run": document["run"], **tables})
    else:
        screen.out().print(present.profile_text(results, chosen))


@click.command("report")
@run_argument
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="File to write.")
@store_option
def report_command(run: str, output: Path | None, store: Path | None) -> None:
    """Write a run's report: one HTML file, self-contained, readable offline.

    \b
    Examples:
      dbdyno report last -o lio.html
      dbdyno report 20261121-104501-lio-3f9a
    """
    record = open_store(store).open(run)
    path = output if output is not None else record.path / "report.html"
    click.echo(present.write_html(conduct.results_of(record), path))


@click.command()
@run_argument
@click.option(
    "--to",
    "kind",
    required=True,
    type=click.Choice(["csv", "xlsx", "parquet", "json"]),
    help="Format.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="File or folder.  [default: RUN.KIND here]"
)
@store_option
def export(run: str, kind: str, output: Path | None, store: Path | None) -> None:
    """Export a run's tables: csv and parquet as a folder, xlsx with charts, json as one document.

    \b
    Examples:
      dbdyno export last --to xlsx
      dbdyno export last --to csv -o tables/
    """
    record = open_store(store).open(run)
    results = conduct.results_of(record)
    path = (
        output
        if output is not None
        else Path(record.id if kind in ("csv", "parquet") else f"{record.id}.{kind}")
    )
    for written in present.export(results, conduct.raw_tables(record), kind, path):
        click.echo(written)


@click.command()
@run_argument
@store_option
@json_option
def rebuild(run: str, store: Path | None, as_json: bool) -> None:
    """Make windows, ledger, findings and report of a run anew from its raw data.

    \b
    Examples:
      dbdyno rebuild last
    """
    results, path = conduct.rebuild(open_store(store).open(run))
    if as_json:
        print_json(present.document(results))
    else:
        screen.out().print(present.summary(results))
        screen.say(f"report: {path}")


@click.command("rm")
@click.argument("run", metavar="RUN")
@store_option
def remove(run: str, store: Path | None) -> None:
    """Remove a run from the store. Of a link to a run only the link goes.

    \b
    Examples:
      dbdyno rm 20261121-104501-lio-3f9a
    """
    click.echo(f"removed {open_store(store).remove(run)}")
