"""``dbdyno server``: the embedded PostgreSQL by hand."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from dbdyno.cli.commands import Commands
from dbdyno.cli.options import bin_dir_option, json_option, print_json
from dbdyno.engines import embedded
from dbdyno.model.units import format_ns


@click.group(cls=Commands)
def server() -> None:
    """Start, stop and inspect the embedded PostgreSQL."""


@server.command()
@bin_dir_option
@click.option(
    "--max-connections", type=click.IntRange(10, 10_000), help="Maximum connections.  [default: 100 or more]"
)
@click.option(
    "--setting", "settings", metavar="NAME=VALUE", multiple=True, help="Server setting; repeatable."
)
@click.option("--fresh", is_flag=True, help="Use a new data directory; the old one is removed.")
@json_option
def start(
    bin_dir: Path | None, max_connections: int | None, settings: tuple[str, ...], fresh: bool, as_json: bool
) -> None:
    """Start it; it runs until `dbdyno server stop`, and `dbdyno run` uses it.

    \b
    Examples:
      dbdyno server start
      dbdyno server start --setting shared_buffers=2GB --max-connections 500
      dbdyno server start --pg-bin /usr/lib/postgresql/15/bin
    """
    from dbdyno.plan import parse_params  # here: looking and stopping need no plans

    chosen = {k: str(v) for k, v in parse_params(settings).items()}
    _print(
        embedded().start(bin_dir=bin_dir, settings=chosen, max_connections=max_connections, fresh=fresh),
        as_json,
    )


@server.command()
@json_option
def stop(as_json: bool) -> None:
    """Stop it.

    \b
    Examples:
      dbdyno server stop
    """
    _print(embedded().stop(), as_json)


@server.command()
@json_option
def status(as_json: bool) -> None:
    """Show whether it runs and how to connect. Exit code 3 if it does not run.

    \b
    Examples:
      dbdyno server status
      psql "$(dbdyno server status --json | jq -r .dsn)"
    """
    found = embedded().status()
    _print(found, as_json)
    if not found.get("running"):
        raise click.exceptions.Exit(3)


@server.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def psql(arguments: tuple[str, ...]) -> None:
    """Open psql on it; further arguments go to psql.

    \b
    Examples:
      dbdyno server psql
      dbdyno server psql -c 'select version()'
    """
    argv = [*embedded().client_argv(), *arguments]
    os.execv(argv[0], argv)


def _print(found: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(dict(found))
        return
    for key, value in found.items():
        if value is not None or key == "running":
            click.echo(f"{key.removesuffix('_s').replace('_', ' '):16} {_in_words(key, value)}")


def _in_words(key: str, value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {True: "yes", False: "no", None: "unknown"}[value]
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={v}" for name, v in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return format_ns(value * 1e9) if key.endswith("_s") else str(value)
