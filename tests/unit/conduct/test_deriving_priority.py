"""The priority of the process that derives."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import os, threading
from pathlib import Path
from dbdyno.conduct.derive.deriving import give_priority

def of_threads():
    return {os.getpriority(os.PRIO_PROCESS, int(t.name)) for t in Path("/proc/self/task").iterdir()}

threading.Thread(target=threading.Event().wait, daemon=True).start()
usual = os.getpriority(os.PRIO_PROCESS, 0)
give_priority(usual + 5)
print(of_threads() == {usual + 5})
try:
    os.setpriority(os.PRIO_PROCESS, 0, usual + 4)
    expected = {usual + 2}
except OSError:
    expected = {usual + 5}
give_priority(usual + 2)
print(of_threads() == expected)
"""


def test_all_threads_get_it_and_without_rights_it_stays_low() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]
