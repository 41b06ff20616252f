"""No argument makes the core panic, hang, end the process or fill memory; each group in a process."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.core_calls import GROUPS

from dbdyno import _core

ROOT = Path(__file__).parents[2]
GROUP_S = 900
"""Many times what the largest group takes on a busy machine; a single call that hangs ends earlier."""


@pytest.mark.parametrize("group", GROUPS)
def test_hostile_arguments_are_refused_or_work(group: str) -> None:
    child = subprocess.run(
        [sys.executable, "-m", "tests.unit.core_calls", group],
        cwd=ROOT,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=GROUP_S,
        check=False,
    )
    assert child.returncode == 0, child.stderr[-4000:]
    assert "panicked" not in child.stderr, child.stderr[:4000]


def test_every_name_of_the_core_is_covered() -> None:
    covered = [name for _, names in GROUPS.values() for name in names]
    assert sorted(covered) == sorted(_names())


def _names() -> Iterator[str]:
    """Functions, classes and their methods; exceptions are plain ones."""
    for name, value in vars(_core).items():
        if name.startswith("_") or (inspect.isclass(value) and issubclass(value, BaseException)):
            continue
        yield name
        if inspect.isclass(value):
            yield from (f"{name}.{method}" for method in vars(value) if not method.startswith("_"))
