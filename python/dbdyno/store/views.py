"""Builds a database in memory whose views read the Parquet files of runs, and no other file."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbdyno.model.errors import StoreError
from dbdyno.model.schema.snapshot_tables import TABLES
from dbdyno.store.files import MOST_NUMBER, is_sound
from dbdyno.store.listing import Listed
from dbdyno.store.view_files import (
    CLAIMS,
    OF_RUN,
    OF_SNAPSHOT,
    OF_SNAPSHOTS,
    REBUILD,
    RUNS,
    SNAPSHOTS,
    View,
    ViewColumn,
    Warnings,
    derived_document,
    document,
    table_files,
    views,
)

if TYPE_CHECKING:
    import duckdb  # loaded when it is called for: one command asks

    from dbdyno.store.snapshot_catalog import Entry

_FAMILIES = {
    "BIGINT": {"TINYINT", "SMALLINT", "INTEGER", "BIGINT"},
    "DOUBLE": {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE"},
    "VARCHAR": {"VARCHAR"},
    "BOOLEAN": {"BOOLEAN"},
}
"""Types in a file that are accepted, by type of the view's column."""
_IDENTITY = (
    "{run} AS run_id, strptime({run}[:15], '%Y%m%d-%H%M%S') AS started, "
    "regexp_extract({run}, '^[0-9]+-[0-9]+-(.+)-[0-9a-f]+$', 1) AS title"
)
"""Columns that follow from the name of the file alone, so that a condition on them opens only matching
files."""
_Paths = tuple[str, ...]


def fill(
    connection: duckdb.DuckDBPyConnection,
    runs: Sequence[Listed],
    tables: Collection[str],
    roots: Sequence[Path],
    open_files: ExitStack,
    declared: Collection[str],
) -> list[str]:
    """Creates the views ``declared``, and returns warnings. Only ``tables`` have rows, the others are
    empty.

    ``roots`` are directories with snapshots; none of these is removed until ``open_files`` is closed.
    Afterwards the SQL of the connection can reach no other file, no network and no setting.
    """
    warnings, paths = Warnings(), list[Path]()
    needs_snapshots = any(name == "snapshots" or name in OF_SNAPSHOTS for name in tables)
    entries = _snapshot_entries(roots, open_files, warnings) if needs_snapshots else []
    for name, view in views().items():
        if name not in tables:
            if name in declared:
                _empty(connection, name, view)
        elif name == "runs":
            _records(connection, name, view, [_run_record(run, warnings) for run in runs])
        elif name == "claims":
            _records(connection, name, view, [c for run in runs for c in _claim_records(run, warnings)])
        elif name == "snapshots":
            _records(connection, name, view, [_snapshot_record(e) for _, e in entries])
        elif name in OF_SNAPSHOTS:
            paths += _snapshot_view(connection, name, view, entries, warnings)
        else:
            paths += _view(connection, name, view, table_files(view, runs, warnings), warnings)
    _lock(connection, paths)
    return warnings.lines()


def _snapshot_entries(
    roots: Sequence[Path], open_files: ExitStack, warnings: Warnings
) -> list[tuple[Path, Entry]]:
    """Returns the snapshots of all roots, each with the directory of its segment."""
    from dbdyno.store.snapshot_catalog import DIRECTORY, Catalog

    entries = []
    for catalog in (Catalog(root / DIRECTORY) for root in roots if (root / DIRECTORY).is_dir()):
        manifest, file = catalog.held()
        open_files.enter_context(file)
        entries += [(catalog.path / e.segment.name, e) for e in catalog.entries(manifest)]
        for name, reason in catalog.damaged.items():
            warnings.add(f"snapshots are left out: {reason}", name)
    return entries


