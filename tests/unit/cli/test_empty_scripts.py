"""Scripts without a statement are refused before planning, and files that are no text."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from dbdyno.cli.app import app
from dbdyno.model.errors import UsageError
from dbdyno.store.files import decoded

EMPTY = ["", "\n \n", "-- nothing\n", "/* a /* b */ -- */ ;", ";;", "-- /* \n", "/* x */ -- y", "/* no end"]
SOME = ["SELECT 1", "-- /*\nSELECT 1; -- */\n", "\\set x 1\n", "/* x */SELECT 1", "SELECT '--'", "*/"]


@pytest.mark.parametrize("text", EMPTY)
def test_a_script_without_a_statement_is_refused(tmp_path: Path, text: str) -> None:
    script = tmp_path / "empty.sql"
    script.write_text(text)
    result = CliRunner().invoke(app, ["run", "--script", str(script), "--dry-run"])
    output = result.output + str(result.exception)
    assert result.exit_code != 0
    assert "the script empty.sql has no statement" in output and "write at least one" in output


@pytest.mark.parametrize("text", SOME)
def test_a_script_with_a_statement_has_a_plan(tmp_path: Path, text: str) -> None:
    script = tmp_path / "some.sql"
    script.write_text(text)
    result = CliRunner().invoke(app, ["run", "--script", str(script), "--dry-run", "--sessions", "1"])
    assert "has no statement" not in result.output + str(result.exception)


def test_a_zero_byte_is_refused_with_its_line_unless_the_text_is_utf_16() -> None:
    with pytest.raises(UsageError, match=r"x\.sql, line 2: it has a zero byte") as e:
        decoded(b"SELECT 2;\nSELECT 1\0;\n", "x.sql")
    assert e.value.cure == "delete it: no text has any"
    with pytest.raises(UsageError, match="as UTF-16"):
        decoded("SELECT 1;\n".encode("utf-16-le"), "x.sql")
