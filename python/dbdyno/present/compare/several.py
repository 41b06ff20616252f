"""Puts comparisons with one baseline into one document: a table of the answers, then a section each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dbdyno.present.document.document import (
    Block,
    Cell,
    Chart,
    Choice,
    Column,
    Document,
    Flame,
    Paragraph,
    Row,
    Section,
    Statements,
    Strip,
    Table,
    word,
)


def document(title: str, shown: Sequence[Document]) -> Document:
    """Returns one document of several, each with an answer as its lead."""
    columns = [Column("compared", wraps=True), Column("answer", wraps=True)]
    rows = [
        Row([Cell(one.title, one.title, target=_id(n)), word(" ".join(p.text for p in one.lead if p.lead))])
        for n, one in enumerate(shown)
    ]
    sections = [
        Section(one.title, [*one.lead, *_renamed(one.blocks, _id(n))], _id(n)) for n, one in enumerate(shown)
    ]
    return Document(title, [Section("Answers", [Table("", columns, rows)], "answers"), *sections])


def _id(number: int) -> str:
    return f"pair-{number + 1}"


def _renamed(blocks: Iterable[Block], prefix: str) -> list[Block]:
    """Returns the blocks with ids that begin with ``prefix``, so that they are unique in the whole."""
    return [_renamed_block(b, prefix) for b in blocks]


def _renamed_block(block: Block, prefix: str) -> Block:
    def own(name: str) -> str:
        return f"{prefix}-{name}" if name and not name.startswith("/") else name

    match block:
        case Section():
            return replace(block, id=own(block.id), blocks=_renamed(block.blocks, prefix))
        case Choice():
            options = [o._replace(blocks=_renamed(o.blocks, prefix)) for o in block.options]
            return replace(block, options=options)
        case Table():
            return replace(block, rows=[r._replace(id=own(r.id)) for r in block.rows])
        case Chart() | Strip() | Flame():
            return replace(block, id=own(block.id))
        case Statements():
            return replace(block, items=[i._replace(target=own(i.target)) for i in block.items])
        case Paragraph():
            return replace(block, links=[(text, own(place)) for text, place in block.links])
        case _:
            return block
