"""The interface of the last release (tests/golden/release) holds: what it promised is there, with its type,
unless the version may take it away and the changelog names it (docs/stability.md).

That stored runs of earlier versions stay readable is tested by tests/unit/test_same.py, over the runs of
tests/golden/corpus, and by tests/unit/conduct/test_derived_once.py.
"""

from __future__ import annotations

import re
import runpy
from collections.abc import Mapping
from typing import Any

import pytest
from tests import json_schema
from tests.fakery import ROOT

import dbdyno

CHANGELOG = ROOT / "CHANGELOG.md"


@pytest.fixture(scope="module")
def tool() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "tools" / "release_golden.py"))


def broken(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """Returns what is gone or has another type, with words about it."""
    gone = {name: "is gone" for name in old if name not in new}
    other = {n: f"was {kind}, is {new[n]}" for n, kind in old.items() if n in new and new[n] != kind}
    return gone | other


def may_break(released: str, version: str) -> bool:
    """Returns whether ``version`` may take away what ``released`` promised: another major version, or
    before 1.0 another minor one."""
    (old_major, old_minor), (major, minor) = ([int(n) for n in v.split(".")[:2]] for v in (released, version))
    return major > old_major or (major == old_major == 0 and minor > old_minor)


def taken_back(changelog: str, released: str) -> str:
    """Returns the sections Removed and Changed of the versions after ``released``."""
    later = re.split(rf"^## \[{re.escape(released)}\]", changelog, maxsplit=1, flags=re.MULTILINE)[0]
    sections = re.split(r"^(?=##)", later, flags=re.MULTILINE)
    return "".join(s for s in sections if re.match(r"### (Removed|Changed)\n", s))


def unexplained(faults: Mapping[str, str], text: str) -> dict[str, str]:
    """Returns the faults whose names a text does not have in backquotes."""
    named = " ".join(re.findall(r"`([^`]+)`", text))
    last = {name: re.split(r"[ .=]", name)[-1] for name in faults}
    return {
        n: w for n, w in faults.items() if not re.search(rf"(?<![\w-]){re.escape(last[n])}(?![\w-])", named)
    }


@pytest.fixture(scope="module")
def present(tool: dict[str, Any]) -> dict[str, dict[str, str]]:
    names: dict[str, dict[str, str]] = tool["interface"](json_schema.published())
    return names


FILES = (
    *("claims", "commands", "exit-codes", "formats"),
    *("json", "metrics", "recipes", "tables"),
)


def test_every_part_of_the_interface_has_a_file(tool: dict[str, Any], present: dict[str, Any]) -> None:
    assert {f"{name}.txt" for name in FILES} == set(present)
    assert {f.name for f in tool["FOLDER"].iterdir()} == {*present, tool["VERSION"]}


@pytest.mark.parametrize("file", FILES)
def test_what_the_last_release_promised_is_kept(
    file: str, tool: dict[str, Any], present: dict[str, dict[str, str]]
) -> None:
    released = (tool["FOLDER"] / tool["VERSION"]).read_text("utf-8").strip()
    promised = tool["read"](tool["FOLDER"] / f"{file}.txt")
    assert len(promised) > 1
    faults, changelog = broken(promised, present[f"{file}.txt"]), CHANGELOG.read_text("utf-8")
    if may_break(released, dbdyno.__version__):
        faults = unexplained(faults, taken_back(changelog, released))
        cure = "name it in CHANGELOG.md under Removed or Changed"
    elif f"## [{released}]" in changelog:
        cure = "keep it, with its old meaning, or raise the version (docs/stability.md)"
    else:
        cure = f"{released} is not released yet: if it is meant, python tools/release_golden.py"
    assert faults == {}, cure


def test_gone_names_and_other_types_are_faults_and_new_names_are_none() -> None:
    old = {"rungs": "table", "rungs.sessions": "i64", "rungs.calls": "i64"}
    new = {"rungs": "table", "rungs.sessions": "str", "rungs.more": "f64"}
    assert broken(old, new) == {"rungs.calls": "is gone", "rungs.sessions": "was i64, is str"}


@pytest.mark.parametrize(
    ("released", "version", "may"),
    [
        ("0.1.0", "0.1.0", False),
        ("0.1.0", "0.1.9", False),
        ("0.1.0", "0.2.0", True),
        ("0.9.0", "1.0.0", True),
        ("1.2.0", "1.10.0", False),
        ("1.2.0", "2.0.0", True),
    ],
)
def test_which_version_may_take_something_away(released: str, version: str, may: bool) -> None:
    assert may_break(released, version) is may


def test_the_changelog_has_to_name_what_is_taken_away() -> None:
    log = (
        "# Changelog\n## [0.2.0]\n### Added\n- `rungs.calls`\n### Removed\n- `dbdyno run --old`, table `x`.\n"
        "## [0.1.0]\n### Removed\n- `--older`\n"
    )
    text = taken_back(log, "0.1.0")
    faults = dict.fromkeys(
        ("dbdyno run --old", "x", "rungs.calls", "dbdyno run --older", "rungs.old"), "is gone"
    )
    assert set(unexplained(faults, text)) == {"rungs.calls", "dbdyno run --older", "rungs.old"}
