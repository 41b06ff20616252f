"""Writes docs/schema.md from the schema in python/dbdyno/model/tables.py: ``python tools/schema_doc.py``."""

from __future__ import annotations

import inspect
from pathlib import Path

from dbdyno.model import tables

PATH = Path(__file__).parent.parent / "docs" / "schema.md"


def render() -> str:
    """The text of docs/schema.md."""
    parts = [f"# Tables, schema version {tables.SCHEMA_VERSION}\n", inspect.getdoc(tables) or ""]
    parts.append("\nMade from `python/dbdyno/model/tables.py` by `python tools/schema_doc.py`.")
    for title, group in (
        ("Raw tables, one set per cell", tables.RAW),
        ("Derived tables", tables.DERIVED | tables.LABELS),
    ):
        parts.append(f"\n## {title}")
        for name, columns in group.items():
            parts.append(f"\n### {name}\n\n| column | type | NULL | meaning |\n|---|---|---|---|")
            parts += [
                f"| {c.name} | {c.type} | {'yes' if c.null else ''} | {_cell(c.doc)} |" for c in columns
            ]
    return "\n".join(parts) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PATH.write_text(render(), encoding="utf-8")
