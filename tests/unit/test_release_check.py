"""tools/release_check.py on made-up trees and releases: each fault is a failed step with its cure."""

from __future__ import annotations

import hashlib
import importlib
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-11-30\n\n### Added\n\n- A thing.\n"
TREE = {
    "Cargo.toml": '[workspace.package]\nversion = "1.2.3"\n',
    "Cargo.lock": '[[package]]\nname = "dyno-core"\nversion = "1.2.3"\n\n'
    '[[package]]\nname = "libc"\nversion = "0.2.9"\nsource = "registry"\n',
    "pyproject.toml": '[project]\nname = "dbdyno"\nversion = "1.2.3"\n',
    "python/dbdyno/__init__.py": '__version__ = "1.2.3"\n',
    "CITATION.cff": "cff-version: 1.2.0\nversion: 1.2.3\n",
    "README.md": "pipx install ./dbdyno-1.2.3-cp311-abi3-manylinux_2_28_x86_64.whl\n",
    "docs/install.md": "dbdyno-*.whl\n",
    "CHANGELOG.md": CHANGELOG,
    "Makefile": "wheels:\n",
}


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module("release_check")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_tree_whose_versions_agree_passes(release: ModuleType, tree: Path) -> None:
    assert release.check_versions(tree) == "1.2.3 in 6 places"
    (tree / "CITATION.cff").unlink()
    assert release.check_versions(tree) == "1.2.3 in 5 places"


@pytest.mark.parametrize(
    "name", ["Cargo.lock", "pyproject.toml", "python/dbdyno/__init__.py", "CITATION.cff", "README.md"]
)
def test_a_version_that_disagrees_is_named_with_its_place(release: ModuleType, tree: Path, name: str) -> None:
    (tree / name).write_text(TREE[name].replace("1.2.3", "1.2.4"))
    with pytest.raises(release.Failed, match=rf"Cargo.toml has 1\.2\.3; {name}.*1\.2\.4"):
        release.check_versions(tree)


def test_a_dated_section_of_the_version_passes(release: ModuleType, tree: Path) -> None:
    assert release.check_changelog(tree) == "1 entries for 1.2.3"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("[1.2.3]", "[1.2.2]", "no section for 1.2.3"),
        (" - 2026-11-30", "", "has no date"),
        ("- A thing.\n", "", "no entry for 1.2.3"),
        ("[Unreleased]\n", "[Unreleased]\n\n- Another thing.\n", "under Unreleased"),
    ],
)
def test_a_changelog_that_is_not_ready_fails_with_the_reason(
    release: ModuleType, tree: Path, old: str, new: str, reason: str
) -> None:
    (tree / "CHANGELOG.md").write_text(CHANGELOG.replace(old, new))
    with pytest.raises(release.Failed, match=reason):
        release.check_changelog(tree)


def _git(tree: Path, *words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *words], cwd=tree, check=True, capture_output=True)


def test_only_a_committed_tree_without_an_older_tag_of_its_version_passes(
    release: ModuleType, tree: Path
) -> None:
    _git(tree, "init")
    with pytest.raises(release.Failed, match="differ from the last commit"):
        release.check_tree(tree)
    _git(tree, "add", ".")
    _git(tree, "commit", "--message", "first")
    _git(tree, "tag", "v1.2.3")
    assert release.check_tree(tree).startswith("commit ")
    _git(tree, "commit", "--allow-empty", "--message", "second")
    with pytest.raises(release.Failed, match=r"v1\.2\.3 is of another commit"):
        release.check_tree(tree)


def test_documents_are_built_where_the_makefile_has_them(release: ModuleType, tree: Path) -> None:
    assert "no target docs" in release.check_docs(tree)
    (tree / "Makefile").write_text(".PHONY: docs\ndocs:\n\ttrue\n")
    assert release.check_docs(tree) == "make docs"
    (tree / "Makefile").write_text(".PHONY: docs\ndocs:\n\t@echo page 7 >&2; false\n")
    with pytest.raises(release.Failed, match="make docs"):
        release.check_docs(tree)


