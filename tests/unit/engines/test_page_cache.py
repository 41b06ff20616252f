"""A program is dropped from the page cache and read anew, unless a process uses it."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dbdyno.engines.postgres.chosen.page_cache import read_anew

PAGES = 64
BUILD = Path(__file__).parents[3] / "build"


@pytest.fixture
def program() -> Iterator[Path]:
    BUILD.mkdir(exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=BUILD) as file:  # on a disk: a folder of tests may be in memory
        file.write(os.urandom(PAGES * mmap.PAGESIZE))
        file.flush()
        os.fsync(file.fileno())  # what is not yet written cannot be dropped
        yield Path(file.name)


def test_a_program_that_nobody_uses_is_read_anew(program: Path) -> None:
    if not read_anew(program):
        pytest.skip(f"the file system of {program.parent} keeps files in the page cache")
    assert read_anew(program)


def test_the_place_of_a_program_in_use_stays(program: Path) -> None:
    with program.open("rb") as stream, mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert mapped[0] is not None
        assert not read_anew(program)


def test_a_program_that_cannot_be_read_keeps_its_place(tmp_path: Path) -> None:
    assert not read_anew(tmp_path / "none")
