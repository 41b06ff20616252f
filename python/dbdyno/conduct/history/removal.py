"""Lists the runs that would be removed, for the question whether to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dbdyno.conduct.history.rows import RunRow, run_row
from dbdyno.model.units import counted, format_size
from dbdyno.store.listing import size_on_disk
from dbdyno.store.overview import overview_of


class Removal(NamedTuple):
    """``runs``: each with its size in words, or ``link`` if only a link would be removed."""

    runs: Sequence[tuple[RunRow, str]]
    question: str


def removal(paths: Sequence[Path]) -> Removal:
    """Returns the runs at ``paths`` with their sizes on disk, and the question to ask."""
    sizes = [size_on_disk(path) for path in paths]
    runs = [
        (run_row(overview_of(path)), "link" if path.is_symlink() else format_size(size))
        for path, size in zip(paths, sizes, strict=True)
    ]
    return Removal(runs, f"Remove {counted(len(paths), 'run')}, {format_size(sum(sizes))}?")
