"""The report between two snapshots: which are meant, in which order, and where it goes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dbdyno import conduct, present
from dbdyno.cli import screen
from dbdyno.cli.options import REPORTS, checked, engine_option, print_json, store_option
from dbdyno.model.errors import UsageError
from dbdyno.model.text.nouns import capital
from dbdyno.present.document.document import Paragraph
from dbdyno.store.listing import default_root

if TYPE_CHECKING:
    from dbdyno.model.results.interval import IntervalFigures, TimeModel
    from dbdyno.store import Run, SnapshotStore

BETWEEN = ".."
"""Between the two snapshots, where they are given as one word."""


def pair(given: Sequence[str]) -> tuple[str, str] | None:
    """The two snapshots that a command's arguments name; ``None``: it is a run. Raises UsageError."""
    words = given[0].split(BETWEEN) if len(given) == 1 and BETWEEN in given[0] else list(given)
    if len(words) == 1:
        return None
    if len(words) != 2 or not all(w.strip() for w in words):
        raise UsageError(
            f"two snapshots are needed, not {BETWEEN.join(given)!r}", "A..B, or both as two arguments"
        )
    return words[0].strip(), words[1].strip()


def between(
    snapshots: SnapshotStore, wanted: tuple[str, str], now: datetime | None = None
) -> tuple[IntervalFigures, list[str]]:
    """What happened from the one to the other, and what to say of the choice: in the order in which they were
    taken, whatever the order of the words. Raises UsageError, NoSuchSnapshot, StoreError."""
    from dbdyno.account.snapshot_figures import figures
    from dbdyno.account.snapshots import interval
    from dbdyno.store.snapshot_times import remark

    now = datetime.now(UTC) if now is None else now
    infos = snapshots.list()
    found = [snapshots.find(w, now) for w in wanted]
    told = [remark(w, i, infos, now) for w, i in zip(wanted, found, strict=True)]
    notes = [f"{capital(t)}." for t in told if t]
    ids = [i.id for i in infos]
    if ids.index(found[0].id) > ids.index(found[1].id):
        found.reverse()
        notes.append("They were given in the other order: this is from the earlier to the later one.")
    a, b = found
    if a.id == b.id:
        raise UsageError(
            f"{wanted[0]} and {wanted[1]} are the same snapshot, {a.id}", "name two: dbdyno snapshot list"
        )
    others = [i for i in infos[ids.index(a.id) + 1 : ids.index(b.id)] if i.server == a.server]
    back = [x for x, y in pairwise([a, *others, b]) if y.server_time < x.server_time]
    if back:
        notes.append(f"The clock was set back after snapshot {back[0].id}: rates are over too short a time.")
    return figures(interval(snapshots.read(a), snapshots.read(b), others)), notes


def show(store: Path | None, wanted: tuple[str, str], output: Path | None, top: int, as_json: bool) -> None:
    """On the terminal, or as a file; or JSON on standard output."""
    from dbdyno.store import SnapshotStore

    check(output)
    found, notes = between(SnapshotStore(store), wanted)
    infos = found.interval.first, found.interval.last
    shown(
        found,
        notes,
        conduct.time_model(default_root() if store is None else store, *infos),
        output,
        top,
        as_json,
    )


def show_measurement(record: Run, cell: str, output: Path | None, top: int, as_json: bool) -> None:
    """Between the snapshots of a measurement of a run."""
    check(output)
    found, covered, notes = conduct.measured(record, cell)
    shown(found, notes, conduct.time_model_of(record, covered), output, top, as_json)


def check(output: Path | None) -> None:
    if output is not None:
        checked(output, (*REPORTS, ".json"))


def shown(
    found: IntervalFigures,
    notes: Sequence[str],
    time: TimeModel | None,
    output: Path | None,
    top: int,
    as_json: bool,
) -> None:
    from dbdyno.conclude.snapshots import snapshots as concluding

    claims = concluding.claims(found)
    record = None
    if as_json or (output is not None and output.suffix == ".json"):
        record = present.interval_record(found, claims, time)
    if record is not None and output is None:
        print_json(record)
        return
    page = present.interval(found, claims, concluding.unused(found), top, notes, time)
    if output is not None:
        screen.say(f"report: {present.write(page, output, record)}")
        return
    title = Paragraph(page.title)
    screen.out().print(present.printed([title, *page.lead, *page.blocks]))


@click.command("import")
@click.argument("kind", metavar="PROGRAM")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@engine_option("System that the export is of.")
@store_option
def import_command(kind: str, file: Path, engine: str, store: Path | None) -> None:
    """Import snapshots from an export of another program.

    Which programs those are depends on the engine: a wrong name lists them, docs/snapshots.md says how to
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
    there = {(i.server, i.taken, i.name) for i in snapshots.list()}
    found = imported(engine, kind, content)
    new = [s for s in found if (s.info.server, s.info.taken, s.info.name) not in there]
    for one in new:
        click.echo(f"{snapshots.add(one).id}  {one.info.name}")
    if len(new) < len(found):
        screen.say(f"{len(found) - len(new)} of {len(found)} were in the store already")
