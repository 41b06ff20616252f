"""State of the live view and how keys change it; reads keys of a terminal one by one."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dbdyno.observe.glance import SessionLine


@dataclass(frozen=True)
class Row:
    """A session and its identity."""

    line: SessionLine
    who: Mapping[str, Any]  # a row of table backends; empty until it was read

    def text(self, name: str) -> str:
        return str(self.who.get(name) or "")

    @property
    def searched(self) -> str:
        """The text that a filter searches."""
        line = self.line
        names = (self.text(n) for n in ("user", "database", "application", "client"))
        return " ".join((*names, line.state or "", line.event or "", str(line.pid))).lower()


def _most(name: str) -> Callable[[Row], Any]:
    """Returns a sort key: the greatest value first, unknown ones last."""

    def key(row: Row) -> tuple[bool, float]:
        value = getattr(row.line, name)
        return value is None, -(value or 0.0)

    return key


ORDERS: Mapping[str, tuple[str, Callable[[Row], Any]]] = {
    "t": ("DB time", _most("db_time")),
    "c": ("CPU", _most("run")),
    "w": ("CPU WAIT", _most("runq")),
    "a": ("asleep", _most("sleep")),
    "e": ("event", lambda r: r.line.event or "~"),
    "u": ("user", lambda r: r.text("user") or "~"),
    "p": ("pid", lambda r: r.line.pid),
}
"""Key -> name and sort key of an order of the sessions; ``s`` selects the next one."""

HELP = (
    ("up down j k", "choose a session"),
    ("enter", "that session alone: its events and microstates; escape goes back"),
    ("t c w a e u p", "sort by " + ", ".join(name for name, _ in ORDERS.values())),
    ("s", "the next order"),
    ("b", "who blocks whom: a tree of the sessions that wait for locks; again: back"),
    ("m", "where the memory is: read now, and again as its cost allows; again: back"),
    ("f", "show only sessions whose words contain a text; empty: all"),
    ("space", "freeze; measuring goes on"),
    ("h", "this help"),
    ("q", "end; what was measured is kept"),
)


@dataclass
class View:
    order: str = "t"
    filter: str = ""
    typing: bool = False  # a filter is being typed
    chosen: int | None = None  # pid
    alone: bool = False  # shows the chosen session only
    frozen: bool = False
    help: bool = False
    tree: bool = False  # shows who blocks whom in place of events and sessions
    memory: bool = False  # shows where the memory is in their place
    line: int = 0  # first line shown of the memory
    ended: bool = False

    def rows(self, rows: Sequence[Row]) -> list[Row]:
        """Returns the rows that are shown, in order."""
        shown = [r for r in rows if self.filter.lower() in r.searched]
        return sorted(shown, key=lambda r: (ORDERS[self.order][1](r), r.line.pid))

    def press(self, key: str, rows: Sequence[Row]) -> None:
        """Handles a key. ``rows``: the rows that are shown."""
        if self.typing:
            self._type(key)
        elif key in ORDERS:
            self.order = key
        elif key in _KEYS:
            _KEYS[key](self, rows)

    def _type(self, key: str) -> None:
        if key == "enter":
            self.typing = False
        elif key == "escape":
            self.typing, self.filter = False, ""
        elif key == "backspace":
            self.filter = self.filter[:-1]
        elif len(key) == 1:
            self.filter += key

    def _move(self, rows: Sequence[Row], by: int) -> None:
        """Moves the choice. If none is chosen, begins with the first on the way down, with the last on the
        way up."""
        if self.memory:
            self.line = max(0, self.line + by)
            return
        pids = [r.line.pid for r in rows]
        if not pids:
            return
        at = pids.index(self.chosen) + by if self.chosen in pids else 0 if by > 0 else len(pids) - 1
        self.chosen = pids[max(0, min(at, len(pids) - 1))]

    def _enter(self, rows: Sequence[Row]) -> None:
        if self.chosen is None and rows:
            self.chosen = rows[0].line.pid
        self.alone = self.chosen is not None

    def _go_back(self) -> None:
        if self.alone or self.help or self.tree or self.memory:
            self.alone = self.help = self.tree = self.memory = False
        else:
            self.filter = ""

    def _next_order(self) -> None:
        keys = list(ORDERS)
        self.order = keys[(keys.index(self.order) + 1) % len(keys)]

    def _flip(self, name: str) -> None:
        setattr(self, name, not getattr(self, name))


_KEYS: Mapping[str, Callable[[View, Sequence[Row]], None]] = {
    "up": lambda v, rows: v._move(rows, -1),
    "k": lambda v, rows: v._move(rows, -1),
    "down": lambda v, rows: v._move(rows, 1),
    "j": lambda v, rows: v._move(rows, 1),
    "page up": lambda v, rows: v._move(rows, -10),
    "page down": lambda v, rows: v._move(rows, 10),
    "enter": lambda v, rows: v._enter(rows),
    "escape": lambda v, _rows: v._go_back(),
    "s": lambda v, _rows: v._next_order(),
    "f": lambda v, _rows: v._flip("typing"),
    " ": lambda v, _rows: v._flip("frozen"),
    "b": lambda v, _rows: v._flip("tree"),
    "m": lambda v, _rows: v._flip("memory"),
    "h": lambda v, _rows: v._flip("help"),
    "?": lambda v, _rows: v._flip("help"),
    "q": lambda v, _rows: v._flip("ended"),
}


_NAMES = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    b"\x1b": "escape",
    b"\r": "enter",
    b"\n": "enter",
    b"\x7f": "backspace",
    b"\x08": "backspace",
}
_LONGEST = 32


def parse(data: bytes) -> list[str]:
    """Reads ``b"k\\x1b[A"`` as ``["k", "up"]``; leaves out unknown escape sequences."""
    keys = []
    while data:
        name = next((n for n in sorted(_NAMES, key=len, reverse=True) if data.startswith(n)), None)
        if name == b"\x1b" and len(data) > 1 and data[1:2] in b"[O":
            data = data[_length(data) :]
        elif name is not None:
            keys.append(_NAMES[name])
            data = data[len(name) :]
        else:
            text = data[:1].decode("ascii", "ignore")
            keys += [text] if text.isprintable() and text else []
            data = data[1:]
    return keys


def _length(data: bytes) -> int:
    """Returns the length of an escape sequence, up to its final byte (ECMA-48, 5.4)."""
    return next((i + 1 for i in range(2, len(data)) if 0x40 <= data[i] <= 0x7E), len(data))


class Keyboard:
    """Keys pressed since the last call; none if standard input is not a terminal."""

    def __init__(self) -> None:
        self._descriptor: int | None = None

    def pressed(self) -> list[str]:
        if self._descriptor is None or not select.select([self._descriptor], [], [], 0)[0]:
            return []
        data = b""
        with contextlib.suppress(OSError):  # EIO: the terminal hung up
            data = os.read(self._descriptor, _LONGEST)
        if not data:  # the terminal is gone
            self._descriptor = None
        return parse(data)

    @contextlib.contextmanager
    def listening(self) -> Iterator[Keyboard]:
        """Reads single keys within the context. Ctrl-C remains a signal; Ctrl-Z does not, since a pause
        would leave a gap."""
        if not sys.stdin.isatty():
            yield self
            return
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
        try:
            tty.setcbreak(descriptor, termios.TCSANOW)  # keeps keys pressed before
            now = termios.tcgetattr(descriptor)
            now[6][termios.VSUSP] = os.fpathconf(descriptor, "PC_VDISABLE").to_bytes(1, "little")
            termios.tcsetattr(descriptor, termios.TCSANOW, now)
            self._descriptor = descriptor
            yield self
        finally:
            self._descriptor = None
            with contextlib.suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)
