"""Writes docs/schema.md from the schema in python/dbdyno/model: ``python tools/schema_doc.py``."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from dbdyno.model.schema import snapshot_tables, tables

PATH = Path(__file__).parent.parent / "docs" / "schema.md"
_SNAPSHOTS = """

In `dbdyno sql` each has the columns `snapshot_id` and `taken` (UTC) in front, and the rows that changed since
the snapshot before. Counters are there as their growth since then: NULL where that is unknown, as of the
first snapshot or after a reset. `snapshots` has one row for each snapshot. `exec_square_s2` is
not in `dbdyno sql`."""


def render() -> str:
    """Returns the text of docs/schema.md."""
    parts = [f"# Tables, schema version {tables.SCHEMA_VERSION}\n", inspect.getdoc(tables) or ""]
    parts.append("\nMade from `python/dbdyno/model/schema/tables.py` by `python tools/schema_doc.py`.")
    snapshots = {f"snapshot_{n}": t.columns for n, t in snapshot_tables.TABLES.items()}
    for title, group, about in (
        ("Raw tables, one set per cell", tables.RAW, ""),
        ("Derived tables", {**tables.DERIVED, **tables.LABELS}, ""),
        ("Tables of snapshots", snapshots, _SNAPSHOTS),
    ):
        parts.append(f"\n## {title}{about}")
        for name, columns in group.items():
            parts.append(f"\n### {name}\n\n| column | type | NULL | meaning |\n|---|---|---|---|")
            parts += [
                f"| {c.name} | {c.type} | {'yes' if c.null else ''} | {_cell(c.doc)} |" for c in columns
            ]
    return "\n".join(parts) + "\n"


def _cell(text: str) -> str:
    """Returns a text as a cell of a table: its bars do not end the cell, <name> is no tag."""
    return re.sub(r"<(?=\w)", "&lt;", text.replace("|", "\\|"))


if __name__ == "__main__":
    PATH.write_text(render(), encoding="utf-8")
