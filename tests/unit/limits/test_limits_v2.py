"""Groups of cgroup v2 on this machine's own kernel: beside the server's group, below it, delegated, threaded.

Where cpu and cpuset are on v1 (as on many machines with both) whatever controller v2 has stands for them:
who may be moved where, and which controllers are handed down, is the same for all but the threaded ones.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dbdyno import _core
from dbdyno.kernel.control_groups import file_words, members
from dbdyno.limits import groups, places
from dbdyno.limits.places import Place, Refused
from dbdyno.model.engine.protocols import Undo

NOBODY = 65534


def _root() -> Path | None:
    result = [Path(d) for version, d in _core.find_cgroups(None) if version == 2]
    top = result[-1] if result else None
    return (
        top if top and not (top / "cgroup.type").exists() and file_words(top / "cgroup.controllers") else None
    )


pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        os.geteuid() != 0 or _root() is None, reason="needs root and a cgroup v2 with controllers"
    ),
]


@pytest.fixture
def top() -> Path:
    root = _root()
    assert root is not None
    return root


@pytest.fixture
def controller(top: Path) -> str:
    """A controller that v2 has: hugetlb where the others are on v1."""
    return file_words(top / "cgroup.controllers").split()[-1]


@pytest.fixture
def box(top: Path, controller: str) -> Iterator[Path]:
    """A group of ours with the controller; all that is in it goes away again."""
    handed = controller in file_words(top / "cgroup.subtree_control").split()
    if not handed:
        (top / "cgroup.subtree_control").write_text(f"+{controller}")
    own = top / f"box-{os.getpid()}"
    own.mkdir()
    yield own
    for group in sorted([own, *(p for p in own.rglob("*") if p.is_dir())], reverse=True):
        for pid in members(group):
            (top / "cgroup.procs").write_text(str(pid))
        group.rmdir()
    if not handed:
        (top / "cgroup.subtree_control").write_text(f"-{controller}")


@contextlib.contextmanager
def process(group: Path, uid: int = 0) -> Iterator[int]:
    with subprocess.Popen(["sleep", "60"], user=uid, group=uid, extra_groups=[]) as child:
        try:
            (group / "cgroup.procs").write_text(str(child.pid))
            yield child.pid
        finally:
            child.kill()
            child.wait(60)


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def make_group(place: Place, main_pid: int) -> tuple[Path, Undo]:
    name = groups.new_name()
    undo, group = groups.undo_of(place, name, main_pid), place.parent / name
    groups.make(place, {}, group, main_pid)
    groups.gather(main_pid, group)
    return group, undo


def sub(parent: Path, name: str, owner: int = 0) -> Path:
    child = parent / name
    child.mkdir()
    for path in (child, child / "cgroup.procs", child / "cgroup.subtree_control"):
        os.chown(path, owner, owner)
    return child


def test_as_root_a_group_beside_the_servers_gets_the_controller(box: Path, controller: str) -> None:
    home = sub(box, "service")
    with process(home) as server, process(home) as other:
        (place,) = places.find(server, [controller])
        assert (place.version, place.home, place.parent, place.enable) == (2, home, box, (controller,))
        assert not place.parts
        group, undo = make_group(place, server)
        assert group.parent == box
        assert members(group) == [server]
        assert members(home) == [other]
        assert file_words(box / "cgroup.subtree_control") == controller
        assert f"1 processes went back to {home}" in groups.put_back(undo.data)
        assert sorted(members(home)) == sorted([server, other])
        assert file_words(box / "cgroup.subtree_control") == ""
        assert not group.exists()
        assert "gone already" in groups.put_back(undo.data)


def test_a_delegated_scope_is_divided_and_made_whole_again(box: Path, controller: str) -> None:
    (box / "cgroup.subtree_control").write_text(f"+{controller}")
    home = sub(box, "run.scope", owner=NOBODY)
    with process(home, NOBODY) as server, process(home, NOBODY) as other:
        with as_nobody():
            (place,) = places.find(server, [controller])
            assert (place.home, place.parent, place.enable) == (home, home, (controller,))
            assert place.parts
            group, undo = make_group(place, server)
            assert members(group) == [server]
            assert members(group.with_name(f"{group.name}-rest")) == [other]
            assert members(home) == []
            assert file_words(home / "cgroup.subtree_control") == controller
            assert "1 processes went back" in groups.put_back(undo.data) or members(home)
        assert sorted(members(home)) == sorted([server, other])
        assert file_words(home / "cgroup.subtree_control") == ""
        assert [p.name for p in home.iterdir() if p.is_dir()] == []


@pytest.mark.parametrize("parts", [False, True], ids=["beside", "below"])
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_what_a_killed_run_left_is_undone(box: Path, controller: str, parts: bool, steps: int) -> None:
    """After nothing, the directory, the moving."""
    (box / "cgroup.subtree_control").write_text(f"+{controller}")
    home = sub(box, "service")
    place = Place(2, (controller,), home, home if parts else box, (controller,) if parts else ())
    with process(home) as server, process(home) as other:
        name = groups.new_name()
        undo, group = groups.undo_of(place, name, server), place.parent / name
        if steps > 0:
            group.mkdir()
        if steps > 1 and parts:
            groups._divide(place, group, server)
        elif steps > 1:
            groups.move([server], group)
        groups.put_back(undo.data)
        assert sorted(members(home)) == sorted([server, other])
        assert not group.exists()
        assert file_words(box / "cgroup.subtree_control") == controller, "it was handed down before us"


def test_the_error_for_an_unprivileged_user_names_delegation(box: Path, controller: str) -> None:
    (box / "cgroup.subtree_control").write_text(f"+{controller}")
    home = sub(box, "session.scope")
    with process(home, NOBODY) as server, as_nobody(), pytest.raises(Refused) as raised:
        places.find(server, [controller])
    assert f"{home} may not be written; that needs root, or a delegated subtree (Delegate=yes)" in str(
        raised.value
    )
    assert 'sudo "$(command -v dbdyno)" ...' in str(raised.value)


def test_a_controller_that_is_not_given_is_named(box: Path) -> None:
    with pytest.raises(Refused, match=rf"{box} is not given the controller cpu-of-old: it has \w+"):
        places._v2(sub(box, "service"), ("cpu-of-old",), ours=True)


def test_a_threaded_group_is_refused_with_the_reason(box: Path, controller: str) -> None:
    home = sub(box, "service")
    (home / "cgroup.type").write_text("threaded")
    threaded = pytest.raises(Refused, match=r"is (domain )?threaded: no group with limits can be made")
    with process(home) as server, threaded:
        places.find(server, [controller])


def test_a_parent_with_processes_of_its_own_hands_nothing_down(box: Path, controller: str) -> None:
    home = sub(box, "service")
    with process(home) as server, process(box), pytest.raises(Refused, match="has processes of its own"):
        places.find(server, [controller])


def test_a_controller_that_others_use_is_kept(
    box: Path, controller: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(groups._UNUSED, controller, {"limit": "max"})
    monkeypatch.setattr(groups, "file_words", lambda f: "7" if f.name == "limit" else file_words(f))
    home = sub(box, "service")
    with process(home) as server:
        (place,) = places.find(server, [controller])
        group, undo = make_group(place, server)
        groups.put_back(undo.data)
        assert not group.exists()
        assert file_words(box / "cgroup.subtree_control") == controller
