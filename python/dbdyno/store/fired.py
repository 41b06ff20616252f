"""Stores the actions of a run's triggers: ``triggers/0001.json`` and so on.

A file is written when its action fires, and again when that has ended.
"""

from __future__ import annotations

import contextlib

from dbdyno.model.errors import StoreError
from dbdyno.model.plan.triggers import Fired
from dbdyno.store import files
from dbdyno.store.run import Run, to_json

_FOLDER = "triggers"


def write_fired(record: Run, fired: Fired) -> None:
    """Writes an action. Raises :class:`StoreFull`, :class:`StoreError`."""
    files.make_directory(record.path / _FOLDER)
    files.write_atomic(record.path / _FOLDER / f"{fired.number:04}.json", to_json(fired))


def read_fired(record: Run) -> list[Fired]:
    """Returns the actions in the order of firing, without damaged ones."""
    actions = []
    for path in sorted((record.path / _FOLDER).glob("[0-9]*.json"), key=lambda p: files.in_order(p.stem)):
        with contextlib.suppress(StoreError, ValueError):
            content = files.read(path)
            files.from_json(content)  # rejects numbers that are out of range
            actions.append(Fired.model_validate_json(content))
    return actions
