"""Writes docs/json.schema.json, the JSON Schema of what ``--json`` prints: ``python tools/json_schema.py``.

``$defs`` has a definition ``command-NAME`` for each command, with blanks as ``-``, and ``table-NAME`` for the
rows of each table. Objects may have further keys, since a release may add some.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from json_documents import ABSENT, COMMANDS, TABLE, row_schema
from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from dbdyno.model.schema.tables import REGISTERED

PATH = Path(__file__).parent.parent / "docs" / "json.schema.json"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


class _Printed(GenerateJsonSchema):
    """Describes values as they are printed: with all keys of an object, and null for a float of a dataclass
    that is not finite."""

    _dataclasses = 0

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        self._dataclasses += 1
        try:
            return super().dataclass_schema(schema)
        finally:
            self._dataclasses -= 1

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        number = super().float_schema(schema)
        return {**number, "type": ["number", "null"]} if self._dataclasses else number

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def field_is_required(self, field: Any, total: bool) -> bool:
        if field["type"] == "typed-dict-field":
            return super().field_is_required(field, total)
        return field["schema"].get("default") is not ABSENT

    def _get_alias_name(self, field: Any, name: str) -> str:
        # as model_dump does, which takes aliases only where the model says so
        return super()._get_alias_name(field, name) if self._config.serialize_by_alias else name

    def field_title_should_be_set(self, _schema: Any) -> bool:
        return False


def schema() -> dict[str, Any]:
    """Returns the schema of all documents."""
    adapters = {
        (command, n): TypeAdapter(kind) for command, kinds in COMMANDS.items() for n, kind in enumerate(kinds)
    }
    by_key, shared = TypeAdapter.json_schemas(
        [(key, "serialization", adapter) for key, adapter in adapters.items()],
        union_format="primitive_type_array",
        schema_generator=_Printed,
    )
    commands = {
        f"command-{command.replace(' ', '-')}": {
            "title": f"dbdyno {command} --json",
            "anyOf": [by_key[(command, n), "serialization"] for n in range(len(kinds))],
        }
        for command, kinds in COMMANDS.items()
    }
    tables = {f"table-{t.name}": row_schema(t.columns) for t in REGISTERED.values() if t.shown}
    whole = {
        "$schema": _DIALECT,
        "title": "What dbdyno prints with --json",
        "description": "docs/json.md explains the keys. Objects may have further keys in later versions.",
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in commands],
        "$defs": {**commands, **tables, **shared["$defs"]},
    }
    opened: dict[str, Any] = _opened(whole)
    return opened


def _opened(node: Any) -> Any:
    """Returns a schema that allows further keys, with references in place of the place-holders of tables."""
    if isinstance(node, list):
        return [_opened(n) for n in node]
    if not isinstance(node, dict):
        return node
    if TABLE in node:
        return {"type": "array", "items": {"$ref": f"#/$defs/table-{node[TABLE]}"}}
    closed = node.get("additionalProperties") is False
    return {k: _opened(v) for k, v in node.items() if not (closed and k == "additionalProperties")}


def render() -> str:
    """Returns the text of docs/json.schema.json."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PATH.write_text(render(), encoding="utf-8")
