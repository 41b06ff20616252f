"""``dbdyno workload``: lists workloads; makes and removes the tables that some need."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dbdyno import conduct, drive
from dbdyno.cli import screen
from dbdyno.cli.app import Commands
from dbdyno.cli.config import is_quiet
from dbdyno.cli.flags import Grouped, Option
from dbdyno.cli.options import bin_dir_option, dsn_option, engine_option, json_option, print_json
from dbdyno.cli.recipes import workloads
from dbdyno.engines import DEFAULT, open_server
from dbdyno.model.errors import EXIT_INTERRUPTED, UsageError
from dbdyno.model.plan.flags import SERVER
from dbdyno.model.units import NS_PER_S, counted, format_ns, format_rate, format_size

if TYPE_CHECKING:
    from dbdyno.model.plan.table_making import TableOptions


@click.group(cls=Commands, invoke_without_command=True)
@click.pass_context
def workload(context: click.Context) -> None:
    """List workloads; make and remove the tables that some of them need.

    \b
    Examples:
      dbdyno workload                        the same as dbdyno workload list
      dbdyno workload prepare pgbench -s 10
    """
    if context.invoked_subcommand is None:
        context.invoke(workloads, engine=None, as_json=False)


@workload.command("list")
@engine_option("System whose workloads are listed.")
@json_option
@click.pass_context
def list_command(context: click.Context, engine: str | None, as_json: bool) -> None:
    """List the workloads that can be run, with their parameters.

    \b
    Examples:
      dbdyno workload list
      dbdyno workload list --json
    """
    context.invoke(workloads, engine=engine, as_json=as_json)


_GROUPS = {
    "Tables": (
        *("scale", "warehouses", "fillfactor", "partitions", "partition_method", "unlogged", "foreign_keys"),
        *("tablespace", "index_tablespace"),
    ),
    "Loading": ("workers", "seed", "replace", "no_vacuum"),
    SERVER: ("dsn", "bin_dir", "engine"),
}
"""Heading of the help -> parameters."""


@workload.command(cls=Grouped, groups=_GROUPS)
@click.argument("name")
@click.option(
    "-s",
    "--scale",
    cls=Option,
    metavar="N",
    type=click.IntRange(1, 2_000_000),
    default=1,
    show_default=True,
    help="Scale factor: rows.",
)
@click.option(
    "--warehouses",
    cls=Option,
    metavar="N",
    type=click.IntRange(1, 100_000),
    help="Warehouses of order-entry.  [default: 100]",
)
@click.option(
    "--fillfactor",
    cls=Option,
    metavar="N",
    type=click.IntRange(10, 100),
    default=100,
    show_default=True,
    help="Fill factor of the tables, 10 to 100 %.",
)
@click.option(
    "--partitions",
    cls=Option,
    metavar="N",
    type=click.IntRange(0, 10_000),
    default=0,
    show_default=True,
    help="Partitions of the largest table; 0: none.",
)
@click.option(
    "--partition-method",
    type=click.Choice(["range", "hash"]),
    default="range",
    show_default=True,
    help="How it is partitioned.",
)
@click.option("--unlogged", is_flag=True, help="Create unlogged tables.")
@click.option("--foreign-keys", is_flag=True, help="Create foreign keys.")
@click.option("--tablespace", metavar="NAME", help="Tablespace of the tables.")
@click.option("--index-tablespace", metavar="NAME", help="Tablespace of the indexes.")
@click.option("--no-vacuum", is_flag=True, help="Do not vacuum and analyze.")
@click.option(
    "--workers",
    cls=Option,
    metavar="N",
    type=click.IntRange(1, 256),
    help="Connections that load.  [default: one per CPU, at most 8]",
)
@click.option("--seed", metavar="N", type=int, default=42, show_default=True, help="Seed of random content.")
@click.option("--replace", is_flag=True, help="Drop existing tables of the same names first.")
@engine_option("System to load.")
@dsn_option
@bin_dir_option
@json_option
def prepare(
    name: str,
    engine: str | None,
    dsn: str | None,
    bin_dir: Path | None,
    no_vacuum: bool,
    warehouses: int | None,
    workers: int | None,
    as_json: bool,
    **chosen: int | str | bool | None,
) -> None:
    """Create and load the tables of workload NAME.

    The tables are created in the first schema of search_path and loaded over several connections at a time,
    with the same content for any number of them; then they are vacuumed and get their indexes. Those of
    pgbench are the same as pgbench -i makes. Tables that this command made with the same options stay as they
    are. After Ctrl-C or an error, what was made is removed; tables that --replace dropped are not restored.

    \b
    Examples:
      dbdyno workload prepare pgbench -s 100
      dbdyno workload prepare order-entry -s 4 --warehouses 10
      dbdyno workload prepare pgbench -s 1000 --partitions 8 \\
          --dsn postgresql://app@db1/bench
    """
    from dbdyno.model.engine.protocols import Target
    from dbdyno.model.plan.table_making import TableOptions

    if (chosen["partitions"] or 0) == 0 and chosen["partition_method"] == "hash":
        raise UsageError("--partition-method hash without --partitions", "say how many: --partitions 8")
    parameters = {} if warehouses is None else {"warehouses": warehouses}
    options = TableOptions(workers=workers or 0, vacuum=not no_vacuum, parameters=parameters, **chosen)  # type: ignore[arg-type]
    interrupt, line = drive.Interrupt(), _Line(as_json)
    with interrupt.caught():
        try:
            with open_server(engine or DEFAULT, Target(dsn=dsn, bin_dir=bin_dir)) as server:
                tables = conduct.make_tables(server, name, options, interrupt, line, _report_removal)
        except drive.Interrupted:
            raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
        finally:
            line.end()
    _print(name, options, tables, as_json)


@workload.command()
@click.argument("name")
@engine_option("System to remove them from.")
@dsn_option
@bin_dir_option
def drop(name: str, engine: str | None, dsn: str | None, bin_dir: Path | None) -> None:
    """Remove the tables that dbdyno workload prepare made, and no others.

    \b
    Examples:
      dbdyno workload drop pgbench
    """
    from dbdyno.model.engine.protocols import Target, needed

    with open_server(engine or DEFAULT, Target(dsn=dsn, bin_dir=bin_dir)) as server:
        names = needed(server.tables, "prepare tables").drop(name)
    click.echo(f"removed: {', '.join(names)}" if names else "nothing to remove")


def _report_removal(words: str) -> None:
    click.echo(f"\n{words}", err=True)


class _Line:
    """Shows progress on one line of a terminal; nothing elsewhere."""

    def __init__(self, as_json: bool) -> None:
        console = screen.err()
        self._console = None if as_json or not console.is_terminal or is_quiet() else console

    def __call__(self, step: str, rows: int, total: int, sent: int, seconds: float) -> None:
        if self._console is None:
            return
        left = seconds * (total - rows) / rows if rows else 0.0
        eta = f", {format_ns(left * NS_PER_S)} left" if 0 < rows < total else ""
        line = f"{step}: {rows:,} of {total:,} rows, {format_size(sent / seconds)}/s{eta}"
        click.echo(f"\r\x1b[K{line}" if rows < total else f"\r\x1b[K{step}", nl=False, err=True)

    def end(self) -> None:
        if self._console is not None:
            click.echo("\r\x1b[K", nl=False, err=True)


def _print(name: str, options: TableOptions, result: conduct.MadeTables, as_json: bool) -> None:
    tables = [t._asdict() for t in result.tables]
    rows, sent = sum(t.rows for t in result.tables), sum(t.loaded_bytes for t in result.tables)
    if as_json:
        facts = {"workload": name, "scale": options.scale, "seed": options.seed, "created": result.new}
        times = {"workers": result.workers, "rows": rows, "loaded_bytes": sent, "seconds": result.seconds}
        print_json(facts | times | {"steps": result.steps, "tables": tables})
        return
    if not result.new:
        click.echo("the tables are there already, made with these options; --replace makes them anew")
    for t in result.tables:
        click.echo(f"{t.name:<20} {t.rows:>14,} rows {format_size(t.size_bytes):>12}")
    if result.new:
        parts = ", ".join(f"{step} {format_ns(seconds * NS_PER_S)}" for step, seconds in result.steps.items())
        speed = f"{format_rate(rows / result.seconds)} rows/s, {format_size(sent / result.seconds)}/s"
        click.echo(
            f"{counted(rows, 'row')} in {format_ns(result.seconds * NS_PER_S)} over "
            f"{counted(result.workers, 'connection')}: {speed} ({parts})"
        )
