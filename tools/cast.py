"""Records dbdyno on a terminal, and draws the recordings: docs/run.cast and docs/run.svg, and of observe.

``python tools/cast.py`` records both on the embedded server, ``python tools/cast.py draw`` draws what was
recorded. Recordings are asciicast v2 (docs.asciinema.org), so ``asciinema play`` shows them, too. A drawing
is an SVG without scripts: one frame below the other, which a CSS animation moves through the window. Readers
who prefer reduced motion see the last frame. Needs pyte, a terminal emulator (``make cast`` brings it).
"""

from __future__ import annotations

import codecs
import contextlib
import copy
import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

import psycopg
import pyte

ROOT = Path(__file__).parents[1]
BIN = ROOT / ".venv" / "bin"
COLUMNS = 80
LOAD = ("run", "order-entry", "--sessions", "8", "--measure", "120s", "--store", "loads", "--quiet")


@dataclass(frozen=True)
class Scene:
    """A command, the rows of its screen, and the keys pressed while it runs: (seconds since the first screen,
    key)."""

    command: str
    rows: int
    keys: Sequence[tuple[float, str]] = ()
    load: bool = False
    hold_s: float = 6.0


SCENES = {
    "run": Scene("dbdyno run lio --sessions 1,2,4,8 --measure 4s --settle 1s", rows=26),
    "observe": Scene(
        "dbdyno observe --window 5s --refresh 1",
        rows=24,
        keys=((6, "2"), (12, "3"), (17, "5"), (21, "1"), (25, "q")),
        load=True,
    ),
}


def main(words: Sequence[str]) -> None:
    names = [w for w in words if w in SCENES] or list(SCENES)
    for name in names:
        cast, drawing = ROOT / "docs" / f"{name}.cast", ROOT / "docs" / f"{name}.svg"
        if "draw" not in words:
            with tempfile.TemporaryDirectory() as folder:
                cast.write_text(record(SCENES[name], Path(folder)), encoding="utf-8")
        drawing.write_text(draw(cast.read_text(encoding="utf-8"), SCENES[name].hold_s), encoding="utf-8")
        print(f"{drawing.relative_to(ROOT)}: {drawing.stat().st_size / 1000:.0f} kB")


# -- recording --------------------------------------------------------------------------------------

_FIRST = "stmt/s"
"""A word of the first whole screen."""
HOME = "/home/ann"
"""The folder that the recording shows in place of the one that it was made in."""
TYPED_S, READ_S = 0.06, 1.2
"""Seconds for a typed letter, and from the last one to Enter."""


def record(scene: Scene, folder: Path) -> str:
    """Returns the recording of a scene, with a store and a server of its own."""
    env = {**os.environ, "DBDYNO_STORE": str(folder / "runs"), "DBDYNO_CONFIG": "", "TERM": "xterm-256color"}
    env |= {
        "DBDYNO_SERVER_DIR": str(folder / "server"),
        "HOME": str(folder),
        "PATH": f"{BIN}:{os.environ['PATH']}",
    }
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        env.pop(name, None)
    folder.chmod(0o755)
    with server(env, folder), load(env, folder) if scene.load else contextlib.nullcontext():
        if scene.load:
            wait_for_sessions(env)
        events = [*typed(scene.command), *run(scene, env, folder)]
    header = {"version": 2, "width": COLUMNS, "height": scene.rows, "title": scene.command}
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in [header, *events])


