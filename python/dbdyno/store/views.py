"""A database in memory whose views read the Parquet files of runs: these files, and nothing else."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbdyno.model.rawtables import RAW
from dbdyno.store.files import MOST_NUMBER
from dbdyno.store.listing import Listed
from dbdyno.store.view_files import (
    CLAIMS,
    OF_RUN,
    REBUILD,
    RUNS,
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

_FAMILIES = {
    "BIGINT": {"TINYINT", "SMALLINT", "INTEGER", "BIGINT"},
    "DOUBLE": {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE"},
    "VARCHAR": {"VARCHAR"},
    "BOOLEAN": {"BOOLEAN"},
}
"""Type of a view's column -> types in a file that it takes."""
_IDENTITY = (
    "{run} AS run_id, strptime({run}[:15], '%Y%m%d-%H%M%S') AS started, "
    "regexp_extract({run}, '^[0-9]+-[0-9]+-(.+)-[0-9a-f]+$', 1) AS title"
)
"""By the file's name alone: so a condition on run_id or started opens only the files of those runs."""
_Paths = tuple[str, ...]


def connect(runs: Sequence[Listed], tables: Collection[str]) -> tuple[duckdb.DuckDBPyConnection, list[str]]:
    """A database with all views, and warnings. Only ``tables`` have rows; the others are declared and empty.

    From then on its SQL reaches no other file, no network and no setting.
    """
    import duckdb

    connection = duckdb.connect()
    warnings, paths = Warnings(), list[Path]()
    for name, view in views().items():
        if name not in tables:
            _empty(connection, name, view)
        elif name == "runs":
            _records(connection, name, view, [_run_record(run, warnings) for run in runs])
        elif name == "claims":
            _records(connection, name, view, [c for run in runs for c in _claim_records(run, warnings)])
        else:
            paths += _view(connection, name, view, table_files(name, runs, warnings), warnings)
    _lock(connection, paths)
    return connection, warnings.lines()


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
    """A view over files, which need not have all columns; the files that it reads."""
    groups: dict[tuple[_Paths, int], list[Path]] = defaultdict(list)
    own = view.columns[len(OF_RUN) + (name in RAW) :]
    for path, types in _schemas(connection, paths, warnings).items():
        run = path.parts[-_depth(path)]
        if wrong := _wrong(types, own):
            warnings.add(f"{name}.parquet is left out: {wrong}", run)
            continue
        columns = tuple(c.name for c in own if c.name in types)
        if missing := [c.name for c in own if c.name not in types]:
            cure = "" if name in RAW else f"; {REBUILD}"
            warnings.add(f"{name} has no {', '.join(missing)} (NULL): made by an older dbdyno{cure}", run)
        groups[columns, _depth(path)].append(path)
    if not groups:
        _empty(connection, name, view)
        return []
    selects = [_select(found, own, *key, raw=name in RAW) for key, found in groups.items()]
    connection.execute(f'CREATE VIEW "{name}" AS {" UNION ALL ".join(selects)}')
    return [path for found in groups.values() for path in found]


def _depth(path: Path) -> int:
    """RUN/cells/CELL/t.parquet, RUN/parts/CELL/t.parquet, RUN/derived/t.parquet."""
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
    """A figure that is none (NaN, out of range) is unknown."""
    name = f'"{column.name}"'
    if column.name == "source":  # as older versions called it
        return f"replace({name}::VARCHAR, ', raked', ', estimated') AS {name}"
    if column.type == "DOUBLE":
        return f"CASE WHEN abs({name}) < {MOST_NUMBER:e} THEN {name}::DOUBLE END AS {name}"
    return f"{name}::{column.type} AS {name}"


def _null(column: ViewColumn) -> str:
    return f'NULL::{column.type} AS "{column.name}"'


