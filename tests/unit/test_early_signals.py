"""Ctrl-C while Python still loads modules: exit code 130, and no traceback."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

_SLOW = """
import signal, sys
class Slow:  # a module that takes long to load: the signal comes in the middle of it
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            signal.raise_signal({sign})
            for _ in range(10): pass
sys.meta_path.insert(0, Slow())
sys.argv = ["dbdyno", "analyze", "ladder.csv"]
from dbdyno.cli import main
main()
"""


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("name", ["click", "polars", "dbdyno.cli.analyze"])
def test_a_signal_while_modules_are_loaded(name: str, sign: int, tmp_path: Path) -> None:
    (tmp_path / "ladder.csv").write_text("sessions,calls/s\n1,100\n2,200\n4,380\n8,700\n")
    words = [sys.executable, "-c", _SLOW.format(name=name, sign=int(sign))]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "")
