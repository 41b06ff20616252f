"""Options of `dbdyno run` for commands as the load; hyperfine's names where they are free."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from dbdyno.model.errors import UsageError, did_you_mean

_F = TypeVar("_F", bound=Callable[..., Any])
ORDERS = ("serial", "parallel", "concurrent", "both")
_OPTIONS = (
    click.option(
        "--command",
        "commands",
        metavar="COMMAND",
        multiple=True,
        help="Run this command in place of a database's calls: 'xz -T{threads} -kc FILE' threads=1,2,4. "
        "Repeatable: the commands are compared.",
    ),
    click.option(
        "--command-name",
        "command_names",
        metavar="NAME",
        multiple=True,
        help="Name of a command; repeatable.",
    ),
    click.option("--once", is_flag=True, default=None, help="Run each job exactly once in a measurement."),
    click.option(
        "--runs",
        type=click.IntRange(1, 1_000_000),
        metavar="N",
        help="Run each job exactly N times in a measurement.  [default: as often as --measure has room for]",
    ),
    click.option(
        "--orders",
        metavar="ORDERS",
        help="Of several jobs measure only these: serial, parallel (one at a time, with the most threads), "
        "concurrent (all at once, with the least threads), both; commas between them.",
    ),
    click.option(
        "-w",
        "--warmup",
        type=click.IntRange(0, 10_000),
        metavar="N",
        help="Run each job N times before the first measurement, not measured.  [default: 1; 0 with --once]",
    ),
    click.option("--prepare", metavar="COMMAND", help="Command before each execution, not measured."),
    click.option("--conclude", metavar="COMMAND", help="Command after each execution, not measured."),
    click.option(
        "--setup", metavar="COMMAND", help="Command run once for each variant, before the first measurement."
    ),
    click.option(
        "--cleanup", metavar="COMMAND", help="Command run once for each variant, after the last measurement."
    ),
    click.option(
        "--shell",
        type=click.Choice(["none", "sh", "bash"]),
        help="What runs the command; a shell's own start-up is measured and taken off.  [default: none]",
    ),
    click.option("--input", metavar="FILE", help="Standard input of the command.  [default: /dev/null]"),
    click.option("--directory", metavar="DIR", help="Directory that the command runs in."),
    click.option(
        "--env", metavar="NAME=VALUE", multiple=True, help="Environment variable of the command; repeatable."
    ),
    click.option(
        "--parameter-list",
        "lists",
        nargs=2,
        metavar="NAME VALUES",
        multiple=True,
        help="The same as NAME=VALUES: each value is a variant.",
    ),
    click.option(
        "--parameter-scan",
        "scans",
        nargs=3,
        metavar="NAME FROM TO",
        multiple=True,
        help="The same as NAME=FROM:TO.",
    ),
    click.option(
        "--parameter-step-size",
        "step",
        metavar="STEP",
        help="Step of --parameter-scan: a number, or x2.  [default: 1]",
    ),
    click.option(
        "--timeout",
        metavar="TIME",
        help="Kill an execution that takes longer, with all its processes; it has failed.  [default: none]",
    ),
    click.option(
        "--verify",
        metavar="COMMAND",
        help="Command that must succeed after each execution: 'cmp OUT REFERENCE'; not measured.",
    ),
    click.option("--work-bytes", metavar="FILE", help="The work of an execution is this file's size."),
    click.option(
        "--work-regex",
        metavar="REGEX",
        help="The work of an execution is the number that this finds in what it prints: 'done (\\d+)'.",
    ),
    click.option("--work-unit", metavar="NOUN", help="What that number counts, plural: files."),
    click.option(
        "--keep-output",
        metavar="SIZE",
        help="Keep the end of what each execution prints: 64kB.  [default: of failed ones alone]",
    ),
    click.option(
        "--hide-args",
        is_flag=True,
        default=None,
        help="Keep arguments, parameters and environment of commands out of the stored run and the report.",
    ),
)
_OF_A_JOB = (
    "prepare",
    "conclude",
    "shell",
    "input",
    "directory",
    "timeout",
    "verify",
    "work_bytes",
    "work_regex",
    "work_unit",
)
_OF_THE_RUN = ("once", "runs", "warmup", "setup", "cleanup", "keep_output", "hide_args")


def command_options(f: _F) -> _F:
    """Commands, and what goes with them."""
    for option in reversed(_OPTIONS):
        f = option(f)
    return f


def overrides_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of the experiment that these options set. Raises :class:`UsageError` for what means nothing."""
    found = {n: options[n] for n in _OF_THE_RUN if options[n] is not None}
    job: dict[str, Any] = {n: options[n] for n in _OF_A_JOB if options[n] is not None}
    if options["env"]:
        job["env"] = dict(_pair(text) for text in options["env"])
    if job:
        found["job"] = job
    if options["orders"] is not None:
        found["orders"] = _orders(options["orders"])
    if (file := jobs_file(options["jobs"])) is not None:
        found["jobs_file"] = file
    found |= _commands(options)
    if options["commands"] or file is not None:
        _check_goes_with(options)
    return found