def _wrong(types: Mapping[str, str], own: Sequence[ViewColumn]) -> str | None:
    """What a file holds that dbdyno never writes."""
    if "filename" in types or "nested" in types.values():
        return "dbdyno writes no such columns"
    wrong = (c.name for c in own if c.name in types and types[c.name] not in _FAMILIES[c.type])
    return next((f"column {name} is {types[name]}" for name in wrong), None)


def _schemas(
    connection: duckdb.DuckDBPyConnection, paths: Sequence[Path], warnings: Warnings
) -> dict[Path, dict[str, str]]:
    """Column -> type of each file that is Parquet."""
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
    found: dict[Path, dict[str, str]] = {}
    if paths:
        rows = connection.execute(
            "SELECT file_name, name, CASE WHEN num_children > 0 THEN 'nested' ELSE duckdb_type END "
            "FROM parquet_schema(?)",
            [[_unglobbed(p) for p in paths]],
        )
        for path, name, kind in rows.fetchall():
            if Path(path) in found:
                found[Path(path)].setdefault(name, kind)
            else:
                found[Path(path)] = {}  # the first row of a file is its root
    return found


def _records(
    connection: duckdb.DuckDBPyConnection, name: str, view: View, records: Sequence[Mapping[str, Any]]
) -> None:
    kinds = {c.name: [c.type.removesuffix("[]")] if c.type.endswith("[]") else c.type for c in view.columns}
    connection.execute(
        f'CREATE TABLE "{name}" AS SELECT unnest(from_json(?::JSON, ?), recursive := true)',
        [json.dumps(records), json.dumps([kinds])],
    )


def _run_record(run: Listed, warnings: Warnings) -> dict[str, Any]:
    plan, around = (document(run, f, warnings) for f in ("plan.json", "environment.json"))
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
        "server": _at(around, "server", "version"),
        "address": _at(around, "server", "where"),
        "cpu": _at(around, "host", "cpu", "model"),
        "cpus": _at(around, "host", "limits", "usable_cpus"),
        "kernel": _at(around, "host", "kernel"),
        "digest": _at(plan, "digest"),
    }
    return _identity(run) | {c.name: _of_type(known[c.name], c) for c in RUNS}


def _claim_records(run: Listed, warnings: Warnings) -> list[dict[str, Any]]:
    found = derived_document(run, "findings.json", warnings)
    claims = [flat for record in found if (flat := _claim(record))] if isinstance(found, list) else []
    return [_identity(run) | {c.name: _of_type(claim.get(c.name), c) for c in CLAIMS} for claim in claims]


def _claim(record: Any) -> dict[str, Any] | None:
    """A stored claim with its figure in columns; None: it is none."""
    from pydantic import ValidationError

    from dbdyno.model.claim import Claim

    try:
        claim = Claim.model_validate(record)
    except ValidationError:
        return None
    figure = asdict(claim.value) if claim.value else {}
    numbers = {n: v for n in ("value", "low", "high") if (v := figure.get(n)) is not None and isfinite(v)}
    words = claim.model_dump(mode="json", exclude={"value"})
    return words | {"claim": claim.text, "cure": claim.advice, "unit": figure.get("unit")} | numbers


def _identity(run: Listed) -> dict[str, Any]:
    """As the other views have it."""
    return {
        "run_id": run.id,
        "started": run.started.replace(tzinfo=None, microsecond=0).isoformat(),
        "title": run.id[16:-5],
    }


def _at(found: Any, *keys: str) -> Any:
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _of_type(value: Any, column: ViewColumn) -> Any:
    """``value`` where it is of the column's type; else unknown."""
    if column.type == "DOUBLE":
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if column.type.endswith("[]"):
        return [v for v in value if isinstance(v, str)] if isinstance(value, list) else None
    return value if isinstance(value, str) else None


def _list(texts: Sequence[str]) -> str:
    return "[" + ", ".join("'" + text.replace("'", "''") + "'" for text in texts) + "]"


def _unglobbed(path: Path) -> str:
    """DuckDB takes every path for a pattern; a bracket around a character stands for itself."""
    return re.sub(r"([*?\[])", r"[\1]", str(path))
