"""``dbdyno doctor``: what can be measured here, and what would make the rest available."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dbdyno import conduct
from dbdyno.cli import screen
from dbdyno.cli.options import bin_dir_option, dsn_option, engine_option, json_option, print_json
from dbdyno.engines import DEFAULT
from dbdyno.model.errors import EXIT_OFF, DbdynoError

if TYPE_CHECKING:
    from dbdyno.model.data_source import Step
    from dbdyno.model.source import Source

WIDTH = 80
_STATES = {"ok": "on", "off": "available", "not here": "remote", "vanished": "lost"}
_INDENT = 10
_AS_ROOT = "sudo "
_COMMAND_FOLLOWS = ": run dbdyno as root, or"
"""In the reason of a source: what comes then is among the commands."""


@click.command()
@engine_option("System to look at.")
@dsn_option
@bin_dir_option
@click.option(
    "--fix",
    is_flag=True,
    help="Ask for each command that can be executed at once, and execute it after y. Commands that need a "
    "restart, sudo or another role are only shown.",
)
@click.option("--strict", is_flag=True, help="Exit code 6 unless every source is on, or off by choice.")
@json_option
def doctor(
    engine: str | None, dsn: str | None, bin_dir: Path | None, fix: bool, strict: bool, as_json: bool
) -> None:
    """Show what can be measured here, and what enables the rest.

    States of a data source: on; available (off by choice); not permitted (a right is missing); not loaded (a
    library of the server); not supported (version, kernel, or not installed); remote (the server's
    processes are not visible from here); lost. Nothing is changed without --fix, and then nothing without
    asking. Without --dsn, it looks at the embedded PostgreSQL. Exit code 3 if the server cannot be
    reached: the sources of this machine are listed all the same.

    \b
    Examples:
      dbdyno doctor
      dbdyno doctor --dsn "host=db1 dbname=app user=monitor"
      dbdyno doctor --dsn service=prod --fix
      dbdyno doctor --json | jq '.sources[] | select(.state != "on")'
    """
    from dbdyno.model.protocols import Target

    with conduct.diagnosed(engine or DEFAULT, Target(dsn=dsn, bin_dir=bin_dir)) as found:
        missing = [s for s in found.sources if s.status != "ok"]
        if as_json:
            print_json(_document(found))
        else:
            for line in _lines(found):
                click.echo(line)
        if fix:
            _fix(found, missing)
    if found.trouble is not None:
        if not as_json:
            screen.error(found.trouble.message, found.trouble.cure)
        raise click.exceptions.Exit(found.trouble.exit_code)
    if strict and any(s.status != "off" for s in missing):
        raise click.exceptions.Exit(EXIT_OFF)


def _state(source: Source) -> str:
    return source.enabling.state or _STATES.get(source.status, source.status)


def _document(found: conduct.Diagnosis) -> dict[str, Any]:
    trouble = found.trouble
    return {
        "server": None
        if found.server is None
        else found.server.model_dump(mode="json", exclude={"settings"}),
        "error": None if trouble is None else {"message": trouble.message, "cure": trouble.cure},
        "sources": [
            {
                "name": s.name,
                "state": _state(s),
                "adds": s.enabling.adds,
                "reads": s.provenance,
                "why": s.detail if s.status != "ok" else "",
                "right": s.enabling.right,
                "commands": [{"command": _typed(c), "how": c.how} for c in _steps(s)],
            }
            for s in found.sources
        ],
    }


def _steps(source: Source) -> Sequence[Step]:
    return () if source.status == "ok" else source.enabling.steps


def _lines(found: conduct.Diagnosis) -> Iterator[str]:
    """At most 80 columns, but for what is to be copied and has no space."""
    yield from textwrap.wrap(_heading(found), WIDTH)
    read = [s for s in found.sources if s.status == "ok"]
    missing = [s for s in found.sources if s.status != "ok"]
    yield ""
    rows = [(s.name, _state(s), s.enabling.adds or s.provenance) for s in read]
    yield from screen.aligned(("data source", "state", "what it gives"), rows, (False,) * 3, WIDTH)
    for s in missing:
        yield ""
        yield f"{s.name}: {_state(s)}"
        yield from _labelled("adds", s.enabling.adds)
        yield from _labelled("why", s.detail.partition(_COMMAND_FOLLOWS)[0] if _steps(s) else s.detail)
        yield from _labelled("right", s.enabling.right)
        for n, step in enumerate(_steps(s)):
            yield from _command("enable" if n == 0 else "then", _typed(step))
    yield ""
    count = f"{len(read)} of {len(found.sources)} data sources are on."
    later = any(_doable(found, step) for s in missing for step in _steps(s))
    yield f"{count} dbdyno doctor --fix asks before each command." if later else count


def _heading(found: conduct.Diagnosis) -> str:
    s = found.server
    if s is None:
        return "No server: what this machine gives. The error is below."
    return f"{s.product} {s.version} at {s.where}" + (" (embedded)" if s.embedded else "")


def _labelled(label: str, text: str, columns: int = WIDTH) -> list[str]:
    if not text:
        return []
    begin, later = f"  {label + ':':{_INDENT - 2}}", " " * _INDENT
    return textwrap.wrap(
        text,
        columns,
        initial_indent=begin,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _command(label: str, command: str) -> list[str]:
    """Lines that together are the command as it is typed."""
    lines = _labelled(label, command, WIDTH - 2)
    end = "" if command.endswith(";") or not command.startswith((_AS_ROOT, "dbdyno ")) else " \\"
    return [line + end for line in lines[:-1]] + lines[-1:]


def _typed(step: Step) -> str:
    return _AS_ROOT + step.command if step.how == "root" and os.geteuid() != 0 else step.command


def _fix(found: conduct.Diagnosis, missing: Sequence[Source]) -> None:
    """Executes what the user agrees to, step by step; nothing where nobody can be asked."""
    steps = [(s, step) for s in missing for step in _steps(s) if _doable(found, step)]
    if not steps:
        click.echo("--fix: no command can be executed from here; those above are for you", err=True)
    elif not sys.stdin.isatty():
        click.echo(
            "--fix: standard input is no terminal, so nobody can be asked: nothing was changed", err=True
        )
    else:
        for source, step in steps:
            if click.confirm(f"{source.name}: {step.command}", default=False, err=True):
                _execute(found, step)


def _doable(found: conduct.Diagnosis, step: Step) -> bool:
    return os.geteuid() == 0 if step.how == "root" else step.how == "sql" and found.enable is not None


def _execute(found: conduct.Diagnosis, step: Step) -> None:
    try:
        if step.how == "sql":
            assert found.enable is not None
            found.enable(step.command)
        else:
            done = subprocess.run(shlex.split(step.command), capture_output=True, text=True, check=False)
            if done.returncode != 0:
                screen.error(done.stderr.strip() or f"exit code {done.returncode}")
                return
    except (DbdynoError, OSError) as e:
        screen.error(str(e))
        return
    click.echo("done", err=True)
