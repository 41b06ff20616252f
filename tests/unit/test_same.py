"""tools/same.py compares what checkouts show of stored runs; here: the comparison, and this tree's screens.

A change that is meant: ``python tools/same.py --golden``, and read what git shows of tests/golden/screens.
"""

from __future__ import annotations

import json
import sys
import tarfile
from importlib import util
from pathlib import Path

import pytest
from tests import in_process
from tests.fakery import ROOT, WITH_ENGINES

spec = util.spec_from_file_location("same", ROOT / "tools" / "same.py")
assert spec is not None and spec.loader is not None
same = util.module_from_spec(spec)
sys.modules["same"] = same
spec.loader.exec_module(same)


def test_differences_are_files_of_one_side_and_lines_of_both(tmp_path: Path) -> None:
    for side, texts in (
        ("old", {"a/x": "1\n2\n", "b": "same", "gone": ""}),
        ("new", {"a/x": "1\n3\n", "b": "same", "more": ""}),
    ):
        for name, text in texts.items():
            path = tmp_path / side / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    shown = same.differences(tmp_path / "old", tmp_path / "new")
    assert shown == {"a/x": ["@@ -2 +2 @@", "-2", "+3"], "gone": ["only old"], "more": ["only new"]}


@pytest.mark.whole
@pytest.mark.parametrize("part", same.parts(same.CORPUS))
def test_this_tree_shows_stored_runs_as_the_golden_screens_have_them(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", WITH_ENGINES)
    same.write_part(part, tmp_path, same.CORPUS, screens=True)
    written, golden = ({f.relative_to(d) for f in d.rglob("*.txt")} for d in (tmp_path, same.SCREENS))
    folders = {name.parts[0] for name in written}
    assert written and written == {name for name in golden if name.parts[0] in folders}
    for name in sorted(written):
        assert (tmp_path / name).read_text("utf-8") == (same.SCREENS / name).read_text("utf-8"), name


@pytest.mark.whole
def test_a_recorded_run_is_rebuilt_as_it_ended(tmp_path: Path) -> None:
    """The simulated server's law is 10 ms of CPU a call on 4 CPUs: 100 calls a second each, 400 at most."""
    with tarfile.open(same.CORPUS / "runs.tar.xz") as archive:
        archive.extractall(tmp_path / "store", filter="data")
    env = {"PYTHONPATH": WITH_ENGINES, "HOME": str(tmp_path), "DBDYNO_CONFIG": ""}
    words = ("simulated", f"--store={tmp_path / 'store'}")
    rebuilt = in_process.dbdyno(("rebuild", *words), env, tmp_path)
    assert rebuilt.returncode == 0, rebuilt.stderr
    shown = in_process.dbdyno(("show", *words, "--json"), env, tmp_path)
    rungs = {r["sessions"]: r["calls_per_s"] for r in json.loads(shown.stdout)["rungs"]}
    assert rungs == pytest.approx({1: 100, 2: 200, 4: 400, 8: 400, 16: 400}, rel=0.02)
