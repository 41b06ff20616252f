"""Writes or prints the report between two snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dbdyno import conduct, present
from dbdyno.cli import screen
from dbdyno.cli.gate_options import Judged
from dbdyno.cli.options import REPORTS, checked, engine_option, print_json, store_option
from dbdyno.model.errors import UsageError
from dbdyno.present.document.document import Paragraph
from dbdyno.store.listing import default_root

if TYPE_CHECKING:
    from dbdyno.model.results.interval import IntervalFigures, LoadPoint, TimeModel
    from dbdyno.store import Run

BETWEEN = ".."
"""Separates two snapshots that are given as one argument."""


def pair(arguments: Sequence[str]) -> tuple[str, str] | None:
    """Returns the two snapshots that the arguments name; None if they name a run. Raises UsageError."""
    names = (
        arguments[0].split(BETWEEN) if len(arguments) == 1 and BETWEEN in arguments[0] else list(arguments)
    )
    if len(names) == 1:
        return None
    if len(names) != 2 or not all(w.strip() for w in names):
        raise UsageError(
            f"two snapshots are needed, not {BETWEEN.join(arguments)!r}", "A..B, or both as two arguments"
        )
    return names[0].strip(), names[1].strip()


def show(
    store: Path | None,
    wanted: tuple[str, str],
    output: Path | None,
    top: int,
    as_json: bool,
    fail_on: tuple[str, ...] = (),
) -> Judged:
    """Prints the report or writes it to a file; or prints JSON. Returns it with the gate of its claims."""
    from dbdyno.store import SnapshotStore

    check(output)
    snapshots = SnapshotStore(store)
    interval_figures, notes = conduct.between_snapshots(snapshots, wanted)
    infos = interval_figures.interval.first, interval_figures.interval.last
    drawn = output is not None and output.suffix not in (".json", ".md")
    return shown(
        interval_figures,
        notes,
        conduct.time_model(default_root() if store is None else store, *infos),
        output,
        top,
        as_json,
        conduct.loads_around(snapshots, *infos) if drawn else (),
        fail_on,
    )


def show_measurement(
    record: Run, cell: str, output: Path | None, top: int, as_json: bool, fail_on: tuple[str, ...] = ()
) -> Judged:
    """Reports between the snapshots at start and end of a run's measurement."""
    check(output)
    interval_figures, covered, notes = conduct.measured(record, cell)
    time = conduct.time_model_of(record, covered)
    return shown(interval_figures, notes, time, output, top, as_json, (), fail_on)


def check(output: Path | None) -> None:
    if output is not None:
        checked(output, (*REPORTS, ".json"))


def shown(
    interval_figures: IntervalFigures,
    notes: Sequence[str],
    time: TimeModel | None,
    output: Path | None,
    top: int,
    as_json: bool,
    loads: Sequence[LoadPoint] = (),
    fail_on: tuple[str, ...] = (),
) -> Judged:
    """Prints the report or writes it to a file; or prints JSON. ``loads`` are those of the interval and
    around it. Returns the gate of its claims, which the caller ends."""
    from dbdyno.conclude.snapshots import snapshots as concluding

    claims = concluding.claims(interval_figures)
    judged = Judged()
    if fail_on:
        from dbdyno.conclude import gates

        ends = f"{interval_figures.interval.first.id}..{interval_figures.interval.last.id}"
        gate = gates.of_comparison(gates.parse(fail_on, "claims"), None, more=claims)
        judged = Judged(gate, f"dbdyno report {ends} -o report.html")
    record = None
    if as_json or (output is not None and output.suffix == ".json"):
        record = judged.data(present.interval_record(interval_figures, claims, time))
    if record is not None and output is None:
        print_json(record)
        return judged
    unused = concluding.unused(interval_figures)
    page = present.interval(interval_figures, claims, unused, top, notes, time, loads)
    if output is not None:
        screen.report_path(judged.write(page, output, record))
        return judged
    title = Paragraph(page.title)
    if not judged.alone:
        screen.out().print(present.printed([title, *page.lead, *page.blocks]))
    return judged


@click.command("import")
@click.argument("kind", metavar="PROGRAM")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@engine_option("System that the export is of.")
@store_option
def import_command(kind: str, file: Path, engine: str, store: Path | None) -> None:
    """Import snapshots from an export of another program.

    Which programs those are depends on the engine: a wrong name lists them, dbdyno help snapshots says how to
    export. Snapshots that are in the store already are left out.

    \b
    Examples:
      dbdyno import PROGRAM export.csv
    """
    from dbdyno.engines import imported
    from dbdyno.store import SnapshotStore
    from dbdyno.store.files import MOST_IMPORT_BYTES, decoded, read_limited

    try:
        content = decoded(read_limited(file, MOST_IMPORT_BYTES), str(file))
    except OSError as e:
        raise UsageError(f"cannot read {file}: {e}", "name the file of the export") from e
    snapshots = SnapshotStore(store)
    stored = {(i.server, i.taken, i.name) for i in snapshots.list()}
    read = imported(engine, kind, content)
    new = [s for s in read if (s.info.server, s.info.taken, s.info.name) not in stored]
    for one in new:
        click.echo(f"{snapshots.add(one).id}  {one.info.name}")
    if len(new) < len(read):
        screen.say(f"{len(read) - len(new)} of {len(read)} were in the store already")
