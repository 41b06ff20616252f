"""The common part of following an observation and following a run."""

from __future__ import annotations

import contextlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from dbdyno import present
from dbdyno.conduct.derive.stored_environment import environment_of
from dbdyno.conduct.live import is_over
from dbdyno.model.errors import StoreError
from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import DERIVED, REGISTERED, empty
from dbdyno.present.document.document import Block, Document, KeyFigure, Section, Table
from dbdyno.store import Run
from dbdyno.store.listing import is_alive


@dataclass(frozen=True)
class News:
    """News of a run in progress. ``kind``: ``window``, ``ladder``, ``now`` or ``note``; ``data`` is JSON."""

    kind: str
    data: Mapping[str, Any]


class Following(ABC):
    """Reads what is new, at each call of :meth:`look`; not for several threads at a time."""

    kind: str
    ENDED = "It has ended; the results are being worked out."

    def __init__(self, record: Run) -> None:
        self.record, self.plan = record, record.plan
        self._empty = {t: empty(t) for t in DERIVED if REGISTERED[t].sessions != "all"}
        self._seen: dict[Path, tuple[int, int]] = {}

    @property
    def over(self) -> bool:
        info = self.record.info
        changed = self._changed(self.record.path / "run.json")
        if changed or not is_alive(info.pid, info.pid_start_ticks):
            with contextlib.suppress(StoreError):
                self.record = Run(self.record.path)
        return is_over(self.record)

    @abstractmethod
    def look(self) -> list[News]:
        """Returns what is new since the last look."""

    @abstractmethod
    def chart(self, last_s: float | None) -> dict[str, Any]:
        """Returns the data of the chart; ``last_s``: of the last seconds alone."""

    @abstractmethod
    def headline(self) -> str:
        """Returns a sentence on how far it is, for people who cannot see the rest."""

    @abstractmethod
    def shown(self) -> Document:
        """Returns figures and blocks at present."""

    def results(self, tables: Mapping[str, pl.DataFrame]) -> Results:
        return Results(
            self.record.info, self.plan, environment_of(self.record), {**self._empty, **tables}, ()
        )

    def place(self) -> str:
        """Returns product and version of the server; empty as long as it was not reached."""
        with contextlib.suppress(StoreError):
            return f" on {environment_of(self.record).server.name}"
        return ""

    def _changed(self, path: Path) -> bool:
        """Returns whether a file was replaced since the last call."""
        try:
            status = path.stat()
        except OSError:
            return False
        stamp = status.st_ino, status.st_mtime_ns
        before, self._seen[path] = self._seen.get(path), stamp
        return before != stamp


def plain(figures: Sequence[KeyFigure], blocks: Sequence[Block]) -> Any:
    """Returns figures and blocks as JSON, in the form in which documents are stored."""
    shown = [_fitted(b) for b in blocks]
    return json.loads(present.dumped(Document("", shown, figures=figures)))


def _fitted(block: Block) -> Block:
    """Returns tables as a page shows them: without empty columns, and those of a single text."""
    if isinstance(block, Section):
        return replace(block, blocks=[_fitted(b) for b in block.blocks])
    if isinstance(block, Table):
        return block.without_constants()[0].shown(sketches=False, bars=True)
    return block
