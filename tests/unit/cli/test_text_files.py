"""Text files of users: byte order marks, encodings, separators of lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dbdyno.cli.app import app
from dbdyno.conduct.request.script_texts import read_text
from dbdyno.engines import imported
from dbdyno.kernel.processes import _status
from dbdyno.model.errors import UsageError
from dbdyno.plan.recipe_lines import key_lines
from dbdyno.store.files import decoded

EXPORT = [
    (0, {"extension": "pg_profile", "version": "4.11", "tab_list_section": 1}),
    (1, [{"section_id": 2, "relname": "servers"}, {"section_id": 3, "relname": "samples"}]),
    (2, {"server_id": 1, "server_name": "local"}),
]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_a_text_is_read_by_the_mark_of_its_encoding(encoding: str, tmp_path: Path) -> None:
    (path := tmp_path / "a.sql").write_bytes("SELECT 'ü';".encode(encoding))
    assert read_text(path, "script") == "SELECT 'ü';"


@pytest.mark.parametrize(
    ("content", "cure"),
    [
        ("SELECT 1".encode("utf-16-le"), "iconv -f UTF-16LE"),
        ("SELECT 1".encode("utf-16-be"), "iconv -f UTF-16BE"),
        ("SELECT 'ü'".encode("latin-1"), "iconv -f LATIN1"),
    ],
)
def test_a_text_of_another_encoding_is_refused_with_the_conversion(content: bytes, cure: str) -> None:
    with pytest.raises(UsageError) as e:
        decoded(content, "my file; id.sql")
    assert cure in (e.value.cure or "") and "'my file; id.sql'" in (e.value.cure or "")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_the_configuration_file_may_have_a_mark(
    encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path := tmp_path / "config.toml").write_bytes(f'store = "{tmp_path}"\n'.encode(encoding))
    path.chmod(0o600)
    monkeypatch.setenv("DBDYNO_CONFIG", str(path))
    done = CliRunner().invoke(app, ["runs"])
    assert done.exit_code == 0 and str(tmp_path) in done.output


@pytest.mark.parametrize("form", ["{n},{quoted}\r\n", "{n}\t{text}\n"])
def test_an_export_may_have_a_mark_and_any_separator_in_a_query(form: str) -> None:
    rows = [*EXPORT, (4, {"server_id": 1, "query": "select 1\u2028, 2\x85, 3"})]
    content = "\ufeff"
    for n, data in rows:
        text = json.dumps(data, ensure_ascii=False)
        quoted = '"' + text.replace('"', '""') + '"'
        content += form.format(n=n, quoted=quoted, text=text.replace("\\", "\\\\"))
    with pytest.raises(UsageError, match="has no samples"):  # raised after the last line
        imported("postgres", "pg_profile", decoded(content.encode(), "export"))


def test_lines_of_toml_end_where_toml_says() -> None:
    assert key_lines('a = "x\u2028y\x85z"\nb = 1\n')[("b",)] == 2


def test_a_name_of_a_process_cannot_forge_a_line_of_its_status(tmp_path: Path) -> None:
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/status").write_text("Name:\ta\x0bUid:\t0\t0\t0\t0\x85\nUid:\t9\t9\t9\t9\n")
    assert _status(7, tmp_path)["Uid"].startswith("9")
