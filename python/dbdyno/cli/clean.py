"""``dbdyno clean``: removes what dbdyno made in a database."""

from __future__ import annotations

from pathlib import Path

import click

from dbdyno.cli.options import dsn_option, pg_bin_option
from dbdyno.engines import open_server
from dbdyno.model.protocols import Target


@click.command()
@dsn_option
@pg_bin_option
def clean(dsn: str | None, pg_bin: Path | None) -> None:
    """Remove dbdyno's schema, with all it made, from a database.

    Nothing else is touched: all objects are in a schema of dbdyno's own.

    \b
    Examples:
      dbdyno clean
      dbdyno clean --dsn postgresql://app@db1/prod
    """
    with open_server("postgres", Target(dsn=dsn, bin_dir=pg_bin)) as server:
        removed = server.clean()
    for line in removed or ["nothing to remove"]:
        click.echo(line)
