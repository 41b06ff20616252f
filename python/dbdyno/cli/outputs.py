"""``dbdyno show --output``: what commands printed, apart from everything that dbdyno prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dbdyno.cli.options import print_json
from dbdyno.model.errors import UsageError
from dbdyno.model.text.visible import visible

if TYPE_CHECKING:
    from dbdyno.store import Run

_STREAMS = {"output": "output", "error": "error output"}


def show_outputs(record: Run, cell: str | None, *, as_json: bool) -> None:
    """Of one measurement; None: the last that kept any. Raises :class:`UsageError` where nothing was kept."""
    rows = next(
        (found for c in ([cell] if cell else record.cells()[::-1]) if (found := _rows(record, c))), []
    )
    if not rows:
        raise UsageError(
            "nothing that commands printed was kept",
            "measure again with --keep-output 64kB; failures: --executions",
        )
    if as_json:
        print_json({"outputs": rows})
        return
    for row in rows:
        kept = len(row["text"].encode())
        cut = f", the last {kept:,} of {row['bytes']:,} bytes" if kept < row["bytes"] else ""
        what = f"session {row['session']}, execution {row['number']}: {_STREAMS[row['stream']]}"
        click.echo(f"-- {row['measurement']}, {what}{cut}")
        click.echo(visible(row["text"]).removesuffix("\n"))


def _rows(record: Run, cell: str) -> list[dict[str, Any]]:
    table = record.read_cell(cell).tables["outputs"]
    return [{"measurement": cell, **row} for row in table.to_dicts() if row["bytes"]]
