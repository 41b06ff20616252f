"""A rich console that lets its own styles pass and makes control characters in texts visible."""

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

_FILE_COLUMNS = 120
"""Columns if the output is not a terminal: wide enough that no table leaves out a figure."""


class SafeConsole(Console):
    """Makes texts visible and shortens them before layout. Has no markup, since names may hold brackets."""

    def __init__(self, stream: IO[str]) -> None:
        under = stream.stream if isinstance(stream, Guarded) else stream
        fixed = None if under.isatty() or "COLUMNS" in os.environ else _FILE_COLUMNS
        super().__init__(file=under, highlight=False, markup=False, emoji=False, width=fixed)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        if isinstance(renderable, str):
            renderable = Text(renderable)
        if isinstance(renderable, Text):
            renderable = _safe(renderable)
        return super().render(renderable, options)


def live(console: Console, **options: Any) -> Live:
    """Returns a display that is redrawn. rich must not redirect other output, since :class:`Guarded` guards
    it."""
    return Live(console=console, redirect_stdout=False, redirect_stderr=False, **options)


def _safe(text: Text) -> Text:
    plain = shortened(visible(text.plain))
    if plain == text.plain:
        return text
    safe = text.copy()
    safe.plain = plain
    return safe
