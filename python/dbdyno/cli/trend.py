"""``dbdyno trend``: a figure over stored runs, or over snapshots."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dbdyno import conduct, present
from dbdyno.cli import completion, screen
from dbdyno.cli.browser import opens
from dbdyno.cli.flags import Grouped, Option
from dbdyno.cli.gate_options import Judged, fail_on_option
from dbdyno.cli.history import name_filter, tag_filter
from dbdyno.cli.options import checked_with, json_option, print_json, store_option
from dbdyno.model.plan.flags import OUTPUT
from dbdyno.store.listing import default_root

if TYPE_CHECKING:
    from dbdyno.model.results.trend import Trend


_GROUPS = {
    "Which figure": ("figure", "sessions", "variant"),
    "Which runs": ("workload", "name", "tags", "machine", "target", "since", "limit"),
    "From snapshot to snapshot": ("table", "index", "statement", "database", "server"),
    OUTPUT: ("fail_on", "output", "open_page"),
}
"""Heading of the help -> parameters."""


@click.command(cls=Grouped, groups=_GROUPS)
@click.option(
    "--workload",
    metavar="NAME",
    shell_complete=completion.WORKLOADS,
    help="Runs of this workload or script.  [default: of the newest]",
)
@click.option(
    "--figure",
    metavar="NAME",
    help="throughput (work units per second), calls (per second), mean, p50, p95, p99, p99.9, p99.99 "
    "(response time), "
    "cpu_per_call, cpu_per_work. Of snapshots: ins_ps, upd_ps, seq_ps, tps, mean_ns, size_bytes ...  "
    "[default: throughput]",
)
@click.option("--table", metavar="NAME", help="This table, with its schema or without.")
@click.option("--index", metavar="NAME", help="This index.")
@click.option("--statement", metavar="ID", help="The statement of this query id.")
@click.option("--database", metavar="NAME", help="This database.")
@click.option("--server", metavar="FIGURE", help="This figure of the whole server.")
@click.option(
    "--sessions",
    cls=Option,
    type=click.IntRange(1),
    metavar="N",
    help="At N sessions.  [default: at the peak; for figures other than throughput: at the highest N]",
)
@click.option("--variant", metavar="NAME", help="The variant.  [default: the first]")
@name_filter
@tag_filter
@click.option(
    "--machine", metavar="TEXT", help="Only runs of a machine whose CPUs are named so: EPYC, 8 CPUs."
)
@click.option("--target", metavar="TEXT", help="Only runs against a target that contains this.")
@click.option("--since", metavar="TIME", help="Only runs since then: 30d, or 2026-11-01.")
@click.option(
    "--limit", cls=Option, type=click.IntRange(1, 500), metavar="N", default=100, show_default=True,
    help="Only the newest N.",
)  # fmt: skip
@fail_on_option("trend")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=checked_with(".xml"),
    help="Also write .html, .md, .xlsx; .xml: the rules as JUnit.",
)
@store_option
@json_option
@opens("trend")
def trend(
    figure: str | None, sessions: int | None, variant: str | None, machine: str | None,
    fail_on: tuple[str, ...], output: Path | None, store: Path | None, as_json: bool, **wanted: Any,
) -> None:  # fmt: skip
    """Show when a figure changed from run to run, and by how much.

    With --table, --index, --statement, --database or --server: from snapshot to snapshot, as rates of each
    interval between two.

    Both the run and the size of the change have a 95 % interval. Runs are joined if workload, parameters,
    machine and target are the same; the others are counted with the reason. At least 6 runs are needed. A
    single outlier is not a change.

    \b
    Examples:
      dbdyno trend
      dbdyno trend --workload lio --figure p95 --sessions 8
      dbdyno trend --tag nightly --since 90d -o trend.html
      dbdyno trend --tag nightly --since 30d --fail-on change:worse:5%
      dbdyno trend --table orders --figure ins_ps --since 7d
    """
    objects = {kind: name for kind in conduct.TREND_OBJECTS if (name := wanted.pop(kind)) is not None}
    asked = conduct.TrendQuestion(figure, sessions, variant, machine, objects, wanted)
    result = conduct.stored_trend(default_root() if store is None else store, asked, screen.note)
    shown = present.trend(result)
    judged = _judged(fail_on, result)
    if output is not None:
        judged.write(shown, output)
    if as_json:
        print_json(judged.data(present.trend_record(result)))
    elif not judged.alone:
        screen.out().print(present.printed(shown))
        if output is not None:
            screen.report_path(output)
    judged.end(output, as_json=as_json)


def _judged(fail_on: tuple[str, ...], result: Trend) -> Judged:
    if not fail_on:
        return Judged()
    from dbdyno.conclude import gates

    gate = gates.of_trend(gates.parse(fail_on, "trend"), result)
    return Judged(gate, "the same command with -o trend.html")
