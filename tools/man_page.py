"""Writes the manual page from the program's own help: ``PYTHONPATH=python python tools/man_page.py``.

`make wheel` runs it; wheels include the page and install it into ``share/man/man1``.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import click

from dbdyno import __version__
from dbdyno.cli.app import app

PATH = Path(__file__).parents[1] / "packaging" / "wheel" / "data" / "share" / "man" / "man1" / "dbdyno.1"
_ROFF = str.maketrans(
    {"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti", "…": "...", "\b": ""}
)
_WIDTH = 200  # so wide that click does not wrap lines


def page() -> str:
    """Returns the page in the format of man(7)."""
    context = click.Context(app, info_name="dbdyno", terminal_width=_WIDTH, **app.context_settings)
    lines = [
        f'.TH DBDYNO 1 "" "dbdyno {__version__}" "User Commands"',
        ".SH NAME",
        "dbdyno \\- a dynamometer for databases",
        ".SH SYNOPSIS",
        ".B dbdyno",
        r"[\-q | \-v] \fICOMMAND\fR [\fIOPTION\fR]... [\fIARGUMENT\fR]...",
        ".SH DESCRIPTION",
        *_text(app.help or ""),
        *_options(app, context),
        ".SH COMMANDS",
    ]
    for command, below in _commands(app, context):
        lines += [f".SS {_roff(below.command_path)}", *_usage(command, below)]
        lines += [*_text(command.help or ""), *_options(command, below)]
    lines += [".SH SEE ALSO", ".BR psql (1),", ".BR pgbench (1)"]
    headings = [".SH DESCRIPTION", *(line for line in lines if line.startswith(".SS "))]
    kept = [line for before, line in pairwise(["", *lines]) if line != ".PP" or before not in headings]
    return "\n".join(kept) + "\n"


def _commands(group: click.Group, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        below = click.Context(command, context, info_name=name)
        yield command, below
        if isinstance(command, click.Group):
            yield from _commands(command, below)


def _usage(command: click.Command, context: click.Context) -> list[str]:
    words = " ".join(command.collect_usage_pieces(context))
    return [".PP", f"\\fB{_roff(context.command_path)}\\fR {_roff(words)}"]


def _text(help_text: str) -> Iterator[str]:
    """Yields paragraphs. Does not fill those that click keeps unwrapped (marked by a line with a
    backspace)."""
    for paragraph in help_text.strip().split("\n\n"):
        as_it_is = paragraph.startswith("\b\n")
        lines = paragraph.removeprefix("\b\n").splitlines()
        yield ".PP"
        if as_it_is:
            yield ".nf"
            yield from map(_roff, lines)
            yield ".fi"
        else:
            yield from _filled(" ".join(line.strip() for line in lines))


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        is_repeated = (
            parameter.name == "help" and context.parent is not None
        )  # --help is the same for all commands
        if isinstance(parameter, click.Option) and record is not None and not is_repeated:
            yield ".TP"
            yield f"\\fB{_roff(record[0])}\\fR"
            yield from _filled(record[1])


def _filled(text: str) -> list[str]:
    return [_roff(line) for line in textwrap.wrap(text, 72, break_on_hyphens=False)]


def _roff(text: str) -> str:
    """Escapes a text, so that none of its characters is a request of roff."""
    escaped = text.translate(_ROFF).rstrip()
    return "\\&" + escaped if escaped.startswith((".", "'")) else escaped


if __name__ == "__main__":
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_text(page(), encoding="utf-8")
