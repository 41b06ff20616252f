"""Writes tests/golden/release, the interface that a release promises: ``python tools/release_golden.py``.

Run it when a version is released. Each file has a line for each name, with its type after a tab. The tests
compare them with the tree: a name that is gone, or has another type, needs a version that may change it
(docs/stability.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from dbdyno import __version__
from dbdyno.cli.app import app
from dbdyno.conclude.catalogue import entries
from dbdyno.model import errors
from dbdyno.model.schema import snapshot_tables, tables
from dbdyno.model.schema.column import Column
from dbdyno.plan import recipe_schema
from dbdyno.present.figures.jsondoc import FORMAT
from dbdyno.present.metrics.records import METRICS

FOLDER = Path(__file__).parent.parent / "tests" / "golden" / "release"
VERSION = "version.txt"
Names = dict[str, str]


def interface(json_schema: Mapping[str, Any]) -> dict[str, Names]:
    """Returns names with their types, by file. ``json_schema`` is that of docs/json.schema.json."""
    recipes = recipe_schema()
    return {
        "claims.txt": dict.fromkeys(entries(), "claim"),
        "commands.txt": dict(_commands(app, click.Context(app, info_name="dbdyno", **app.context_settings))),
        "exit-codes.txt": dict(_exit_codes(errors.DbdynoError)) | _EXIT_CODES,
        "formats.txt": {"JSON": str(FORMAT), "store": str(tables.SCHEMA_VERSION)},
        "json.txt": dict(_documents(json_schema)),
        "metrics.txt": {m.name: f"{m.kind} by {', '.join(m.labels)}" for m in METRICS},
        "recipes.txt": dict(_keys("", recipes, recipes)),
        "tables.txt": dict(_tables()),
    }


def write(folder: Path, json_schema: Mapping[str, Any]) -> None:
    """Writes the files, and the version of the program."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, names in interface(json_schema).items():
        lines = (f"{key}\t{kind}\n" for key, kind in sorted(names.items()))
        (folder / name).write_text("".join(lines), encoding="utf-8")
    (folder / VERSION).write_text(f"{__version__}\n", encoding="utf-8")


def read(path: Path) -> Names:
    """Returns the names of a file with their types."""
    return dict(line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())


_EXIT_CODES = {
    name.removeprefix("EXIT_").lower().replace("_", " "): str(value)
    for name, value in vars(errors).items()
    if name.startswith("EXIT_")
}


def _exit_codes(kind: type[errors.DbdynoError]) -> Iterator[tuple[str, str]]:
    yield kind.__name__, str(kind.exit_code)
    for narrower in kind.__subclasses__():
        if narrower.__module__ == errors.__name__:
            yield from _exit_codes(narrower)


def _commands(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    path = context.command_path
    yield path, "command"
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    for n, argument in enumerate(arguments, 1):
        yield f"{path} argument {n}", "required" if argument.required else "optional"
    for option in command.params:
        if isinstance(option, click.Option):
            kind = "flag" if option.is_flag else "value"
            for name in (*option.opts, *option.secondary_opts):
                yield f"{path} {name}", f"{kind}, repeatable" if option.multiple else kind
                for choice in getattr(option.type, "choices", ()):
                    yield f"{path} {name}={choice}", "choice"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            narrower = command.get_command(context, name)
            assert narrower is not None
            yield from _commands(narrower, click.Context(narrower, context, info_name=name))


def _tables() -> Iterator[tuple[str, str]]:
    snapshots = {f"snapshot_{n}": t.columns for n, t in snapshot_tables.TABLES.items()}
    raw = {tables.raw(n): columns for n, columns in tables.RAW.items()}
    for name, columns in ({**raw, **tables.DERIVED, **tables.LABELS, **snapshots}).items():
        yield name, "table"
        yield from ((f"{name}.{c.name}", _column(c)) for c in columns)


def _column(column: Column) -> str:
    return f"{column.type} or NULL" if column.null else column.type


def _documents(schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the documents of each command, and all keys of each document. The rows of registered tables are
    left out."""
    names: dict[str, None] = {}
    for command, definition in schema["$defs"].items():
        if command.startswith("command-"):
            for document in definition["anyOf"]:
                name = _reference(document.get("items", document))
                if name in schema["$defs"]:
                    names[name] = None
                    yield f"{definition['title']}: {name}", _type(document, schema)
    for name in names:  # a document within another has lines of its own
        yield from _keys(name, schema["$defs"][name], schema, tuple(names))


def _keys(
    place: str, part: Any, schema: Mapping[str, Any], above: tuple[str, ...] = ()
) -> Iterator[tuple[str, str]]:
    """Yields the keys of the objects in a part of a JSON Schema, and the values of enumerations. Types in
    ``above`` are not entered."""
    if not isinstance(part, dict):
        return
    name = _reference(part)
    if name and name not in above and not name.startswith(_ROWS):
        yield from _keys(place, schema["$defs"][name], schema, (*above, name))
    values = part.get("enum", [part["const"]] if "const" in part else [])
    yield from ((f"{place}={value}", "value") for value in values)
    for key, property_ in part.get("properties", {}).items():
        optional = "" if key in part.get("required", ()) else ", optional"
        yield f"{place}.{key}", f"{_type(property_, schema)}{optional}"
        yield from _keys(f"{place}.{key}", property_, schema, above)
    for inner in ("items", "additionalProperties"):
        yield from _keys(f"{place}[]", part.get(inner), schema, above)
    for alternative in part.get("anyOf", ()):
        yield from _keys(place, alternative, schema, above)


_ROWS = "table-"


def _reference(part: Mapping[str, Any]) -> str:
    return str(part.get("$ref", "")).rpartition("/")[2]


def _type(part: Any, schema: Mapping[str, Any]) -> str:
    """Returns a part of a JSON Schema in words, without names of types, keys and values."""
    if not isinstance(part, dict):
        return "anything"
    if name := _reference(part):
        return name if name.startswith(_ROWS) else _type(schema["$defs"][name], schema)
    if "anyOf" in part:
        return " or ".join(dict.fromkeys(_type(a, schema) for a in part["anyOf"]))
    if "enum" in part or "const" in part:
        return "enumeration"
    kind = part.get("type", "anything")
    if kind == "array":
        return f"list of {_type(part.get('items'), schema)}"
    if kind == "object" and part.get("additionalProperties", False) is not False:
        return f"object of {_type(part['additionalProperties'], schema)}"
    return kind if isinstance(kind, str) else " or ".join(kind)


if __name__ == "__main__":
    from json_schema import schema

    write(FOLDER, schema())
