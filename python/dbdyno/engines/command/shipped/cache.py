"""A cache of what the built-in jobs need: compiled programs and generated files."""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dbdyno.kernel.private import NotPrivate, close_to_others, discard, is_sound, make_private
from dbdyno.model.errors import NotAvailable, UsageError
from dbdyno.model.home import base_directory

SOURCES = Path(__file__).parent


def directory() -> Path:
    """Returns the cache directory, which only this user may access. Creates it if needed. Raises
    :class:`UsageError`."""
    place = _path()
    with _explain_os_errors(place):
        make_private(place)
    return place


def remove_all() -> list[str]:
    """Removes the cache. Returns descriptions of what was removed."""
    place = _path()
    if not place.is_dir():
        return []
    shutil.rmtree(place, ignore_errors=True)
    return [f"programs and files of the shipped jobs ({place})"]


def cached(name: str, make: Callable[[Path], None]) -> Path:
    """Returns the cached file or directory of this name. Calls ``make`` with a path to create it if it is
    missing.

    If two processes create it at once, the first one wins. A file that other users could write is created
    anew. Raises :class:`UsageError` if there is no space, or another user's file has this path.
    """
    target = directory() / name
    with _explain_os_errors(target):
        if is_sound(target):
            return target
        discard(target)
        try:
            with tempfile.TemporaryDirectory(dir=directory(), prefix="new-") as aside:
                new = Path(aside, name)
                make(new)
                close_to_others(new)
                new.rename(target)
        except OSError:
            if not is_sound(target):
                raise
    return target


@contextmanager
def _explain_os_errors(path: Path) -> Iterator[None]:
    """Raises :class:`UsageError` with a cure for an :class:`OSError` below ``path``."""
    try:
        yield
    except OSError as e:
        first = f"{e.cure}; or " if isinstance(e, NotPrivate) else ""
        raise UsageError(
            f"cannot write {path}: {e.strerror}", f"{first}set XDG_CACHE_HOME to another place"
        ) from e


def compiled(source: str) -> Path:
    """Returns the program compiled from this C file. Raises :class:`NotAvailable` without a compiler, or if
    the program does not run, as on a file system mounted noexec."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise NotAvailable("there is no C compiler", "install one: cc")
    text = (SOURCES / source).read_bytes()
    mark = hashlib.sha256(text + platform.machine().encode()).hexdigest()[:12]

    def make(program: Path) -> None:
        words = [compiler, "-O2", "-pthread", "-o", str(program), str(SOURCES / source)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotAvailable(f"{compiler} does not compile {source}", done.stderr.strip()[-300:] or None)
        try:
            subprocess.run([program], capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError) as e:
            raise NotAvailable(f"compiled programs do not run in {program.parent}", str(e)) from e

    return cached(f"{Path(source).stem}-{mark}", make)


def _path() -> Path:
    base = base_directory("XDG_CACHE_HOME", ".cache", "the shipped jobs", "set XDG_CACHE_HOME")
    return base / "dbdyno" / "jobs"
