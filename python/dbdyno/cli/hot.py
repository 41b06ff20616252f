"""The CPU profile and the off-CPU stacks of a stored run: ``dbdyno hot`` and ``dbdyno flame``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dbdyno import conduct, present
from dbdyno.cli import completion, screen
from dbdyno.cli.browser import opens
from dbdyno.cli.flags import Grouped, Option
from dbdyno.cli.options import checked_with, json_option, open_store, print_json, run_argument, store_option
from dbdyno.cli.runs import WHICH, chosen, measurement_options
from dbdyno.model.errors import UsageError

if TYPE_CHECKING:
    from dbdyno.model.results.comparison import CostChange
    from dbdyno.model.results.results import Results
    from dbdyno.present.figures.selection import Pick


AGAINST = click.option(
    "--against",
    metavar="N|RUN",
    shell_complete=completion.RUNS,
    help="Difference per unit of work to N sessions, or to another run.",
)


OFF_CPU = click.option("--off-cpu", is_flag=True, help="Where the sessions slept, by stack (run --off-cpu).")


def _alone(against: str | None, off_cpu: bool, variant: str | None) -> None:
    if against is not None and off_cpu:
        raise UsageError("--against compares CPU time", "leave out --off-cpu")
    if against is not None and variant is not None:
        raise UsageError("--against compares loads of all variants", "leave out --variant")


def _against(
    results: Results, sessions: int | None, against: str, store: Path | None
) -> tuple[tuple[tuple[Results, Pick], tuple[Results, Pick]], CostChange]:
    """Returns both sides, the baseline first, and their difference. A number in ``against`` is a number of
    sessions."""
    from dbdyno.conclude.compare.cpu_profile import between

    pick = present.pick_at(results, sessions)
    if against.isdecimal() and len(against) < 10:
        other, base = results, present.pick_at(results, int(against))
        names = (base.label, pick.label)
    else:
        other = conduct.results_of(open_store(store).open(against))
        base = present.pick_at(other, pick.rung[2] or None)
        names = (other.info.id, results.info.id)
    return ((other, base), (results, pick)), between(other, base.rung, results, pick.rung, names)


_BY = ("function", "module", "session", "wait", "statement")


@click.command(cls=Grouped, groups={"What to show": ("by", "off_cpu", "against", "top"), **WHICH})
@run_argument
@click.option(
    "--by",
    metavar="WHAT",
    type=click.Choice(_BY),
    help=f"What to add up: {', '.join(_BY)}.  [default: function; with --off-cpu wait]",
)
@OFF_CPU
@AGAINST
@click.option(
    "--top", cls=Option, metavar="N", type=click.IntRange(1), default=20, show_default=True, help="Rows."
)
@measurement_options
@store_option
@json_option
def hot(
    run: str,
    by: str | None,
    off_cpu: bool,
    against: str | None,
    top: int,
    measurement: str | None,
    sessions: int | None,
    window: int | None,
    variant: str | None,
    store: Path | None,
    as_json: bool,
) -> None:
    """Show which functions, modules, sessions, wait events or statements used the CPU.

    For runs with --profile; with --off-cpu: where the sessions slept. Samples are scaled to the exact CPU
    time of each process, or sleep in each wait event. CPU, sleep: without callees; total: with callees; 95 %:
    interval. Without options, for the highest number of sessions, or for all windows of an observation. With
    --against: CPU time per unit of work, and which functions make the difference.

    \b
    Examples:
      dbdyno hot last
      dbdyno hot last --by module --sessions 8
      dbdyno hot last --sessions 8 --against 1
      dbdyno hot last --off-cpu
      dbdyno hot last --json | jq '.function[0]'
    """
    _alone(against, off_cpu, variant)
    by = by or ("wait" if off_cpu else "function")
    results = conduct.results_of(open_store(store).open(run))
    if against is not None:
        _, change = _against(results, sessions, against, store)
        if as_json:
            print_json(change.model_dump())
        else:
            screen.out().print(present.hot_change(change, top))
        return
    shown, rows = present.hot(
        results, by, top, chosen(results, measurement, sessions, window, variant), off_cpu
    )
    if as_json:
        print_json({"run": results.info.id, by: rows})
    else:
        screen.out().print(shown)


@click.command(cls=Grouped, groups={"What to draw": ("off_cpu", "against", "wait", "statement"), **WHICH})
@run_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=checked_with(".svg", besides=(".html", ".htm")),
    help="File: .html or .svg.",
)
@OFF_CPU
@AGAINST
@click.option(
    "--wait", metavar="EVENT", help="Only of this wait event (CLASS/NAME), as hot --by wait lists them."
)
@click.option("--statement", metavar="ID", help="Only of this query id, as hot --by statement lists them.")
@measurement_options
@store_option
@opens("flame")
def flame(
    run: str,
    off_cpu: bool,
    against: str | None,
    output: Path | None,
    wait: str | None,
    statement: str | None,
    measurement: str | None,
    sessions: int | None,
    window: int | None,
    variant: str | None,
    store: Path | None,
) -> None:
    """Write a flame graph of the CPU profile of a run, or of its off-CPU stacks by wait event.

    HTML: a single file with search and zoom. SVG: a drawing. For other programs: dbdyno export
    --to folded, pprof or firefox.

    \b
    Examples:
      dbdyno flame last
      dbdyno flame last --sessions 8 -o flame.svg
      dbdyno flame last --off-cpu
      dbdyno flame last --sessions 8 --against 1 -o difference.html
      dbdyno flame last --wait IO/DataFileRead
    """
    _alone(against, off_cpu, variant)
    record = open_store(store).open(run)
    results = conduct.results_of(record)
    only = {n: v for n, v in (("wait", wait), ("statement", statement)) if v is not None}
    path = output if output is not None else Path(f"{record.id}-{'off-cpu' if off_cpu else 'flame'}.html")
    if against is not None:
        sides, change = _against(results, sessions, against, store)
        click.echo(present.write_flame_change(sides, change, path, only))
        return
    cell = chosen(results, measurement, sessions, window, variant)
    click.echo(present.write_flame(results, path, cell, only, off_cpu))
