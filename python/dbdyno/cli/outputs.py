"""``dbdyno show --output``: the kept output of the commands that a run executed."""

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
    """Prints the kept output of a measurement, by default the last that has any. Raises :class:`UsageError`
    if there is none."""
    rows = next(
        (
            rows_of_cell
            for c in ([cell] if cell else record.cells()[::-1])
            if (rows_of_cell := _rows(record, c))
        ),
        [],
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
        kept_bytes = len(row["text"].encode())
        cut = f", the last {kept_bytes:,} of {row['bytes']:,} bytes" if kept_bytes < row["bytes"] else ""
        what = f"session {row['session']}, execution {row['number']}: {_STREAMS[row['stream']]}"
        click.echo(f"-- {row['measurement']}, {what}{cut}")
        click.echo(visible(row["text"]).removesuffix("\n"))


def _rows(record: Run, cell: str) -> list[dict[str, Any]]:
    table = record.read_cell(cell).tables["outputs"]
    return [{"measurement": cell, **row} for row in table.to_dicts() if row["bytes"]]
