"""Options of the data sources that are off by default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from dbdyno.cli.flags import Option
from dbdyno.model.plan.flags import GATHER
from dbdyno.model.schema.data_source import MOST_HZ
from dbdyno.model.schema.data_sources import options as optional_sources

_F = TypeVar("_F", bound=Callable[..., Any])


class _Sampling(click.ParamType[float | str]):
    """A rate, ``99`` samples per second, or a time, ``30s``."""

    name = "HZ"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float | str:
        text = str(value)
        try:
            hz = float(text)
        except ValueError:
            return text  # the planner checks that it is a time
        if not 0 < hz <= MOST_HZ:
            self.fail(f"{text} samples a second: more than 0 and at most {MOST_HZ}", param, ctx)
        return hz


class OptionalValue(Option):
    """An option whose value may be left out. The next word is its value if it begins with a digit."""

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        super().add_to_parser(parser, ctx)
        option = parser._long_opt[self.opts[0]]
        store = option.process

        def process(value: object, state: Any) -> None:
            if isinstance(value, str) and not value[:1].isdigit():
                state.rargs.insert(0, value)
                value = self.flag_value
            store(value, state)

        option.process = process


def source_options(f: _F) -> _F:
    """Adds the options of the data sources that are off by default."""
    for option in optional_sources():
        in_help = {"group": GATHER, "key": option.key, "help": option.help}
        if option.hz is None:
            f = click.option(option.flag, option.key, cls=Option, is_flag=True, default=None, **in_help)(f)
        else:
            f = click.option(
                option.flag,
                option.key,
                cls=OptionalValue,
                is_flag=False,
                flag_value=str(option.hz),
                type=_Sampling(),
                metavar="[HZ]",
                common=True,
                brief=f"{option.help.partition(',')[0]}.",
                **in_help,
            )(f)
    return f
