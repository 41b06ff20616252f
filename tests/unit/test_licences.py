"""tools/licences.py: the part of THIRD-PARTY-LICENSES.txt on crates, and licences that are not allowed."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def licences(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module("licences")


def _crate(licences: ModuleType, folder: Path, name: str, licence: str, **texts: str) -> Any:
    place = folder / name
    place.mkdir()
    for file, text in texts.items():
        (place / file.replace("_", "-")).write_text(text)
    return licences.Crate(name, "1.0.0", licence, place, False, ())


@pytest.mark.parametrize(
    ("licence", "refused"),
    [
        ("MIT OR Apache-2.0", False),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", False),
        ("GPL-3.0-only OR MIT", False),
        ("GPL-3.0-only", True),
        ("MIT AND GPL-3.0-only", True),
        ("", True),
    ],
)
def test_one_allowed_licence_of_each_clause_is_needed(
    licences: ModuleType, licence: str, refused: bool
) -> None:
    assert licences.refused(licence) is refused


def test_names_are_enough_under_apache_and_other_texts_are_the_crates_own(
    licences: ModuleType, tmp_path: Path
) -> None:
    crates = [
        _crate(licences, tmp_path, "both", "MIT OR Apache-2.0", LICENSE_MIT="(c) Both"),
        _crate(licences, tmp_path, "zlib", "Zlib", LICENSE="(c) Z"),
        _crate(licences, tmp_path, "mit", "Unlicense OR MIT", LICENSE_MIT="(c) M", UNLICENSE="free"),
        _crate(licences, tmp_path, "words", "(MIT OR Apache-2.0) AND Unicode-3.0", LICENSE_UNICODE="(c) U"),
    ]
    text = licences.crates_text(crates)
    assert f"{licences.CRATES}\nboth 1.0.0\n" in text
    assert "mit 1.0.0\nMIT\n\n(c) M\n" in text and "free" not in text and "(c) Both" not in text
    assert "zlib 1.0.0\nZlib\n\n(c) Z\n" in text
    assert "words 1.0.0\nUnicode-3.0\n\n(c) U\n" in text


def test_a_crate_without_its_text_is_no_small_matter(licences: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"bare 1\.0\.0 comes without the text of its licence MIT"):
        licences.crates_text([_crate(licences, tmp_path, "bare", "MIT")])


def test_faults_name_licences_versions_and_an_old_part(licences: ModuleType, tmp_path: Path) -> None:
    own = f"Pages hold code.\n\n{licences.RULE}\nuPlot 1.6.32\nMIT\n\n(c) L\n"
    crates = [_crate(licences, tmp_path, "zlib", "Zlib", LICENSE="(c) Z")]
    (tmp_path / licences.FILE).write_text(licences.renewed(own, crates))
    assert licences.faults(tmp_path, crates, {"uPlot": "1.6.32"}) == []
    assert licences.faults(tmp_path, crates, {"uPlot": "1.6.33"}) == [
        "THIRD-PARTY-LICENSES.txt has uPlot 1.6.32, and 1.6.33 is bundled"
    ]
    more = [*crates, _crate(licences, tmp_path, "viral", "GPL-3.0-only", COPYING="(c) V")]
    wrong = licences.faults(tmp_path, more, {})
    assert wrong[0] == "viral 1.0.0 has the licence GPL-3.0-only" and "out of date" in wrong[1]


def test_the_file_of_this_tree_can_be_read(licences: ModuleType) -> None:
    works = [w for part in licences.parts_of((ROOT / licences.FILE).read_text("utf-8")) for w in part.works]
    assert {"uPlot", "vega", "vega-lite", "vega-embed"} <= {work.rsplit(" ", 1)[0] for work in works}


def test_the_file_in_the_tree_is_of_the_locked_crates() -> None:
    """A crate that is added or raised brings its licence with it."""
    words = [sys.executable, ROOT / "tools" / "licences.py", "--check"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