def _snapshot_record(entry: Entry) -> dict[str, Any]:
    info = entry.info.model_dump(mode="json")
    known = {"run_id": info["run"], "server_started": _utc(entry.info.started), "missing": [*info["missing"]]}
    named = {c.name: info[c.name] for c in SNAPSHOTS if c.name not in known}
    return {"snapshot_id": entry.info.id, "taken": _utc(entry.info.taken), **named, **known}


def _utc(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).replace(tzinfo=None).isoformat()


def _snapshot_view(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    view: View,
    entries: Sequence[tuple[Path, Entry]],
    warnings: Warnings,
) -> list[Path]:
    """Creates a view of a snapshot table without the rows of each segment's base; returns the files it
    reads."""
    table, own = name.removeprefix("snapshot_"), view.columns[len(OF_SNAPSHOT) :]
    grown = {c.name for c in TABLES[table].counters}
    connection.execute(f'CREATE TABLE "_{name}" (place VARCHAR, seq BIGINT, id VARCHAR, moment TIMESTAMP)')
    snapshot_rows = [(str(p), e.seq, e.info.id, _utc(e.info.taken)) for p, e in entries]
    if snapshot_rows:
        connection.executemany(f'INSERT INTO "_{name}" VALUES (?, ?, ?, ?)', snapshot_rows)
    stored = [p / f"{table}.parquet" for p in dict.fromkeys(p for p, _ in entries)]
    groups: dict[_Paths, list[Path]] = defaultdict(list)
    for path, types in _schemas(connection, [p for p in stored if _is_whole(p, warnings)], warnings).items():
        if wrong := _wrong(types, own):
            warnings.add(f"{table}.parquet is left out: {wrong}", path.parent.name)
        else:
            groups[tuple(c.name for c in own if c.name in types)].append(path)
    if not groups:
        _empty(connection, name, view)
        return []
    selects = []
    for present, paths in groups.items():
        values = [_value(c) if c.name in present else _null(c) for c in own]
        values = [
            f'CASE WHEN since AND "{c.name}" >= 0 THEN "{c.name}"::BIGINT END AS "{c.name}"'
            if c.name in grown and c.name in present
            else value
            for c, value in zip(own, values, strict=True)
        ]
        listed = _list([_unglobbed(p) for p in paths])
        selects.append(
            f"SELECT id AS snapshot_id, moment AS taken, {', '.join(values)} FROM read_parquet({listed}, "
            f'filename = true) AS f JOIN "_{name}" AS s ON f.seq = s.seq '
            f"AND s.place = f.filename[:-{len(table) + len('.parquet') + 2}] WHERE NOT gone"
        )
    connection.execute(f'CREATE VIEW "{name}" AS {" UNION ALL ".join(selects)}')
    return [path for group in groups.values() for path in group]


def _is_whole(path: Path, warnings: Warnings) -> bool:
    try:
        return is_sound(path)
    except StoreError as error:
        warnings.add(f"{path.name} is damaged and left out ({error.message})", path.parent.name)
        return False


def _lock(connection: duckdb.DuckDBPyConnection, paths: Sequence[Path]) -> None:
    allowed = sorted({text for path in paths for text in (str(path), _unglobbed(path))})
    connection.execute(f"SET allowed_paths = {_list(allowed)}")
    for name, value in (
        ("python_enable_replacements", "false"),
        ("autoinstall_known_extensions", "false"),
        ("autoload_known_extensions", "false"),
        ("temp_directory", "''"),
        ("enable_external_access", "false"),
        ("lock_configuration", "true"),
    ):
        connection.execute(f"SET {name} = {value}")


def _empty(connection: duckdb.DuckDBPyConnection, name: str, view: View) -> None:
    connection.execute(f'CREATE VIEW "{name}" AS SELECT {", ".join(map(_null, view.columns))} WHERE false')


