"""Lines and records of snapshots: new ones, listed ones, and what they lack."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

from dbdyno.cli.config import is_quiet
from dbdyno.cli.options import print_json
from dbdyno.cli.screen import note
from dbdyno.model.errors import DbdynoError
from dbdyno.model.text.visible import one_line
from dbdyno.model.units import NS_PER_S, counted, format_ns

if TYPE_CHECKING:
    from dbdyno.model.engine.snapshot import Snapshot, SnapshotInfo
    from dbdyno.store.snapshot_catalog import Entry

_LATE = 1.5
"""A snapshot of a series that is later than this multiple of its interval follows a gap."""
_REASONS, _NAMED = 5, 20  # most lines of missing parts, and of listed snapshots


class Lines:
    """Prints each new snapshot. In a series, prints what is missing only when that changes."""

    def __init__(self, *, as_json: bool, series: bool) -> None:
        self._as_json, self._series = as_json, series
        self._missing: Mapping[str, str] | None = None
        self._failed: str | None = None

    def taken(self, snapshot: Snapshot) -> None:
        info, rows = snapshot.info, {t: frame.height for t, frame in snapshot.tables.items()}
        self._failed = None
        if self._as_json:
            record = record_of(info, rows)
            click.echo(json.dumps(record)) if self._series else print_json(record)
            return
        click.echo(
            f"{info.id}  {counted(rows['relations'], 'table')}, {counted(rows['statements'], 'statement')}, "
            f"{format_ns(info.took_s * NS_PER_S)}"
            + (f", not read: {len(info.missing)}" if info.missing else "")
        )
        if info.missing != self._missing and not is_quiet():
            for line in brief_reasons(info.missing):
                click.echo(f"  {line}")
        self._missing = info.missing

    def failed(self, error: DbdynoError) -> None:
        """Reports an error once until a snapshot succeeds or fails for another reason."""
        if error.message != self._failed:
            self._failed = error.message
            line = f"{datetime.now():%Y-%m-%d %H:%M:%S} no snapshot, trying again: {one_line(error.message)}"
            click.echo(f"{line}\n  {error.cure}" if error.cure else line, err=True)

    def waiting(self, until: datetime) -> None:
        if sys.stdout.isatty() and not self._as_json:
            note(f"next at {until.astimezone():%H:%M:%S}; Ctrl-C ends")


def remarks(infos: Sequence[SnapshotInfo]) -> list[str]:
    """Returns a remark for each snapshot: what happened since the previous one of the same server."""
    texts = [""] * len(infos[:1])
    latest: dict[str, SnapshotInfo] = {i.server: i for i in infos[:1]}
    for before, info in pairwise(infos):
        earlier = latest.get(info.server)
        latest[info.server] = info
        texts.append("; ".join(_between(earlier, before, info)))
    return texts


def _between(earlier: SnapshotInfo | None, listed: SnapshotInfo, info: SnapshotInfo) -> list[str]:
    from dbdyno.store.snapshot_times import apart  # here, since help does not need it

    remarks = []
    if info.taken < listed.taken:
        remarks.append("the clock was set back")
    if earlier is not None:
        gap_s = (info.taken - earlier.taken).total_seconds()
        if info.every_s and earlier.every_s and gap_s > _LATE * info.every_s:
            remarks.append(f"gap of {apart(gap_s)}")
        if info.started and earlier.started and abs((info.started - earlier.started).total_seconds()) > 1:
            remarks.append("server restarted")
    return remarks


def row(entry: Entry, remark: str) -> list[str]:
    info = entry.info
    return [
        info.id,
        f"{info.taken.astimezone():%Y-%m-%d %H:%M:%S}",
        info.name or "",
        f"{entry.rows.get('relations', 0):,}",
        f"{entry.rows.get('statements', 0):,}",
        info.address,
        remark,
    ]


def print_some(entries: Sequence[Entry]) -> None:
    for entry in entries[:_NAMED]:
        click.echo("  ".join(filter(None, row(entry, "")[:3])))
    if len(entries) > _NAMED:
        click.echo(f"... and {len(entries) - _NAMED:,} more")


def record_of(info: SnapshotInfo, rows: Mapping[str, int]) -> dict[str, Any]:
    document = info.model_dump(mode="json")
    return {"id": info.id, "seconds": info.took_s, **document, "rows": dict(rows)}


def brief_reasons(missing: Mapping[str, str]) -> list[str]:
    """Returns the reasons for a new snapshot: that of Top SQL first, and what the server's version lacks in
    one line."""
    from dbdyno.model.engine.snapshot import SINCE  # here, since help does not need it

    first = [f"no Top SQL: {missing[_TOP_SQL]}; see dbdyno doctor"] if _TOP_SQL in missing else []
    later = [what for what, why in missing.items() if SINCE in why]
    others = {what: why for what, why in missing.items() if what != _TOP_SQL and what not in later}
    last = [f"{counted(len(later), 'figure')} of later versions: dbdyno snapshot show"] if later else []
    return [*first, *reasons(others, _REASONS), *last]


_TOP_SQL = "statements"  # the table whose figures are those of Top SQL


def reasons(missing: Mapping[str, str], most: int) -> list[str]:
    """Returns a line for each reason with the parts that are missing for it."""
    by_reason: dict[str, list[str]] = {}
    for what, why in missing.items():
        by_reason.setdefault(why, []).append(what)
    lines = [f"{', '.join(what)}: {why}" for why, what in by_reason.items()]
    more = [f"... and {len(lines) - most} more: dbdyno snapshot show"] if len(lines) > most else []
    return lines[:most] + more
