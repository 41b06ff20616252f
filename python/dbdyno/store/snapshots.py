"""Stores snapshots of servers, in the order of taking.

::

    ROOT/snapshots/
      manifest.json                 the present segments and texts; replaced atomically
      segment-000049/               a snapshot, or many that follow one another of one server
        manifest.json  segment.json  databases.parquet  relations.parquet  statements.parquet  ...
      texts-000050/                 texts of statements, each once

One process writes at a time. A writer that meets no reader removes files that the manifest does not name. So
readers keep the files they began with, and a killed process leaves nothing behind.
"""

from __future__ import annotations

import hashlib
import io
import json
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from dbdyno.model.engine.snapshot import TABLES, Snapshot, SnapshotInfo
from dbdyno.model.errors import StoreError, StoreFull
from dbdyno.model.schema.tables import POLARS
from dbdyno.store import files
from dbdyno.store.listing import default_root
from dbdyno.store.snapshot_catalog import DIRECTORY, DOCUMENT, FORMAT, Catalog, Entry, Manifest, Segment
from dbdyno.store.snapshot_rows import decoded, encoded, shaped
from dbdyno.store.snapshot_times import nearest

_TOGETHER = 48
"""Number of single snapshots that are joined into a segment."""
_LEVEL = 9
"""Compression level of joined segments: 5 % smaller than the default, for 0.4 s more."""
_TEXT_FILES = 16
_TEXTS = "texts.parquet"
_TEXT = {"query_id": POLARS["i64"], "text": POLARS["str"]}


