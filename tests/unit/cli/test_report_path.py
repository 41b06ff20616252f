"""The path of a report is absolute, whatever the current directory is."""

from pathlib import Path

import pytest

from dbdyno.cli import screen


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
