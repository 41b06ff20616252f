"""Aligned columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

_STYLES: dict[str, str] = {}


def columns(
    heads: Sequence[str], numeric: Sequence[bool], lines: Sequence[Sequence[str]]
) -> Iterator[RenderableType]:
    """Lines of aligned columns, nothing after the last word. A verdict gives its line a colour."""
    widths = [max(len(x) for x in column) for column in zip(heads, *lines, strict=True)]
    for n, line in enumerate([heads, *lines]):
        cells = [
            t.rjust(w) if number else t.ljust(w) for t, w, number in zip(line, widths, numeric, strict=True)
        ]
        style = "dim" if n == 0 else _STYLES.get(line[-1].split(" (")[0], "")
        yield Text("  ".join(cells).rstrip(), style=style, no_wrap=True, overflow="ignore")
