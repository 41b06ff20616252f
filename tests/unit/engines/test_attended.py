"""Work on a thread that can be abandoned."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from tests.db.conftest import eventually

from dbdyno.engines.attended import Attended, left_behind
from dbdyno.model import errors


def test_work_that_nobody_waits_for_is_known_until_it_ends():
    over = threading.Event()

    def work(_: Attended[bool]) -> bool:
        errors.request()
        return over.wait(60)

    eventually(lambda: not left_behind(), 60)  # until work of earlier tests has ended
    with pytest.raises(errors.Abandoned):
        Attended(work, lambda _: None).result()
    assert left_behind()
    over.set()
    eventually(lambda: not left_behind(), 60)
    errors.reset()


ENDS = """
import click, time
from dbdyno.cli import app
from dbdyno.engines.attended import Attended
from dbdyno.model import errors

@click.command()
def hangs():
    print("said", end="")
    Attended(lambda _: errors.request() or time.sleep(600), print).result()

app.app = hangs
import atexit; atexit.register(print, "freed what the thread holds")
app.main()
"""


def test_a_program_with_such_work_ends_at_once_and_its_output_is_whole():
    done = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("said", 3), done.stderr
