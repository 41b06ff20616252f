"""``dbdyno trace-logins``: the server traces the login that brings a role to N sessions."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dbdyno import conduct, drive
from dbdyno.cli.flags import Grouped, Option
from dbdyno.cli.options import engine_option, json_option, print_json, running_dsn_option
from dbdyno.cli.screen import aligned, width
from dbdyno.engines import DEFAULT, checked, open_server
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.flags import OUTPUT, SERVER
from dbdyno.model.text.visible import visible
from dbdyno.model.units import NS_PER_S, counted, parse_duration_ns

if TYPE_CHECKING:
    from dbdyno.model.engine.login_tracing import Caught, LoginTrace, LoginTracing, TraceLog, TracePlan

_WIDTH = 100
_SHOWN = 20
"""Most lines printed of a session; -o writes all."""
_HEAD = ("time", "pid", "sessions", "role", "client", "state")
_RIGHT = (False, True, True, False, False, False)


_GROUPS = {
    "What to trace": ("role", "counts", "plans", "slower", "settings", "most", "duration"),
    "Installing": ("yes", "stay", "list_", "remove"),
    SERVER: ("dsn", "engine"),
    OUTPUT: ("output",),
}
"""Heading of the help -> parameters."""


@click.command("trace-logins", cls=Grouped, groups=_GROUPS)
@click.option("--role", metavar="ROLE", help="Trace sessions of this role.")
@click.option("--at", "counts", metavar="N,N", help="Trace the login that brings the role to N sessions.")
@click.option(
    "--plans",
    is_flag=True,
    help="Log plans with rows, buffers and times (auto_explain) in place of statements.",
)
@click.option(
    "--slower-than",
    "slower",
    metavar="TIME",
    help="Log statements that take at least this long.  [default: all]",
)
@click.option(
    "--setting",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="Setting of a traced session; repeatable.",
)
@click.option(
    "--most",
    cls=Option,
    metavar="N",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="Trace at most so many sessions.",
)
@click.option("--for", "duration", metavar="TIME", help="End after this time.  [default: at Ctrl-C]")
@click.option("--stay", is_flag=True, help="Install it and return; --remove removes it.")
@click.option("--yes", is_flag=True, help="Do not ask before installing.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write all log lines of traced sessions to this file.",
)
@click.option("--list", "list_", is_flag=True, help="List the sessions traced so far, with their log lines.")
@click.option("--remove", is_flag=True, help="Remove the trace from this database.")
@engine_option("System to trace.")
@running_dsn_option
@json_option
def trace_logins(list_: bool, remove: bool, engine: str | None, dsn: str | None, **options: Any) -> None:
    """Trace sessions of a role that log in when it has exactly N sessions.

    The server decides at each login, by a login event trigger in the connected database (PostgreSQL 17 and
    later); the trace is in the server's log. Before version 17, the role gets settings for the moment of the
    next login, which is less exact. The statements are shown first, and executed after confirmation. The
    trace is removed at the end, or by dbdyno clean if the command was killed. Superuser only.

    A fault in the trigger never refuses a login. ALTER SYSTEM SET dbdyno.trace_logins = off switches it off.

    \b
    Examples:
      dbdyno trace-logins --role app --at 10,20,30
      dbdyno trace-logins --role app --at 50 --plans --slower-than 10ms \\
          --for 1h --yes -o traced.log
      dbdyno trace-logins --role app --at 10,20,30 --stay --dsn service=prod
      dbdyno trace-logins --list --dsn service=prod
      dbdyno trace-logins --remove --dsn service=prod
    """
    from dbdyno.model.engine.protocols import needed

    if list_ and remove:
        raise UsageError("--list and --remove exclude each other", "give one of them")
    request = None if list_ or remove else _requested_trace(options)
    engine = checked(engine or DEFAULT)
    with open_server(engine, conduct.observed_target(engine, dsn)) as server:
        tracing = needed(server.login_tracing, "trace logins")
        if request is not None:
            _trace(tracing, request, options)
        elif list_:
            _list(tracing, options)
        else:
            _remove(tracing, as_json=options["as_json"])


def _requested_trace(options: dict[str, Any]) -> LoginTrace:
    """Reads the options of a new trace. Raises :class:`UsageError`."""
    from dbdyno.model.engine.login_tracing import LoginTrace
    from dbdyno.plan import parse_params

    example = "dbdyno trace-logins --role app --at 10,20,30"
    if not options["role"] or not options["counts"]:
        raise UsageError("--role and --at are needed: whom to trace, at how many sessions", example)
    try:
        counts = tuple(sorted({int(part) for part in options["counts"].split(",")}))
    except ValueError:
        raise UsageError(f"--at {options['counts']!r}: numbers of sessions, with commas", example) from None
    if counts[0] < 1:
        raise UsageError(f"--at {counts[0]}: the login itself is the first session", "--at 1 or more")
    if options["stay"] and (options["duration"] or options["output"]):
        raise UsageError(
            "--stay returns at once: there is nothing to wait for or to write",
            "dbdyno trace-logins --list -o FILE shows what was caught",
        )
    # rounded up to whole milliseconds
    slower_ms = -(-parse_duration_ns(options["slower"] or "0", "--slower-than") // 1_000_000)
    settings = {k: str(v) for k, v in parse_params(options["settings"], "--setting", "work_mem=64MB").items()}
    what = "plans" if options["plans"] else "statements"
    return LoginTrace(options["role"], counts, what, slower_ms, settings, options["most"])  # type: ignore[arg-type]


def _trace(tracing: LoginTracing, request: LoginTrace, options: dict[str, Any]) -> None:
    duration = options["duration"]
    duration_s = None if duration is None else parse_duration_ns(duration, "--for") / NS_PER_S
    plan = tracing.plan(request)
    _show(plan, stay=options["stay"])
    _ask(yes=options["yes"])
    from dbdyno.store import FileJournal

    journal, on_catch = FileJournal("trace-logins"), _Lines(options["as_json"])
    if not options["stay"]:
        until = "until Ctrl-C" if duration is None else f"for {duration}"
        click.echo(f"Waiting {until}.", err=True)
    with drive.Interrupt().caught() as interrupt:
        finished = conduct.trace_logins(
            tracing, request, journal, interrupt, on_catch, duration_s, stay=options["stay"]
        )
    if interrupt.stopping:
        click.echo(err=True)  # after ^C
    if options["stay"]:
        for undo in list(journal.undos):
            journal.forget(undo.key)  # the trace is to stay: dbdyno clean must not take it for a leftover
        click.echo(f"Installed. Traced sessions write to {finished.log.where}", err=True)
        click.echo("dbdyno trace-logins --list shows them, --remove removes the trace.", err=True)
        return
    _report(finished.caught, finished.log, options)
    for line in finished.removed:
        click.echo(f"Removed: {line}", err=True)


def _show(plan: TracePlan, *, stay: bool) -> None:
    for statement in plan.statements:
        click.echo(f"{statement.removesuffix('/* dbdyno */').rstrip()};\n", err=True)
    for remark in plan.remarks:
        click.echo(
            textwrap.fill(remark, width() or _WIDTH, initial_indent="- ", subsequent_indent="  "), err=True
        )
    if stay and not plan.exact:
        raise UsageError("--stay needs a server that decides by itself: PostgreSQL 17", "leave --stay out")


def _ask(*, yes: bool) -> None:
    """Asks before executing. Raises :class:`UsageError` if standard input is not a terminal; ends the
    program after a no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(
            "standard input is no terminal, so nobody can be asked: nothing was changed", "--yes installs it"
        )
    if not click.confirm("Execute these statements?", default=False, err=True):
        click.echo("Nothing was changed.", err=True)
        raise click.exceptions.Exit(0)


