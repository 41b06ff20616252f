"""What is shown of a stored run at first sight. What derives and concludes is loaded only where a run has
nothing that was kept to be shown: most that is shown is only read."""

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
    """The answer of a run of a store (``None``: the default one): as it was kept, else made now and kept.

    ``say`` is told where that takes a while. Raises :class:`NoSuchRun`, :class:`StoreError`.
    """
    path = find_run(default_root() if store is None else store, wanted)
    with contextlib.suppress(ValueError):
        if (kept := read_shown(path)) is not None:
            return present.stored(kept)
    from dbdyno.conduct.derive.rebuild import keep_screen, results_of  # here: see the module
    from dbdyno.store import Run

    return keep_screen(path, results_of(Run(path), say))
