"""tools/same.py compares what two checkouts make of stored runs; here: the comparison, and one stored run."""

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
