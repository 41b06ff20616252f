"""Policies and metadata agree with the tree: versions, what forms ask for, where the address stands."""

from __future__ import annotations

import re
import runpy
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from tests.fakery import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
FORMS = ROOT / ".github" / "ISSUE_TEMPLATE"


def test_the_citation_has_the_version_and_the_authors_of_the_package() -> None:
    assert CITATION["version"] == PROJECT["version"]
    assert CITATION["authors"] == PROJECT["authors"]
    assert CITATION["license"] == PROJECT["license"]


@pytest.mark.parametrize("name", ["bug", "wrong-figure", "feature"])
def test_forms_ask_for_doctor_and_say_what_it_holds(name: str) -> None:
    fields = yaml.safe_load((FORMS / f"{name}.yml").read_text("utf-8"))["body"]
    (doctor,) = (f for f in fields if f.get("id") == "doctor")
    assert doctor["attributes"]["label"] == "dbdyno doctor --json"
    assert (
        "no password" in doctor["attributes"]["description"]
        and "read it" in doctor["attributes"]["description"].lower()
    )
    assert doctor["validations"]["required"] is (name != "feature")


def _tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    return [ROOT / name for name in listed.stdout.splitlines()]


ADDRESS = re.compile(r"https://[\w.-]+/[\w.-]+/dbdyno\b(?!-)")


def test_the_repositorys_address_stands_where_the_tool_writes_it_alone() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "repository_address.py"))
    texts = [
        p for p in _tracked() if p.suffix in (".md", ".toml", ".yml", ".cff", ".py", ".rs") and p.is_file()
    ]
    naming = {str(p.relative_to(ROOT)) for p in texts if ADDRESS.search(p.read_text("utf-8", "replace"))}
    examples = {"tools/repository_address.py", "CONTRIBUTING.md", "tests/docs/test_policies.py"}
    assert naming - examples - set(tool["FILES"]) == set()


def test_one_command_sets_the_address_and_sets_it_anew(tmp_path: Path) -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "repository_address.py"))
    for name in tool["FILES"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text("utf-8"))
    for owner in ("first", "second"):
        assert tool["main"](f"https://host.example/{owner}/dbdyno/", tmp_path) == 0
        address = f"https://host.example/{owner}/dbdyno"
        project = tomllib.loads((tmp_path / "pyproject.toml").read_text("utf-8"))["project"]
        assert project["urls"]["Repository"] == address
        assert project["urls"]["Issues"] == f"{address}/issues"
        assert {k: v for k, v in project.items() if k != "urls"} == {
            k: v for k, v in PROJECT.items() if k != "urls"
        }
        citation = yaml.safe_load((tmp_path / "CITATION.cff").read_text("utf-8"))
        assert citation == CITATION | {"repository-code": address}
        assert f"uses: {owner}/dbdyno@v1" in (tmp_path / "docs" / "gates.md").read_text("utf-8")
    assert tool["main"]("dbdyno", tmp_path) == 2
