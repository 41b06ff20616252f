"""Scripts by `dbdyno run` on real servers: what is refused before a run, retries for real, pgbench's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.db.conftest import Bench

pytestmark = pytest.mark.db
BRIEF = ("--sessions", "1", "--measure", "1s", "--settle", "100ms")


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("select 1;\n  \\set a random(1\n", "own.sql:2:", "^"),
        ("\\set a 1\n\\nosuch 1\n", "own.sql:2:", "nosuch"),
        ("\\if 1\nselect 1;\n", "own.sql:", "endif"),
        ("\\set a 1\nselect :a, nosuch from pg_class where relpages = :a;\n", "own.sql:2:12", "nosuch"),
        ("\\set longer 1\nselect :longer::text, nosuch from pg_class;\n", "own.sql:2:23", "nosuch"),
        ("begin;\nselect 1;\n", "own.sql:1:1", "COMMIT"),
        ("\\shell true\n", "own.sql:1:", "--allow-shell"),
        ("copy pg_class to stdout;", "own.sql:1:1", "INSERT ... SELECT"),
    ],
)
def test_mistakes_have_their_place_and_cure(
    bench: Bench, tmp_path: Path, text: str, place: str, said: str
) -> None:
    script = tmp_path / "own.sql"
    script.write_text(text)
    done = bench.here("run", "-f", str(script), "--dsn", bench.dsn, *BRIEF)
    assert done.returncode == 2, done.stderr
    assert place in done.stderr and said in done.stderr and "^" in done.stderr


def test_tables_that_a_script_makes_itself_are_not_asked_for(bench: Bench, tmp_path: Path) -> None:
    script = tmp_path / "own.sql"
    script.write_text(
        "\\set n random(1, 9)\ncreate temp table made (n int);\ninsert into made values (:n);\n"
        "select n from made;\ndrop table made;\n"
    )
    done = bench.here("run", "-f", str(script), "--dsn", bench.dsn, "--json", *BRIEF)
    assert done.returncode == 0, done.stderr
    (rung,) = json.loads(done.stdout)["rungs"]
    assert rung["calls"] > 0 and rung["errors"] == 0


def test_pgbench_without_its_tables_names_the_cure(bench: Bench) -> None:
    done = bench.here("run", "-b", "tpcb-like", "--dsn", bench.with_words(dbname="template1"), *BRIEF)
    assert done.returncode == 2
    assert "dbdyno workload prepare pgbench" in done.stderr
