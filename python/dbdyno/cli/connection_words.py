"""Connection options of psql and pgbench: -h, -p, -U, -d, and a database as the last argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from dbdyno import conduct
from dbdyno.model.errors import UsageError

_F = TypeVar("_F", bound=Callable[..., Any])
_WORDS = {"host": "-h", "port": "-p", "user": "-U", "dbname": "-d"}


def _help(context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Shows the help for ``-h`` without a host."""
    if value == "":
        click.echo(context.get_help(), color=context.color)
        context.exit()
    return value


def connection_words(f: _F) -> _F:
    """Adds the options; together they replace ``--dsn``."""
    f = click.option("-h", "--host", is_flag=False, flag_value="", callback=_help, hidden=True)(f)
    f = click.option("-p", "--port", type=click.IntRange(1, 65535), hidden=True)(f)
    f = click.option("-U", "--username", "user", hidden=True)(f)
    return click.option("-d", "--dbname", hidden=True)(f)


def dsn_of(options: dict[str, Any]) -> str | None:
    """Returns ``--dsn``, or a connection string of these options.

    If scripts are given, an argument that is no workload is the database, as for pgbench; it is removed from
    ``options``.
    """
    parts = {name: str(options[name]) for name in _WORDS if options[name] is not None}
    argument = options["workload"]
    scripts = (
        options["files"] or options["builtins"] or options["select_only"] or options["skip_some_updates"]
    )
    if argument and scripts and "dbname" not in parts and not _is_ours(argument, options["engine"] or ""):
        parts["dbname"], options["workload"] = argument, None
    dsn: str | None = options["dsn"]
    if not parts:
        return dsn
    if dsn is not None:
        flag = _WORDS[next(iter(parts))]
        raise UsageError(f"both --dsn and {flag} were given", "give one of them: --dsn 'host=... dbname=...'")
    if list(parts) == ["dbname"] and ("=" in parts["dbname"] or "://" in parts["dbname"]):
        return parts["dbname"]
    return " ".join(f"{name}={_quote(value)}" for name, value in parts.items())


def _is_ours(word: str, engine: str) -> bool:
    return "=" in word or word.endswith(".toml") or word in conduct.workloads(engine)


def _quote(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return value if value.replace("/", "").replace(".", "").isalnum() else f"'{escaped}'"
