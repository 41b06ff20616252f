"""Journals of what is to be put back: one file a run that is under way, in one place for each user.

::

    $DBDYNO_STATE_DIR, else $XDG_STATE_HOME/dbdyno, else ~/.local/state/dbdyno     (mode 0700)
      undo/20261121-104501-lio-3f9a-4711-9c02.json   run, process; mode 0600; while something is changed

Written and synced before each change, so what a killed run left is always known. Not in the run store:
whoever cleans up need not know which store a run was told.
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
    """What is on disk."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run: str
    pid: int  # who changes
    pid_start_ticks: int
    boot: str  # of which life of the machine pid and ticks are
    undos: tuple[Undo, ...] = ()  # in the order of the changes


def state_dir() -> Path:
    """Where journals are, for this user (XDG Base Directory Specification 0.8: state)."""
    if own := os.environ.get("DBDYNO_STATE_DIR"):
        return Path(own).absolute() / "undo"
    what, cure = "the undo journals", "name one: DBDYNO_STATE_DIR=DIR"
    return base_directory("XDG_STATE_HOME", ".local/state", what, cure) / "dbdyno" / "undo"


class FileJournal:
    """See the module; :class:`dbdyno.model.engine.protocols.Journal`. The file is made by the first note.

    Raises :class:`StoreFull` and :class:`StoreError`, from ``note`` before anything was changed.
    """

    def __init__(self, run: str) -> None:
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", run).lstrip(".") or "run"
        self.path = state_dir() / f"{name}-{os.getpid()}-{secrets.token_hex(2)}.json"
        self._file = _File(
            run=run, pid=os.getpid(), pid_start_ticks=start_ticks(os.getpid()) or 0, boot=_boot()
        )

    @classmethod
    def read(cls, path: Path) -> FileJournal:
        """One that is there. Raises :class:`StoreError` where it is damaged or not surely ours."""
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
        """The process that changes."""
        return self._file.pid

    @property
    def alive(self) -> bool:
        """Whether that process is still there."""
        return self._file.boot == _boot() and is_alive(self._file.pid, self._file.pid_start_ticks)

    @property
    def undos(self) -> Sequence[Undo]:
        """What is to be put back, in the order of the changes: put it back from the last on."""
        return self._file.undos

    def note(self, undo: Undo) -> None:
        """On disk when this returns. Of one key the first counts."""
        if any(known.key == undo.key for known in self._file.undos):
            return
        self._save((*self._file.undos, undo))

    def forget(self, key: str) -> None:
        """It has been put back. The file goes with the last."""
        left = tuple(known for known in self._file.undos if known.key != key)
        if len(left) != len(self._file.undos):
            self._save(left)

    def close(self) -> None:
        """Removes the file where nothing is left to put back."""
        if not self._file.undos:
            with _guard(self.path):
                self.path.unlink(missing_ok=True)

    def _save(self, undos: tuple[Undo, ...]) -> None:
        wanted = self._file.model_copy(update={"undos": undos})
        with _guard(self.path):
            if undos:
                make_private(self.path.parent)  # else nobody would follow it later
                files.write_atomic(self.path, wanted.model_dump_json(indent=1).encode())
            else:  # needs no room on a full disk
                self.path.unlink(missing_ok=True)
        self._file = wanted


class LeftOver(NamedTuple):
    """All journals there are, the newest first: what was changed last is put back first."""

    dead: list[FileJournal]
    alive: list[FileJournal]  # of runs that are under way
    damaged: list[StoreError]


def left_over() -> LeftOver:
    """What runs of this user have changed and not put back."""
    found = LeftOver([], [], [])
    for path in sorted(_paths(), key=_age, reverse=True):
        try:
            journal = FileJournal.read(path)
        except StoreError as error:
            if path.exists():  # else it was put back just now
                found.damaged.append(error)
        else:
            (found.alive if journal.alive else found.dead).append(journal)
    return found


def _paths() -> list[Path]:
    with _guard(state_dir()):
        try:
            found = list(state_dir().iterdir())
        except FileNotFoundError:
            return []
    return [p for p in found if p.suffix == ".json" and not p.name.startswith(files.TEMPORARY)]


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
    """Says what an :class:`OSError` means for the journal, with the cure."""
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
