"""Files of another host as paths: :func:`tree` returns its ``/``, below which paths are used like local
ones.

They can only be read: text, names, links, facts. The agent decides which files may be read
(crates/dyno-agent). Opening such a path on this host is an error.
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
    """Reads files one by one, or many together in advance (:meth:`ahead`). Each thread sees only its own
    reads in advance."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self._ahead = threading.local()

    @contextmanager
    def ahead(self, files: Iterable[str], folders: Iterable[str] = ()) -> Iterator[None]:
        """Reads these files at once; within the context they keep this state. ``*`` in a component matches
        any name."""
        read, listed = list(dict.fromkeys(files)), list(dict.fromkeys(folders))
        if not read and not listed:
            yield
            return
        try:
            gathered = gather(self.agent, read=read, list=listed, limit=_LIMIT_BYTES)
        except HostLost:  # each read then fails by itself
            yield
            return
        layers = self._layers()
        layers.append(_Layer(gathered, _matching(read), _matching(listed)))
        try:
            yield
        finally:
            layers.pop()

    def read(self, path: str) -> bytes:
        content: bytes = self._one("read", path)
        return content

    def names(self, path: str) -> list[str]:
        return list(self._one("list", path))

    def link(self, path: str) -> str:
        return str(self._one("link", path))

    def stat(self, path: str) -> Mapping[str, Any]:
        facts: Mapping[str, Any] = self._one("stat", path)
        return facts

    def matching(self, pattern: str) -> list[str]:
        """Returns the existing paths; a pattern has ``*`` and ``?`` only."""
        return list(_or_unreadable(lambda: gather(self.agent, stat=[pattern])).stat)

    def _one(self, part: str, path: str) -> Any:
        """Raises :class:`OSError`."""
        for layer in reversed(self._layers()):
            if (value := layer.get(part, path)) is not None:
                break
        else:
            gathered = _or_unreadable(lambda: gather(self.agent, **{part: [path]}, limit=_LIMIT_BYTES))
            value = next(iter(getattr(gathered, part).values()))
        if isinstance(value, OSError):
            raise OSError(value.errno, value.strerror, path)
        return value

    def _layers(self) -> list[_Layer]:
        if not hasattr(self._ahead, "layers"):
            self._ahead.layers = []
        layers: list[_Layer] = self._ahead.layers
        return layers


class _Layer:
    """Files that were read together. A path that matches a pattern but was not returned does not exist."""

    def __init__(self, gathered: Gathered, files: re.Pattern[str], folders: re.Pattern[str]) -> None:
        self._gathered = {"read": gathered.read, "list": gathered.list}
        self._patterns = {"read": files, "list": folders}

    def get(self, part: str, path: str) -> Any:
        if part not in self._gathered:
            return None
        value = self._gathered[part].get(path)
        if value is None and self._patterns[part].fullmatch(path):
            return OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return value


def _matching(patterns: Iterable[str]) -> re.Pattern[str]:
    starred = [p for p in patterns if "*" in p or "?" in p]
    return re.compile("|".join(map(pattern_of, starred)) or r"(?!)")


class Unreadable(HostLost, OSError):
    """A file of a lost host. For readers of files it is an OSError."""


def _or_unreadable(ask: Any) -> Any:
    try:
        return ask()
    except HostLost as e:
        raise Unreadable(e.host, e.why) from None


def tree(files: Files, machine: Machine) -> Path:
    """Returns the root of a host's files. Paths below it refer to ``machine``."""
    path_class: type[Path] = type("RemotePath", (_RemotePath,), {"files": files, "machine": machine})
    return path_class("/")


class _RemotePath(PosixPath):
    """Has a subclass for each host, since paths create other paths from their names alone."""

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
        except UnicodeDecodeError as e:  # readers of files handle OSError
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
