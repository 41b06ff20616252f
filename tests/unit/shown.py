"""Blocks of a document as their media show them."""

from __future__ import annotations

from collections.abc import Sequence

from dbdyno.present.document.document import Block, Document, Table, walk
from dbdyno.present.media import html, text


def as_text(shown: Document | Sequence[Block], width: int = 160) -> str:
    lines = text.document(shown, width) if isinstance(shown, Document) else text.lines(shown, width)
    return "\n".join(line.text for line in lines)


def as_html(blocks: Sequence[Block]) -> str:
    return f"<div>{html.parts(blocks)}</div>"


def tables(blocks: Sequence[Block]) -> list[Table]:
    return [b for b in walk(blocks) if isinstance(b, Table)]
