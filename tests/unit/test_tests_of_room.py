"""tools/tests_of_room.py: which test files `make check ROOM=...` runs."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "tests_of_room.py"
HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("source", "rooms"),
    [
        ("from dbdyno.conclude.run.case import Case", {"conclude"}),
        ("from dbdyno import conclude, present", {"conclude", "present"}),
        ("import dbdyno.store.parts", {"store"}),
        ("def test() -> None:\n    from dbdyno.cli import main", {"cli"}),
        ("from dbdyno.model import claim\nfrom dbdyno.stats.knee import knees", {"model", "stats"}),
        ("# from dbdyno.conclude import locks\nimport polars", set()),
        ("from dbdyno.lazy import lazy\nfrom dbdyno import _core", set()),
    ],
)
def test_a_room_is_used_by_an_import_anywhere_in_a_file(source: str, rooms: set[str]) -> None:
    assert runpy.run_path(str(TOOL))["imported_rooms"](source) == rooms


def test_a_file_belongs_to_the_last_room_that_it_uses_and_to_those_of_its_name() -> None:
    tests_of = runpy.run_path(str(TOOL))["tests_of"]
    assert HERE / "conduct" / "test_analyze_findings.py" in tests_of("conduct")
    assert HERE / "conduct" / "test_analyze_findings.py" not in tests_of("conclude")
    assert HERE / "limits" / "test_limits.py" in tests_of("limits")
    assert HERE / "test_completion.py" in tests_of("cli")
    assert Path(__file__) not in tests_of("conclude")


def test_every_file_that_uses_a_room_belongs_to_one() -> None:
    tool = runpy.run_path(str(TOOL))
    assert sorted(tool["way"]()) == tool["rooms"]()
    belonging = {p for room in tool["rooms"]() for p in tool["tests_of"](room)}
    files = {p for folder in tool["FOLDERS"] for p in folder.rglob("test_*.py")}
    assert [p for p in files - belonging if tool["imported_rooms"](p.read_text("utf-8"))] == []


def test_an_unknown_room_is_refused_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    tool = runpy.run_path(str(TOOL))
    assert tool["main"](["no-such-room"]) == 2
    assert "conclude" in capsys.readouterr().err
