"""Which files a store of snapshots consists of, and who may read and write them."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from dbdyno.model.errors import SchemaTooNew, StoreError
from dbdyno.store import files

FORMAT = 1
_WRITER_S = 60.0
_WRITER, _READERS = ".writer", ".readers"


@dataclass(frozen=True)
class Segment:
    """Snapshots of one series (server and databases) that follow one another."""

    name: str
    series: str
    seqs: tuple[int, ...]


@dataclass(frozen=True)
class Manifest:
    made: int = 0  # directories so far, each with a name of its own
    last: int = 0  # number of the newest snapshot
    segments: tuple[Segment, ...] = ()
    texts: tuple[str, ...] = ()


class Catalog:
    """The manifest of directory ``path``, one writer at a time, and readers whose files stay."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Manifest:
        path = self.path / files.MANIFEST
        if not path.exists():
            return Manifest()
        try:
            told = files.from_json(files.read(path))
            if told["format"] > FORMAT:
                raise SchemaTooNew(
                    f"{self.path} was written by a newer dbdyno", "upgrade dbdyno to that version or a later"
                )
            segments = tuple(Segment(s["name"], s["series"], tuple(s["seqs"])) for s in told["segments"])
            return Manifest(told["made"], told["last"], segments, tuple(told["texts"]))
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{files.MANIFEST} of {self.path} is damaged: {error}") from error

    def keep(self, manifest: Manifest) -> None:
        content = json.dumps({"format": FORMAT, **asdict(manifest)}).encode()
        files.write_atomic(self.path / files.MANIFEST, content)

    @contextmanager
    def reading(self) -> Iterator[Manifest]:
        """While it lasts nothing that the manifest names is removed."""
        try:
            descriptor = os.open(self.path / _READERS, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # there is none, or nobody may write
            yield self.read()
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            yield self.read()
        finally:
            os.close(descriptor)

    @contextmanager
    def writing(self) -> Iterator[Manifest]:
        files.make_directory(self.path)
        with files.guard(self.path):
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            descriptor, readers = (os.open(self.path / n, flags, 0o600) for n in (_WRITER, _READERS))
            os.close(readers)
        try:
            self._wait(descriptor)
            manifest = self.read()
            self.sweep(manifest)
            yield manifest
        finally:
            os.close(descriptor)

    def _wait(self, descriptor: int) -> None:
        end = time.monotonic() + _WRITER_S
        while True:
            try:
                return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > end:
                    raise StoreError(
                        f"another process has been writing to {self.path} for {_WRITER_S:.0f} s",
                        "wait until it has ended, or end it",
                    ) from None
            time.sleep(0.02)

    def sweep(self, manifest: Manifest) -> None:
        """Removes what no manifest names any more, unless a reader may still need it."""
        named = {*(s.name for s in manifest.segments), *manifest.texts}
        left = [
            p
            for p in self.path.iterdir()
            if p.name not in named and p.name.startswith(("segment-", "texts-", files.TEMPORARY))
        ]
        if not left:
            return
        descriptor = os.open(self.path / _READERS, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for path in left:
                files.remove(path)
        except BlockingIOError:
            pass
        finally:
            os.close(descriptor)
