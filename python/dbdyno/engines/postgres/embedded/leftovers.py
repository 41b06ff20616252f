"""Directories for sockets that killed servers left behind, and the records by which they are recognised.

A directory's name is a hash of the data directory, so its record names that. The record lies beside the
directory, where the server's user cannot write.
"""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import suppress
from pathlib import Path

from dbdyno.engines.postgres.embedded import files
from dbdyno.engines.postgres.embedded.places import SOCKET_NAME, Places, is_held
from dbdyno.engines.postgres.embedded.worker import Worker
from dbdyno.model.errors import DbdynoError

LEAST_AGE_S = 60.0
"""A younger directory may be that of a server about to start."""
_NAME = re.compile(r"[0-9a-f]{12}")
_LOCKS = ("start.lock", "owner.lock", "server.lock")


def _record_of(socket_dir: Path) -> Path:
    return socket_dir.with_name(f"{socket_dir.name}.json")


def record(socket_dir: Path, data: Path) -> None:
    """Writes which data directory the socket's directory belongs to, and who made it. Raises
    :class:`OSError`."""
    content = json.dumps({"data": os.fspath(data), "pid": os.getpid()})
    files.write(str(_record_of(socket_dir)), content)


def remove_empty(socket_dir: Path) -> None:
    """Removes the directory of a server that has ended, and its record. One that is not empty stays."""
    with suppress(OSError):
        socket_dir.rmdir()
        _record_of(socket_dir).unlink(missing_ok=True)


def sweep(places: Places, worker: Worker) -> None:
    """Removes directories of the worker's user whose server is dead and that hold nothing but its socket and
    the lock of that.

    With a record, the data directory must be gone or nobody may hold the locks beside it. Without one, both
    files must be there and the process that the lock names must be gone.
    """
    with suppress(OSError):
        for entry in list(os.scandir(places.runtime)):
            if _NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                with suppress(OSError, DbdynoError):  # tidying up never stops a start
                    _remove_if_dead(Path(entry.path), places, worker)


def _remove_if_dead(socket_dir: Path, places: Places, worker: Worker) -> None:
    status = socket_dir.lstat()
    if status.st_uid != worker.account.uid or time.time() - status.st_mtime < LEAST_AGE_S:
        return
    data = _data_of(socket_dir, places)
    if data is not None and os.path.lexists(data) and any(is_held(data.parent / lock) for lock in _LOCKS):
        return
    if worker.clear_dead_socket(socket_dir, SOCKET_NAME, known=data is not None):
        remove_empty(socket_dir)


def _data_of(socket_dir: Path, places: Places) -> Path | None:
    """Returns the recorded data directory; None without a record, or if the record is another's."""
    try:
        data = Path(json.loads(files.read(str(_record_of(socket_dir))) or "")["data"])
    except (ValueError, TypeError, KeyError):
        return None
    return data if places.socket_dir(data) == socket_dir else None
