"""``dbdyno clean`` trusts journals of this user alone, and changes control groups alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dbdyno.kernel import control_groups, processes
from dbdyno.limits import groups
from dbdyno.limits.places import Refused
from dbdyno.model.engine.protocols import Undo
from dbdyno.model.errors import StoreError
from dbdyno.store.journal import FileJournal, left_over

NAME = "dbdyno-17-0123abcd"
_ANOTHER = 12_345  # the id of another user


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DBDYNO_STATE_DIR", str(tmp_path / "state"))
    folder = tmp_path / "state" / "undo"
    folder.mkdir(mode=0o700, parents=True)
    return folder


def journal(place: Path, data: dict[str, Any] | None = None) -> Path:
    """Writes the journal of a run whose process is dead."""
    path = place / "forged.json"
    undo = {"kind": "group", "key": "group x", "what": "control group x", "data": data or {}}
    path.write_text(
        json.dumps({"run": "forged", "pid": 1, "pid_start_ticks": 1, "boot": "x", "undos": [undo]})
    )
    path.chmod(0o600)
    return path


def refusal() -> str:
    journals = left_over()
    assert journals.dead == [] and journals.alive == []
    (error,) = journals.damaged
    return str(error)


def test_a_journal_of_this_user_is_followed(place: Path) -> None:
    journal(place)
    assert [j.run for j in left_over().dead] == ["forged"]


@pytest.mark.parametrize("mode", [0o622, 0o660, 0o606])
def test_a_journal_that_others_may_write_is_refused(place: Path, mode: int) -> None:
    journal(place).chmod(mode)
    assert f"(mode {mode:04o})" in refusal()


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770])
def test_a_journal_in_a_directory_that_others_may_write_is_refused(place: Path, mode: int) -> None:
    journal(place)
    place.chmod(mode)
    assert "other users may write to directory" in refusal()
    with pytest.raises(StoreError, match="other users may write"):  # no journal is begun there
        FileJournal("x").note(Undo(kind="settings", key="a", what="a"))


@pytest.mark.root
@pytest.mark.parametrize("owned", ["file", "directory"])
def test_a_journal_of_another_user_is_refused(place: Path, owned: str) -> None:
    path = journal(place)
    os.chown(path if owned == "file" else place, _ANOTHER, _ANOTHER)
    assert f"belongs to another user (uid {_ANOTHER})" in refusal()


def test_a_link_a_fifo_a_device_and_nested_json_are_refused(place: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.json"
    path = journal(place)
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert "is not used" in refusal()
    path.unlink()
    os.mkfifo(path, 0o600)
    assert "a FIFO" in refusal()
    path.unlink()
    path.symlink_to("/dev/zero")
    assert "is not used" in refusal()
    path.unlink()
    path.write_text("[" * 100_000)
    path.chmod(0o600)
    assert "damaged" in refusal()


def undo_data(group: Path, home: Path, version: int = 1) -> dict[str, Any]:
    return {
        "version": version,
        "group": str(group),
        "home": str(home),
        "enabled": ["cpu"],
        "elsewhere": [],
        "boot": processes.boot_id(),
    }


def imitated_group(group: Path, pid: int) -> Path:
    """Makes a directory with the files of a control group."""
    group.mkdir(parents=True)
    (group / "cgroup.procs").write_text(f"{pid}\n")
    (group / "cgroup.subtree_control").write_text("cpu\n")
    return group


@pytest.mark.parametrize("version", [1, 2])
def test_a_directory_that_is_no_control_group_is_left_alone(tmp_path: Path, version: int) -> None:
    home = imitated_group(tmp_path / "home", os.getpid())
    group = imitated_group(home / NAME, os.getpid())
    with pytest.raises(Refused, match="not a control group"):
        groups.put_back(undo_data(group, home, version))
    assert group.is_dir() and (home / "cgroup.procs").read_text() == f"{os.getpid()}\n"
    assert (home / "cgroup.subtree_control").read_text() == "cpu\n"


def _hierarchy_root() -> Path:
    """Returns the root directory of a hierarchy of control groups on this machine."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if line.partition(" - ")[2].startswith(("cgroup ", "cgroup2 ")):
            return Path(line.split(" ")[4])
    pytest.skip("no control groups are mounted here")


def test_real_control_groups_are_recognized() -> None:
    assert groups.is_group(_hierarchy_root())
    assert not groups.is_group(_hierarchy_root() / "missing")


def test_no_link_is_followed_into_a_control_group_or_out_of_one(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    link = tmp_path / "link"
    link.symlink_to(_hierarchy_root())
    with pytest.raises(Refused, match="link"):
        groups.put_back(undo_data(link / NAME, link))
    with pytest.raises(OSError, match="link"):
        control_groups.write(link / "cgroup.procs", "x")
    home = tmp_path / "home"
    imitated_group(home / NAME, 1)
    (home / "cgroup.procs").symlink_to(victim)
    for group in (home, home / NAME):
        with pytest.raises(OSError):
            control_groups.write(group / "cgroup.procs", "overwritten")
    assert victim.read_text() == "precious"


@pytest.fixture
def tmpfs_hierarchy(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs in place of a hierarchy of control groups."""
    where = tmp_path / "cgroup"
    where.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", where], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("mounts a tmpfs: run the tests as root")
    yield where
    subprocess.run(["umount", where], check=True)


@pytest.mark.root
def test_a_tmpfs_is_no_control_group(tmpfs_hierarchy: Path) -> None:
    imitated_group(tmpfs_hierarchy / NAME, os.getpid())
    with pytest.raises(Refused, match="not a control group"):
        groups.put_back(undo_data(tmpfs_hierarchy / NAME, tmpfs_hierarchy))


@pytest.mark.root
def test_clean_refuses_a_journal_of_another_user_and_changes_nothing(place: Path, tmp_path: Path) -> None:
    home = imitated_group(tmp_path / "home", 1)
    path = journal(place, undo_data(imitated_group(home / NAME, os.getpid()), home))
    os.chown(path, _ANOTHER, _ANOTHER)
    from dbdyno.cli.server import _Work

    work = _Work(left_over())
    work.put_back(("group",), lambda undo: groups.put_back(undo.data))
    with pytest.raises(StoreError, match=r"is not used: it belongs to another user \(uid 12345\)"):
        work.end()
    assert path.exists() and (home / NAME).is_dir()
    shutil.rmtree(home)
