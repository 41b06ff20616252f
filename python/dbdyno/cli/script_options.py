"""Options of `dbdyno run` that pgbench has, too, with the same meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

import click

from dbdyno.cli.flags import Option
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.flags import SCRIPTS, WHAT

_F = TypeVar("_F", bound=Callable[..., Any])
_FILE = "SQL file in pgbench's language; each call runs all its statements. Repeatable, chosen by weight."


def script_options(f: _F) -> _F:
    """Adds options of scripts, their variables, and how they run."""
    for add in reversed(_OPTIONS):
        f = add(f)
    for flags, cure in _REPLACEMENTS.items():
        f = _refusing_option(flags, cure)(f)
    for flags, more in _IMPLIED.items():
        f = click.option(*flags.split(), hidden=True, expose_value=False, **more)(f)
    return f


def _refusing_option(flags: str, cure: str) -> Callable[[_F], _F]:
    """Adds an option of pgbench that would mean something else here, or nothing; it raises UsageError with
    the replacement."""
    names = flags.split()

    def refuse(_context: click.Context, _parameter: click.Parameter, value: object) -> None:
        if value:
            raise UsageError(f"{names[0]} is an option of pgbench", cure)

    name = f"refused_{names[-1].strip('-').replace('-', '_')}"
    return click.option(
        *names, name, hidden=True, expose_value=False, callback=refuse, is_flag=names[0] in _FLAGS
    )


_FLAGS = ("-i", "-l", "--vacuum-all", "--show-script", "--debug", "--verbose-errors", "--exit-on-abort")
_STORED = "--log-calls stores every call; dbdyno sql reads them"
_REPLACEMENTS = {
    "-i --initialize": "dbdyno workload prepare pgbench -s 10",
    "-l --log": _STORED,
    "-t --transactions": "measurements have a duration: -T 10, or --measure 10s",
    "--vacuum-all": "vacuum before the run: vacuumdb --analyze",
    "--aggregate-interval": _STORED,
    "--sampling-rate": _STORED,
    "--log-prefix": _STORED,
    "--show-script": "the plan has the text: dbdyno run -b NAME --dry-run --json",
    "--debug": "commands and their failures: -r",
    "--verbose-errors": "each kind of failure is reported with its message",
    "--exit-on-abort": "a session that fails is reported, and the others go on",
}
_IMPLIED: dict[str, dict[str, Any]] = {
    "-n --no-vacuum": {"is_flag": True},  # dbdyno never vacuums before a run
    "-P --progress": {},  # progress is always shown
    "--progress-timestamp": {"is_flag": True},
    "--failures-detailed": {"is_flag": True},  # failures are always reported by kind
}
"""Options of pgbench that are accepted and change nothing: dbdyno always does as they say."""
_option = partial(click.option, cls=Option, group=SCRIPTS)
_OPTIONS = (
    _option(
        "-f",
        "--script",
        "files",
        metavar="FILE[@WEIGHT]",
        multiple=True,
        group=WHAT,
        common=True,
        help=_FILE,
        brief="SQL file in pgbench's language; repeatable, chosen by weight.",
    ),
    _option(
        "-b",
        "--builtin",
        "builtins",
        metavar="NAME[@WEIGHT]",
        multiple=True,
        help="A script of pgbench's own: tpcb-like, simple-update, select-only; or list. Repeatable.",
    ),
    _option("-S", "--select-only", is_flag=True, help="The same as -b select-only."),
    _option("-N", "--skip-some-updates", is_flag=True, help="The same as -b simple-update."),
    _option(
        "--random-seed",
        metavar="N|time|rand",
        help="Seed of the scripts' random numbers and of order and sampling, as --seed.",
    ),
    _option(
        "-r",
        "--report-per-command",
        "by_command",
        is_flag=True,
        help="Show the latency of each command of the scripts.",
    ),
    _option("-c", "--client", "clients", metavar="LADDER", help="The same as --sessions."),
    _option(
        "-j",
        "--jobs",
        metavar="N|FILE",
        help="N: the same as --driver threads=N. FILE: a job list, TOML with a [[jobs]] for each of several "
        "commands that run side by side.",
    ),
    _option("-T", "--time", "seconds", metavar="TIME", help="The same as --measure; a number is seconds."),
)


def fields_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of the experiment that these options set. Raises :class:`UsageError`."""
    fields: dict[str, Any] = {"scripts": mix} if (mix := _mix(options)) else {}
    for name, alias, flag in (("sessions", "clients", "-c"), ("measure", "seconds", "-T")):
        if options[alias] is not None:
            if options[name] is not None:
                raise UsageError(f"both --{name} and {flag} were given", "give one of them")
            fields[name] = options[alias]
    if (fields.get("measure") or "").isdecimal():
        fields["measure"] += "s"
    if options["random_seed"] is not None:
        fields["seed"] = _seed(options["random_seed"])
    return fields


def threads_of(text: str | None) -> int | None:
    """Returns the driver's threads that ``-j`` requests; None if it names a file of jobs."""
    if text is None or not text.isdecimal():
        return None
    if len(text) > 3 or not 1 <= int(text) <= 256:
        raise UsageError(f"-j {text}: not from 1 to 256", "threads of the driver; one a session is enough")
    return int(text)


def _mix(options: Mapping[str, Any]) -> list[dict[str, Any]]:
    flags = (("select_only", "select-only"), ("skip_some_updates", "simple-update"))
    builtins = [*options["builtins"], *(name for flag, name in flags if options[flag])]
    scripts = [_parse_weighted(text, "builtin", "-b") for text in builtins]
    return [*scripts, *(_parse_weighted(text, "file", "-f") for text in options["files"])]


def _parse_weighted(text: str, kind: str, flag: str) -> dict[str, Any]:
    """Reads ``a.sql@3``. A file's name may have an @: the weight follows the last one."""
    name, at, weight = text.rpartition("@")
    if not at:
        return {kind: text}
    if not name or not weight.isdecimal() or len(weight) > 10:
        raise UsageError(
            f"{flag} {text}: {weight!r} is no weight", f"{flag} {name or 'NAME'}@2: a whole number"
        )
    return {kind: name, "weight": int(weight)}


def variables(texts: Iterable[str]) -> dict[str, str]:
    """Returns variables of scripts by name. Raises :class:`UsageError`."""
    return dict(_pair(text) for text in texts)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or not all(c.isalnum() or c == "_" for c in name):
        raise UsageError(f"-D {text}: not a variable", "-D naccounts=1000: letters, digits and _")
    return name, value


def _seed(text: str) -> int:
    if text in ("time", "rand"):
        import secrets

        return secrets.randbits(31)
    if not text.isdecimal() or len(text) > 19:
        raise UsageError(f"--random-seed {text}", "a whole number of at most 19 digits, time or rand")
    return int(text)
