"""Reads and writes the directory of one run."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import polars as pl
from pydantic import BaseModel, TypeAdapter, ValidationError

from dbdyno.model.engine.environment import Environment
from dbdyno.model.errors import StoreError
from dbdyno.model.plan.hidden_args import storable
from dbdyno.model.plan.plan import Cell, Plan
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.raw import CellMeta, RawCell
from dbdyno.model.results.results import RunInfo, RunStatus
from dbdyno.model.schema.derived import REGISTERED, sessions_in
from dbdyno.model.schema.tables import DERIVED, LABELS, RAW, conform, empty, raw
from dbdyno.store import files
from dbdyno.store.listing import cure_of, read_document, reason_if_ended, rebuild_cure
from dbdyno.store.parts import Derived, Parts, Stored, all_conformed, conformed, scanned

if TYPE_CHECKING:
    from dbdyno.model.results.results import Conclusions

_M = TypeVar("_M", bound=BaseModel)
_FINDINGS = TypeAdapter(tuple[Claim, ...])
_CONCLUSIONS = "conclusions.json"
_PROGRESS = "live.json"
_WATCHED, _WATCHED_S = ".watched", 30.0
"""A file whose time says that somebody looks at a run in progress, and for how long that holds."""
LONG = ("samples",)
"""Raw tables that may be larger than memory."""
LONG_BYTES = 1 << 17
"""Files up to this size are read at once: some thousand rows, about 1 MB in memory."""


def _shown() -> dict[str, str]:
    """Returns the schema of each stored table: derived ones, and others that a report needs."""
    return {**{t: t for t in (*DERIVED, *LABELS, "sources")}, "histogram": "cell_histogram"}


class DamagedCell(NamedTuple):
    """A cell that was left out, and the reason."""

    id: str
    reason: str


class Run:
    """The directory of a run. Everything in it is written atomically."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._info = read_info(path)

    @property
    def id(self) -> str:
        return self._info.id

    @property
    def info(self) -> RunInfo:
        return self._info

    @property
    def plan(self) -> Plan:
        return _read_model(self.path / "plan.json", Plan)

    @property
    def environment(self) -> Environment:
        return _read_model(self.path / "environment.json", Environment)

    def write_plan(self, plan: Plan) -> None:
        """Replaces the plan: that of an auto ladder gets more cells as it is climbed."""
        files.write_atomic(self.path / "plan.json", to_json(storable(plan)))

    def write_environment(self, environment: Environment) -> None:
        files.write_atomic(self.path / "environment.json", to_json(environment))

    def update_info(self, **changes: Any) -> RunInfo:
        """Changes fields of ``run.json`` and returns the new information, which is validated."""
        self._info = RunInfo.model_validate(self._info.model_dump() | changes)
        files.write_atomic(self.path / "run.json", to_json(self._info))
        return self._info

    def finish(self, status: RunStatus, reason: str | None = None) -> RunInfo:
        return self.update_info(status=status, reason=reason, ended=datetime.now(UTC))

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keeps others from removing the run, until the end or the end of this process."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            yield
        finally:
            os.close(descriptor)

    def discard(self) -> None:
        """Removes the directory of a run that ended without any data."""
        shutil.rmtree(self.path, ignore_errors=True)

    # -- while it goes on -----------------------------------------------------------------------

    def write_progress(self, document: Mapping[str, Any]) -> None:
        """Replaces what is known of the measurement in progress, without waiting for the disk. It is lost if
        it cannot be written."""
        temporary = self.path / f"{files.TEMPORARY}{_PROGRESS}"
        with suppress(OSError, ValueError):
            files.write_synced(temporary, json.dumps(document, allow_nan=False).encode(), synced=False)
            temporary.replace(self.path / _PROGRESS)

    def read_progress(self) -> dict[str, Any] | None:
        """Returns what :meth:`write_progress` wrote; None if there is nothing to be read."""
        with suppress(StoreError, ValueError):
            document = files.from_json(files.read(self.path / _PROGRESS))
            return document if isinstance(document, dict) else None
        return None

    def remove_progress(self) -> None:
        with suppress(OSError):
            files.remove(self.path / _PROGRESS)

    def watch(self) -> None:
        """Notes that somebody looks now, so that new windows are derived soon. It holds for half a
        minute; in a store that cannot be written, nothing is noted."""
        with suppress(OSError):
            (self.path / _WATCHED).touch(mode=0o600)

    @property
    def is_watched(self) -> bool:
        try:
            return time.time() - (self.path / _WATCHED).stat().st_mtime < _WATCHED_S
        except OSError:
            return False

    # -- raw ------------------------------------------------------------------------------------

    def write_cell(self, cell: RawCell) -> None:
        """Writes a cell with every raw table. Raises :class:`StoreFull`, which leaves nothing of the cell."""
        contents = {f"{t}.parquet": _written(raw(t), cell.tables.get(t, empty(raw(t)))) for t in RAW}
        contents["cell.json"] = to_json(cell.meta)
        files.make_directory(self.path / "cells")
        files.write_directory(self.path / "cells" / cell.id, contents)

    def cells(self) -> list[str]:
        """Returns the ids of the present cells in the order of running, including damaged ones."""
        try:
            names = [p.name for p in (self.path / "cells").iterdir() if p.is_dir()]
        except FileNotFoundError:
            return []
        return sorted((name for name in names if not name.startswith(".")), key=files.in_order)

    def read_cell(self, cell_id: str) -> RawCell:
        """Returns a cell. Raises :class:`StoreError` with the damage."""
        return self._cell(cell_id, ())

    def _cell(self, cell_id: str, long: Collection[str]) -> RawCell:
        directory = self.path / "cells" / cell_id
        names = {n: t for t in long if files.size(directory / (n := f"{t}.parquet")) > LONG_BYTES}
        contents = files.read_directory(directory, names)
        meta = _model(contents.get("cell.json", b""), CellMeta, f"cell.json of cell {cell_id}")
        long_tables = {t: scanned(raw(t), directory / n) for n, t in names.items()}
        tables = {t: empty(raw(t)) for t in RAW if t not in long_tables}
        tables |= _tables(contents, {t: raw(t) for t in RAW})
        return RawCell(meta, tables, long_tables)

    def cell(self, cell_id: str) -> Cell:
        """Returns a measured cell without its tables. Raises :class:`StoreError` with the damage."""
        content = files.read_one(self.path / "cells" / cell_id, "cell.json") or b""
        return _model(content, CellMeta, f"cell.json of cell {cell_id}").cell

    def each_cell(
        self, damaged: list[DamagedCell], ids: Sequence[str] | None = None, long: Collection[str] = LONG
    ) -> Iterator[RawCell]:
        """Yields all readable cells, or those of ``ids``; unreadable ones are added to ``damaged``.

        Tables of ``long`` that are larger than :data:`LONG_BYTES` are read on demand.
        """
        for cell_id in self.cells() if ids is None else ids:
            try:
                cell = self._cell(cell_id, long)
            except (StoreError, ValueError, pl.exceptions.PolarsError) as error:
                damaged.append(DamagedCell(cell_id, str(getattr(error, "message", error))))
            else:
                yield cell

    def read_cells(self) -> tuple[list[RawCell], list[DamagedCell]]:
        """Returns the readable cells, and the damaged ones with the reason."""
        damaged: list[DamagedCell] = []
        return list(self.each_cell(damaged, long=())), damaged

    # -- derived --------------------------------------------------------------------------------

    @property
    def parts(self) -> Parts:
        """Derived tables by part of the run."""
        return Parts(self.path)

    def take_parts(self, parts: Parts) -> None:
        """Replaces the parts by those of another directory."""
        with files.guard(self.path):
            files.remove(self.parts.path)
            if parts.path.exists():
                parts.path.replace(self.parts.path)

    def write_derived(
        self,
        tables: Mapping[str, pl.DataFrame],
        findings: Sequence[Claim],
        conclusions: Conclusions | None = None,
    ) -> None:
        """Replaces the derived tables, with sources and histogram, and the conclusions from them."""
        contents = {
            f"{t}.parquet": files.parquet(conform(schema, tables[t]))
            for t, schema in _shown().items()
            if t in tables
        }
        contents["findings.json"] = _FINDINGS.dump_json(tuple(findings), indent=1)
        if conclusions is not None:
            contents[_CONCLUSIONS] = to_json(conclusions)
        files.write_directory(self.path / "derived", contents)

    def read_derived(self) -> tuple[Mapping[str, pl.DataFrame], tuple[Claim, ...]] | None:
        """Returns the tables and findings last written; None if there are none. Raises :class:`StoreError`
        on damage."""
        directory = self.path / "derived"
        if not directory.is_dir():
            return None
        try:
            contents = files.read_directory(directory)
            for name, table in REGISTERED.items():
                for older in table.older:
                    if f"{older}.parquet" in contents:
                        contents.setdefault(f"{name}.parquet", contents[f"{older}.parquet"])
            findings = _FINDINGS.validate_json(contents.get("findings.json", b""))
            files.from_json(contents["findings.json"])  # rejects numbers that are out of range
            if all(
                f"{t}.parquet" in contents for t in REGISTERED if sessions_in(t) == "all"
            ):  # as older versions stored them
                return _tables(contents, _shown()), findings
            return Derived(Stored(contents, _shown(), self.id), self.parts), findings
        except (StoreError, ValueError, pl.exceptions.PolarsError) as error:
            raise StoreError(
                f"the derived tables of run {self.id} are damaged: {error}", rebuild_cure(self.id)
            ) from error

    def read_table(self, name: str) -> pl.DataFrame | None:
        """Returns one derived table; None if it was not derived. Raises :class:`StoreError` on damage."""
        content = files.read_one(self.path / "derived", f"{name}.parquet")
        try:
            return None if content is None else conformed(_shown()[name], [content])
        except (ValueError, pl.exceptions.PolarsError) as error:
            raise StoreError(
                f"{name}.parquet of run {self.id} is damaged: {error}", rebuild_cure(self.id)
            ) from error

    def read_conclusions(self) -> Conclusions | None:
        """Returns the conclusions last written; None if there are none of these criteria.

        Raises :class:`StoreError` on damage.
        """
        from dbdyno.model.results.results import VERSION, Conclusions  # building its validators takes time

        content = files.read_one(self.path / "derived", _CONCLUSIONS)
        if content is None:
            return None
        conclusions = _model(content, Conclusions, f"{_CONCLUSIONS} of run {self.id}")
        return conclusions if conclusions.version == VERSION else None