class _Lines:
    """Prints a line for each session as it is traced, unless JSON is requested."""

    def __init__(self, as_json: bool) -> None:
        self._silent = as_json

    def __call__(self, one: Caught) -> None:
        if not self._silent:
            click.echo(
                f"{_time(one.at_s)}  process {one.pid} is session {one.sessions} of {one.role} ({one.client})"
            )


def _list(tracing: LoginTracing, options: dict[str, Any]) -> None:
    installed, caught = tracing.installed(), tracing.caught()
    if not options["as_json"]:
        click.echo(
            f"Installed: {installed}" if installed else "No login trace is installed in this database."
        )
    if installed or options["as_json"]:
        _report(caught, tracing.log(caught), options, installed)


def _remove(tracing: LoginTracing, *, as_json: bool) -> None:
    removed = list(tracing.remove())
    if as_json:
        print_json({"removed": removed})
        return
    for line in removed or ["nothing to remove"]:
        click.echo(f"removed {line}" if removed else line)


def _report(
    caught: Sequence[Caught], log: TraceLog, options: dict[str, Any], installed: str | None = None
) -> None:
    if options["output"] is not None:
        _write(options["output"], caught, log)
    if options["as_json"]:
        lines = {pid: list(texts) for pid, texts in log.lines.items()}
        sessions = [
            {
                "at_s": c.at_s,
                "pid": c.pid,
                "sessions": c.sessions,
                "role": c.role,
                "client": c.client,
                "there": c.connected,
                "lines": lines.get(c.pid),
            }
            for c in caught
        ]
        facts = {"installed": installed, "log": log.where, "why_unread": log.why or None, "find": log.find}
        print_json({"caught": sessions, **facts})
        return
    if not caught:
        click.echo("No session was caught.")
        return
    rows = [
        (
            _time(c.at_s),
            str(c.pid),
            str(c.sessions),
            c.role,
            c.client,
            "connected" if c.connected else "ended",
        )
        for c in caught
    ]
    for line in aligned(_HEAD, rows, _RIGHT, width()):
        click.echo(line)
    for line in _log_lines(caught, log, full=options["output"]):
        click.echo(line)


def _log_lines(caught: Sequence[Caught], log: TraceLog, full: Path | None) -> Iterator[str]:
    if log.why:
        yield f"\nLog: {log.why}"
        yield f"  {log.find}"
        return
    yield f"\nLog: {log.where}"
    for one in caught:
        messages = log.lines.get(one.pid, ())
        yield f"\nprocess {one.pid}, session {one.sessions}: {counted(len(messages), 'message')}"
        if full is None:
            yield from (f"  {line}" for text in messages[:_SHOWN] for line in text.splitlines())
            if len(messages) > _SHOWN:
                yield f"  ... {len(messages) - _SHOWN:,} more; -o FILE writes all"


def _write(path: Path, caught: Sequence[Caught], log: TraceLog) -> None:
    texts = (text for one in caught for text in log.lines.get(one.pid, ()))
    try:
        path.write_text("".join(f"{visible(text)}\n" for text in texts), encoding="utf-8")
    except OSError as e:
        click.echo(f"cannot write {path}: {e.strerror}", err=True)


def _time(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s).astimezone():%Y-%m-%d %H:%M:%S}"


__all__ = ["trace_logins"]
