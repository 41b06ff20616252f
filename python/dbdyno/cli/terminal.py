"""A screen of a terminal, of which only lines that changed are written, in a thread of its own.

A terminal that takes no output (Ctrl-S, a slow line) delays neither keys nor measuring: of the frames drawn
meanwhile, the latest is written once it can be.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

_BEGIN = "\x1b[?1049h\x1b[?25l\x1b[H"
_END = "\x1b[?25h\x1b[?1049l"
"""To the alternate screen without a cursor, and back (xterm, ctlseqs)."""
_PATIENCE_S = 2.0


class TerminalScreen:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._descriptor = console.file.fileno()
        self._encoding = getattr(console.file, "encoding", None) or "utf-8"
        self._changed = threading.Condition()
        self._frame: list[str] | None = None  # the next one
        self._ending = False
        self._thread = threading.Thread(target=self._write_frames, name="dbdyno-screen", daemon=True)
        self._before: list[Text] = []
        self._styled: list[str] = []

    @property
    def draws_marks(self) -> bool:
        """Whether the terminal's encoding has more than ASCII."""
        return self._encoding.lower().replace("-", "") == "utf8"

    def start(self) -> None:
        self._console.file.flush()
        self._thread.start()

    def draw(self, lines: Sequence[Text]) -> None:
        """Draws a frame of as many lines as the terminal has. Only one thread may draw."""
        styled = [
            self._styled[n] if n < len(self._before) and self._before[n] == line else self._style(line)
            for n, line in enumerate(lines)
        ]
        self._before, self._styled = list(lines), styled
        with self._changed:
            self._frame = styled
            self._changed.notify()

    def close(self) -> None:
        """Returns from the screen; waits for the terminal, but not for long."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        self._thread.join(_PATIENCE_S)

    def _style(self, line: Text) -> str:
        with self._console.capture() as capture:
            self._console.print(line, end="", no_wrap=True, overflow="crop", crop=False)
        return capture.get()

    def _write_frames(self) -> None:
        self._write(_BEGIN)
        shown: list[str] = []
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._frame is not None or self._ending)
                frame, self._frame, ending = self._frame, None, self._ending
            if frame is not None:
                whole = len(frame) != len(shown)
                old = [""] * len(frame) if whole else shown
                self._write(
                    ("\x1b[H\x1b[2J" if whole else "")
                    + "".join(
                        f"\x1b[{n};1H{line}\x1b[K"
                        for n, (line, before) in enumerate(zip(frame, old, strict=True), start=1)
                        if line != before
                    )
                )
                shown = frame
            if ending and frame is None:
                self._write(f"\x1b[{len(shown)};1H\r\n{_END}")  # below it, on one without an alternate screen
                return

    def _write(self, text: str) -> None:
        data = text.encode(self._encoding, "replace")
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except OSError:  # the terminal is gone
                return
