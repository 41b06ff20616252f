"""Groups of commands: a module is loaded when its command is called for, so that each starts quickly.

Earlier names: those in :data:`RENAMED` are still accepted; one in :data:`REPLACED` is an error that gives
the new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from dbdyno.cli.early import at_once
from dbdyno.model.errors import UsageError
from dbdyno.model.suggest import did_you_mean

RENAMED = {
    "witness": "waits",
    "witnesses": "cross-check",
    "cell": "measurement",
    "rung": "sessions",
}
"""Options."""
REPLACED = {
    "plan": "dbdyno recipes lists recipes, dbdyno run --recipe NAME --dry-run shows a plan",
    "profile": "dbdyno show RUN --profile",
    "recipe": "dbdyno recipes new, dbdyno recipes check, dbdyno recipes schema",
}
"""Commands."""


class Commands(click.Group):
    """A group that names the nearest command. ``places``: name -> ``module:attribute``, not loaded yet."""

    def __init__(self, *args: Any, places: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._places = dict(places or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._places})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self._places and cmd_name not in self.commands:
            module, _, attribute = self._places[cmd_name].partition(":")
            with at_once():
                self.add_command(getattr(import_module(module), attribute), cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and not name.startswith("-") and self.get_command(ctx, name) is None:
            cure = REPLACED.get(name) or did_you_mean(name, self.list_commands(ctx))
            raise UsageError(f"no command {ctx.command_path} {name}", cure)
        return super().resolve_command(ctx, args)