def _view(
    connection: duckdb.DuckDBPyConnection, name: str, view: View, paths: Sequence[Path], warnings: Warnings
) -> list[Path]:
    """Creates a view over files, which may lack columns; returns the files that it reads."""
    groups: dict[tuple[_Paths, int], list[Path]] = defaultdict(list)
    own = view.columns[len(OF_RUN) + view.raw :]
    for path, types in _schemas(connection, paths, warnings).items():
        run = path.parts[-_depth(path)]
        if wrong := _wrong(types, own):
            warnings.add(f"{path.name} is left out: {wrong}", run)
            continue
        columns = tuple(c.name for c in own if c.name in types)
        if missing := [c.name for c in own if c.name not in types]:
            cure = "" if view.raw else f"; {REBUILD}"
            warnings.add(f"{name} has no {', '.join(missing)} (NULL): made by an older dbdyno{cure}", run)
        groups[columns, _depth(path)].append(path)
    if not groups:
        _empty(connection, name, view)
        return []
    selects = [_select(group_paths, own, *key, raw=view.raw) for key, group_paths in groups.items()]
    connection.execute(f'CREATE VIEW "{name}" AS {" UNION ALL ".join(selects)}')
    return [path for group_paths in groups.values() for path in group_paths]


def _depth(path: Path) -> int:
    """Returns the position of the run's id from the end of a path.

    RUN/cells/CELL/t.parquet, RUN/parts/CELL/t.parquet, RUN/derived/t.parquet.
    """
    return 3 if path.parent.name == "derived" else 4


def _select(
    paths: Sequence[Path], own: Sequence[ViewColumn], present: Collection[str], depth: int, *, raw: bool
) -> str:
    run = f"string_split(filename, '/')[-{depth}]"
    identity = _IDENTITY.format(run=run) + (", string_split(filename, '/')[-2] AS cell" if raw else "")
    values = ", ".join(_value(c) if c.name in present else _null(c) for c in own)
    listed = _list([_unglobbed(p) for p in paths])
    return f"SELECT {identity}, {values} FROM read_parquet({listed}, filename = true)"


def _value(column: ViewColumn) -> str:
    """Returns the expression of a column; a float that is no figure (NaN, out of range) is NULL."""
    name = f'"{column.name}"'
    if column.name == "source":  # older versions wrote "raked"
        return f"replace({name}::VARCHAR, ', raked', ', estimated') AS {name}"
    if column.type == "DOUBLE":
        return f"CASE WHEN abs({name}) < {MOST_NUMBER:e} THEN {name}::DOUBLE END AS {name}"
    return f"{name}::{column.type} AS {name}"


def _null(column: ViewColumn) -> str:
    return f'NULL::{column.type} AS "{column.name}"'


def _wrong(types: Mapping[str, str], own: Sequence[ViewColumn]) -> str | None:
    """Returns why a file was not written by dbdyno, or None."""
    if "filename" in types or "nested" in types.values():
        return "dbdyno writes no such columns"
    wrong = (c.name for c in own if c.name in types and types[c.name] not in _FAMILIES[c.type])
    return next((f"column {name} is {types[name]}" for name in wrong), None)


def _schemas(
    connection: duckdb.DuckDBPyConnection, paths: Sequence[Path], warnings: Warnings
) -> dict[Path, dict[str, str]]:
    """Returns type by column for each file that is Parquet."""
    import duckdb

    try:
        return _read_schemas(connection, paths)
    except duckdb.Error:
        if len(paths) == 1:
            path = paths[0]
            warnings.add(f"{path.name} is left out: it is no Parquet file", path.parts[-_depth(path)])
            return {}
    return {p: types for path in paths for p, types in _schemas(connection, [path], warnings).items()}


def _read_schemas(connection: duckdb.DuckDBPyConnection, paths: Sequence[Path]) -> dict[Path, dict[str, str]]:
    types_by_file: dict[Path, dict[str, str]] = {}
    if paths:
        rows = connection.execute(
            "SELECT file_name, name, CASE WHEN num_children > 0 THEN 'nested' ELSE duckdb_type END "
            "FROM parquet_schema(?)",
            [[_unglobbed(p) for p in paths]],
        )
        for path, name, kind in rows.fetchall():
            if Path(path) in types_by_file:
                types_by_file[Path(path)].setdefault(name, kind)
            else:
                types_by_file[Path(path)] = {}  # the first row of a file is its root
    return types_by_file


