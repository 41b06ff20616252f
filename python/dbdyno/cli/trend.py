"""``dbdyno trend``: a figure over stored runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dbdyno import conduct, present
from dbdyno.cli import screen
from dbdyno.cli.history import select
from dbdyno.cli.options import json_option, print_json, store_option
from dbdyno.store.listing import default_root
from dbdyno.store.overview import overviews


@click.command()
@click.option("--workload", metavar="NAME", help="Runs of this workload or script.  [default: of the newest]")
@click.option(
    "--figure",
    metavar="NAME",
    default="throughput",
    show_default=True,
    help="throughput (work units per second), calls (per second), mean, p50, p95, p99 (response time), "
    "cpu_per_call, cpu_per_work.",
)
@click.option(
    "--sessions",
    type=click.IntRange(1),
    metavar="N",
    help="At N sessions.  [default: at the peak; for figures other than throughput: at the highest N]",
)
@click.option("--variant", metavar="NAME", help="The variant.  [default: the first]")
@click.option("--name", metavar="NAME", help="Only runs of this name; * and ? are wildcards.")
@click.option("--tag", "tags", metavar="TAG", multiple=True, help="Only runs with this tag; repeatable.")
@click.option(
    "--machine", metavar="TEXT", help="Only runs of a machine whose CPUs are named so: EPYC, 8 CPUs."
)
@click.option("--target", metavar="TEXT", help="Only runs against a target that contains this.")
@click.option("--since", metavar="TIME", help="Only runs since then: 30d, or 2026-11-01.")
@click.option(
    "--limit", type=click.IntRange(1, 500), metavar="N", default=100, show_default=True,
    help="Only the newest N.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Also write .html, .md or .xlsx."
)
@store_option
@json_option
def trend(
    figure: str, sessions: int | None, variant: str | None, machine: str | None, output: Path | None,
    store: Path | None,
    as_json: bool, **wanted: Any,
) -> None:  # fmt: skip
    """Show when a figure changed from run to run, and by how much.

    Both the run and the size of the change have a 95 % interval. Runs are joined if workload, parameters,
    machine and target are the same; the others are counted with the reason. At least 6 runs are needed. A
    single outlier is not a change.

    \b
    Examples:
      dbdyno trend
      dbdyno trend --workload lio --figure p95 --sessions 8
      dbdyno trend --tag nightly --since 90d -o trend.html
    """
    found = overviews(default_root() if store is None else store)
    if wanted["workload"] is None:
        loads = [o.outline.workload for o in found if o.outline.workload not in ("", "observation")]
        wanted["workload"] = loads[-1] if loads else None
    chosen = [one.run for one in select(found, **wanted)]
    made = conduct.trend(chosen, figure, sessions, variant, machine, screen.note)
    shown = present.trend(made)
    if output is not None:
        present.write(shown, output)
    if as_json:
        print_json(present.trend_record(made))
        return
    screen.out().print(present.printed(shown))
    if output is not None:
        screen.say(f"report: {output}")
