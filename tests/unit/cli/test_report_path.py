"""The path of a report is absolute, whatever the current directory is."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from dbdyno.cli import screen
from dbdyno.cli.app import app


def test_the_path_of_a_report_is_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    screen.report_path(Path("r.html"))
    screen.report_path(tmp_path / "s.html")
    assert capsys.readouterr().out.splitlines() == [
        f"report: {tmp_path}/below/r.html",
        f"report: {tmp_path}/s.html",
    ]


@pytest.mark.parametrize("command", ["analyze ladder.csv", "flame last", "compare last", "trend"])
def test_a_file_of_another_kind_is_refused_before_anything_is_read(command: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [*command.split(), "-o", str(tmp_path / "page.pdf")])
    assert done.exit_code and "ends in .pdf; it is .html" in str(done.exception)
    assert list(tmp_path.iterdir()) == []