MEMBERS = (
    "dbdyno/remote/programs/dbdyno-agent-x86_64",
    "dbdyno/remote/programs/dbdyno-agent-aarch64",
    "dbdyno/present/assets/vega.js",
    "dbdyno/present/assets/uplot.js",
    "dbdyno-1.2.3.dist-info/sboms/dbdyno.cdx.json",
    "dbdyno-1.2.3.dist-info/licenses/LICENSE",
    "dbdyno-1.2.3.dist-info/licenses/THIRD-PARTY-LICENSES.txt",
    "dbdyno-1.2.3.data/data/share/man/man1/dbdyno.1",
)


def _dist(folder: Path, members: Sequence[str] = MEMBERS) -> Path:
    """Makes a folder of a release, with its checksums."""
    folder.mkdir()
    for arch in ("x86_64", "aarch64"):
        path = folder / f"dbdyno-1.2.3-cp311-abi3-manylinux_2_28_{arch}.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for name in members:
                archive.writestr(zipfile.ZipInfo(name), name)
    for name in ("dbdyno-1.2.3.tar.gz", "dbdyno-1.2.3.cdx.json"):
        (folder / name).write_text(name)
    lines = [f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in sorted(folder.iterdir())]
    (folder / "SHA256SUMS").write_text("".join(lines))
    return folder


def test_a_whole_release_passes(release: ModuleType, tmp_path: Path) -> None:
    assert release.looked_at(_dist(tmp_path / "dist"), "1.2.3").startswith("2 wheels")


@pytest.mark.parametrize("member", MEMBERS)
def test_a_wheel_without_something_it_needs_fails(release: ModuleType, tmp_path: Path, member: str) -> None:
    dist = _dist(tmp_path / "dist", [name for name in MEMBERS if name != member])
    with pytest.raises(release.Failed, match=f"lacks {member}"):
        release.looked_at(dist, "1.2.3")


def test_a_missing_file_and_a_wrong_checksum_fail(release: ModuleType, tmp_path: Path) -> None:
    dist = _dist(tmp_path / "dist")
    (dist / "dbdyno-1.2.3.cdx.json").write_text("another")
    with pytest.raises(release.Failed, match=r"SHA256SUMS does not fit dbdyno-1\.2\.3\.cdx\.json"):
        release.looked_at(dist, "1.2.3")
    (dist / "dbdyno-1.2.3.cdx.json").unlink()
    with pytest.raises(release.Failed, match=r"dist lacks dbdyno-1\.2\.3\.cdx\.json"):
        release.looked_at(dist, "1.2.3")
    with pytest.raises(release.Failed, match="dist lacks"):
        release.looked_at(tmp_path / "nowhere", "1.2.3")


def test_two_builds_are_compared_byte_by_byte(release: ModuleType, tmp_path: Path) -> None:
    a, b = _dist(tmp_path / "a"), _dist(tmp_path / "b")
    assert release.compared(a, b).startswith("4 files are the same")
    wheel = next(b.glob("*x86_64.whl"))
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("dbdyno/_core.abi3.so", "other code")
    with pytest.raises(
        release.Failed, match=r"x86_64\.whl differs when it is built again: dbdyno/_core\.abi3\.so"
    ):
        release.compared(a, b)


def test_steps_print_a_line_each_and_none_is_run_after_one_that_it_needs(
    release: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_root: Path) -> str:
        raise release.Failed("it is so", "do this")

    steps = {
        "good": release.Step(lambda _root: "looked"),
        "bad": release.Step(fails),
        "later": release.Step(lambda _root: "never", after="bad"),
    }
    monkeypatch.setattr(release, "STEPS", steps)
    assert release.main([]) == 1
    printed = capsys.readouterr().out
    assert "ok      good: looked\n" in printed
    assert "failed  bad: it is so\n        do this\n" in printed
    assert "failed  later: not run, since bad failed\n" in printed and "never" not in printed
    assert release.main(["good"]) == 0
    assert release.main(["none"]) == 2


def test_the_program_checks_this_tree(tmp_path: Path) -> None:
    words = [sys.executable, ROOT / "tools" / "release_check.py", "versions"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.startswith("ok      versions: ")
