"""How a run ends, and what is kept of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from dbdyno.drive import Interrupted
from dbdyno.model.errors import DbdynoError, StoreFull
from dbdyno.store import Run


@contextlib.contextmanager
def ending(record: Run) -> Iterator[None]:
    """How the run ended, into its run.json; a run without a cell is not kept."""
    try:
        yield
    except (DbdynoError, Interrupted) as e:
        if not record.cells():
            record.discard()
            raise
        with contextlib.suppress(StoreFull):
            record.finish("cut short", getattr(e, "message", str(e)))
        if isinstance(e, StoreFull):
            raise
    except BaseException as e:
        with contextlib.suppress(StoreFull):
            record.finish("cut short", f"{type(e).__name__}: {e}")
        raise
    else:
        record.finish("complete")
