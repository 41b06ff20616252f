"""Writes crates/dyno-model/src/raw.rs, the core's raw tables as structs: ``python tools/raw_tables.py``."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parent.parent
SOURCE = _ROOT / "python" / "dbdyno" / "model" / "schema" / "raw.toml"
PATH = _ROOT / "crates" / "dyno-model" / "src" / "raw.rs"
_TYPES = {"i64": "Vec<i64>", "f64": "Vec<f64>", "bool": "Vec<bool>", "str": "Texts"}
_NULLABLE = {"i64": "Nullable<i64>", "f64": "Nullable<f64>", "str": "NullableTexts"}
_HEAD = """\
//! The core's raw tables, made by `tools/raw_tables.py` from `python/dbdyno/model/schema/raw.toml`.

use crate::table::{Nullable, Table, raw_tables};
use crate::texts::{NullableTexts, Texts};

raw_tables! {
"""


def tables(text: str) -> dict[str, dict[str, tuple[str, bool, str]]]:
    """Returns, by table and column, the type, whether it may be NULL, and the meaning."""
    file: dict[str, dict[str, dict[str, Any]]] = tomllib.loads(text)
    declared = {name: columns for maker in file.values() for name, columns in maker.items()}

    def column(table: str, name: str) -> tuple[str, bool, str]:
        value = declared[table][name]
        if isinstance(value, str):
            return column(*value.split("."))
        return value["type"], value.get("null", False), value["doc"]

    return {table: {name: column(table, name) for name in columns} for table, columns in declared.items()}


def render(text: str) -> str:
    """Returns the text of raw.rs for that of raw.toml."""
    all_tables = tables(text)
    lines = [_HEAD]
    for table in tomllib.loads(text)["core"]:
        lines.append(f'    "{table}": {"".join(word.capitalize() for word in table.split("_"))} {{\n')
        for name, (kind, null, _) in all_tables[table].items():
            lines.append(f"        {name}: {(_NULLABLE if null else _TYPES)[kind]},\n")
        lines.append("    }\n")
    return "".join(lines) + "}\n"


if __name__ == "__main__":
    PATH.write_text(render(SOURCE.read_text(encoding="utf-8")), encoding="utf-8")
