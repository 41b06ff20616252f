"""The first view of a stored run. The rooms that derive and conclude are imported only if no view was
kept."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dbdyno import present
from dbdyno.store import default_root, find_run, read_shown

if TYPE_CHECKING:
    from dbdyno.present.document.document import Document


def shown(store: Path | None, wanted: str, say: Callable[[str], None]) -> Document:
    """Returns the first view of a run in a store (None: the default store): the kept one, else a new one,
    which is then kept.

    ``say`` is called if that takes long. Raises :class:`NoSuchRun`, :class:`StoreError`.
    """
    path = find_run(default_root() if store is None else store, wanted)
    with contextlib.suppress(ValueError):
        if (kept := read_shown(path)) is not None:
            return present.stored(kept)
    from dbdyno.conduct.derive.rebuild import keep_screen, results_of  # takes long to load
    from dbdyno.store import Run

    return keep_screen(path, results_of(Run(path), say))
