"""Shows a long text through the user's pager, as git does."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

from dbdyno.cli import screen
from dbdyno.cli.streams import Guarded


def terminal() -> str:
    """Returns the type of the terminal, as in terminfo; ``dumb`` if it is not known."""
    return os.environ.get("TERM") or "dumb"


def show(text: str) -> None:
    """Prints a text, on a terminal through a pager. The text comes from dbdyno's own files: it may style a
    terminal."""
    pager = os.environ.get("PAGER") or next((p for p in ("less", "more") if shutil.which(p)), "cat")
    stream = sys.stdout.stream if isinstance(sys.stdout, Guarded) else sys.stdout
    if not sys.stdout.isatty() or not sys.stdin.isatty() or terminal() == "dumb" or pager == "cat":
        stream.write(text)
        return
    sys.stdout.flush()
    earlier = signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is for the pager
    try:
        # as git does: F ends at once if the text fits the screen, R passes styles, X leaves it on the screen
        done = subprocess.run(
            pager, shell=True, input=text.encode(), env={"LESS": "FRX"} | os.environ, check=False
        )
    finally:
        signal.signal(signal.SIGINT, earlier)
    if done.returncode == 127:  # sh: no such program
        screen.note(f"no pager {pager!r}: set PAGER")
        stream.write(text)
