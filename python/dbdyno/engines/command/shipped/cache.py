"""What the shipped jobs need: compiled programs and made files, each made once and kept."""

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
    """Where they are, this user's alone; made if it is not there. Raises :class:`UsageError`."""
    place = _place()
    with _explained(place):
        make_private(place)
    return place


def removed() -> list[str]:
    """Removes everything that is kept here; what was removed, in words."""
    place = _place()
    if not place.is_dir():
        return []
    shutil.rmtree(place, ignore_errors=True)
    return [f"programs and files of the shipped jobs ({place})"]


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """The file or directory of this name, which ``make`` makes where there is none. Two processes may do so
    at once: the first counts. One that others could write is made anew. Raises :class:`UsageError` where
    there is no room for it, or another user's is in its place."""
    here = directory() / name
    with _explained(here):
        if is_sound(here):
            return here
        discard(here)
        try:
            with tempfile.TemporaryDirectory(dir=directory(), prefix="new-") as aside:
                made = Path(aside, name)
                make(made)
                close_to_others(made)
                made.rename(here)
        except OSError:
            if not is_sound(here):
                raise
    return here


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """What an :class:`OSError` below ``path`` means, with the cure."""
    try:
        yield
    except OSError as e:
        first = f"{e.cure}; or " if isinstance(e, NotPrivate) else ""
        raise UsageError(
            f"cannot write {path}: {e.strerror}", f"{first}set XDG_CACHE_HOME to another place"
        ) from e


def compiled(source: str) -> Path:
    """The program of this C file. Raises :class:`NotAvailable` without a compiler, or where what it made
    does not run: a file system without execution."""
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

    return kept(f"{Path(source).stem}-{mark}", make)


def _place() -> Path:
    base = base_directory("XDG_CACHE_HOME", ".cache", "the shipped jobs", "set XDG_CACHE_HOME")
    return base / "dbdyno" / "jobs"
