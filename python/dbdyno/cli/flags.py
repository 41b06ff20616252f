"""Options of commands that have many: each has a group in the help, and may set a field of the experiment."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from dbdyno.model.errors import UsageError
from dbdyno.model.plan.flags import GROUPS, OUTPUT, Flag, Number, flags_of

_F = TypeVar("_F", bound=Callable[..., Any])
_ALL = "dbdyno.help-all"  # keys of the context's ``meta``
_TYPED = "dbdyno.typed"
_EXAMPLES = "Examples:"
_EXAMPLES_SHOWN = 4


class _Number(click.types.IntParamType):
    """A number of sessions or of a process, window or capture: 0 to 2^31 - 1, the range of the tables'
    columns."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not 0 <= number < 2**31:
            self.fail(f"{number} is not from 0 to {2**31 - 1}", param, ctx)
        return number


NUMBER = _Number()


class Option(click.Option):
    """An option that belongs to a group of the help of a :class:`Command`.

    ``common``: ``--help`` shows the option, with ``brief`` in place of ``help`` if given. ``key``: the field
    of the experiment that the option sets, with its table, as in ``driver.protocol``. ``value``: the value
    that an option without an argument sets.
    """

    def __init__(
        self,
        *words: Any,
        group: str = OUTPUT,
        common: bool = False,
        brief: str = "",
        key: str = "",
        value: Any = None,
        **more: Any,
    ) -> None:
        super().__init__(*words, **more)
        self.group, self.common, self.brief, self.key, self.value = group, common, brief, key, value

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Leaves out the range: the help text has it."""
        return {name: words for name, words in super().get_help_extra(ctx).items() if name != "range"}


class Command(click.Command):
    """A command whose ``--help`` shows what most people use, and whose ``--help-all`` shows everything."""

    def __init__(self, *words: Any, **more: Any) -> None:
        super().__init__(*words, **more)
        self.params.append(
            Option(
                ["--help-all"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                common=True,
                callback=_help_all,
                help="Show all options and examples, and exit.",
            )
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Raises :class:`UsageError` for an option that is given by two of its names: one would be lost."""
        ctx.meta[_TYPED] = {}
        for param in self.params:
            names = [o for o in param.opts if o.startswith("--")]
            typed = [o for o in names if any(a == o or a.startswith(f"{o}=") for a in args)]
            if len(typed) > 1 and isinstance(param, click.Option) and not param.multiple:
                raise UsageError(f"both {' and '.join(typed)} were given", "give one of them")
            if typed and typed[0] != names[0]:
                ctx.meta[_TYPED][names[0]] = typed[0]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Names options in errors as they were typed."""
        try:
            return super().invoke(ctx)
        except UsageError as e:
            for name, typed in ctx.meta[_TYPED].items():
                e.message = re.sub(rf"{name}(?![\w-])", typed, e.message)
            raise

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        whole = self.help
        if not ctx.meta.get(_ALL) and whole is not None:
            text, _, examples = whole.partition(f"{_EXAMPLES}\n")
            self.help = f"{text}{_EXAMPLES}\n" + "\n".join(examples.splitlines()[:_EXAMPLES_SHOWN])
        try:
            super().format_help_text(ctx, formatter)
        finally:
            self.help = whole

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        everything = bool(ctx.meta.get(_ALL))
        groups = by_group(self, ctx)
        count = sum(map(len, groups.values()))
        for group, options in groups.items():
            records: list[tuple[str, str]] = []
            for option in options:
                words, text = option.get_help_record(ctx) or ("", "")
                if everything or not isinstance(option, Option):  # --help itself
                    records.append((words, text))
                elif option.common:
                    records.append((words, option.brief or text))
            if records:
                with formatter.section(group):
                    formatter.write_dl(records)
        if not everything:
            formatter.write_paragraph()
            formatter.write_text(f"{ctx.command_path} --help-all shows all {count} options.")


class Grouped(click.Command):
    """A command whose help lists all options, by purpose.

    ``groups``: heading -> names of the parameters of its options. Options of no group follow as output.
    """

    def __init__(self, *words: Any, groups: Mapping[str, Sequence[str]], **more: Any) -> None:
        super().__init__(*words, **more)
        self.groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        shown = [p for p in self.get_params(ctx) if isinstance(p, click.Option) and not p.hidden]
        grouped = {name for names in self.groups.values() for name in names}
        others = [str(p.name) for p in shown if p.name not in grouped]
        for heading, names in {**self.groups, OUTPUT: [*self.groups.get(OUTPUT, ()), *others]}.items():
            records = [p.get_help_record(ctx) for name in names for p in shown if p.name == name]
            with formatter.section(heading):
                formatter.write_dl([record for record in records if record is not None])
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)


def by_group(command: click.Command, context: click.Context) -> dict[str, list[click.Option]]:
    """Returns the options that the help shows, by group, in the order of the help."""
    shown = [p for p in command.get_params(context) if isinstance(p, click.Option) and not p.hidden]
    groups = {g: [p for p in shown if getattr(p, "group", OUTPUT) == g] for g in GROUPS}
    return {group: options for group, options in groups.items() if options}


def _help_all(context: click.Context, _parameter: click.Parameter, requested: bool) -> None:
    if requested and not context.resilient_parsing:
        context.meta[_ALL] = True
        click.echo(context.get_help(), color=context.color)
        context.exit()


def flag_options(command: str) -> Callable[[_F], _F]:
    """Adds an option for each flag of a command."""

    def add(f: _F) -> _F:
        for flag in reversed(flags_of(command)):
            f = _option(flag)(f)
        return f

    return add


def _option(flag: Flag) -> Callable[[_F], _F]:
    default = flag.shown or (f"{flag.default:g}" if flag.kind is float else str(flag.default or ""))
    default = "" if flag.kind is bool and not flag.shown else default
    shown = f"  [default: {default}]" if default else ""
    brief = flag.brief or (flag.help if flag.help.endswith((".", "]")) else f"{flag.help}.")
    more: dict[str, Any] = {}
    if flag.choices:
        more["type"] = click.Choice(flag.choices)
    elif flag.kind is bool:
        more["is_flag"] = True
    elif flag.least is not None:
        range_of: Any = click.FloatRange if flag.kind is float else click.IntRange
        more["type"] = range_of(flag.least, flag.most)
    elif flag.kind is Number:
        more["type"] = NUMBER
    else:
        more["type"] = flag.kind
    if flag.multiple:
        more["multiple"] = True
    else:
        more["default"] = None
    if metavar := flag.metavar or ("N" if flag.kind in (int, float) else ""):
        more["metavar"] = metavar
    return click.option(
        *flag.names.split(),
        flag.key.rpartition(".")[2],
        cls=Option,
        group=flag.group,
        common=flag.common,
        key=flag.key,
        value=flag.value,
        brief=brief + shown,
        help=f"{flag.text}{_range(flag)}{shown}",
        **more,
    )


def _range(flag: Flag) -> str:
    """Returns the range of a flag as a sentence of its help."""
    if flag.least is None or (flag.most is None and flag.least == 0):
        return ""
    return f" At least {flag.least:,}." if flag.most is None else f" From {flag.least:,} to {flag.most:,}."


def fields_given(
    options: Mapping[str, Any], read: Mapping[str, Callable[[Any], Any]] | None = None
) -> dict[str, Any]:
    """Returns the fields of the experiment that options of the current command set, in tables as in a
    recipe.

    ``read``: by key, a function from the option's value to the field's. Raises :class:`UsageError` if that
    function does.
    """
    fields: dict[str, Any] = {}
    params = [p for p in click.get_current_context().command.params if isinstance(p, Option) and p.key]
    for option in sorted(params, key=lambda p: p.key.count(".")):  # tables before their keys
        value = options[str(option.name)]
        if value in (None, ()):
            continue
        if option.value is not None:
            value = option.value
        elif read and option.key in read:
            value = read[option.key](value)
        *tables, name = option.key.split(".")
        target = fields
        for table in tables:
            target = target.setdefault(table, {})
        target[name] = value
    return fields
