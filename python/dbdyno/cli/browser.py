"""Pages in the browser: the command ``open`` and the option ``--open``."""

from __future__ import annotations

import functools
import getpass
import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from dbdyno import conduct, present
from dbdyno.cli import screen
from dbdyno.cli.flags import Option
from dbdyno.cli.options import open_store, run_argument, store_option
from dbdyno.kernel.private import make_private
from dbdyno.model.errors import StoreError, UsageError
from dbdyno.model.home import base_directory
from dbdyno.model.plan.flags import OUTPUT

if TYPE_CHECKING:
    from dbdyno.store import Run

_F = TypeVar("_F", bound=Callable[..., Any])
PAGES = (".html", ".htm")
_PATIENCE_S = 0.5
"""A program that cannot open a page ends with an error in this time; one that is a browser goes on."""


def open_option(f: _F) -> _F:
    """Adds ``--open``, the parameter ``open_page``."""
    return click.option(
        "--open",
        "open_page",
        cls=Option,
        group=OUTPUT,
        common=True,
        is_flag=True,
        help="Open the page in the browser, or say how to copy it.",
    )(f)


def opens(kind: str) -> Callable[[_F], _F]:
    """Adds ``--open`` to a command that writes a page to its parameter ``output``, which names the page.
    Without ``-o`` the page is a file of this kind in the user's cache, and replaces the one before."""

    def add(f: _F) -> _F:
        @functools.wraps(f)
        def call(*args: Any, open_page: bool, output: Path | None, **options: Any) -> None:
            if open_page and not options.get("as_json"):
                page = page_of(output, kind)
                f(*args, output=page, **options)
                show_page(page)
            else:
                f(*args, output=output, **options)

        return open_option(cast("_F", call))

    return add


def page_of(output: Path | None, kind: str) -> Path:
    """Returns ``output``, or the path of a page in the user's cache. Raises :class:`UsageError` if ``output``
    is no page."""
    if output is not None:
        if output.suffix not in PAGES:
            raise UsageError(f"--open opens a page, and {output} is none", "-o FILE.html, or no -o")
        return output
    cure = "name a file: -o FILE.html"
    folder = base_directory("XDG_CACHE_HOME", ".cache", "the page", cure) / "dbdyno" / "pages"
    try:
        make_private(folder)
    except OSError as e:
        raise UsageError(f"cannot write a page in {folder}: {e.strerror}", cure) from e
    return folder / f"{kind}.html"


@click.command("open")
@run_argument
@store_option
def open_command(run: str, store: Path | None) -> None:
    """Open the page of a run in the browser, and print its path.

    The page is written if it is not there, or older than the run's results. The browser is that of $BROWSER,
    else the desktop's. Without one, a command that copies the page to your machine is printed.

    \b
    Examples:
      dbdyno open
      dbdyno open nightly
      dbdyno open last~1
    """
    from dbdyno.store import default_root, find_group

    root = default_root() if store is None else store
    if find_group(root, run):
        page = conduct.report_group(conduct.results_of_group(open_store(store), run))
    else:
        page = _page_of_run(open_store(store).open(run))
    click.echo(page)
    show_page(page)


def _page_of_run(record: Run) -> Path:
    page = record.path / "report.html"
    if page.exists() and record.info.status != "running":
        others = [p for p in (*record.path.iterdir(), Path(__file__)) if p.suffix not in PAGES]
        if page.stat().st_mtime_ns >= max(p.stat().st_mtime_ns for p in others):
            return page
    results = conduct.results_of(record)
    try:
        return conduct.reported(record, results)
    except (StoreError, OSError):  # the store may be another user's
        return present.write_report(results, page_of(None, "run"))


def show_page(path: Path) -> None:
    """Opens a page in the browser and does not wait for it. Without a browser, prints how to copy the page.
    Does nothing if no stream is a terminal: then nobody looks."""
    if not any(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        return
    address = path.absolute().as_uri()
    if not any(_started([*command, address]) for command in _browsers()):
        screen.note(f"no browser here; to copy the page to your machine:\n  {_copy(path.absolute())}")


def _browsers() -> list[list[str]]:
    """Returns the commands of $BROWSER, names with colons between them, and those of the desktop if there is
    a display."""
    named = [shlex.split(name) for name in os.environ.get("BROWSER", "").split(os.pathsep) if name.strip()]
    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    desktop = [["xdg-open"], ["wslview"]] if display else []
    return [command for command in (*named, *desktop) if command and shutil.which(command[0])]


def _started(command: list[str]) -> bool:
    """Starts a program in a session of its own, which Ctrl-C does not reach. Returns False if it fails at
    once."""
    *words, address = command
    if any("%s" in word for word in words):
        command = [word.replace("%s", address) for word in words]
    try:
        program = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return False
    with suppress(subprocess.TimeoutExpired):
        return program.wait(_PATIENCE_S) == 0
    program.returncode = 0  # it goes on; nobody waits for it
    return True


def _copy(path: Path) -> str:
    """Returns the command that copies a file from this machine, by the address at which ssh reached it."""
    connection = os.environ.get("SSH_CONNECTION", "").split()
    host = connection[2] if len(connection) == 4 else socket.gethostname()
    host = f"[{host}]" if ":" in host else host
    with suppress(KeyError, OSError):  # no entry in the user database
        host = f"{getpass.getuser()}@{host}"
    return f"scp {host}:{shlex.quote(str(path))} ."
