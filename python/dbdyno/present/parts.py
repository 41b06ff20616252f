"""Defines a part of a run's document as one record: where it applies, its blocks, its option of ``dbdyno
show``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from dbdyno.model.plan.kinds import DRIVEN, Kind, kind_of
from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import empty
from dbdyno.model.text.nouns import fill
from dbdyno.present.document.document import Block, Choice, Option, Paragraph, Section
from dbdyno.present.figures import selection
from dbdyno.present.figures.selection import Pick, Picks
from dbdyno.present.show_options import SHOW_OPTIONS

Details = Callable[[Results, Pick], list[Block]]


@dataclass(frozen=True)
class Page:
    """A run whose document is built."""

    results: Results
    only: str | None = None
    """The key of the load or window whose details are shown, the first one if there is none of this key; None
    for all."""

    @cached_property
    def picks(self) -> Picks:
        """Loads or windows whose details are shown."""
        return selection.picks(self.results)

    @cached_property
    def kind(self) -> Kind:
        return kind_of(self.results.plan)

    @cached_property
    def shown(self) -> list[Pick]:
        """Those of the picks whose details the page has."""
        every = self.picks.shown
        if self.only is None or not every:
            return every
        return [next((p for p in every if p.key == self.only), every[0])]

    def choice(self, *details: Details) -> Block:
        """Returns the blocks of these functions for each load or window, of which the reader chooses one."""
        if not self.shown:
            return Paragraph("Nothing was measured.", "muted")
        name = "Load" if self.kind.among((DRIVEN,)) else "Window"
        labels = [] if self.only is None else [(p.key, p.label) for p in self.picks.shown]
        options = [
            Option(p.key, p.label, [b for m in details for b in m(self.results, p)]) for p in self.shown
        ]
        return Choice(name, options, self.picks.note, labels)


def has_rows(*tables: str) -> Callable[[Results], bool]:
    """Returns whether one of these tables has rows."""
    return lambda results: any(results.tables.get(t, empty(t)).height for t in tables)


class Part(NamedTuple):
    """A section of the document of a run.

    ``title`` may have slots for nouns; ``name`` is a short title for the table of contents. ``kinds`` are the
    kinds of runs, or their tags, that have the section; empty for all. It is left out if ``applies`` is false
    or ``blocks`` returns none. A page opens a ``folded`` section on demand. A terminal leaves out ``folded``
    and ``detail`` sections, and ``minor`` ones where lines are few. ``option`` is the option of
    ``dbdyno show`` that prints ``details``, each for one load or window.
    """

    id: str
    title: str | Callable[[Results], str]
    blocks: Callable[[Page], Sequence[Block]]
    applies: Callable[[Results], bool] = lambda _: True
    kinds: tuple[str, ...] = ()
    folded: bool = False
    detail: bool = False
    minor: bool = False
    name: str = ""
    option: str = ""
    details: tuple[Details, ...] = ()


def sections(parts: Iterable[Part], page: Page) -> Iterator[Section]:
    """Yields the sections of a run, in the order of the parts."""
    for part in parts:
        if not page.kind.among(part.kinds) or not part.applies(page.results):
            continue
        title = fill(part.title) if isinstance(part.title, str) else part.title(page.results)
        blocks = part.blocks(page)
        if blocks:
            yield Section(title, blocks, part.id, part.folded, part.detail, part.minor, part.name)


class Parts:
    """Parts in reading order."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self._parts: list[Part] = []
        for part in parts:
            self.register(part)

    def __iter__(self) -> Iterator[Part]:
        return iter(self._parts)

    def register(self, part: Part, after: str = "") -> None:
        """Adds a part after the one with the id ``after``, else at the end.

        Raises ValueError if there is no such part or option.
        """
        if part.option and part.option not in SHOW_OPTIONS:
            raise ValueError(f"part {part.id}: no option {part.option}")
        places = [n for n, p in enumerate(self._parts) if p.id == after]
        if after and not places:
            raise ValueError(f"no part {after}")
        self._parts.insert(places[-1] + 1 if after else len(self._parts), part)

    def details(self, option: str) -> list[Details]:
        """Returns the functions that an option of ``dbdyno show`` calls for a load or window."""
        return [make for part in self if part.option == option for make in part.details]
