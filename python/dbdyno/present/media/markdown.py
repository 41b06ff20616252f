"""A document as Markdown, for an issue, a wiki or a merge request: tables with pipes, no drawings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from dbdyno.model.visible import one_line
from dbdyno.present.document import Block, Document, Paragraph, Section, Statements, Table

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#])")


def page(shown: Document) -> str:
    """The whole document; folded sections come in full, charts are left out."""
    figures = [
        f"- {_safe(f.name)}: {_safe(' '.join(filter(None, (f.cell.text, f.cell.unit))))}"
        for f in shown.figures
    ]
    blocks = [f"# {_safe(shown.title)}", *_blocks(shown.lead, 2)]
    blocks += ["\n".join(figures)] if figures else []
    blocks += [*_blocks(shown.blocks, 2), *([_safe(shown.footer)] if shown.footer else [])]
    return "\n\n".join(blocks) + "\n"


def _blocks(blocks: Iterable[Block], depth: int) -> Iterator[str]:
    for block in blocks:
        match block:
            case Paragraph():
                yield _safe(block.text)
            case Statements() if block.items:
                yield "\n".join(
                    f"- {_safe(i.text)}" + (f" ({_safe(i.evidence)})" if i.evidence else "")
                    for i in block.items
                )
            case Table():
                yield from _table(block.shown(sketches=False))
            case Section():
                inner = list(_blocks(block.blocks, depth + 1))
                if inner and block.title:
                    yield f"{'#' * min(depth, 6)} {_safe(block.title)}"
                yield from inner
            case _:
                pass  # drawings: tables hold their figures


def _table(shown: Table) -> Iterator[str]:
    if shown.title:
        yield f"**{_safe(shown.title)}**"
    rows = [[c.head for c in shown.columns], *([c.text for c in r.cells] for r in shown.rows)]
    lines = [f"| {' | '.join(_safe(t) for t in row)} |" for row in rows]
    rule = "|".join("--:" if c.number else ":--" for c in shown.columns)
    yield "\n".join([lines[0], f"|{rule}|", *lines[1:]])


def _safe(text: str) -> str:
    """Text from outside stays text."""
    return _SPECIAL.sub(r"\\\1", one_line(text))
