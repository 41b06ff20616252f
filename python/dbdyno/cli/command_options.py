"""Options of `dbdyno run` for commands as the load; hyperfine's names where they are free."""

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
    """Commands, and what goes with them."""
    for add in reversed(_OPTIONS):
        f = add(f)
    return f


def fields_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of the experiment that commands set: one command is a job, several are a variant
    each. Raises :class:`UsageError` for what means nothing with commands."""
    found = _commands(options)
    if options["commands"] or jobs_file(options["jobs"]) is not None:
        _check_goes_with(options)
    return found


def _commands(options: Mapping[str, Any]) -> dict[str, Any]:
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


def orders(text: str) -> tuple[str, ...]:
    """Returns the orders that a text lists. Raises :class:`UsageError`."""
    found = tuple(dict.fromkeys(ORDERS if text == "all" else [p.strip() for p in text.split(",")]))
    for order in found:
        if order not in ORDERS:
            raise UsageError(f"--orders {text}: no order {order!r}", did_you_mean(order, ORDERS))
    return found


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
