"""``dbdyno clean``: removes what dbdyno made in a database."""

from __future__ import annotations

from pathlib import Path

import click

from dbdyno.cli.options import bin_dir_option, dsn_option
from dbdyno.engines import open_server
from dbdyno.model.protocols import Target


@click.command()
@dsn_option
@bin_dir_option
def clean(dsn: str | None, bin_dir: Path | None) -> None:
    """Remove dbdyno's schema, with all it made, from a database.

    Nothing else is touched: all objects are in a schema of dbdyno's own.

    \b
    Examples:
      dbdyno clean
      dbdyno clean --dsn postgresql://app@db1/prod
    """
    with open_server("postgres", Target(dsn=dsn, bin_dir=bin_dir)) as server:
        removed = server.clean()
    for line in removed or ["nothing to remove"]:
        click.echo(line)
