"""Folders and files that a later start trusts: what another user could write or exchange is refused."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dbdyno.kernel import private
from dbdyno.kernel.private import (
    NotPrivate,
    check_private,
    check_shared,
    is_sound,
    make_private,
    open_private,
)

_ANOTHER = 12_345  # a user


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o777])
def test_folders_have_their_mode_whatever_the_umask_is(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        make_private(tmp_path / "state" / "dbdyno" / "undo")
        private.make_shared(tmp_path / "store" / "runs")
    folders = [p for p in tmp_path.rglob("*") if p.is_dir()]
    assert len(folders) == 5
    assert not [p for p in folders if mode_of(p) & 0o022]
    assert mode_of(tmp_path / "state/dbdyno/undo") == mode_of(tmp_path / "store/runs") == 0o700


def loose(place: Path) -> None:
    place.chmod(0o777)


def groups(place: Path) -> None:
    place.chmod(0o770)
    os.chown(place, os.geteuid(), _ANOTHER) if os.geteuid() == 0 else None


def owned_by_another(place: Path) -> None:
    os.chown(place, _ANOTHER, _ANOTHER)


def link_of_another(place: Path) -> None:
    aside = place.rename(place.with_name("aside"))
    place.symlink_to(aside)
    os.chown(place, _ANOTHER, _ANOTHER, follow_symlinks=False)


def link(place: Path) -> None:
    place.symlink_to(place.rename(place.with_name("aside")))


def file(place: Path) -> None:
    place.rename(place.with_name("aside"))
    place.touch()


NEEDS_ROOT = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="gives files away: run the tests as root"),
]
EVERYWHERE = [
    pytest.param(loose, "other users may write", id="open"),
    pytest.param(groups, "other users may write", id="group", marks=NEEDS_ROOT),
    pytest.param(owned_by_another, "belongs to another user", id="another's", marks=NEEDS_ROOT),
    pytest.param(link_of_another, "another user|symbolic link", id="another's link", marks=NEEDS_ROOT),
]


@pytest.mark.parametrize(("spoil", "words"), EVERYWHERE)
@pytest.mark.parametrize("place", [".", "base", "base/dbdyno"])
def test_a_folder_that_others_may_exchange_is_refused(
    tmp_path: Path, place: str, spoil: Callable[[Path], None], words: str
) -> None:
    """Itself, and each on the way to it."""
    top = tmp_path / "top"
    target = top / "base" / "dbdyno"
    target.mkdir(parents=True)
    check_private(target)
    spoil(top / place)
    for check in (check_private, make_private):
        with pytest.raises(NotPrivate, match=words) as refused:
            check(target)
        assert str(top) in refused.value.cure and refused.value.strerror
        assert "remove" not in refused.value.cure  # it may be another user's home


@pytest.mark.parametrize("spoil", [link, file])
def test_a_link_or_file_in_place_of_the_directory_is_refused(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    place = tmp_path / "base" / "dbdyno"
    place.mkdir(parents=True)
    spoil(place)
    with pytest.raises(NotPrivate):
        make_private(place)


def test_links_of_ones_own_on_the_way_are_followed(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "disk")
    make_private(tmp_path / "home" / "dbdyno")
    assert (tmp_path / "disk" / "dbdyno").is_dir()
    (tmp_path / "disk").chmod(0o777)
    with pytest.raises(NotPrivate, match=r"disk \(mode 0777\)"):
        check_private(tmp_path / "home" / "dbdyno")
    (tmp_path / "turn").symlink_to(tmp_path / "turn")
    with pytest.raises(OSError, match="symbolic links"):
        check_private(tmp_path / "turn" / "x")


def test_a_folder_in_a_sticky_directory_is_private(tmp_path: Path) -> None:
    """/tmp is such a directory."""
    tmp_path.chmod(0o1777)
    make_private(tmp_path / "dbdyno")
    check_shared(tmp_path)
    tmp_path.chmod(0o777)
    for check in (check_private, check_shared):
        with pytest.raises(NotPrivate, match="mode 0777"):
            check(tmp_path / "dbdyno")


@pytest.mark.parametrize("mode", [0o622, 0o660, 0o606])
def test_a_file_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file"
    path.touch()
    path.chmod(mode)
    with pytest.raises(NotPrivate, match="may write"):
        open_private(path)
    assert not is_sound(path)


def test_a_place_that_is_open_to_others_is_made_anew(tmp_path: Path) -> None:
    place = tmp_path / "kept"
    assert not is_sound(place)
    place.mkdir(mode=0o755)
    assert is_sound(place)
    (place / "inner").mkdir()
    place.chmod(0o777)
    assert not is_sound(place)
    private.discard(place)
    private.discard(place)
    assert not place.exists()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away: run the tests as root")
def test_a_place_of_another_user_is_never_made_anew(tmp_path: Path) -> None:
    for kind in ("file", "directory", "link"):
        place = tmp_path / kind
        {"file": place.touch, "directory": place.mkdir, "link": lambda p=place: p.symlink_to(tmp_path)}[
            kind
        ]()
        os.chown(place, _ANOTHER, _ANOTHER, follow_symlinks=False)
        with pytest.raises(NotPrivate, match="another user"):
            is_sound(place)


def test_files_made_by_hand_may_be_links(tmp_path: Path) -> None:
    """Some users keep their configuration elsewhere."""
    (tmp_path / "dotfiles").mkdir()
    kept = tmp_path / "dotfiles" / "config.toml"
    kept.write_text("x")
    (tmp_path / "config.toml").symlink_to(kept)
    os.close(open_private(tmp_path / "config.toml", by_hand=True))
    for spoiled in (kept, kept.parent):
        before = mode_of(spoiled)
        spoiled.chmod(0o777)
        with pytest.raises(NotPrivate, match="other users may write"):
            open_private(tmp_path / "config.toml", by_hand=True)
        spoiled.chmod(before)
