"""Faults that import-linter cannot see: an engine's words outside its folder, the core in pure rooms."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "dbdyno"
SOURCES = [
    p
    for folder in (PACKAGE, ROOT / "crates")
    for suffix in ("*.py", "*.rs", "*.toml", "*.sql")
    for p in folder.rglob(suffix)
]


def test_no_word_of_an_engine_stands_outside_its_folder() -> None:
    foreign = [
        f"{p.relative_to(ROOT)}:{n}"
        for p in SOURCES
        if PACKAGE / "engines" / "postgres" not in p.parents
        for n, line in enumerate(p.read_text(encoding="utf-8").splitlines(), start=1)
        if re.search(r"\bpg_|\binnodb", line)
    ]
    assert foreign == []


ENGINES = PACKAGE / "engines"
OUTSIDE = [p for p in SOURCES if ENGINES not in p.parents and "tests" not in p.relative_to(ROOT).parts]
REGISTRIES = (ROOT / "crates" / "dyno-core" / "src" / "engines.rs", ENGINES / "__init__.py")
"""Where engines are found by name."""
OF_THE_DEFAULT = ("cli", "recipes")
"""Rooms whose help and examples are for the engine that comes with dbdyno."""
FOREIGN = {
    "wait class or event": r"LWLock|BufferPin|ClientRead|ClientWrite|InjectionPoint|ProcArray|WALSync|WalSync"
    r"|[\"'`](Client|Lock|IO|IPC|Timeout|Extension|Activity)[\"'`/:]",
    "process": r"[\"'](helper:)?(checkpointer|io worker|wal ?writer|background writer|autovacuum \w+)[\"']",
    "system": r"(?i)[\"']postgres[\"']|dyno_engine_\w+|postgres\w*(activity|server|spec)|engines[./]postgres",
    "product": r"PostgreSQL|PgBouncer|pgbouncer|libpq|\bpsql\b|\bPG[A-Z]{2,}|pgpass",
    "error code": r"\b(53300|57P0\d|57014|42501|42P\d\d|40P01|55P03|25P02|3D000|28P01|28000)\b",
}
"""Words of one system; every engine hands over its own, as data."""
EXAMPLES = (PACKAGE / "conclude" / "words.toml", "example = ")
"""Examples of the glossary are, like those of help, of the engine that comes with dbdyno."""


@pytest.mark.parametrize("kind", FOREIGN)
def test_no_name_of_one_system_stands_outside_the_engines(kind: str) -> None:
    names = [
        f"{p.relative_to(ROOT)}:{n}: {line.strip()}"
        for p in OUTSIDE
        if not (kind == "system" and p in REGISTRIES)
        if not (kind == "product" and any(PACKAGE / room in p.parents for room in OF_THE_DEFAULT))
        for n, line in enumerate(p.read_text(encoding="utf-8").splitlines(), start=1)
        if re.search(FOREIGN[kind], line) and not (p == EXAMPLES[0] and line.startswith(EXAMPLES[1]))
    ]
    assert names == []


@pytest.mark.parametrize("room", ["model", "plan", "account", "stats", "conclude", "present"])
def test_pure_rooms_import_nothing_of_the_core_but_functions_of_numbers(room: str) -> None:
    importing = [
        p.name
        for p in (PACKAGE / room).rglob("*.py")
        if re.search(
            r"^\s*(from dbdyno import .*\b_core|from dbdyno\._core|import dbdyno\._core)", p.read_text(), re.M
        )
    ]
    assert sorted(importing) == (["laws.py", "special.py"] if room == "stats" else [])
