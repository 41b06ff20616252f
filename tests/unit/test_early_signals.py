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
@pytest.mark.parametrize("name", ["dbdyno.cli.app", "click", "polars", "dbdyno.cli.analyze"])
def test_a_signal_while_modules_are_loaded(name: str, sign: int, tmp_path: Path) -> None:
    (tmp_path / "ladder.csv").write_text("sessions,calls/s\n1,100\n2,200\n4,380\n8,700\n")
    words = [sys.executable, "-c", _SLOW.format(name=name, sign=int(sign))]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "interrupted")


def test_a_signal_before_there_is_a_handler() -> None:
    words = [sys.executable, "-c", _SLOW.format(name="dbdyno.lazy", sign=int(signal.SIGINT))]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "interrupted")


_OTHER = """
import signal
from dbdyno.cli import app, main
def run(**_):
    try:
        signal.raise_signal(signal.SIGINT)
        for _ in range(10): pass
    except KeyboardInterrupt:
        raise {error} from None
app.app = run
main()
"""


@pytest.mark.parametrize("error", ["ImportError('cannot import')", "SystemError('returned NULL')"])
def test_a_signal_whose_exception_a_library_turns_into_another(error: str) -> None:
    words = [sys.executable, "-c", _OTHER.format(error=error)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "interrupted")


def test_a_signal_after_the_work_is_done_changes_nothing() -> None:
    late = "import atexit, os, signal\natexit.register(os.kill, os.getpid(), signal.SIGINT)\n"
    words = [sys.executable, "-c", f"{late}import sys; sys.argv = ['dbdyno', '--version']\n{_MAIN}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr == "" and "dbdyno" in done.stdout


_MAIN = "from dbdyno.cli import main\nmain()\n"
