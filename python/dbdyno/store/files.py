"""Writes files atomically, reports full disks, and reads other people's files safely.

Reading never blocks on a FIFO, and never reads a file without an end.
"""

from __future__ import annotations

import codecs
import errno
import hashlib
import io
import json
import os
import shlex
import shutil
import stat
import threading
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbdyno.kernel.private import NotPrivate, make_shared, open_private
from dbdyno.model.errors import StoreError, StoreFull, UsageError

if TYPE_CHECKING:
    import polars as pl


MOST_TEXT_BYTES = 64 << 20  # most bytes of a recipe, a script, numbers, a journal
MOST_IMPORT_BYTES = 2 << 30
_AT_A_TIME = 16  # files that are synced concurrently
_OPEN_PIPES = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")  # paths of a shell's <(command)
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a directory",
}


def read_limited(
    path: Path, most_bytes: int = MOST_TEXT_BYTES, *, private: bool = False, by_hand: bool = False
) -> bytes:
    """Returns the content of a regular file, or of a pipe that the shell opened.

    ``private`` requires that nobody but this user can have written it, and follows no link. ``by_hand``
    requires the same of a file that users create themselves (:func:`dbdyno.kernel.private.open_private`).
    Raises :class:`OSError` if that does not hold, or the file is absent, of another kind, or larger than
    ``most_bytes``.
    """
    pipe = str(path).startswith(_OPEN_PIPES)
    if private or (by_hand and not pipe):
        descriptor = open_private(path, by_hand=by_hand)
    else:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK  # opening a FIFO does not block
        descriptor = os.open(path, flags)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        kind = stat.S_IFMT(status.st_mode)
        if kind == stat.S_IFIFO and pipe:
            os.set_blocking(descriptor, True)
        elif kind != stat.S_IFREG:
            raise OSError(errno.EINVAL, f"it is {_KINDS.get(kind, 'no file')}, not a file")
        elif status.st_size > most_bytes:
            raise _too_large(most_bytes)
        # read(most_bytes) would allocate that much each time.
        content = file.read(status.st_size + 1)
        if len(content) > status.st_size:  # a pipe, or a file that has grown
            content += file.read(most_bytes + 1 - len(content))
    if len(content) > most_bytes:
        raise _too_large(most_bytes)
    return content


def _too_large(most_bytes: int) -> OSError:
    return OSError(errno.EFBIG, f"it is larger than {most_bytes >> 20} MiB")


_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
"""Byte-order marks that editors and PowerShell write. UTF-32 comes first, as its mark begins with that of
UTF-16."""


def decoded(content: bytes, name: str) -> str:
    """Returns the text of a file that a person wrote: UTF-8, or UTF-16 and UTF-32 with their byte-order
    marks.

    Raises :class:`UsageError` with a cure for any other content. ``name`` is the user's name for the file.
    """
    encoding = next((e for mark, e in _MARKS if content.startswith(mark)), "utf-8-sig")
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as e:
        shown = encoding.removesuffix("-sig").upper()
        raise UsageError(f"{name}: it is not {shown} text", _convert("LATIN1", name)) from e
    if "\0" in text:
        where = content.index(b"\0")
        if content.count(b"\0") < len(content) // 4:  # UTF-16 has one per Latin letter
            line = content.count(b"\n", 0, where) + 1
            raise UsageError(f"{name}, line {line}: it has a zero byte (NUL)", "delete it: no text has any")
        raise UsageError(
            f"{name}: it has zero bytes, as UTF-16 without a byte-order mark has",
            _convert("UTF-16LE" if where % 2 else "UTF-16BE", name),
        )
    return text


def _convert(encoding: str, name: str) -> str:
    return f"convert it: iconv -f {encoding} -t UTF-8 {shlex.quote(name)} > utf8.txt"


_FULL = {errno.ENOSPC, errno.EDQUOT}
MOST_NUMBER = 1e36
"""Bound of all figures of a run, whatever their unit."""
MANIFEST = "manifest.json"
MOST_BYTES = 2 << 30  # most bytes of one file of a run
TEMPORARY = ".tmp-"  # prefix of the names of unfinished files


def _writer() -> str:
    """Returns a part of a name that no other thread of this machine uses at the same time."""
    return f"{os.getpid()}-{threading.get_native_id()}"