def _records(
    connection: duckdb.DuckDBPyConnection, name: str, view: View, records: Sequence[Mapping[str, Any]]
) -> None:
    kinds = {c.name: [c.type.removesuffix("[]")] if c.type.endswith("[]") else c.type for c in view.columns}
    connection.execute(
        f'CREATE TABLE "{name}" AS SELECT unnest(from_json(?::JSON, ?), recursive := true)',
        [json.dumps(records), json.dumps([kinds])],
    )


def _run_record(run: Listed, warnings: Warnings) -> dict[str, Any]:
    plan, environment = (document(run, f, warnings) for f in ("plan.json", "environment.json"))
    known = {
        "ended": run.ended.replace(tzinfo=None).isoformat() if run.ended else None,
        "status": run.status,
        "reason": run.reason,
        "name": run.document["name"] or None,
        "tags": run.document["tags"],
        "note": run.document["note"] or None,
        "dbdyno": run.document["dbdyno"],
        "workload": _at(plan, "experiment", "workload"),
        "engine": _at(plan, "experiment", "engine"),
        "server": _at(environment, "server", "version"),
        "address": _at(environment, "server", "where"),
        "cpu": _at(environment, "host", "cpu", "model"),
        "cpus": _at(environment, "host", "limits", "usable_cpus"),
        "kernel": _at(environment, "host", "kernel"),
        "digest": _at(plan, "digest"),
    }
    return _identity(run) | {c.name: _of_type(known[c.name], c) for c in RUNS}


def _claim_records(run: Listed, warnings: Warnings) -> list[dict[str, Any]]:
    records = derived_document(run, "findings.json", warnings)
    claims = [flat for record in records if (flat := _claim(record))] if isinstance(records, list) else []
    return [_identity(run) | {c.name: _of_type(claim.get(c.name), c) for c in CLAIMS} for claim in claims]


def _claim(record: Any) -> dict[str, Any] | None:
    """Returns a stored claim with its figure in columns; None if it is no claim."""
    from pydantic import ValidationError

    from dbdyno.model.results.claim import Claim

    try:
        claim = Claim.model_validate(record)
    except ValidationError:
        return None
    figure = asdict(claim.value) if claim.value else {}
    numbers = {n: v for n in ("value", "low", "high") if (v := figure.get(n)) is not None and isfinite(v)}
    fields = claim.model_dump(mode="json", exclude={"value"})
    return fields | {"claim": claim.text, "cure": claim.advice, "unit": figure.get("unit")} | numbers


def _identity(run: Listed) -> dict[str, Any]:
    """Returns the first columns of a view."""
    return {
        "run_id": run.id,
        "started": run.started.replace(tzinfo=None, microsecond=0).isoformat(),
        "title": run.id[16:-5],
    }


def _at(document: Any, *keys: str) -> Any:
    """Returns a nested value; None if a key is absent."""
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _of_type(value: Any, column: ViewColumn) -> Any:
    """Returns ``value`` if it has the type of the column, else None."""
    if column.type == "DOUBLE":
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if column.type.endswith("[]"):
        return [v for v in value if isinstance(v, str)] if isinstance(value, list) else None
    return value if isinstance(value, str) else None


def _list(texts: Sequence[str]) -> str:
    return "[" + ", ".join("'" + text.replace("'", "''") + "'" for text in texts) + "]"


def _unglobbed(path: Path) -> str:
    """Escapes a path: DuckDB takes every path for a pattern, in which a bracketed character is literal."""
    return re.sub(r"([*?\[])", r"[\1]", str(path))
