"""Options that several commands share."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dbdyno.cli import completion
from dbdyno.cli.flags import NUMBER as NUMBER
from dbdyno.cli.flags import Option
from dbdyno.engines import DEFAULT, secret_in
from dbdyno.model.errors import UsageError, did_you_mean
from dbdyno.model.plan.flags import OUTPUT, SERVER

if TYPE_CHECKING:
    from dbdyno.store import RunStore

_F = TypeVar("_F", bound=Callable[..., Any])


SETTING = ("--setting", "work_mem=64MB")
"""The option, and an example of its value, for messages."""


def store_option(f: _F) -> _F:
    return click.option(
        "--store",
        cls=Option,
        group=OUTPUT,
        type=click.Path(path_type=Path, file_okay=False),
        envvar="DBDYNO_STORE",
        help="Directory of stored runs.  [default: $XDG_DATA_HOME/dbdyno, else ~/.local/share/dbdyno]",
    )(f)


def json_option(f: _F) -> _F:
    return click.option(
        "--json",
        "as_json",
        cls=Option,
        group=OUTPUT,
        common=True,
        is_flag=True,
        help="Print JSON instead of text.",
    )(f)


def engine_option(words: str) -> Callable[[_F], _F]:
    """Adds ``--engine``. It is eager, since the check of ``--dsn`` needs the engine."""
    words = f"{words}  [default: {DEFAULT}]"
    return click.option(
        "--engine",
        cls=Option,
        group=SERVER,
        key="engine",
        metavar="NAME",
        is_eager=True,
        help=words,
        shell_complete=completion.ENGINES,
    )


_Dsn = TypeVar("_Dsn", str | None, tuple[str, ...])


def warn_of_password(context: click.Context, _parameter: click.Parameter, dsn: _Dsn) -> _Dsn:
    """Warns if ``--dsn`` holds a password. A callback of ``--dsn``, which may be repeatable."""
    engine = context.params.get("engine") or DEFAULT
    given = (dsn,) if isinstance(dsn, str) else dsn or ()
    cures = [c for d in given if d and (c := secret_in(engine, d)) is not None]
    if cures:
        click.echo(
            "warning: the password in --dsn is visible to every user of this machine while dbdyno runs "
            f"(ps), and stays in the shell's history\n  {cures[0]}",
            err=True,
        )
    return dsn


def _dsn_option(default: str, *, several: bool = False) -> Callable[[_F], _F]:
    more = " Repeatable: several servers side by side." if several else ""
    return click.option(
        "--dsn",
        cls=Option,
        group=SERVER,
        common=True,
        metavar="DSN",
        multiple=several,
        callback=warn_of_password,
        brief=f"As in psql: URI or key=value; PG* variables apply.{more}  [default: {default}]",
        help="Connection string as in psql: URI or key=value; PG* variables, ~/.pgpass and service files "
        f'apply. "" uses the environment only.{more}  [default: {default}]',
    )


dsn_option = _dsn_option("the embedded PostgreSQL")
running_dsn_option = _dsn_option('the embedded PostgreSQL if it runs, else ""')
"""For commands that read a server and start none."""
running_dsns_option = _dsn_option('the embedded PostgreSQL if it runs, else ""', several=True)
"""The same for commands that read several servers."""


def server_ssh_options(f: _F, *, several: bool = False) -> _F:
    """Adds ``--server-ssh`` and ``--ssh-command``. ``several``: ``--server-ssh`` is given once per server."""
    f = click.option(
        "--ssh-command",
        cls=Option,
        group=SERVER,
        metavar="COMMAND",
        envvar="DBDYNO_SSH_COMMAND",
        help="The ssh client for --server-ssh, with options: 'ssh -p 2222'.  [default: ssh]",
    )(f)
    return click.option(
        "--server-ssh",
        cls=Option,
        group=SERVER,
        common=True,
        key="" if several else "server_ssh",
        brief="The server's host, where that is another: it is observed there, over your own ssh.",
        metavar="[USER@]HOST",
        multiple=several,
        help="The server's host, where that is another: it is observed there, over your own ssh. Nothing is "
        f"installed there (dbdyno help remote).{' With several servers: one per --dsn.' if several else ''}",
    )(f)


def bin_dir_option(f: _F) -> _F:
    return click.option(
        "--pg-bin",
        "bin_dir",
        cls=Option,
        group=SERVER,
        type=click.Path(path_type=Path, file_okay=False),
        help="bin directory of an installed PostgreSQL to use for the embedded server.",
    )(f)


REPORTS = (".html", ".htm", ".md", ".xlsx")


def checked_output(_context: click.Context, _parameter: click.Parameter, path: Path | None) -> Path | None:
    """Checks a report's path before anything is measured. A callback of ``--output``."""
    return None if path is None else checked(path)


def checked_with(
    *more: str, besides: Sequence[str] = REPORTS
) -> Callable[[click.Context, click.Parameter, Path | None], Path | None]:
    """Returns a callback of ``--output`` that takes further endings, too."""
    return lambda _context, _parameter, path: None if path is None else checked(path, (*besides, *more))


def checked(path: Path, endings: Sequence[str] = REPORTS) -> Path:
    """Returns ``path``. Raises UsageError if no report can be written there."""
    if path.suffix not in endings:
        given = f"ends in {path.suffix}" if path.suffix else "has no suffix"
        shown = [e for e in endings if e != ".htm"]
        known = f"{', '.join(shown[:-1])} or {shown[-1]}"
        near = did_you_mean(path.suffix, shown)
        raise UsageError(f"{path}: a report's name {given}; it is {known}", near)
    if not path.parent.is_dir():
        raise UsageError(
            f"cannot write {path}: there is no directory {path.parent}", "make it, or name another"
        )
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(
            f"cannot write {path}: no permission", "name a place that you may write to (-o PATH)"
        )
    return path


def report_option(*more: str) -> Callable[[_F], _F]:
    """Declares ``-o``, ``--output`` and ``more``: the file of a report that is written besides."""
    return click.option(
        "-o",
        "--output",
        *more,
        cls=Option,
        group=OUTPUT,
        common=True,
        type=click.Path(path_type=Path, dir_okay=False),
        callback=checked_output,
        help="Also write a report: .html, .md or .xlsx.",
    )


def dry_run_option(f: _F) -> _F:
    return click.option(
        "--dry-run", cls=Option, group=OUTPUT, common=True, is_flag=True, help="Show the plan and exit."
    )(f)


def label_options(f: _F) -> _F:
    """Adds ``--name``, ``--tag`` and ``--note``, which :func:`dbdyno.conduct.labels_of` reads."""
    option = partial(click.option, cls=Option, group=OUTPUT)
    f = option("--note", metavar="TEXT", help="A remark, kept with the run.")(f)
    f = option("--tag", "tags", metavar="TAG", multiple=True, help="A tag; repeatable.")(f)
    return option(
        "--name", common=True, metavar="NAME", help="Name of the run; it works wherever a run is asked for."
    )(f)


def run_argument(f: _F) -> _F:
    return click.argument("run", metavar="[RUN]", default="last", shell_complete=completion.RUNS)(f)


def open_store(path: Path | None) -> RunStore:
    from dbdyno.store import RunStore  # here, since importing Polars takes long

    return RunStore(path)


def print_json(document: Any) -> None:
    click.echo(json.dumps(document, indent=1, default=str))
