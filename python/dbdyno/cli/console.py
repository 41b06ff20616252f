"""What rich draws: its own styles pass, texts are made visible first."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import IO, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from dbdyno.cli.streams import Guarded
from dbdyno.model.text.visible import shortened, visible

_FILE = 120
"""Columns of what is no terminal: no figure of a table need be left out."""


class SafeConsole(Console):
    """Texts are made visible and shortened before they are laid out. No markup: names may hold brackets."""

    def __init__(self, stream: IO[str]) -> None:
        under = stream.stream if isinstance(stream, Guarded) else stream
        fixed = None if under.isatty() or "COLUMNS" in os.environ else _FILE
        super().__init__(file=under, highlight=False, markup=False, emoji=False, width=fixed)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        if isinstance(renderable, str):
            renderable = Text(renderable)
        if isinstance(renderable, Text):
            renderable = _safe(renderable)
        return super().render(renderable, options)


def live(console: Console, **options: Any) -> Live:
    """Something that is redrawn. Output beside it stays guarded: rich would redirect it."""
    return Live(console=console, redirect_stdout=False, redirect_stderr=False, **options)


def _safe(text: Text) -> Text:
    plain = shortened(visible(text.plain))
    if plain == text.plain:
        return text
    safe = text.copy()
    safe.plain = plain
    return safe
