"""Files of /proc and /sys that hold what no kernel writes: of another host, or of a recorded one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dbdyno import observe
from dbdyno.engines.postgres import presence
from dbdyno.kernel import cpu_use, processes
from dbdyno.kernel.numbers import first_number, number
from dbdyno.observe import conditions, limits, memory

FORGED = {
    "empty": b"",
    "one word": b"x",
    "5000 digits": b"9" * 5000,
    "stat without numbers": b"1 (x) S " + b"a " * 60,
    "short stat": b"1 (x) S 1",
    "status without numbers": b"NSpid: x\nUid: a b\nPPid: q\n",
    "meminfo without numbers": b"MemTotal: x kB\nMemFree: -\nNode 0 MemTotal: x kB\n",
    "meminfo of 5000 digits": b"MemTotal: " + b"9" * 5000 + b" kB\n",
    "no text": b"\xff\xfe\x00",
    "many CPUs": b"0-99999999999",
}
USES: dict[str, Callable[[Path], Any]] = {
    "host": observe.host,
    "topology": observe.topology,
    "limits": limits.limits,
    "conditions": conditions.cpu_times,
    "memory": lambda root: list(memory.host_rows(root)),
    "identity": lambda root: processes.identity(1, root),
    "tree": lambda root: processes.tree(1, root),
    "owner": lambda root: processes.is_ours(1, root),
    "parent": lambda root: presence._parent(1, root),
    "start": lambda root: presence._start_s(1, root),
    "children": lambda root: presence.children(1, root),
    "hidepid": processes.hidepid,
    "CPU use": lambda root: cpu_use.busy_between(*(cpu_use.read(root) for _ in range(2)), [1], root),
}


@pytest.fixture(scope="module", params=FORGED)
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This machine with that in each of its files."""
    forged = tmp_path_factory.mktemp("forged")
    contents = dict.fromkeys(name for name, _ in limits._contents(Path("/")))
    more = [f"proc/{who}/{name}" for who in ("1", "self") for name in ("stat", "status", "mountinfo")]
    for name in (*contents, *more, "proc/1/task/1/children", "proc/meminfo", "proc/stat", "proc/vmstat"):
        file = forged / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(FORGED[request.param])
    return forged


@pytest.mark.parametrize("use", USES)
def test_content_that_no_kernel_writes_gives_unknown_figures(root: Path, use: str) -> None:
    """And raises nothing but that a file cannot be read."""
    with contextlib.suppress(OSError):
        USES[use](root)


def test_only_digits_are_a_number() -> None:
    assert [number(t) for t in ("12", "-1", "", " 1", "1_0", "9" * 21, "٣")] == [12, -1, *[None] * 5]
    assert first_number("24684096 kB") == 24684096 and first_number("") is None
