"""Options of triggers: ``--when CONDITION --do ACTION``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from dbdyno.cli.flags import Option
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.flags import GATHER

_F = TypeVar("_F", bound=Callable[..., Any])
_ORDER = "dbdyno.triggers"
"""Key of the context's ``meta``: the options in the order given, which pairs each --do with its --when."""
_EXAMPLE = "--when 'sessions in (10,20,30)' --do 'profile 10s'"


class _InOrder(Option):
    """An option that remembers its place among the options of this class."""

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        super().add_to_parser(parser, ctx)
        option = parser._long_opt[self.opts[0]]
        store = option.process

        def process(value: object, state: Any) -> None:
            ctx.meta.setdefault(_ORDER, []).append((self.name, str(value)))
            store(value, state)

        option.process = process


def trigger_options(f: _F) -> _F:
    f = click.option(
        "--trigger-secret",
        "trigger_secrets",
        cls=Option,
        group=GATHER,
        metavar="NAME",
        multiple=True,
        help="Hand this variable of the environment to the commands of exec, though dbdyno connects by it: "
        "PGPASSWORD; repeatable.",
    )(f)
    f = click.option(
        "--trigger-cool-down",
        "trigger_cool_down",
        cls=Option,
        group=GATHER,
        metavar="TIME",
        help="A trigger that has fired does not fire again for so long.  [default: 30s]",
    )(f)
    f = click.option(
        "--do",
        "do",
        cls=_InOrder,
        group=GATHER,
        metavar="ACTION",
        multiple=True,
        expose_value=False,
        help="What to do when the --when before it is met: 'profile 10s', 'off-cpu 10s', 'trace 10s', "
        "snapshot, memory, 'exec COMMAND'; repeatable.",
    )(f)
    return click.option(
        "--when",
        "when",
        cls=_InOrder,
        group=GATHER,
        metavar="CONDITION",
        multiple=True,
        expose_value=False,
        help="Gather detail when this is met: 'sessions in (10,20,30)', 'cpu_wait > 30% for 3s'; repeatable, "
        "each with its --do (dbdyno help triggers).",
    )(f)


def triggers_given(options: Mapping[str, Any]) -> tuple[dict[str, Any], ...] | None:
    """Returns fields of :class:`TriggerSpec` for each trigger; None without triggers. Raises
    :class:`UsageError`."""
    in_order = click.get_current_context().meta.get(_ORDER, [])
    cool_down = options.get("trigger_cool_down")
    secrets = options.get("trigger_secrets")
    specs: list[dict[str, Any]] = []
    for name, text in in_order:
        if name == "when":
            specs.append({"when": text, "do": ()} | ({"cool_down": cool_down} if cool_down else {}))
        elif not specs:
            raise UsageError(f"--do {text!r}: there is no --when before it", f"for example {_EXAMPLE}")
        else:
            specs[-1]["do"] += (text,)
    if lacking := [m["when"] for m in specs if not m["do"]]:
        raise UsageError(f"--when {lacking[0]!r} has no --do after it", f"for example {_EXAMPLE}")
    for option, value in (("cool-down", cool_down), ("secret", secrets)):
        if value and not specs:
            raise UsageError(f"--trigger-{option} without --when", f"for example {_EXAMPLE}")
    for spec in specs if secrets else ():
        if any(text.split()[:1] == ["exec"] for text in spec["do"]):
            spec["secrets"] = secrets
    if secrets and not any("secrets" in spec for spec in specs):
        raise UsageError("--trigger-secret is for exec, and no --do has it", "--do 'exec COMMAND'")
    return tuple(specs) or None
