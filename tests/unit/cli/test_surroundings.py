"""An unknown time zone or home directory is remarked once, before anything else."""

from __future__ import annotations

import pytest

from dbdyno.cli import surroundings


@pytest.mark.parametrize(
    ("name", "unknown"),
    [
        ("Foo/Bar", True),
        (":Foo/Bar", True),
        ("Europe/Nowhere", True),
        ("UTC", False),
        ("", False),
        ("CET-1CEST,M3.5.0,M10.5.0/3", False),
        ("<+03>-3", False),
    ],
)
def test_an_unknown_time_zone_is_remarked_and_a_known_one_is_not(
    name: str, unknown: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TZ", name)
    surroundings.remark()
    assert (f"TZ={name}: this machine knows no such time zone" in capsys.readouterr().err) is unknown


def test_a_home_directory_that_does_not_exist_is_remarked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", "/nonexistent/home")
    surroundings.remark()
    assert "HOME=/nonexistent/home: there is no such directory" in capsys.readouterr().err
