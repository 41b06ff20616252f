"""Manages the files of a store of snapshots, with one writer and many readers at a time."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dbdyno.model.engine.snapshot import SnapshotInfo
from dbdyno.model.errors import SchemaTooNew, StoreError
from dbdyno.store import files

DIRECTORY, DOCUMENT = "snapshots", "segment.json"
FORMAT = 1
_WRITER_S = 60.0
_WRITER, _READERS = ".writer", ".readers"


@dataclass(frozen=True)
class Segment:
    """Consecutive snapshots of one series (server and databases)."""

    name: str
    series: str
    seqs: tuple[int, ...]


@dataclass(frozen=True)
class Manifest:
    made: int = 0  # directories created so far, which numbers the next one
    last: int = 0  # number of the newest snapshot
    segments: tuple[Segment, ...] = ()
    texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    """A snapshot in the store: its number in the order of taking, and the rows of each table."""

    seq: int
    info: SnapshotInfo
    rows: Mapping[str, int]
    segment: Segment


class Catalog:
    """The manifest of the directory ``path``. Readers keep the files they began with."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._documents: dict[str, list[Entry]] = {}
        self.damaged: dict[str, str] = {}
        """Reasons why :meth:`entries` left segments out, by segment."""

    def read(self) -> Manifest:
        path = self.path / files.MANIFEST
        if not path.exists():
            return Manifest()
        try:
            document = files.from_json(files.read(path))
            if document["format"] > FORMAT:
                raise SchemaTooNew(
                    f"{self.path} was written by a newer dbdyno", "upgrade dbdyno to that version or a later"
                )
            segments = tuple(Segment(s["name"], s["series"], tuple(s["seqs"])) for s in document["segments"])
            return Manifest(document["made"], document["last"], segments, tuple(document["texts"]))
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{files.MANIFEST} of {self.path} is damaged: {error}") from error

    def keep(self, manifest: Manifest) -> None:
        content = json.dumps({"format": FORMAT, **asdict(manifest)}).encode()
        files.write_atomic(self.path / files.MANIFEST, content)

    def every(self) -> Sequence[Entry]:
        """Returns the present snapshots, oldest first."""
        with self.reading() as manifest:
            return self.entries(manifest)

    def entries(self, manifest: Manifest) -> Sequence[Entry]:
        self.damaged = {}
        entries: list[Entry] = []
        for segment in manifest.segments:
            try:
                entries += [e for e in self.document(segment) if e.seq in segment.seqs]
            except StoreError as error:
                self.damaged[segment.name] = error.message
        return sorted(entries, key=lambda e: e.seq)

    def document(self, segment: Segment) -> Sequence[Entry]:
        """Returns the snapshots of a segment, which never changes."""
        if segment.name not in self._documents:
            content = files.read_one(self.path / segment.name, DOCUMENT)
            try:
                document = files.from_json(content or b"")
                self._documents[segment.name] = [
                    Entry(s["seq"], SnapshotInfo.model_validate(s["info"]), s["rows"], segment)
                    for s in document["snapshots"]
                ]
            except (ValueError, KeyError, TypeError, ValidationError) as error:
                raise StoreError(f"{DOCUMENT} of {self.path / segment.name} is damaged: {error}") from error
        return self._documents[segment.name]

    def held(self) -> tuple[Manifest, AbstractContextManager[Any]]:
        """Returns the manifest, and a lock that keeps its files from being removed until it is closed."""
        try:
            file = (self.path / _READERS).open("rb")
        except OSError:  # the file is absent, or the store is read-only
            return self.read(), nullcontext()
        fcntl.flock(file, fcntl.LOCK_SH)
        return self.read(), file

    @contextmanager
    def reading(self) -> Iterator[Manifest]:
        """Keeps all files that the manifest names from being removed."""
        manifest, file = self.held()
        with file:
            yield manifest

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
        """Removes files that the manifest does not name, unless a reader may still need them."""
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


def names(path: Path) -> list[tuple[str, str | None]]:
    """Returns id and name of each snapshot below ``path``, oldest first, without validation."""
    catalog, numbered = Catalog(path), list[tuple[int, str, str | None]]()
    for segment in catalog.read().segments:
        document = files.from_json(files.read(path / segment.name / DOCUMENT))
        numbered += [(s["seq"], s["info"]["id"], s["info"]["name"]) for s in document["snapshots"]]
    return [(identity, name) for _, identity, name in sorted(numbered, key=lambda f: f[0])]
