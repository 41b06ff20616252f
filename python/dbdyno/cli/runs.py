"""Stored runs: runs, show, report, export, rebuild."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from dbdyno import conduct, report
from dbdyno.cli import screen
from dbdyno.cli.options import json_option, open_store, print_json, run_argument, store_option
from dbdyno.model.errors import StoreError


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
    infos = open_store(store).list()
    if as_json:
        print_json([i.model_dump(mode="json", exclude={"workloads", "calibrations"}) for i in infos])
    else:
        screen.runs_table(infos, open_store(store).root)


@click.command()
@run_argument
@store_option
@json_option
def show(run: str, store: Path | None, as_json: bool) -> None:
    """Show a run: its table of rungs, where the time went, the findings.

    RUN is an id, the beginning of one, or "last".

    \b
    Examples:
      dbdyno show last
      dbdyno show 20261121-1045 --json | jq .rungs
    """
    results = conduct.results_of(open_store(store).open(run))
    if as_json:
        print_json(report.document(results))
    else:
        screen.out().print(report.summary(results))


@click.command("report")
@run_argument
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write it there.")
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
    click.echo(report.write_html(conduct.results_of(record), path))


@click.command()
@run_argument
@click.option(
    "--to",
    "kind",
    required=True,
    type=click.Choice(["csv", "xlsx", "parquet", "json"]),
    help="What to write.",
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
    for written in report.export(results, conduct.raw_tables(record), kind, path):
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
        print_json(report.document(results))
    else:
        screen.out().print(report.summary(results))
        screen.say(f"report: {path}")


@click.command("rm")
@click.argument("run", metavar="RUN")
@store_option
def remove(run: str, store: Path | None) -> None:
    """Remove a run from the store.

    \b
    Examples:
      dbdyno rm 20261121-104501-lio-3f9a
    """
    record = open_store(store).open(run)
    if record.info.status == "running":
        raise StoreError(f"run {record.id} is still running", "stop it first, or wait")
    shutil.rmtree(record.path)
    click.echo(f"removed {record.id}")


COMMANDS = (runs, show, report_command, export, rebuild, remove)