def _commands(options: Mapping[str, Any]) -> dict[str, Any]:
    """One command is a job; several are a variant each."""
    from dbdyno.plan import names

    commands, named = options["commands"], options["command_names"]
    if len(named) > len(commands):
        raise UsageError(
            f"{len(named)} --command-name, {len(commands)} --command",
            "one name for each command, in their order",
        )
    made = names(commands, hide=bool(options["hide_args"]))
    made = [*named, *made[len(named) :]]
    if len({*made}) < len(made):
        raise UsageError("two commands have the same name", "--command-name names each")
    if len(commands) == 1:
        return {"jobs": [{"command": commands[0], **({"name": named[0]} if named else {})}]}
    return {
        **(
            {
                "variants": {
                    n: {"jobs": [{"command": c, "name": n}]} for n, c in zip(made, commands, strict=True)
                }
            }
            if commands
            else {}
        )
    }


def runs_jobs(options: Mapping[str, Any], recipe: bool) -> bool:
    """Whether a command was given, or a job list, or the recipe has such."""
    given = options["commands"] or options["lists"] or options["scans"]
    return bool(given or jobs_file(options["jobs"]) or recipe)


def jobs_file(given: str | None) -> str | None:
    """``--jobs FILE``; as in pgbench, ``-j N`` is a number of threads."""
    return None if given is None or given.isdigit() else given


def parameters_of(words: Sequence[str], options: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Values of parameters by name, however they were given. Raises :class:`UsageError`."""
    from dbdyno.plan import parse_params, values_of

    step = options["step"]
    if step is not None and not options["scans"]:
        raise UsageError(f"--parameter-step-size {step}: there is no --parameter-scan", "NAME=FROM:TO:STEP")
    given = {n: str(v) for n, v in parse_params(words, "", "threads=1,2,4").items()}
    given |= dict(options["lists"])
    given |= {n: f"{low}:{high}" + (f":{step}" if step else "") for n, low, high in options["scans"]}
    return {name: values_of(text, name) for name, text in given.items()}


def _orders(text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(ORDERS if text == "all" else [p.strip() for p in text.split(",")]))
    for order in found:
        if order not in ORDERS:
            raise UsageError(f"--orders {text}: no order {order!r}", did_you_mean(order, ORDERS))
    return found


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--env {text}: not of the form NAME=VALUE", "for example --env LC_ALL=C")
    return name, value


_CLASHES = {
    "dsn": "a command has no connection; what it connects to stands in its arguments",
    "bin_dir": "no server is started: leave out --pg-bin",
    "files": "SQL is run by a database: leave out --command, or -f",
    "builtins": "SQL is run by a database: leave out --command, or -b",
    "by_command": "that is about the statements of scripts: leave out -r",
    "reset": "nothing is loaded that could be loaded again; --prepare runs a command before each execution",
    "settings": "a command has arguments in place of settings, and --env NAME=VALUE",
    "expect": "leave out --expect: --prepare may drop files from the page cache",
    "protocol": "that is how SQL is sent: leave out -M",
    "reconnect": "a command has no connection: leave out -C",
    "max_tries": "that is about SQL: leave out --max-tries; failed executions are counted and shown",
    "variables": "parameters of commands are NAME=VALUES, and {NAME} in the command",
    "scale": "parameters of commands are NAME=VALUES, and {NAME} in the command",
    "call_target": "a command is as long as it is: leave out --call-target",
}
_SHOWN = {"files": "-f", "builtins": "-b", "by_command": "-r", "bin_dir": "--pg-bin", "reconnect": "-C"}
_SHOWN |= {"settings": "--setting", "protocol": "-M", "variables": "-D", "scale": "-s"}


def _check_goes_with(options: Mapping[str, Any]) -> None:
    for name, cure in _CLASHES.items():
        if options[name] not in (None, (), False):
            shown = _SHOWN.get(name, f"--{name.replace('_', '-')}")
            raise UsageError(f"{shown} with a command", cure)
    exactly = "--once" if options["once"] else "--runs" if options["runs"] is not None else None
    for name, cure in (
        ("measure", "each job runs to its end; --timeout TIME limits an execution"),
        ("settle", "--warmup 1 runs each job once before"),
    ):
        if exactly is not None and options[name] is not None:
            raise UsageError(f"--{name} with {exactly}", cure)
    if options["latency_limit"] is not None and options["rate"] is None and options["rates"] is None:
        raise UsageError(
            f"-L {options['latency_limit']}: -L is --latency-limit",
            "values of a parameter are NAME=VALUES: threads=1,2,4",
        )