@contextmanager
def guard(path: Path) -> Iterator[None]:
    """Turns an :class:`OSError` below ``path`` into an error of the store with a cure."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StoreFull(
                f"no space left for the run store at {path}: {error.strerror}",
                "free some space, or name another place (--store DIR); what was saved before is readable",
            ) from error
        first = error.cure if isinstance(error, NotPrivate) else "give yourself write permission there"
        raise StoreError(
            f"cannot use the run store at {path}: {error.strerror or error}",
            f"{first}; or name another place: --store DIR or DBDYNO_STORE",
        ) from error


def in_order(name: str) -> tuple[int, str]:
    """Returns a sort key for names that begin with a number of four digits or more."""
    return len(name.partition("-")[0]), name


def make_directory(path: Path) -> None:
    """Creates ``path`` and its parents, readable by their owner only, whatever the umask.

    Raises :class:`StoreError`, also if an existing one is writable by everybody.
    """
    with guard(path):
        make_shared(path)


def write_synced(path: Path, content: bytes, *, synced: bool = True) -> None:
    """Writes a new file (mode 0600) in place of an existing one, and waits until it is on disk."""
    remove(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        if synced:
            file.flush()
            os.fsync(file.fileno())


def write_atomic(path: Path, content: bytes) -> None:
    """Replaces the content of ``path``. A reader sees the old file or the new one, never a part."""
    temporary = path.with_name(f"{TEMPORARY}{path.name}-{_writer()}")
    with guard(path):
        try:
            write_synced(temporary, content)
            temporary.replace(path)
        except BaseException:  # including KeyboardInterrupt
            remove(temporary)
            raise
        sync(path.parent)


def write_directory(path: Path, files: dict[str, bytes], *, synced: bool = True) -> None:
    """Creates the directory ``path`` with ``files`` and a manifest of their checksums, replacing an older
    one.

    A failure leaves the older one. ``synced`` waits until all is on disk.
    """
    manifest = {name: _digest(content) for name, content in files.items()}
    files = files | {MANIFEST: json.dumps(manifest, indent=1).encode()}
    temporary = path.with_name(f"{TEMPORARY}{path.name}-{_writer()}")
    replaced = path.with_name(f"{TEMPORARY}old-{path.name}-{_writer()}")
    with guard(path):
        try:
            remove(temporary)
            temporary.mkdir(mode=0o700)
            for name, content in files.items():
                write_synced(temporary / name, content, synced=False)
            if synced:
                _sync_together([*(temporary / name for name in files), temporary])
            if path.exists():
                path.replace(replaced)
            temporary.replace(path)
        except BaseException:  # including KeyboardInterrupt
            if replaced.exists() and not path.exists():
                replaced.replace(path)
            remove(temporary)
            raise
        remove(replaced)
        if synced:
            sync(path.parent)


def read_directory(path: Path, leave: Collection[str] = ()) -> dict[str, bytes]:
    """Returns the files of a directory after verifying their checksums; files in ``leave`` are verified
    only."""
    digests = _digests(path)
    contents = {}
    for name in digests:
        content = _checked(path, name, digests[name])
        if name not in leave:
            contents[str(name)] = content
    return contents


def is_sound(path: Path) -> bool:
    """Returns whether the manifest of the file's directory names it.

    Raises :class:`StoreError` if the checksum differs.
    """
    return path.parent.is_dir() and read_one(path.parent, path.name) is not None


def read_one(path: Path, name: str) -> bytes | None:
    """Returns one file of such a directory; None if the directory or its manifest lacks it."""
    digests = _digests(path) if path.is_dir() else {}
    return _checked(path, name, digests[name]) if name in digests else None


def _digests(path: Path) -> dict[str, Any]:
    try:
        return dict(from_json(read(path / MANIFEST)))
    except (ValueError, TypeError) as error:
        raise StoreError(f"{MANIFEST} of {path.name} is damaged") from error


def _checked(path: Path, name: str, digest: Any) -> bytes:
    content = read(path / Path(name).name)
    if _digest(content) != digest:
        raise StoreError(f"{name} of {path.name} is damaged: its checksum differs")
    return content


def size(path: Path) -> int:
    """Returns the size in bytes; 0 without a file."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def read(path: Path) -> bytes:
    try:
        return read_limited(path, MOST_BYTES)
    except (OSError, MemoryError) as error:
        raise StoreError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def from_json(content: bytes) -> Any:
    """Parses JSON. Raises :class:`ValueError`, also if it is nested too deep or a number is out of range."""
    try:
        return json.loads(content, parse_int=_integer, parse_float=_number, parse_constant=_number)
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON at line {error.lineno}, column {error.colno}") from error
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def _integer(text: str) -> int:
    _number(text)
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if not abs(value) < MOST_NUMBER:
        raise ValueError(f"{text[:20]} is out of range")
    return value


def sync(path: Path) -> None:
    """Waits until a file, or the names in a directory, are on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_together(paths: Sequence[Path]) -> None:
    """Syncs concurrently: the file system then commits its journal a few times instead of once per file."""
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        for _done in pool.map(sync, paths):
            pass


def parquet(frame: pl.DataFrame, level: int | None = None) -> bytes:
    """Returns the bytes of a Parquet file; ``level`` of compression is polars' default if None.

    They are written to disk by us, so that a full disk is an :class:`OSError` and not an error of polars.
    """
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd", compression_level=level)
    return buffer.getvalue()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def remove(path: Path) -> None:
    """Removes a file, a link, or a directory with its content; an absent path is no error."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
