"""Renders a document as Markdown for issues, wikis and merge requests: tables with pipes, no drawings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from dbdyno.model.text.visible import lines, one_line
from dbdyno.present.document.document import (
    Block,
    Choice,
    Document,
    Paragraph,
    Section,
    Statement,
    Statements,
    Table,
    Verbatim,
)

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#&~$]|:(?=//)|(?<=www)\.)")
"""Characters to escape: marks, entities, formulas, and parts of bare addresses that become links."""
_MARKER = re.compile(r"\s*(\d*)([-+.)]+)(?=\s|$)")
"""Characters that make a list or a rule of a paragraph if it begins with them."""
_FENCE = re.compile(r"`+")
_MOST = 8
"""Most further options of a choice that are named."""


def page(shown: Document) -> str:
    """Returns the document with folded sections in full, the first option of a choice, and no charts."""
    figures = [
        f"- {_safe(f.name)}: {_safe(' '.join(filter(None, (f.cell.text, f.cell.unit))))}"
        for f in shown.figures
    ]
    about = [f"- {_safe(name)}: {_safe(value)}" for name, value in shown.about]
    blocks = [f"# {_safe(shown.title)}", *_blocks(shown.lead, 2)]
    blocks += ["\n".join(facts) for facts in (figures, about) if facts]
    blocks += [*_blocks(shown.blocks, 2), *([_safe(shown.footer)] if shown.footer else [])]
    return "\n\n".join(blocks) + "\n"


def _blocks(blocks: Iterable[Block], depth: int) -> Iterator[str]:
    for block in blocks:
        match block:
            case Paragraph():
                yield _safe_start(block.text)
            case Statements() if block.items:
                yield "\n".join(map(_statement, block.items))
            case Table(in_title_block=False):
                yield from _table(block.shown(sketches=False))
            case Verbatim():
                yield _fenced(block.text)
            case Choice() if block.options:
                inner = list(_blocks(block.options[0].blocks, depth))
                yield from inner
                if inner and len(block.options) > 1:
                    yield f"*{_safe(_others(block))}*"
            case Section():
                inner = list(_blocks(block.blocks, depth + 1))
                if inner and block.title:
                    yield f"{'#' * min(depth, 6)} {_safe(block.title)}"
                yield from inner
            case _:
                pass  # drawings: tables hold their figures


def _statement(item: Statement) -> str:
    evidence = f" ({_safe(item.evidence)})" if item.evidence else ""
    advice = f" What to do: {_safe(item.advice)}" if item.advice else ""
    return f"- {_safe_start(item.text)}{evidence}{advice}"


def _others(shown: Choice) -> str:
    first, *others = (o.label for o in shown.options)
    some = ", ".join(others[:_MOST]) + (f" and {len(others) - _MOST} more" if len(others) > _MOST else "")
    return f"{shown.name}: {first}. The HTML report also has {some}."


def _table(shown: Table) -> Iterator[str]:
    if shown.title:
        yield f"**{_safe(shown.title)}**"
    heads = [c.name or c.head for c in shown.columns]
    rows = [heads, *([c.text for c in r.cells] for r in shown.rows)]
    lines = [f"| {' | '.join(_safe(t) for t in row)} |" for row in rows]
    rule = "|".join("--:" if c.number else ":--" for c in shown.columns)
    yield "\n".join([lines[0], f"|{rule}|", *lines[1:]])


def _fenced(text: str) -> str:
    """Returns code between fences longer than any in it; indented code after a list would become text."""
    fence = "`" * max(3, 1 + max(map(len, _FENCE.findall(text)), default=0))
    return "\n".join([fence, *map(one_line, lines(text)), fence])


def _safe_start(text: str) -> str:
    """Escapes a text at the beginning of a paragraph, where list markers count as well."""
    return _MARKER.sub(r"\1\\\2", _safe(text), count=1) if _MARKER.match(text) else _safe(text).lstrip()


def _safe(text: str) -> str:
    """Escapes a text so that Markdown shows it literally."""
    return _SPECIAL.sub(r"\\\1", one_line(text))
