"""Options of every command (``--quiet``, ``--verbose``), and the file with defaults of options.

A value is taken from the command line, else from the environment, else from the file (docs/config.md). The
whole file is checked before any command runs, also its tables of other commands.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import click
from click.core import ParameterSource

from dbdyno.kernel.private import NotPrivate
from dbdyno.model.errors import UsageError, did_you_mean
from dbdyno.model.home import base_directory

VARIABLE = "DBDYNO_CONFIG"
"""Environment variable with the path of another file; if empty, no file is read."""
_CURE = f"edit the file, or ignore it: {VARIABLE}= dbdyno ..."
_AMOUNT = "dbdyno.amount"  # key of click's Context.meta, which a command shares with its group
_FILE = "dbdyno.config"  # the file's path, likewise
_AMOUNTS = {"quiet": "Print results, warnings and errors only.", "verbose": "Also print each step."}


def is_quiet() -> bool:
    return _amount() == "quiet"


def is_verbose() -> bool:
    return _amount() == "verbose"


def _amount() -> str | None:
    context = click.get_current_context(silent=True)
    return None if context is None else cast("str | None", context.meta.get(_AMOUNT))


def _set_amount(context: click.Context, parameter: click.Parameter, is_set: bool) -> None:
    """A callback of ``--quiet`` and ``--verbose``: the command line overrides the file."""
    name, earlier = str(parameter.name), context.meta.get(_AMOUNT)
    by_hand = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    if is_set and by_hand and earlier not in (None, name):
        raise UsageError("--quiet and --verbose exclude each other", "give one of them")
    if is_set and earlier is None:
        context.meta[_AMOUNT] = name
        _say_defaults(context)


def _say_defaults(context: click.Context) -> None:
    """With ``--verbose``, prints the defaults once. Called where either the option or the file may be read
    last."""
    own = [f"{k}={v}" for k, v in (context.default_map or {}).items() if not isinstance(v, dict)]
    if own and is_verbose():
        click.echo(f"defaults of {context.meta[_FILE]}: {', '.join(own)}", err=True)


def amount_options(*, hidden: bool) -> list[click.Option]:
    """Returns ``-q`` and ``-v``, which every command has. Only the help of the program itself shows them."""
    return [
        click.Option(
            [f"-{name[0]}", f"--{name}"],
            is_flag=True,
            expose_value=False,
            callback=_set_amount,
            hidden=hidden,
            help=text,
        )
        for name, text in _AMOUNTS.items()
    ]


def with_amount(command: click.Command) -> click.Command:
    """Adds ``-q`` and ``-v`` to ``command``, unless it passes its arguments to another program.

    An error that a value of the file causes then names the file's line.
    """
    if not command.ignore_unknown_options and not any(p.name in _AMOUNTS for p in command.params):
        command.params += amount_options(hidden=True)
        if command.callback is not None:
            command.callback = _with_lines(command.callback)
    return command


def _with_lines(callback: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(callback)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return callback(*args, **options)
        except UsageError as e:
            if (place := _in_file(e.message)) is None:
                raise
            raise type(e)(f"{place}: {e.message}", e.cure) from e

    return call


def _in_file(message: str) -> str | None:
    """Returns ``FILE:LINE`` of the option that begins the message, if its value is from the file."""
    context, config = click.get_current_context(), find_config()
    option = re.match(r"--([\w-]+)", message)
    if option is None or config is None:
        return None
    parameter = _options(context.command).get(option[1])
    name = "" if parameter is None else str(parameter.name)
    if context.get_parameter_source(name) is not ParameterSource.DEFAULT_MAP:
        return None
    path = (*context.command_path.split()[1:], option[1])
    table: Any = config.document
    for part in path:
        table = table.get(part) if isinstance(table, dict) else None
    return config.place((option[1],) if table is None else path)


# The file.


@dataclass(frozen=True)
class Config:
    """A configuration file; ``document`` is its parsed TOML."""

    path: Path
    text: str
    document: Mapping[str, Any]

    def error(self, message: str, at: Sequence[str], cure: str | None = None) -> UsageError:
        return UsageError(f"{self.place(at)}: {message}", cure or _CURE)

    def place(self, at: Sequence[str]) -> str:
        """Returns ``FILE:LINE`` of a key."""
        from dbdyno.plan import key_lines, line_of  # here, since only errors need it

        return f"{self.path}:{line_of(key_lines(self.text), at) or 1}"


def find_config() -> Config | None:
    """Reads ``$DBDYNO_CONFIG``, else ``dbdyno/config.toml`` in ``$XDG_CONFIG_HOME`` or ``~/.config``; None
    if there is no file.

    Raises :class:`UsageError` with file and line, also if another user may write the file.
    """
    path = _path()
    if path is None:
        return None
    from dbdyno.store.files import decoded, read_limited  # here, since not every start needs it

    try:
        from dbdyno.plan import read_toml

        # must be private: the file may name commands
        text = decoded(read_limited(path, by_hand=True), str(path))
        return Config(path, text, read_toml(text))
    except UsageError as e:
        raise UsageError(f"cannot read the configuration file {e.message}", e.cure) from e
    except OSError as e:
        cure = f"{e.cure}; or ignore it: {VARIABLE}= dbdyno ..." if isinstance(e, NotPrivate) else _CURE
        raise UsageError(f"cannot read the configuration file {path}: {e.strerror or e}", cure) from e
    except ValueError as e:
        from dbdyno.plan import syntax_error

        line, message = syntax_error(text, e)
        raise UsageError(
            f"{path}:{line}: {message[:1].lower()}{message[1:]}", getattr(e, "cure", _CURE)
        ) from e


def _path() -> Path | None:
    named = os.environ.get(VARIABLE)
    if named is not None:
        return Path(named) if named else None
    try:
        path = base_directory("XDG_CONFIG_HOME", ".config", "the configuration", _CURE) / "dbdyno/config.toml"
        return path if path.exists() else None
    except (OSError, UsageError):  # no home directory, or one of another user
        return None


def apply(context: click.Context) -> None:
    """Makes the file's values the defaults of the command that ``context``, the program's, is about to run.

    Raises :class:`UsageError` for an unknown command or option, or a value that the option does not take.
    """
    config = find_config()
    group, name = context.command, context.invoked_subcommand
    if config is None or name is None:
        return
    assert isinstance(group, click.Group)
    shared = {k: v for k, v in config.document.items() if not isinstance(v, dict)}
    _check_shared(config, group, context, shared)
    for table in config.document.keys() - shared.keys():
        _check_table(config, group, context, (table,), config.document[table])
    command = group.get_command(context, name)
    assert command is not None
    context.meta[_FILE] = config.path
    context.default_map = {name: _defaults(config, command, context, (name,), shared)}
    _say_defaults(click.Context(command, info_name=name, parent=context))


def _check_shared(
    config: Config, group: click.Group, context: click.Context, shared: Mapping[str, Any]
) -> None:
    """Raises UsageError unless each key outside of a table is an option of at least one command."""
    options = {k for c in _commands(group, context) for k in _options(c)} if shared else set()
    for key in shared.keys() - options:
        raise config.error(f"no command has an option --{key}", (key,), did_you_mean(key, options))


def _commands(group: click.Group, context: click.Context) -> Iterator[click.Command]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is not None:
            yield command
        if isinstance(command, click.Group):
            yield from _commands(command, context)


def _options(command: click.Command) -> dict[str, click.Option]:
    """Returns options by long name without dashes: ``call-target``."""
    return {
        name.removeprefix("--"): p
        for p in command.params
        if isinstance(p, click.Option)
        for name in p.opts
        if name.startswith("--")
    }


def _check_table(
    config: Config,
    group: click.Group,
    context: click.Context,
    path: tuple[str, ...],
    table: Mapping[str, Any],
) -> None:
    """Checks the table of one command."""
    command = group.get_command(context, path[-1])
    if command is None:
        cure = did_you_mean(path[-1], group.list_commands(context))
        raise config.error(f"no command dbdyno {' '.join(path)}", path, cure)
    options = _options(command)
    for key, value in table.items():
        if isinstance(value, dict) and isinstance(command, click.Group):
            _check_table(config, command, context, (*path, key), value)
        elif key not in options:
            message = f"dbdyno {' '.join(path)} has no option --{key}"
            raise config.error(message, (*path, key), did_you_mean(key, options))
        else:
            _value(config, options[key], context, (*path, key), value)


def _defaults(
    config: Config,
    command: click.Command,
    context: click.Context,
    path: tuple[str, ...],
    shared: Mapping[str, Any],
) -> dict[str, Any]:
    """Returns the defaults of a command and its subcommands; its own table overrides ``shared``."""
    own: Any = config.document
    for name in path:
        own = own.get(name, {})
    options, defaults = _options(command), dict[str, Any]()
    for at, values in (((), shared), (path, own)):
        for key in values.keys() & options.keys():
            value = _value(config, options[key], context, (*at, key), values[key])
            defaults[str(options[key].name)] = value
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            defaults[name] = _defaults(config, below, context, (*path, name), shared)
    return defaults


_ONE_OR_MORE = ("dsn", "server_ssh", "server_node")
"""Options that some commands take once and others several times; one value in the file serves both."""


def _value(
    config: Config, option: click.Option, context: click.Context, at: tuple[str, ...], value: Any
) -> Any:
    """Returns the value in the form that the option takes. ``~`` begins a path in the home directory."""
    values = value if isinstance(value, list) else [value]
    if option.multiple and option.name in _ONE_OR_MORE:
        value = values
    if isinstance(value, list) != option.multiple:
        needed = "a list of values" if option.multiple else "one value"
    elif option.is_flag:
        needed = "" if isinstance(value, bool) else "true or false"
    else:
        right = all(isinstance(v, str | int | float) and not isinstance(v, bool) for v in values)
        needed = "" if right else "a string or a number"
    if needed:
        raise config.error(f"{at[-1]} needs {needed}", at)
    for dsn in values if option.name == "dsn" else ():
        _refuse_secret(config, at, str(dsn))
    if isinstance(option.type, click.Path):
        value = os.path.expanduser(str(value))  # noqa: PTH111  click converts it to a path
    try:
        option.type_cast_value(context, value)
    except click.BadParameter as e:
        raise config.error(f"{at[-1]}: {e.message[:1].lower()}{e.message[1:].removesuffix('.')}", at) from e
    return value


def _refuse_secret(config: Config, at: tuple[str, ...], dsn: str) -> None:
    """Raises UsageError for a password, whatever the file's mode: such files are copied, and kept in
    repositories."""
    from dbdyno.engines import DEFAULT, secret_in

    table = config.document.get(at[0]) if len(at) > 1 else None
    engine = {**config.document, **(table or {})}.get("engine", DEFAULT)
    if (cure := secret_in(engine, dsn)) is not None:
        raise config.error("dsn holds a password", at, cure)