class SnapshotStore:
    """The snapshots of the directory ``root`` (default: the user's store), or of a run's directory."""

    def __init__(self, root: Path | None = None) -> None:
        self.path = (default_root() if root is None else root) / DIRECTORY
        self._catalog = Catalog(self.path)

    @property
    def damaged(self) -> Mapping[str, str]:
        """Reasons why :meth:`list` left segments out, by segment."""
        return self._catalog.damaged

    # -- reading --------------------------------------------------------------------------------

    def list(self) -> Sequence[SnapshotInfo]:
        """Returns snapshots in the order of taking, even if the clock was set back. Raises
        :class:`StoreError`."""
        return [entry.info for entry in self.entries()]

    def entries(self) -> Sequence[Entry]:
        """Returns the entries of the catalog in the same order."""
        return self._catalog.every()

    def find(self, wanted: str, now: datetime | None = None) -> SnapshotInfo:
        """Returns a snapshot by id or its beginning, name, ``last``, ``last~2``, or a time that it is
        nearest to.

        ``now`` is the reference of times (default: the clock). Raises :class:`NoSuchSnapshot`.
        """
        return nearest(wanted, self.list(), datetime.now(UTC) if now is None else now)

    def read(self, info: SnapshotInfo) -> Snapshot:
        """Returns the tables, each in the order of its key, and the texts of its statements.

        Raises :class:`StoreError`, also if the snapshot was removed.
        """
        with self._catalog.reading() as manifest:
            entry = next((e for e in self._catalog.entries(manifest) if e.info.id == info.id), None)
            if entry is None:
                raise StoreError(f"snapshot {info.id} is no longer in {self.path}", "dbdyno snapshot list")
            tables = self._tables(entry.segment, entry.seq)
            wanted = tables["statements"]["query_id"].unique()
            return Snapshot(entry.info, tables, self._texts(manifest, wanted))

    def each(self, ids: Collection[str], tables: Collection[str]) -> Iterator[Snapshot]:
        """Yields these snapshots in the order of the server's clock, with these tables; the other tables are
        empty, and so are texts. Each file is read once."""
        with self._catalog.reading() as manifest:
            wanted = [e for e in self._catalog.entries(manifest) if e.info.id in ids]
            segment, rows = None, dict[str, pl.DataFrame | None]()
            for entry in sorted(wanted, key=lambda e: e.info.server_time):
                if entry.segment != segment:
                    segment, rows = entry.segment, {t: self._rows(entry.segment, t) for t in tables}
                known = {t: decoded(t, r, entry.seq) for t, r in rows.items() if r is not None}
                yield Snapshot(entry.info, {t: _empty(t) for t in TABLES} | known, pl.DataFrame(schema=_TEXT))

    def known_texts(self) -> set[int]:
        """Returns the query ids whose texts are stored."""
        with self._catalog.reading() as manifest:
            return self._known(manifest)

    # -- writing --------------------------------------------------------------------------------

    def add(self, snapshot: Snapshot) -> SnapshotInfo:
        """Stores a snapshot atomically, and returns its information with an id. Raises
        :class:`StoreError`."""
        with self._catalog.writing() as manifest:
            taken = snapshot.info.taken.astimezone(UTC)
            info = snapshot.info.model_copy(update={"id": f"{taken:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"})
            series, seq = _series(info), manifest.last + 1
            before = [s for s in manifest.segments if s.series == series][-1:]
            rows = {t: frame.height for t, frame in snapshot.tables.items()}
            segment = Segment(_name("segment", manifest), series, (seq,))
            whole = {t: shaped(t, snapshot.tables[t]) if t in snapshot.tables else _empty(t) for t in TABLES}
            self._write(segment, self._base(before), [(Entry(seq, info, rows, segment), whole)])
            manifest = replace(
                manifest, made=manifest.made + 1, last=seq, segments=(*manifest.segments, segment)
            )
            manifest = self._add_texts(manifest, snapshot.texts)
            self._catalog.keep(manifest)
            with suppress(StoreError):  # the snapshot is safe; the next one tries again
                self._tidy(manifest, series)
        return info

    def remove(self, ids: Collection[str]) -> None:
        """Removes these snapshots, and texts that no other one needs. Raises :class:`StoreError`."""
        with self._catalog.writing() as manifest:
            gone = {e.seq for e in self._catalog.entries(manifest) if e.info.id in ids}
            if not gone:
                return
            kept: list[Segment] = []
            new_manifest, before = manifest, dict[str, Segment]()
            for segment in manifest.segments:
                earlier = before.get(segment.series)
                before[segment.series] = segment
                left = tuple(s for s in segment.seqs if s not in gone)
                stale = left != segment.seqs or (earlier is not None and earlier.seqs[-1] in gone)
                if left and stale and segment.name not in self._catalog.damaged:
                    preceding = [s for s in kept if s.series == segment.series][-1:]
                    try:
                        segment, new_manifest = self._joined(
                            new_manifest, [segment], self._base(preceding), left
                        )
                    except StoreFull:  # they are no longer listed, and removed with the whole segment
                        segment = replace(segment, seqs=left)
                kept += [segment] if left else []
            new_manifest = self._prune_texts(replace(new_manifest, segments=tuple(kept)))
            self._catalog.keep(new_manifest)
            self._catalog.sweep(new_manifest)

    def older_than(self, keep: timedelta, now: datetime | None = None) -> Sequence[SnapshotInfo]:
        """Returns the snapshots taken earlier than ``keep`` before ``now``, which :meth:`prune` would
        remove."""
        before = (datetime.now(UTC) if now is None else now) - keep
        return [info for info in self.list() if info.taken < before]

    def prune(self, keep: timedelta, now: datetime | None = None) -> Sequence[SnapshotInfo]:
        """Removes the snapshots of :meth:`older_than`, and returns them."""
        gone = self.older_than(keep, now)
        if gone:
            self.remove({info.id for info in gone})
        return gone

    # -- segments -------------------------------------------------------------------------------

    def _rows(self, segment: Segment, table: str) -> pl.DataFrame | None:
        content = files.read_one(self.path / segment.name, f"{table}.parquet")
        return None if content is None else _parsed(content, f"{table}.parquet of {segment.name}")

    def _tables(self, segment: Segment, seq: int) -> dict[str, pl.DataFrame]:
        rows_by_table = {t: self._rows(segment, t) for t in TABLES}
        return {t: _empty(t) if rows is None else decoded(t, rows, seq) for t, rows in rows_by_table.items()}

    def _base(self, before: Sequence[Segment]) -> Mapping[str, pl.DataFrame]:
        """Returns the tables that a segment after ``before`` begins with; empty if they cannot be read."""
        with suppress(StoreError):
            return {} if not before else self._tables(before[-1], before[-1].seqs[-1])
        return {}

    def _write(
        self,
        segment: Segment,
        base: Mapping[str, pl.DataFrame],
        snapshots: Sequence[tuple[Entry, Mapping[str, pl.DataFrame]]],
    ) -> None:
        contents: dict[str, bytes] = {}
        for table in TABLES:
            frames = [(0, base.get(table, _empty(table)))]
            frames += [(entry.seq, tables[table]) for entry, tables in snapshots]
            if not any(frame.height for _, frame in frames):  # unused features of the server
                continue
            if (rows := encoded(table, frames)).height:
                contents[f"{table}.parquet"] = files.parquet(rows, _LEVEL if len(snapshots) > 1 else None)
        listed = [
            {"seq": e.seq, "rows": dict(e.rows), "info": e.info.model_dump(mode="json")} for e, _ in snapshots
        ]
        contents[DOCUMENT] = json.dumps({"format": FORMAT, "snapshots": listed}).encode()
        files.write_directory(self.path / segment.name, contents)

    def _joined(
        self,
        manifest: Manifest,
        segments: Sequence[Segment],
        base: Mapping[str, pl.DataFrame],
        seqs: Collection[int],
    ) -> tuple[Segment, Manifest]:
        """Joins the snapshots ``seqs`` of ``segments`` into one segment, and returns it with the new
        manifest."""
        entries = [e for s in segments for e in self._catalog.document(s) if e.seq in seqs]
        joined = Segment(_name("segment", manifest), segments[0].series, tuple(e.seq for e in entries))
        rows = {(s.name, t): self._rows(s, t) for s in segments for t in TABLES}

        def tables(entry: Entry) -> dict[str, pl.DataFrame]:
            rows_by_table = {t: rows[entry.segment.name, t] for t in TABLES}
            return {t: _empty(t) if r is None else decoded(t, r, entry.seq) for t, r in rows_by_table.items()}

        self._write(joined, base, [(replace(e, segment=joined), tables(e)) for e in entries])
        return joined, replace(manifest, made=manifest.made + 1)

    def _tidy(self, manifest: Manifest, series: str) -> None:
        """Joins single snapshots into one segment if there are enough of them."""
        alone = [s for s in manifest.segments if s.series == series and len(s.seqs) == 1]
        if len(alone) >= _TOGETHER:
            before = [s for s in manifest.segments if s.series == series and s.seqs[0] < alone[0].seqs[0]]
            seqs = {s.seqs[0] for s in alone}
            joined, manifest = self._joined(manifest, alone, self._base(before[-1:]), seqs)
            kept = [s for s in manifest.segments if s not in alone]
            manifest = replace(manifest, segments=tuple(sorted([*kept, joined], key=lambda s: s.seqs[0])))
            self._catalog.keep(manifest)
        self._catalog.sweep(manifest)

    # -- texts ----------------------------------------------------------------------------------

    def _text_frames(self, manifest: Manifest) -> Sequence[pl.DataFrame]:
        contents = [files.read_one(self.path / name, _TEXTS) for name in manifest.texts]
        return [_parsed(content, _TEXTS) for content in contents if content is not None]

    def _texts(self, manifest: Manifest, wanted: pl.Series) -> pl.DataFrame:
        every = pl.concat([pl.DataFrame(schema=_TEXT), *self._text_frames(manifest)])
        return every.filter(pl.col("query_id").is_in(wanted.implode()))

    def _known(self, manifest: Manifest) -> set[int]:
        return {i for frame in self._text_frames(manifest) for i in frame["query_id"].to_list()}

    def _add_texts(self, manifest: Manifest, texts: pl.DataFrame) -> Manifest:
        new = texts.select(pl.col(n).cast(t) for n, t in _TEXT.items()).drop_nulls("query_id")
        new = new.unique("query_id", keep="first", maintain_order=True)
        new = new.filter(~pl.col("query_id").is_in(list(self._known(manifest))))
        if new.is_empty():
            return manifest
        if len(manifest.texts) < _TEXT_FILES:
            return self._write_texts(manifest, new, manifest.texts)
        return self._write_texts(manifest, pl.concat([*self._text_frames(manifest), new]), ())

    def _write_texts(self, manifest: Manifest, texts: pl.DataFrame, beside: Sequence[str]) -> Manifest:
        name = _name("texts", manifest)
        files.write_directory(self.path / name, {_TEXTS: files.parquet(texts.sort("query_id"))})
        return replace(manifest, made=manifest.made + 1, texts=(*beside, name))

    def _prune_texts(self, manifest: Manifest) -> Manifest:
        frames = (self._rows(s, "statements") for s in manifest.segments)
        ids = [rows["query_id"] for rows in frames if rows is not None]
        every = pl.concat([pl.DataFrame(schema=_TEXT), *self._text_frames(manifest)])
        needed = every.filter(pl.col("query_id").is_in(pl.concat(ids).unique().implode()) if ids else False)
        if needed.height == every.height:
            return manifest
        return self._write_texts(manifest, needed, ()) if needed.height else replace(manifest, texts=())


def _name(kind: str, manifest: Manifest) -> str:
    return f"{kind}-{manifest.made + 1:06d}"


def _series(info: SnapshotInfo) -> str:
    """Returns a key of snapshots that can be compared: of one server and the same databases."""
    parts: list[Any] = [info.engine, info.server, sorted(info.databases)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _empty(table: str) -> pl.DataFrame:
    return pl.DataFrame(schema={c.name: POLARS[c.type] for c in TABLES[table].columns})


def _parsed(content: bytes, what: str) -> pl.DataFrame:
    try:
        return pl.read_parquet(io.BytesIO(content))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, MemoryError, OSError) as error:
        raise StoreError(f"{what} is damaged: {error}") from error
