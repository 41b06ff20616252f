"""The command ``help``: the topics, which are pages of the documentation, the help of a command, or a word of
the output."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence

import click

from dbdyno.cli import completion, screen, topics
from dbdyno.cli.app import app
from dbdyno.cli.pager import show, terminal
from dbdyno.model.errors import UsageError, near_names

_COLUMNS = 80  # where the output is not a terminal
_WIDEST_LIST = 100


@click.command("help")
@click.argument("words", metavar="[TOPIC]", nargs=-1, shell_complete=completion.TOPICS)
def help_command(words: tuple[str, ...]) -> None:
    """Show a page of the documentation, or list all pages.

    TOPIC is the name of a page; the words of one of its sections may follow. Where a page and a command have
    the same name, this is the page, and dbdyno COMMAND --help lists the options. The name of any other
    command, a page of a folder without the folder, or a word of the output is understood, too. On a terminal
    the text goes through $PAGER, else less.

    \b
    Examples:
      dbdyno help                        all topics
      dbdyno help compare                the page, not dbdyno compare --help
      dbdyno help cluster security       a section of a page
      dbdyno help upgrade                the page guides/upgrade
      dbdyno help server start           the same as dbdyno server start --help
      dbdyno help CPU WAIT               the same as dbdyno explain CPU WAIT
    """
    if not words:
        show("".join(f"{line}\n" for line in _listing()))
    elif (page := _page(topics.named(words[0]), words)) is not None:
        show_page(page)
    elif (text := _of_command(words)) is not None:
        click.echo(text)
    elif (page := _page(topics.by_last_part(words[0]), words)) is not None:
        show_page(page)
    else:
        _explain(words)


def _listing() -> list[str]:
    from dbdyno.cli import manual

    width = max(map(len, manual.pages()))
    columns = min(screen.width() or _COLUMNS, _WIDEST_LIST)
    lines = []
    for heading, listed in manual.index().items():
        lines += [heading, *(_item(topic, text, width, columns) for topic, text in listed.items()), ""]
    *others, last = (name for name in app.list_commands(click.Context(app)) if name in manual.pages())
    ending = (
        "Each topic is a page: dbdyno help TOPIC shows it. Commands with the same name are "
        f"{', '.join(others)} and {last}; dbdyno {last} --help lists the options of one. dbdyno explain WORD "
        "explains a word of the output."
    )
    return [*lines, *textwrap.wrap(ending, columns, break_on_hyphens=False)]


def _item(topic: str, text: str, width: int, columns: int) -> str:
    begin = f"  {topic:{width}}  "
    return textwrap.fill(
        text, columns, initial_indent=begin, subsequent_indent=" " * len(begin), break_on_hyphens=False
    )


def _page(topic: str | None, words: Sequence[str]) -> str | None:
    """Returns the Markdown of a page, or of its section that the words after the topic name; None without a
    topic."""
    from dbdyno.cli import manual

    if topic is None:
        return None
    first, *rest = words
    anchor = first.partition("#")[2]
    name = " ".join([anchor.replace("-", " "), *rest]).strip()
    if not name:
        command = app.get_command(click.Context(app), topic)
        more = f"\nOptions of the command: `dbdyno {topic} --help`\n" if command is not None else ""
        return manual.pages()[topic] + more
    section = manual.section(topic, name)
    if section is not None:
        return section.text
    if _of_command(words) is not None:
        return None
    titles = [section.title for section in manual.sections(topic)[1:]]
    raise UsageError(f"the page {topic} has no section {name!r}", f"sections: {'; '.join(titles)}")


def _of_command(words: Sequence[str]) -> str | None:
    """Returns the help of the command that the words name; None if there is none."""
    context, command = click.Context(app, info_name="dbdyno", **app.context_settings), None
    group: click.Command = app
    for word in words:
        command = group.get_command(context, word) if isinstance(group, click.Group) else None
        if command is None:
            return None
        context = click.Context(command, context, info_name=word, **command.context_settings)
        group = command
    return None if command is None else context.get_help()


def _explain(words: Sequence[str]) -> None:
    from dbdyno.cli.explain import explained
    from dbdyno.conclude.words import names

    try:
        text = explained(" ".join(words))
    except UsageError:
        from dbdyno.cli import manual

        known = [*manual.pages(), *app.list_commands(click.Context(app)), *names()]
        near = near_names(" ".join(words), known)
        cure = "dbdyno help lists all topics, dbdyno explain all claims"
        raise UsageError(f"no topic, command or word {' '.join(words)!r}", f"{near} {cure}".strip()) from None
    click.echo(text)


def show_page(markdown: str) -> None:
    """Shows a text in Markdown."""
    from dbdyno.cli import manual

    if not sys.stdout.isatty():
        columns = int(os.environ["COLUMNS"]) if os.environ.get("COLUMNS", "").isdecimal() else _COLUMNS
        click.echo(manual.rendered(markdown, columns), nl=False)
        return
    styled = terminal() != "dumb" and not os.environ.get("NO_COLOR")
    show(manual.rendered(markdown, shutil.get_terminal_size().columns, styled=styled))
