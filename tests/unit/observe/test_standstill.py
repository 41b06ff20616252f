"""Claims about sessions that a quota kept from a CPU, or that were stopped."""

from __future__ import annotations

import os
from pathlib import Path

from dbdyno.observe.watch import children_of, members_of


def test_children_and_members_are_the_kernels(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    try:
        assert child in children_of(os.getpid())
    finally:
        os.close(writer)
        os.waitpid(child, 0)
    assert children_of(child) == set()
    (tmp_path / "cgroup.procs").write_text("7\n8\n0\n")
    assert members_of(str(tmp_path)) == {7, 8, -1}
    assert members_of("/nowhere") == {-1}
