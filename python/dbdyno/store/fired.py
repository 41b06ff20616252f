"""What triggers of a run did: ``triggers/0001.json`` ..., written when it fires and when it has ended."""

from __future__ import annotations

import contextlib

from dbdyno.model.errors import StoreError
from dbdyno.model.plan.triggers import Fired
from dbdyno.store import files
from dbdyno.store.run import Run, to_json

_FOLDER = "triggers"


def write_fired(record: Run, fired: Fired) -> None:
    """Raises :class:`StoreFull`, :class:`StoreError`."""
    files.make_directory(record.path / _FOLDER)
    files.write_atomic(record.path / _FOLDER / f"{fired.number:04}.json", to_json(fired))


def read_fired(record: Run) -> list[Fired]:
    """In the order of firing; what is damaged is left out."""
    found = []
    for path in sorted((record.path / _FOLDER).glob("[0-9]*.json"), key=lambda p: files.in_order(p.stem)):
        with contextlib.suppress(StoreError, ValueError):
            content = files.read(path)
            files.from_json(content)  # the numbers
            found.append(Fired.model_validate_json(content))
    return found
