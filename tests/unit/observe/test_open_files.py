"""Files open past the page cache: descriptors of this process, and a recorded tree of another machine."""

from __future__ import annotations

import mmap
import os
import re
from pathlib import Path

import pytest

from dbdyno.model.engine.condition import DirectFiles
from dbdyno.observe import direct_files
from dbdyno.observe.open_files import parse_flags

DATA = re.compile(r"/base/\d+/\d+(\.\d+)?$")
ARM64 = 0o200000  # arch/arm64/include/uapi/asm/fcntl.h


def test_flags_are_octal() -> None:
    assert parse_flags("pos:\t0\nflags:\t0140002\nmnt_id:\t29\n") == 0o140002
    assert parse_flags("pos:\t0\n") is None


def test_own_descriptors_with_and_without_the_flag(disk_path: Path) -> None:
    folder = disk_path / "base" / "5"
    folder.mkdir(parents=True)
    for name in ("1", "2", "other"):
        (folder / name).write_bytes(bytes(mmap.PAGESIZE))
    try:
        direct = os.open(folder / "1", os.O_RDONLY | os.O_DIRECT)
    except OSError:
        pytest.skip("this file system has no direct I/O")
    opened = [direct, os.open(folder / "2", os.O_RDONLY), os.open(folder / "other", os.O_RDONLY)]
    named = re.compile(re.escape(str(disk_path)) + r"/base/\d+/\d+$")
    try:
        assert direct_files(os.getpid(), named) == DirectFiles(1, 2)
        opened.append(os.open(folder / "1", os.O_RDONLY))  # once with the flag, once without
        (folder / "2").unlink()
        assert direct_files(os.getpid(), named) == DirectFiles(0, 2)
    finally:
        for descriptor in opened:
            os.close(descriptor)


def lay_out(root: Path, pid: int, files: dict[str, int], children: str = "") -> None:
    process = root / "proc" / str(pid)
    for folder in ("fd", "fdinfo", f"task/{pid}"):
        (process / folder).mkdir(parents=True)
    (process / f"task/{pid}/children").write_text(children)
    for n, (path, flags) in enumerate(files.items()):
        (process / "fd" / str(n)).symlink_to(path)
        (process / "fdinfo" / str(n)).write_text(f"pos:\t0\nflags:\t0{flags:o}\nmnt_id:\t29\nino:\t7\n")


def test_a_server_of_two_processes_on_arm(tmp_path: Path) -> None:
    lay_out(tmp_path, 10, {"socket:[77]": 2, "/d/postgresql.conf": ARM64}, "11 12 ")
    lay_out(tmp_path, 11, {"/d/base/5/1247": 2 | ARM64, "/d/base/5/1259": 2 | ARM64})
    result = direct_files(10, DATA, tmp_path, ARM64)
    assert (result.direct, result.files, result.words) == (2, 2, "O_DIRECT seen on 2 of 2 open data files")
    some = direct_files(10, DATA, tmp_path, ARM64, most_ns=0)
    assert some.files == 2, "of the first process that has some"
    assert direct_files(10, DATA, tmp_path, 0o40000).direct == 0, "the bit of x86 means a directory there"


def test_nothing_open_and_nothing_permitted_are_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_out(tmp_path, 10, {"/dev/null": 2})
    assert direct_files(10, DATA, tmp_path)[:3] == (None, None, "lost")

    def refused(_self: Path) -> list[Path]:
        raise PermissionError

    monkeypatch.setattr(Path, "iterdir", refused)
    result = direct_files(10, DATA, tmp_path)
    assert result[:3] == (None, None, "not permitted")
    assert "as root or as the server's user" in result.words