@contextlib.contextmanager
def server(env: Mapping[str, str], folder: Path) -> Iterator[None]:
    """Keeps the embedded server running, so that the recording is not of its first start."""
    subprocess.run(
        [BIN / "dbdyno", "server", "start"], env=env, cwd=folder, check=True, stdout=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        subprocess.run(
            [BIN / "dbdyno", "server", "stop"], env=env, cwd=folder, check=True, stdout=subprocess.DEVNULL
        )


@contextlib.contextmanager
def load(env: Mapping[str, str], folder: Path) -> Iterator[None]:
    """Keeps sessions at work."""
    with subprocess.Popen(
        [BIN / "dbdyno", *LOAD], env=env, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield
        finally:
            process.terminate()


def wait_for_sessions(env: Mapping[str, str]) -> None:
    """Waits until the load's sessions are at work."""
    status = subprocess.run(
        [BIN / "dbdyno", "server", "status", "--json"], env=env, check=True, capture_output=True
    )
    busy = "select count(*) from pg_stat_activity where state = 'active' and application_name = 'dbdyno'"
    with psycopg.connect(json.loads(status.stdout)["dsn"], autocommit=True) as connection:
        while (connection.execute(busy).fetchone() or (0,))[0] < 4:
            time.sleep(0.2)


def typed(command: str) -> Iterator[list[Any]]:
    yield [0.0, "o", "\x1b[32m$\x1b[39m "]
    for n, letter in enumerate(command):
        yield [round(n * TYPED_S, 3), "o", letter]
    yield [round(len(command) * TYPED_S + READ_S, 3), "o", "\r\n"]


def run(scene: Scene, env: Mapping[str, str], folder: Path) -> Iterator[list[Any]]:
    """Runs the command on a terminal of its own, presses the keys, and yields what it writes."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", scene.rows, COLUMNS, 0, 0))
    shift = len(scene.command) * TYPED_S + READ_S
    started, shown_s, keys = time.monotonic(), None, list(scene.keys)
    words = ["setsid", "--ctty", "--wait", "sh", "-c", scene.command]
    process = subprocess.Popen(
        words, stdin=theirs, stdout=theirs, stderr=theirs, env=dict(env), cwd=folder, close_fds=True
    )
    os.close(theirs)
    decoder = codecs.getincrementaldecoder("utf-8")()
    while True:
        now = time.monotonic() - started
        if keys and shown_s is not None and now - shown_s >= keys[0][0]:
            os.write(ours, keys.pop(0)[1].encode())
        if not select.select([ours], [], [], 0.05)[0]:
            continue
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # its last writer has closed it
            break
        if text := decoder.decode(part):
            now = time.monotonic() - started
            shown_s = now if shown_s is None and _FIRST in text else shown_s
            yield [round(now + shift, 3), "o", text.replace(str(folder), HOME)]
    os.close(ours)
    if process.wait() not in (0, 130):
        sys.exit(f"{scene.command}: exit code {process.returncode}")


# -- drawing ----------------------------------------------------------------------------------------

WIDE, HIGH, MARGIN, BASE = 8.4, 18, 12, 13.5
"""Pixels of a character and a line, around the screen, and from a line's top to its base."""
STEP_S = 0.1
"""Changes within this time are one frame."""
PAUSE_S = 2.0
"""A longer pause is shown as one of this length."""
DIM = "#8b949e"
FONTS = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace"
PLAIN, PAPER = "#d7dce2", "#11151a"
PALETTE = {
    "black": "#484f58",
    "red": "#ff7b72",
    "green": "#56d364",
    "brown": "#e3b341",
    "blue": "#79c0ff",
    "magenta": "#d2a8ff",
    "cyan": "#39c5cf",
    "white": "#d7dce2",
    "brightblack": DIM,
}
"""Colours by pyte's names."""


class Style(NamedTuple):
    colour: str
    paper: str
    bold: bool


class Frame(NamedTuple):
    at_s: float
    lines: tuple[str, ...]  # as SVG, without their place


def draw(recording: str, hold_s: float) -> str:
    header, *events = (json.loads(line) for line in recording.splitlines())
    frames = list(frames_of(events, header["width"], header["height"]))
    whole_s = frames[-1].at_s + hold_s
    width, height = header["width"] * WIDE + 2 * MARGIN, header["height"] * HIGH + 2 * MARGIN
    texts = list(dict.fromkeys(line for f in frames for line in f.lines if line))
    names = {line: f"l{n}" for n, line in enumerate(texts)}
    defined = "".join(f'<g id="{names[line]}">{line}</g>' for line in texts)
    film = "".join(
        f'<use href="#{names[line]}" y="{n * height + MARGIN + row * HIGH:g}"/>'
        for n, frame in enumerate(frames)
        for row, line in enumerate(frame.lines)
        if line
    )
    steps = "".join(
        f"{100 * f.at_s / whole_s:.2f}%{{transform:translateY({-n * height:g}px)}}"
        for n, f in enumerate(frames)
    )
    last = -(len(frames) - 1) * height
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" \
viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(header["title"], {'"': "&quot;"})}">
<style>
text{{white-space:pre;font:14px {FONTS}}}
.film{{transform:translateY({last:g}px)}}
@keyframes film{{{steps}to{{transform:translateY({last:g}px)}}}}
@media (prefers-reduced-motion:no-preference){{.film{{animation:film {whole_s:.1f}s step-end infinite}}}}
</style>
<rect width="100%" height="100%" rx="6" fill="{PAPER}"/>
<defs>{defined}</defs>
<g transform="translate({MARGIN},0)" fill="{PLAIN}"><g class="film">{film}</g></g>
</svg>
"""


def frames_of(events: Sequence[Sequence[Any]], columns: int, rows: int) -> Iterator[Frame]:
    """Yields each screen that differs from the one before, at most one in :data:`STEP_S`. The first one is
    shown once the command is typed, so that it can be read where nothing moves."""
    screen = pyte.Screen(columns, rows)
    terminal = Terminal(screen)
    before: tuple[str, ...] = ()
    first_s = next(at for at, _, text in events if text == "\r\n") - READ_S
    for step, group in groupby(without_pauses(events), key=lambda e: max(0, int((e[0] - first_s) / STEP_S))):
        for _, _, text in group:
            terminal.feed(text)
        lines = tuple(line_of(screen.buffer[row], columns) for row in range(rows))
        if lines != before:
            yield Frame(step * STEP_S, lines)
            before = lines


def without_pauses(events: Sequence[Sequence[Any]]) -> Iterator[tuple[float, str, str]]:
    """Yields the events, none more than :data:`PAUSE_S` after the one before it."""
    before = at = 0.0
    for when, kind, text in events:
        at, before = at + min(when - before, PAUSE_S), when
        yield at, kind, text


class Terminal:
    """Adds to pyte what dbdyno uses beyond it: faint text, and the other screen of a full-screen program."""

    def __init__(self, screen: pyte.Screen) -> None:
        self._screen, self._stream = screen, pyte.Stream(screen)
        self._kept: Any = None

    def feed(self, text: str) -> None:
        for part in re.split("(\x1b\\[\\?1049[hl])", text):
            if part == "\x1b[?1049h":
                self._kept = copy.deepcopy((dict(self._screen.buffer), self._screen.cursor))
                self._screen.erase_in_display(2)
            elif part == "\x1b[?1049l" and self._kept:
                self._screen.erase_in_display(2)
                lines, self._screen.cursor = self._kept
                self._screen.buffer.update(lines)
            else:
                self._stream.feed(re.sub("\x1b\\[([0-9;]*)m", faint_as_grey, part))


def faint_as_grey(style: re.Match[str]) -> str:
    codes = style[1].split(";")
    if not {"38", "48"} & {*codes}:
        codes = ["90" if c == "2" else "22;39" if c == "22" else c for c in codes]
    return f"\x1b[{';'.join(codes)}m"


def line_of(cells: Mapping[int, Any], columns: int) -> str:
    """Returns a line as SVG. Each piece between wide gaps has a place and a length of its own, so columns
    stay below each other in any font."""
    parts = []
    styled = ((style_of(cells[x]), x, cells[x].data) for x in range(columns))
    for style, group in groupby(styled, key=lambda part: part[0]):
        pieces = list(group)
        start, text = pieces[0][1], "".join(data for *_, data in pieces)
        if style.paper:
            place = f'x="{start * WIDE:g}" width="{len(text) * WIDE:g}" height="{HIGH}"'
            parts.append(f'<rect {place} fill="{style.paper}"/>')
        parts.extend(texts_of(text, start, style))
    return "".join(parts)


def texts_of(text: str, start: int, style: Style) -> Iterator[str]:
    look = f' fill="{style.colour}"' if style.colour else ""
    look += ' font-weight="bold"' if style.bold else ""
    at = 0
    while at < len(text):
        end = text.find("  ", at)
        end = len(text) if end < 0 else end
        if piece := text[at:end].rstrip():
            shown = len(piece) - len(piece.lstrip())
            piece, x = piece.lstrip(), start + at + shown
            yield (
                f'<text x="{x * WIDE:g}" y="{BASE:g}" textLength="{len(piece) * WIDE:g}"{look}>'
                f"{escape(piece)}</text>"
            )
        at = end + (len(text[end:]) - len(text[end:].lstrip(" ")) if end < len(text) else 0)


def style_of(cell: Any) -> Style:
    colour, paper = colour_of(cell.fg), colour_of(cell.bg)
    if cell.reverse:
        colour, paper = paper or PAPER, colour or PLAIN
    return Style("" if cell.data == " " else colour, paper, cell.bold and cell.data != " ")


def colour_of(name: str) -> str:
    if name == "default":
        return ""
    return PALETTE.get(name, PALETTE.get(name.removeprefix("bright"), f"#{name}"))


if __name__ == "__main__":
    main(sys.argv[1:])
