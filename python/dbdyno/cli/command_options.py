"""Options of `dbdyno run` for commands as the load, with hyperfine's names where these are free."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, get_args

import click

from dbdyno.cli.flags import Option
from dbdyno.model.errors import UsageError, did_you_mean
from dbdyno.model.plan.flags import COMMANDS, WHAT
from dbdyno.model.plan.literals import Arrangement

_F = TypeVar("_F", bound=Callable[..., Any])
ORDERS = get_args(Arrangement)
_option = partial(click.option, cls=Option, group=COMMANDS)
_OPTIONS = (
    _option(
        "--command",
        "commands",
        metavar="COMMAND",
        multiple=True,
        group=WHAT,
        common=True,
        brief="Run this command in place of a database's calls: 'xz -T{threads} -kc FILE' threads=1,2,4.",
        help="Run this command in place of a database's calls: 'xz -T{threads} -kc FILE' threads=1,2,4. "
        "Repeatable: the commands are compared.",
    ),
    _option(
        "--command-name",
        "command_names",
        metavar="NAME",
        multiple=True,
        help="Name of a command; repeatable.",
    ),
    _option(
        "--parameter-list",
        "lists",
        nargs=2,
        metavar="NAME VALUES",
        multiple=True,
        help="The same as NAME=VALUES: each value is a variant.",
    ),
    _option(
        "--parameter-scan",
        "scans",
        nargs=3,
        metavar="NAME FROM TO",
        multiple=True,
        help="The same as NAME=FROM:TO.",
    ),
    _option(
        "--parameter-step-size",
        "step",
        metavar="STEP",
        help="Step of --parameter-scan: a number, or x2.  [default: 1]",
    ),
)


def command_options(f: _F) -> _F:
    """Adds options of commands, their names and parameters."""
    for add in reversed(_OPTIONS):
        f = add(f)
    return f


def fields_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of the experiment that commands set: one command is a job, several are one variant
    each.

    Raises :class:`UsageError` for options that mean nothing with commands.
    """
    fields = _commands(options)
    if options["commands"] or jobs_file(options["jobs"]) is not None:
        _check_goes_with(options)
    return fields


def _commands(options: Mapping[str, Any]) -> dict[str, Any]:
    from dbdyno.plan import names

    commands, names_given = options["commands"], options["command_names"]
    if len(names_given) > len(commands):
        raise UsageError(
            f"{len(names_given)} --command-name, {len(commands)} --command",
            "one name for each command, in their order",
        )
    all_names = names(commands, hide=bool(options["hide_args"]))
    all_names = [*names_given, *all_names[len(names_given) :]]
    if len({*all_names}) < len(all_names):
        raise UsageError("two commands have the same name", "--command-name names each")
    if len(commands) == 1:
        return {"jobs": [{"command": commands[0], **({"name": names_given[0]} if names_given else {})}]}
    return {
        **(
            {
                "variants": {
                    n: {"jobs": [{"command": c, "name": n}]} for n, c in zip(all_names, commands, strict=True)
                }
            }
            if commands
            else {}
        )
    }


def runs_jobs(options: Mapping[str, Any], recipe: bool) -> bool:
    """Returns whether a command or a job list was given, or the recipe has jobs."""
    has_commands = options["commands"] or options["lists"] or options["scans"]
    return bool(has_commands or jobs_file(options["jobs"]) or recipe)


def jobs_file(text: str | None) -> str | None:
    """Returns the file of ``--jobs FILE``; None for ``-j N``, the number of threads as in pgbench."""
    return None if text is None or text.isdigit() else text


def parameters_of(arguments: Sequence[str], options: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Returns values of parameters by name, from arguments, lists and scans. Raises :class:`UsageError`."""
    from dbdyno.plan import parse_params, values_of

    step = options["step"]
    if step is not None and not options["scans"]:
        raise UsageError(f"--parameter-step-size {step}: there is no --parameter-scan", "NAME=FROM:TO:STEP")
    texts = {n: str(v) for n, v in parse_params(arguments, "", "threads=1,2,4").items()}
    texts |= dict(options["lists"])
    texts |= {n: f"{low}:{high}" + (f":{step}" if step else "") for n, low, high in options["scans"]}
    return {name: values_of(text, name) for name, text in texts.items()}


def orders(text: str) -> tuple[str, ...]:
    """Returns the orders that a text lists. Raises :class:`UsageError`."""
    listed = tuple(dict.fromkeys(ORDERS if text == "all" else [p.strip() for p in text.split(",")]))
    for order in listed:
        if order not in ORDERS:
            raise UsageError(f"--orders {text}: no order {order!r}", did_you_mean(order, ORDERS))
    return listed


def environment(texts: Iterable[str]) -> dict[str, str]:
    """Returns variables of the environment by name. Raises :class:`UsageError`."""
    return dict(_pair(text) for text in texts)


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
