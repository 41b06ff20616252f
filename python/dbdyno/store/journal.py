"""Keeps journals of changes to undo: one file per active run, in one place per user.

::

    $DBDYNO_STATE_DIR, else $XDG_STATE_HOME/dbdyno, else ~/.local/state/dbdyno     (mode 0700)
      undo/20261121-104501-lio-3f9a-4711-9c02.json   run, process; mode 0600; while something is changed

A journal is written and synced before each change, so the changes of a killed run are always known. It is
not in the run store, because cleaning up must not depend on the store that a run used.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from dbdyno.kernel.private import NotPrivate, make_private
from dbdyno.model.engine.protocols import Undo
from dbdyno.model.errors import StoreError, StoreFull
from dbdyno.model.home import base_directory
from dbdyno.store import files
from dbdyno.store.files import read_limited
from dbdyno.store.listing import is_alive, start_ticks

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class _File(BaseModel):
    """The content of a journal's file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run: str
    pid: int  # the process that makes the changes
    pid_start_ticks: int
    boot: str  # id of the boot to which pid and ticks belong
    undos: tuple[Undo, ...] = ()  # in the order of the changes


def state_dir() -> Path:
    """Returns the directory of this user's journals (XDG Base Directory Specification 0.8: state)."""
    if own := os.environ.get("DBDYNO_STATE_DIR"):
        return Path(own).absolute() / "undo"
    what, cure = "the undo journals", "name one: DBDYNO_STATE_DIR=DIR"
    return base_directory("XDG_STATE_HOME", ".local/state", what, cure) / "dbdyno" / "undo"


class FileJournal:
    """A :class:`dbdyno.model.engine.protocols.Journal` in a file, which the first note creates.

    Raises :class:`StoreFull` and :class:`StoreError`; :meth:`note` does so before anything is changed.
    """

    def __init__(self, run: str) -> None:
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", run).lstrip(".") or "run"
        self.path = state_dir() / f"{name}-{os.getpid()}-{secrets.token_hex(2)}.json"
        self._file = _File(
            run=run, pid=os.getpid(), pid_start_ticks=start_ticks(os.getpid()) or 0, boot=_boot()
        )

    @classmethod
    def read(cls, path: Path) -> FileJournal:
        """Returns an existing journal. Raises :class:`StoreError` if it is damaged or another user may
        have written it."""
        journal = cls.__new__(cls)
        journal.path = path
        try:
            journal._file = _File.model_validate_json(read_limited(path, private=True))
        except OSError as e:
            by_hand = "if it belongs to one of your runs, undo by hand what it lists; then remove it"
            raise StoreError(
                f"the journal {path} is not used: {e.strerror or e}",
                f"{e.cure}; {by_hand}" if isinstance(e, NotPrivate) else by_hand,
            ) from e
        except ValidationError as e:
            raise StoreError(
                f"the journal {path} is damaged: what it names cannot be put back by dbdyno",
                "look into it, put back by hand what it names, and remove it",
            ) from e
        return journal

    @property
    def run(self) -> str:
        return self._file.run

    @property
    def owner_pid(self) -> int:
        """The process that makes the changes."""
        return self._file.pid

    @property
    def alive(self) -> bool:
        """Whether that process still exists."""
        return self._file.boot == _boot() and is_alive(self._file.pid, self._file.pid_start_ticks)

    @property
    def undos(self) -> Sequence[Undo]:
        """The changes to undo in the order they were made; undo the last one first."""
        return self._file.undos

    def note(self, undo: Undo) -> None:
        """Writes a change to disk before it returns. The first change of a key counts."""
        if any(known.key == undo.key for known in self._file.undos):
            return
        self._save((*self._file.undos, undo))

    def forget(self, key: str) -> None:
        """Removes a change that has been undone; the last one removes the file."""
        left = tuple(known for known in self._file.undos if known.key != key)
        if len(left) != len(self._file.undos):
            self._save(left)

    def close(self) -> None:
        """Removes the file if nothing is left to undo."""
        if not self._file.undos:
            with _guard(self.path):
                self.path.unlink(missing_ok=True)

    def _save(self, undos: tuple[Undo, ...]) -> None:
        updated = self._file.model_copy(update={"undos": undos})
        with _guard(self.path):
            if undos:
                make_private(self.path.parent)  # a journal that others may write is never used
                files.write_atomic(self.path, updated.model_dump_json(indent=1).encode())
            else:  # works on a full disk
                self.path.unlink(missing_ok=True)
        self._file = updated


class LeftOver(NamedTuple):
    """All existing journals, the newest first: the last change is undone first."""

    dead: list[FileJournal]
    alive: list[FileJournal]  # of runs that are under way
    damaged: list[StoreError]


def left_over() -> LeftOver:
    """Returns the changes of this user's runs that have not been undone."""
    journals = LeftOver([], [], [])
    for path in sorted(_paths(), key=_age, reverse=True):
        try:
            journal = FileJournal.read(path)
        except StoreError as error:
            if path.exists():  # otherwise it has just been undone
                journals.damaged.append(error)
        else:
            (journals.alive if journal.alive else journals.dead).append(journal)
    return journals


def _paths() -> list[Path]:
    with _guard(state_dir()):
        try:
            paths = list(state_dir().iterdir())
        except FileNotFoundError:
            return []
    return [p for p in paths if p.suffix == ".json" and not p.name.startswith(files.TEMPORARY)]


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _boot() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


@contextmanager
def _guard(path: Path) -> Iterator[None]:
    """Turns an :class:`OSError` into an error of the journal with a cure."""
    try:
        yield
    except (OSError, StoreError) as error:
        cause = error.__cause__ if isinstance(error, StoreError) else error
        why = cause.strerror if isinstance(cause, OSError) else error
        first = f"{cause.cure}; " if isinstance(cause, NotPrivate) else "make room there, "
        full = isinstance(error, StoreFull) or getattr(cause, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        raise (StoreFull if full else StoreError)(
            f"cannot write down what is to be put back, in {path}: {why}",
            f"without that nothing is changed; {first}or name another place with DBDYNO_STATE_DIR",
        ) from error