def is_in_use(path: Path) -> bool:
    """Returns whether a process is within :meth:`Run.in_use`; False if that cannot be known."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
    return False


def read_info(path: Path) -> RunInfo:
    """Returns ``run.json``; a run with status ``running`` whose process is gone is cut short."""
    content, _ = read_document(path)
    info = _model(content, RunInfo, f"run.json of {path}", cure_of(path.name))
    ended = reason_if_ended(info.status, info.pid, info.pid_start_ticks)
    return info if ended is None else info.model_copy(update={"status": "cut short", "reason": ended})


def to_json(model: BaseModel) -> bytes:
    return model.model_dump_json(indent=1).encode()


@cache
def _without_rows(table: str) -> bytes:
    return files.parquet(empty(table))


def _written(table: str, rows: pl.DataFrame) -> bytes:
    return files.parquet(conform(table, rows)) if rows.height else _without_rows(table)


def _tables(contents: Mapping[str, bytes], known: Mapping[str, str]) -> dict[str, pl.DataFrame]:
    """Parses the tables of a cell. Half of them have no rows, and are recognised by their bytes without
    parsing."""
    parquets = {t: contents[f"{t}.parquet"] for t in known if f"{t}.parquet" in contents}
    non_empty = [t for t, content in parquets.items() if content != _without_rows(known[t])]
    read = dict(zip(non_empty, all_conformed([(known[t], [parquets[t]]) for t in non_empty]), strict=True))
    return {t: read.get(t, empty(known[t])) for t in parquets}


def _read_model(path: Path, model: type[_M]) -> _M:
    return _model(files.read(path), model, str(path), cure_of(path.parent.name))


def _model(content: bytes, model: type[_M], what: str, cure: str | None = None) -> _M:
    try:
        files.from_json(content)  # rejects numbers that are out of range
        return model.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(p) for p in first["loc"])
        raise StoreError(f"{what} is damaged: {where or 'JSON'}: {first['msg']}", cure) from error
    except ValueError as error:
        raise StoreError(f"{what} is damaged: {error}", cure) from error
