"""Writes the tables at the end of docs/snapshots.md: ``python tools/snapshot_sources.py``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from dbdyno.engines.postgres import sql, statements
from dbdyno.engines.postgres.snapshots.sources import Origin, all_tables
from dbdyno.model.engine.snapshot import TABLES

PATH = Path(__file__).parent.parent / "docs" / "snapshots.md"
MARK = "<!-- made by python tools/snapshot_sources.py -->\n"
_ALIASES = {  # names in the statements -> names in PostgreSQL's manual
    "here.lsn": "pg_current_wal_lsn()",
    "wal_io.": "pg_stat_io (object wal).",
    "progress.": "pg_stat_progress_*.",
    "timing.is_on": "track_io_timing (object wal: track_wal_io_timing)",
    "t.io": "track_io_timing",
    "t.plans": "pg_stat_statements.track_planning",
    "d.datname": "pg_database.datname",
    "pg_catalog.": "",
}
_EXTENSIONS = {
    (1, 9): 14,
    (1, 10): 15,
    (1, 11): 17,
    (1, 13): 19,
}  # version of pg_stat_statements -> version of PostgreSQL that introduced it
_SELECTED = re.compile(r"^(?:select|\s{3,})\s*(.+?),?$")


def render(page: str) -> str:
    """Returns the page with every column of every table after the mark."""
    tables = (line for name in TABLES for line in _table(name))
    return "\n".join([page.split(MARK)[0] + MARK, *tables])


def _table(name: str) -> Iterator[str]:
    origins = dict(_statement_columns()) if name == "statements" else {}
    origins |= (
        {n: _versions(o) for n, o in all_tables()[name].columns.items()} if name in all_tables() else {}
    )
    figures = all_tables()[name].figures if name in all_tables() else {}
    yield f"### {name}\n\n{TABLES[name].doc}\n\n| column | source | meaning |\n|---|---|---|"
    for column in TABLES[name].columns:
        source = origins.get(column.name, "see below" if figures else "of the tables above")
        yield f"| `{column.name}` | {source} | {_cell(column.doc)} |"
    if figures:
        yield "\n| figure | unit | source |\n|---|---|---|"
        yield from (f"| `{n}` | {o.kept_as} | {_versions(o)} |" for n, o in figures.items())
    yield ""


def _versions(origin: Origin) -> str:
    unit = {"ms": "in ms", "s": "in s"}.get(origin.unit or "", "")
    off = f"NULL while `{origin.setting}` is off" if origin.setting else ""
    return "; ".join(filter(None, (_sources(origin.by_version), unit, off)))


def _sources(by_version: Mapping[int, str]) -> str:
    if list(by_version) == [14]:
        return f"`{_plain(by_version[14])}`"
    return "; ".join(
        f"{v}: `{_plain(text)}`" if text else f"gone since {v}" for v, text in by_version.items()
    )


def _statement_columns() -> Iterator[tuple[str, str]]:
    """Yields (column, source) from the statement that reads them, with names by version of the extension."""
    for line in sql.text("statements").splitlines():
        if (match := _SELECTED.match(line)) is None or line.startswith(("from", "where")):
            continue
        name = match[1].rsplit(" as ", 1)[-1].strip('"').removeprefix("s.").removesuffix("${more}")
        yield name, _by_extension(match[1].rsplit(" as ", 1)[0])


def _by_extension(text: str) -> str:
    since: dict[str, int] = {}
    for extension in sorted(statements.NAMES):
        filled = text
        for key, value in statements.NAMES[extension].items():
            filled = filled.replace(f"${{{key}}}", value)
        if "null::" not in filled:
            since.setdefault(filled, _EXTENSIONS[extension])
    return _sources({version: text for text, version in since.items()})


def _plain(text: str) -> str:
    text = re.sub(r"\bs\.", "pg_stat_statements.", text.replace("${more}", ""))
    for alias, name in _ALIASES.items():
        text = re.sub(rf"(?<![\w.]){re.escape(alias)}", name, text)
    return _cell(text)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PATH.write_text(render(PATH.read_text(encoding="utf-8")), encoding="utf-8")
