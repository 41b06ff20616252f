"""State of the live view and how keys change it; reads keys of a terminal one by one."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dbdyno.cli.observe_table import Order, Sheet

BUILT_IN = SESSIONS, STATEMENTS, LOCKS, MEMORY = "sessions", "SQL", "locks", "memory"
"""Screens of every engine. Those of the engine follow."""

SORT_KEYS = {
    "t": "db_time",
    "c": "run",
    "w": "runq",
    "a": "sleep",
    "e": "event",
    "u": "who",
}
"""Key -> column by which the sessions are sorted."""

KEYS = (
    ("1 2 3 ...", "open a screen; b: locks, m: memory"),
    ("up down j k", "choose a row, or scroll"),
    ("enter", "show the row alone, with the whole text of its statement; escape goes back"),
    ("left right", "sort by the previous or next column; r: the other way round"),
    ("/ n", "search for a text; the next row that has it"),
    ("f", "show only rows that have a text; empty: all"),
    ("p space", "pause the screen; measuring goes on"),
    ("s", "save the screen as text, with all rows, in a file of this directory"),
    ("h ?", "explain the columns and keys of this screen"),
    ("q", "close the help; elsewhere end: what was measured is kept"),
)


@dataclass
class View:
    screen: str = SESSIONS
    screens: Sequence[str] = BUILT_IN
    orders: dict[str, Order] = field(default_factory=dict)  # by screen, where one was chosen
    chosen: dict[str, Hashable] = field(default_factory=dict)  # key of the chosen row, by screen
    filter: str = ""
    search: str = ""
    typing: str = ""  # "filter" or "search" while one is typed
    alone: bool = False  # shows the chosen row only
    paused: bool = False
    help: bool = False
    line: int = 0  # first line shown of a text
    found: int | None = None  # line of a text that the search found
    saving: bool = False  # the screen is to be saved
    ended: bool = False

    def order(self, sheet: Sheet) -> Order:
        return self.orders.get(sheet.name, Order(sheet.order))

    def rows(self, sheet: Sheet) -> list[Any]:
        """Returns the rows that are shown, in order."""
        return sheet.ordered(self.order(sheet), self.filter)

    @property
    def is_text(self) -> bool:
        """Whether the screen is a text, which scrolls, and no table."""
        return self.help or self.alone or self.screen in (LOCKS, MEMORY)

    def press(self, key: str, sheet: Sheet, text: Sequence[str] = ()) -> None:
        """Handles a key. ``sheet`` is the table of the screen, ``text`` the lines if it is a text."""
        if self.typing:
            self._type(key, sheet, text)
        elif key.isdigit() and 0 < int(key) <= len(self.screens):
            self._open(self.screens[int(key) - 1])
        elif self.screen == SESSIONS and key in SORT_KEYS:
            self.orders[SESSIONS] = Order(SORT_KEYS[key])
        elif key in _KEYS:
            _KEYS[key](self, sheet, text)

    def _open(self, screen: str) -> None:
        self.screen = screen
        self._leave()

    def _leave(self) -> None:
        self.alone = self.help = False
        self.line, self.found = 0, None

    def _flip_screen(self, screen: str) -> None:
        self._open(SESSIONS if self.screen == screen else screen)

    def _type(self, key: str, sheet: Sheet, text: Sequence[str]) -> None:
        words = getattr(self, self.typing)
        if key == "enter":
            if self.typing == "search":
                self._find(sheet, text, on=0)
            self.typing = ""
        elif key == "escape":
            setattr(self, self.typing, "")
            self.typing = ""
        elif key == "backspace":
            setattr(self, self.typing, words[:-1])
        elif len(key) == 1:
            setattr(self, self.typing, words + key)

    def _begin(self, typing: str) -> None:
        self.typing = typing
        setattr(self, typing, "")

    def _find(self, sheet: Sheet, text: Sequence[str], on: int = 1) -> None:
        """Chooses the next row, or scrolls to the next line, that has the text searched for."""
        wanted = self.search.lower()
        if not wanted:
            return
        if self.is_text:
            at = 0 if self.found is None else self.found + on
            hit = _next([line.lower() for line in text], wanted, at)
            if hit is not None:
                self.line = self.found = hit
            return
        rows = self.rows(sheet)
        keys = [sheet.key(r) for r in rows]
        chosen = self.chosen.get(sheet.name)
        at = keys.index(chosen) + on if chosen in keys else 0
        hit = _next([sheet.words(r) for r in rows], wanted, at)
        if hit is not None:
            self.chosen[sheet.name] = keys[hit]

    def _move(self, sheet: Sheet, by: int) -> None:
        """Moves the choice. If none is chosen, begins with the first on the way down, with the last on the
        way up."""
        if self.is_text:
            self.line = max(0, self.line + by)
            return
        keys = [sheet.key(r) for r in self.rows(sheet)]
        if not keys:
            return
        chosen = self.chosen.get(sheet.name)
        at = keys.index(chosen) + by if chosen in keys else 0 if by > 0 else len(keys) - 1
        self.chosen[sheet.name] = keys[max(0, min(at, len(keys) - 1))]

    def _enter(self, sheet: Sheet) -> None:
        if self.is_text:
            return
        rows = self.rows(sheet)
        if sheet.name not in self.chosen and rows:
            self.chosen[sheet.name] = sheet.key(rows[0])
        self.alone = sheet.name in self.chosen
        self.line, self.found = 0, None

    def _go_back(self) -> None:
        if self.alone or self.help:
            self._leave()
        elif self.screen != SESSIONS:
            self._open(SESSIONS)
        else:
            self.filter = ""

    def _sort_by(self, sheet: Sheet, by: int) -> None:
        names = [c.name for c in sheet.columns]
        order = self.order(sheet)
        at = names.index(order.column) if order.column in names else 0
        self.orders[sheet.name] = Order(names[(at + by) % len(names)])

    def _reverse(self, sheet: Sheet) -> None:
        order = self.order(sheet)
        self.orders[sheet.name] = Order(order.column, not order.reverse)

    def _quit(self) -> None:
        if self.help:
            self._flip("help")
        else:
            self.ended = True

    def _flip(self, name: str) -> None:
        setattr(self, name, not getattr(self, name))
        if name == "help":
            self.line, self.found = 0, None


def _next(texts: Sequence[str], wanted: str, at: int) -> int | None:
    """Returns the first index from ``at`` on, and then from the beginning, whose text has ``wanted``."""
    order = [*range(at, len(texts)), *range(min(at, len(texts)))]
    return next((n for n in order if wanted in texts[n]), None)


_KEYS: Mapping[str, Callable[[View, Sheet, Sequence[str]], None]] = {
    "up": lambda v, sheet, _: v._move(sheet, -1),
    "k": lambda v, sheet, _: v._move(sheet, -1),
    "down": lambda v, sheet, _: v._move(sheet, 1),
    "j": lambda v, sheet, _: v._move(sheet, 1),
    "page up": lambda v, sheet, _: v._move(sheet, -10),
    "page down": lambda v, sheet, _: v._move(sheet, 10),
    "enter": lambda v, sheet, _: v._enter(sheet),
    "escape": lambda v, _sheet, _: v._go_back(),
    "left": lambda v, sheet, _: v._sort_by(sheet, -1),
    "right": lambda v, sheet, _: v._sort_by(sheet, 1),
    "r": lambda v, sheet, _: v._reverse(sheet),
    "f": lambda v, _sheet, _: v._begin("filter"),
    "/": lambda v, _sheet, _: v._begin("search"),
    "n": lambda v, sheet, text: v._find(sheet, text),
    "p": lambda v, _sheet, _: v._flip("paused"),
    " ": lambda v, _sheet, _: v._flip("paused"),
    "s": lambda v, _sheet, _: v._flip("saving"),
    "b": lambda v, _sheet, _: v._flip_screen(LOCKS),
    "m": lambda v, _sheet, _: v._flip_screen(MEMORY),
    "h": lambda v, _sheet, _: v._flip("help"),
    "?": lambda v, _sheet, _: v._flip("help"),
    "q": lambda v, _sheet, _: v._quit(),
}


_NAMES = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"\x1b[C": "right",
    b"\x1bOC": "right",
    b"\x1b[D": "left",
    b"\x1bOD": "left",
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
    """Keys of the terminal; none if standard input is not a terminal."""

    def __init__(self) -> None:
        self._descriptor: int | None = None

    def pressed(self, seconds: float, wake: int) -> list[str]:
        """Waits for keys, at most for ``seconds``, or until the descriptor ``wake`` can be read."""
        watched = [wake, *([] if self._descriptor is None else [self._descriptor])]
        ready = select.select(watched, [], [], seconds)[0]
        if wake in ready:
            os.read(wake, 4096)
        if self._descriptor not in ready or self._descriptor is None:
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
