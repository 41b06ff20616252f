"""Sources that an option asks for and that are refused are named before a load begins."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.networks import without_rights

_ASK = """
from types import SimpleNamespace
from dbdyno import observe
from dbdyno.kernel.machine import HERE
server = SimpleNamespace(world=None, machine=HERE)
for how in (observe.How(), observe.How(asked=("profile", "syscalls"), hz={"profile": 97.0})):
    print(*observe.refused(server, how), sep="; ")
"""


@pytest.mark.skipif(os.geteuid() == 0 and not without_rights(), reason="setpriv cannot drop rights here")
def test_without_rights_each_option_has_its_reason() -> None:
    words = [*(without_rights() if os.geteuid() == 0 else ()), sys.executable, "-c", _ASK]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    plain, asked = done.stdout.splitlines()
    assert plain == ""
    assert "--trace-syscalls: system calls not permitted: needs CAP_BPF" in asked
