"""``dbdyno doctor``: what can be measured here, and what enables the rest."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dbdyno import conduct
from dbdyno.cli import screen
from dbdyno.cli.flags import Grouped
from dbdyno.cli.options import (
    bin_dir_option,
    dsn_option,
    engine_option,
    json_option,
    print_json,
    server_ssh_options,
)
from dbdyno.engines import DEFAULT
from dbdyno.model.errors import EXIT_OFF, DbdynoError, NotInstalled, UsageError
from dbdyno.model.plan.flags import SERVER
from dbdyno.model.units import NS_PER_S, parse_duration_ns

if TYPE_CHECKING:
    from dbdyno.model.engine.condition import Condition
    from dbdyno.model.schema.data_source import Step
    from dbdyno.model.sources.source import Source

WIDTH = 80
_STATES = {"ok": "on", "off": "available", "not here": "remote", "vanished": "lost"}
_INDENT = 10
_AS_ROOT = "sudo "
_RUN = "dbdyno run WORKLOAD --"
_COMMAND_FOLLOWS = ": run dbdyno as root, or"
"""In the reason of a source: the rest of the reason repeats the commands."""


def _duration(_context: click.Context, _option: click.Parameter, value: str) -> int:
    """Returns nanoseconds, at least 0.1 s: a shorter look could not read a source twice."""
    return max(parse_duration_ns(value, "--look"), NS_PER_S // 10)


_GROUPS = {
    "Checks": ("everything", "look", "flush", "fix", "strict"),
    SERVER: ("dsn", "server_ssh", "ssh_command", "bin_dir", "engine"),
}
"""Heading of the help -> parameters."""


@click.command(cls=Grouped, groups=_GROUPS)
@engine_option("System to look at.")
@dsn_option
@server_ssh_options
@bin_dir_option
@click.option(
    "--fix",
    is_flag=True,
    help="Ask for each command that can be executed at once, and execute it after y. Commands that need a "
    "restart, sudo or another role are only shown.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Exit code 6 if a check is bad, or a data source is neither on nor available. Checks that are "
    "worth a look do not count.",
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="List all checks and data sources, those that are ok or on, too.",
)
@click.option(
    "--look",
    metavar="DURATION",
    default="0.3s",
    show_default=True,
    callback=_duration,
    help="How long to look at the data sources and at steal; 60s is a fair look at noisy neighbours.",
)
@click.option(
    "--flush",
    metavar="[DIRECTORY]",
    is_flag=False,
    flag_value="",
    help="Time 8 kB writes with fdatasync in a temporary file, for up to 2 s. Without DIRECTORY in the data "
    "directory of the embedded server; dbdyno writes to no other server's directory unless it is named.",
)
@json_option
def doctor(
    engine: str | None,
    dsn: str | None,
    server_ssh: str | None,
    ssh_command: str | None,
    bin_dir: Path | None,
    fix: bool,
    strict: bool,
    everything: bool,
    look: int,
    flush: str | None,
    as_json: bool,
) -> None:
    """Check machine and server for what spoils measurements, and show what can be measured.

    States of a check: ok; worth a look; bad; unknown and not supported, with the reason; remote (of the
    server's host, which is not seen here). States of a data source: on; available (off by choice); not
    permitted (a right is missing); not loaded (a library or extension of the server); not supported (version,
    kernel, or not installed); remote (the server's processes are not visible from here); lost. No setting is
    changed without --fix, and then none without asking. Without --dsn, the embedded PostgreSQL is checked:
    it is started for that and stopped again, and its data directory stays. Where it is not installed, the
    machine alone is checked. Exit code 3 if the server cannot be reached; the checks of this machine are
    still shown.

    \b
    Examples:
      dbdyno doctor
      dbdyno doctor --dsn "host=db1 dbname=app user=monitor" --all
      dbdyno doctor --dsn "host=db1 dbname=app" --server-ssh dba@db1
      dbdyno doctor --look 60s --flush /var/lib/postgresql
      dbdyno doctor --dsn service=prod --fix
      dbdyno doctor --json | jq '.checks[] | select(.state == "bad")'
    """
    from dbdyno.model.engine.protocols import Target

    if server_ssh is not None and flush is not None:
        raise UsageError("--flush writes on this host", f"run dbdyno doctor --flush on {server_ssh}")
    with contextlib.ExitStack() as stack:
        machine = stack.enter_context(conduct.server_machine(server_ssh, ssh_command))
        target = Target(dsn=dsn if server_ssh is None else dsn or "", bin_dir=bin_dir, machine=machine)
        looked = conduct.diagnosed(engine or DEFAULT, target, look_ns=look, flush=flush)
        diagnosis = stack.enter_context(looked)
        missing = [s for s in diagnosis.sources if s.status != "ok"]
        if as_json:
            print_json(_document(diagnosis))
        else:
            if (failed := _failure(diagnosis)) is not None:
                screen.error(failed.message, failed.cure)
            for line in _lines(diagnosis, everything):
                click.echo(line)
        if fix:
            _fix(diagnosis, missing)
    if (failed := _failure(diagnosis)) is not None:
        raise click.exceptions.Exit(failed.exit_code)
    bad = any(c.state == "bad" for c in diagnosis.conditions)
    if strict and (bad or any(s.status != "off" for s in missing)):
        raise click.exceptions.Exit(EXIT_OFF)


def _failure(diagnosis: conduct.Diagnosis) -> DbdynoError | None:
    """Returns the reason why the server could not be checked; None if no server was to be."""
    return None if isinstance(diagnosis.trouble, NotInstalled) else diagnosis.trouble


def _state(source: Source) -> str:
    return source.enabling.state or _STATES.get(source.status, source.status)


def _with_loads(text: str, source: Source) -> str:
    """Returns the text with the loads that have the source, unless all have it."""
    return f"{text} ({source.enabling.only})" if source.enabling.only else text


def _document(diagnosis: conduct.Diagnosis) -> dict[str, Any]:
    trouble = diagnosis.trouble
    return {
        "server": None
        if diagnosis.server is None
        else diagnosis.server.model_dump(mode="json", exclude={"settings"}),
        "error": None if trouble is None else {"message": trouble.message, "cure": trouble.cure},
        "checks": [
            {
                "id": c.id,
                "title": c.title,
                "state": c.state,
                "value": c.value,
                "why": c.why,
                "cure": c.cure,
                "commands": [{"command": _command_line(s), "how": s.how} for s in c.steps],
            }
            for c in diagnosis.conditions
        ],
        "sources": [
            {
                "name": s.name,
                "state": _state(s),
                "adds": _with_loads(s.enabling.adds, s),
                "reads": s.provenance,
                "why": s.detail if s.status != "ok" else "",
                "right": s.enabling.right,
                "commands": [{"command": _command_line(c), "how": c.how} for c in _steps(s)],
            }
            for s in diagnosis.sources
        ],
    }


def _steps(source: Source) -> Sequence[Step]:
    return () if source.status == "ok" else source.enabling.steps


def _lines(diagnosis: conduct.Diagnosis, everything: bool) -> Iterator[str]:
    """Yields lines of at most 80 columns, except for words to be copied that have no space."""
    yield from textwrap.wrap(_heading(diagnosis), WIDTH)
    if isinstance(diagnosis.trouble, NotInstalled):
        yield from labelled("cure", diagnosis.trouble.cure or "")
    yield from textwrap.wrap(diagnosis.started, WIDTH, **screen.WHOLE_WORDS)
    yield ""
    yield from check_lines(diagnosis.conditions, everything)
    read = [s for s in diagnosis.sources if s.status == "ok"]
    missing = [s for s in diagnosis.sources if s.status != "ok"]
    on_request = [s for s in missing if s.status == "off" and _requests(s)]
    yield ""
    if everything:
        rows = [(s.name, _state(s), _with_loads(s.enabling.adds or s.provenance, s)) for s in read]
        yield from screen.aligned(("data source", "state", "what it gives"), rows, (False,) * 3, WIDTH)
    else:
        count = f"{len(read)} of {len(diagnosis.sources)} data sources are on (--all lists what each gives)"
        yield from textwrap.wrap(
            f"{count}: {'; '.join(_with_loads(s.name, s) for s in read)}.", WIDTH, **screen.WHOLE_WORDS
        )
    if on_request:
        yield ""
        rows = [(s.name, _requests(s), s.enabling.adds) for s in on_request]
        yield from screen.aligned(("on request", "dbdyno run", "what it gives"), rows, (False,) * 3, WIDTH)
    above = {c.source for c in diagnosis.conditions if c.asks}
    for s in missing:
        if s in on_request:
            continue
        yield ""
        yield f"{s.name}: {_state(s)}"
        yield from labelled("adds", s.enabling.adds)
        if s.name in above:
            yield from labelled("enable", "see the check above")
            continue
        yield from labelled("why", s.detail.partition(_COMMAND_FOLLOWS)[0] if _steps(s) else s.detail)
        yield from labelled("right", s.enabling.right)
        for n, step in enumerate(_steps(s)):
            yield from command("enable" if n == 0 else "then", _command_line(step))
    if any(_doable(diagnosis, step) for _, step in _to_do(diagnosis, missing)):
        yield ""
        yield "dbdyno doctor --fix offers to execute these commands, and asks before each."


def _requests(source: Source) -> str:
    """Returns the option of ``dbdyno run`` that turns the source on; empty if that is not all it needs."""
    commands = [step.command for step in _steps(source)]
    return commands[0].rpartition(" ")[2] if len(commands) == 1 and commands[0].startswith(_RUN) else ""


def check_lines(conditions: Sequence[Condition], everything: bool) -> Iterator[str]:
    """Yields the summary, the checks that need a look, then the rest, one line each or summed up."""
    from dbdyno.model.engine.condition import ASKING

    asking = sorted((c for c in conditions if c.asks), key=lambda c: ASKING.index(c.state))
    if not conditions:
        return
    yield from textwrap.wrap(_answer(asking, len(conditions)), WIDTH)
    for c in asking:
        yield ""
        yield f"{c.title}: {c.state}"
        yield from labelled("found", c.value)
        yield from labelled("why", c.why)
        if c.cure and c.cure != "; ".join(s.command.rstrip(";") for s in c.steps):
            yield from labelled("cure", c.cure)
        for n, step in enumerate(c.steps):
            yield from command("cure" if n == 0 else "then", _command_line(step))
    yield ""
    rest = [c for c in conditions if not c.asks]
    if everything:
        rows = [(c.title, c.state, c.value) for c in rest]
        yield from screen.aligned(("check", "state", "found"), rows, (False,) * 3, WIDTH)
    else:
        yield from _in_short(rest)


def _answer(asking: Sequence[Condition], count: int) -> str:
    if not asking:
        return f"None of {count} checks asks for a look."
    names = ", ".join(f"{c.title} (bad)" if c.state == "bad" else c.title for c in asking)
    return f"{len(asking)} of {count} checks {'needs' if len(asking) == 1 else 'need'} a look: {names}."


def _in_short(rest: Sequence[Condition]) -> Iterator[str]:
    """Yields a line for each unknown check, and the number of the others."""
    for c in rest:
        if c.state == "unknown":
            yield from textwrap.wrap(f"{c.title}: unknown; {c.value}", WIDTH, subsequent_indent="  ")
    remote = [c for c in rest if c.state == "remote"]
    if remote:
        why = (
            f"{len(remote)} checks need the server's host, which is not visible from here: {remote[0].value}"
        )
        yield from textwrap.wrap(why, WIDTH, subsequent_indent="  ")
    counts = Counter(c.state for c in rest if c.state in ("ok", "not supported"))
    if counts:
        listed = ", ".join(f"{n} {state}" for state, n in counts.items())
        yield f"Other checks: {listed} (dbdyno doctor --all lists them)."


def _heading(diagnosis: conduct.Diagnosis) -> str:
    s = diagnosis.server
    if isinstance(diagnosis.trouble, NotInstalled):
        return f"Only this machine was checked: no server was named, and {diagnosis.trouble.message}."
    if s is None:
        return "No server could be checked (see the error), only this machine."
    return f"{s.product} {s.version} at {s.where}" + (" (embedded)" if s.embedded else "")


def labelled(label: str, text: str, columns: int = WIDTH) -> list[str]:
    if not text:
        return []
    begin, later = f"  {label + ':':{_INDENT - 2}}", " " * _INDENT
    return textwrap.wrap(text, columns, initial_indent=begin, subsequent_indent=later, **screen.WHOLE_WORDS)


def command(label: str, command: str) -> list[str]:
    """Returns lines that together are the command as it is typed."""
    lines = labelled(label, command, WIDTH - 2)
    end = "" if command.endswith(";") or not command.startswith((_AS_ROOT, "dbdyno ")) else " \\"
    return [line + end for line in lines[:-1]] + lines[-1:]


def _command_line(step: Step) -> str:
    return _AS_ROOT + step.command if step.how == "root" and os.geteuid() != 0 else step.command


def _fix(diagnosis: conduct.Diagnosis, missing: Sequence[Source]) -> None:
    """Executes the steps that the user agrees to; none if standard input is not a terminal."""
    steps = [(name, step) for name, step in _to_do(diagnosis, missing) if _doable(diagnosis, step)]
    if not steps:
        click.echo("--fix: no command can be executed from here; those above are for you", err=True)
    elif not sys.stdin.isatty():
        click.echo(
            "--fix: standard input is no terminal, so nobody can be asked: nothing was changed", err=True
        )
    else:
        for name, step in steps:
            if click.confirm(f"{name}: {step.command}", default=False, err=True):
                _execute(diagnosis, step)


def _to_do(diagnosis: conduct.Diagnosis, missing: Sequence[Source]) -> list[tuple[str, Step]]:
    """Returns (purpose, step) of sources, then of checks.

    A step that both have is listed once, except for the last steps, which put several others into effect.
    """
    listed = [(s.name, step) for s in missing for step in _steps(s)]
    names = {s.name for s in missing}
    return listed + [
        (c.title, step) for c in diagnosis.conditions if c.source not in names for step in c.steps
    ]


def _doable(diagnosis: conduct.Diagnosis, step: Step) -> bool:
    return os.geteuid() == 0 if step.how == "root" else step.how == "sql" and diagnosis.enable is not None


def _execute(diagnosis: conduct.Diagnosis, step: Step) -> None:
    try:
        if step.how == "sql":
            assert diagnosis.enable is not None
            diagnosis.enable(step.command)
        else:
            process = subprocess.run(shlex.split(step.command), capture_output=True, text=True, check=False)
            if process.returncode != 0:
                screen.error(process.stderr.strip() or f"exit code {process.returncode}")
                return
    except (DbdynoError, OSError) as e:
        screen.error(str(e))
        return
    click.echo("done", err=True)
