"""Files of another host as paths: :func:`tree` is its ``/``, below which a path is used as any other.

Only what is read is there: text, names, links, facts. The agent says which files may be read
(crates/dyno-agent). A path is not for the local system: whoever would open it here gets an error.
"""

from __future__ import annotations

import errno
import io
import os
import re
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PosixPath
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from dbdyno.model.errors import HostLost
from dbdyno.remote.agent import Agent, Gathered, gather, pattern_of

if TYPE_CHECKING:
    from dbdyno.model.engine.machine import Machine

_T = TypeVar("_T")
_LIMIT_BYTES = 4 << 20


class Files:
    """Reads one by one, or together beforehand (:meth:`ahead`). What a thread has read ahead is its own."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self._ahead = threading.local()

    @contextmanager
    def ahead(self, files: Iterable[str], folders: Iterable[str] = ()) -> Iterator[None]:
        """Meanwhile these are as they are now. ``*`` in a component stands for all that there is."""
        read, listed = list(dict.fromkeys(files)), list(dict.fromkeys(folders))
        if not read and not listed:
            yield
            return
        try:
            found = gather(self.agent, read=read, list=listed, limit=_LIMIT_BYTES)
        except HostLost:  # each of them cannot be read
            yield
            return
        layers = self._layers()
        layers.append(_Layer(found, _matching(read), _matching(listed)))
        try:
            yield
        finally:
            layers.pop()

    def read(self, path: str) -> bytes:
        found: bytes = self._one("read", path)
        return found

    def names(self, path: str) -> list[str]:
        return list(self._one("list", path))

    def link(self, path: str) -> str:
        return str(self._one("link", path))

    def stat(self, path: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._one("stat", path)
        return found

    def matching(self, pattern: str) -> list[str]:
        """Paths that there are; ``*`` and ``?`` alone."""
        return list(_asked(lambda: gather(self.agent, stat=[pattern])).stat)

    def _one(self, part: str, path: str) -> Any:
        """Raises :class:`OSError`."""
        for layer in reversed(self._layers()):
            if (known := layer.get(part, path)) is not None:
                break
        else:
            found = _asked(lambda: gather(self.agent, **{part: [path]}, limit=_LIMIT_BYTES))
            known = next(iter(getattr(found, part).values()))
        if isinstance(known, OSError):
            raise OSError(known.errno, known.strerror, path)
        return known

    def _layers(self) -> list[_Layer]:
        if not hasattr(self._ahead, "layers"):
            self._ahead.layers = []
        layers: list[_Layer] = self._ahead.layers
        return layers


class _Layer:
    """What was read together. What one of its patterns would have found, and did not, is not there."""

    def __init__(self, found: Gathered, files: re.Pattern[str], folders: re.Pattern[str]) -> None:
        self._found = {"read": found.read, "list": found.list}
        self._patterns = {"read": files, "list": folders}

    def get(self, part: str, path: str) -> Any:
        if part not in self._found:
            return None
        known = self._found[part].get(path)
        if known is None and self._patterns[part].fullmatch(path):
            return OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return known


def _matching(patterns: Iterable[str]) -> re.Pattern[str]:
    starred = [p for p in patterns if "*" in p or "?" in p]
    return re.compile("|".join(map(pattern_of, starred)) or r"(?!)")


class Unreadable(HostLost, OSError):
    """A file of a host that is lost: for those who read files, one that cannot be read."""


def _asked(ask: Any) -> Any:
    try:
        return ask()
    except HostLost as e:
        raise Unreadable(e.host, e.why) from None


def tree(files: Files, machine: Machine) -> Path:
    """The root of a host's files. Paths below it know ``machine``."""
    made: type[Path] = type("RemotePath", (_RemotePath,), {"files": files, "machine": machine})
    return made("/")


class _RemotePath(PosixPath):
    """A class of its own for each host: paths make each other, and carry no more than their names."""

    files: Files
    machine: Machine

    def __fspath__(self) -> NoReturn:
        raise OSError(errno.EREMOTE, f"{self} is a file of another host")

    def read_bytes(self) -> bytes:
        return self.files.read(str(self))

    def read_text(
        self, encoding: str | None = None, errors: str | None = None, newline: str | None = None
    ) -> str:
        content = io.TextIOWrapper(io.BytesIO(self.read_bytes()), encoding or "utf-8", errors, newline)
        try:
            return content.read()
        except UnicodeDecodeError as e:  # for those who read files, one that cannot be read
            raise OSError(errno.EILSEQ, f"it holds no text: {e.reason}", str(self)) from None

    def iterdir(self) -> Generator[Any, None, None]:
        yield from (self / name for name in self.files.names(str(self)))

    def readlink(self) -> Any:
        return type(self)(self.files.link(str(self)))

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:  # noqa: ARG002 - the agent follows
        s = self.files.stat(str(self))
        device = os.makedev(*s["device"])
        mtime_s = s["mtime_ns"] // 1_000_000_000
        owner = (s["uid"], s["gid"])
        return os.stat_result((s["mode"], s["inode"], device, 1, *owner, s["size"], *(mtime_s,) * 3))

    def exists(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002 - the agent follows
        try:
            self.stat()
        except OSError:
            return False
        return True

    def is_symlink(self) -> bool:
        try:
            self.files.link(str(self))
        except OSError:
            return False
        return True

    def glob(self, pattern: str) -> Generator[Any, None, None]:
        yield from (type(self)(path) for path in self.files.matching(f"{str(self).rstrip('/')}/{pattern}"))
