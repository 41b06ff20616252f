"""Writes docs/options.md, all options of commands with many: ``python tools/options_doc.py``."""

from __future__ import annotations

import re
from pathlib import Path

import click

from dbdyno.cli.app import app
from dbdyno.cli.flags import Command, by_group

PATH = Path(__file__).parent.parent / "docs" / "options.md"
_HEAD = """# All options of run and observe

`--help` shows what most people use, `--help-all` everything, and so does the manual page. Options in bold are
those of `--help`. The other commands show all of their options with `--help`, by purpose.

<!-- Made by: python tools/options_doc.py -->"""


def render() -> str:
    """Returns the text of docs/options.md."""
    parts = [_HEAD]
    with click.Context(app, info_name="dbdyno", **app.context_settings) as context:
        for name in app.list_commands(context):
            command = app.get_command(context, name)
            if isinstance(command, Command):
                parts.append(f"\n## dbdyno {name}")
                parts += _tables(command, click.Context(command, context, info_name=name))
    return "\n".join(parts) + "\n"


def _tables(command: Command, context: click.Context) -> list[str]:
    parts: list[str] = []
    for group, options in by_group(command, context).items():
        parts.append(f"\n### {group}\n\n| option | meaning |\n|---|---|")
        for option in options:
            words, text = option.get_help_record(context) or ("", "")
            shown = f"`{_cell(words)}`"
            common = getattr(option, "common", True)
            parts.append(f"| {f'**{shown}**' if common else shown} | {_cell(_plain(text))} |")
    return parts


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _plain(text: str) -> str:
    """Returns a text without marks of Markdown and HTML."""
    return re.sub(r"([<>*_\[\]\\])", r"\\\1", re.sub(r"  +", " ", text))


if __name__ == "__main__":
    PATH.write_text(render(), encoding="utf-8")
