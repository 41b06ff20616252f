"""The command ``explain``: claims and words of the output."""

from __future__ import annotations

import textwrap

import click

from dbdyno.cli import completion, screen


@click.command("explain")
@click.argument("words", metavar="[WORD]", nargs=-1, shell_complete=completion.CLAIMS)
def explain(words: tuple[str, ...]) -> None:
    """Explain a word of the output: the head of a column, an account, a term, a wait event, or a claim.

    Upper and lower case are the same. For a claim: when it is made, what it says, and what to do. Without
    WORD, list all claims.

    \b
    Examples:
      dbdyno explain
      dbdyno explain cpu-wait
      dbdyno explain CPU WAIT
      dbdyno explain 'eff%'
      dbdyno explain 'top wait'
    """
    from dbdyno.cli.pager import show
    from dbdyno.conclude.catalogue import entries

    if words:
        click.echo(explained(" ".join(words)))
        return
    width = max(len(e.name) for e in entries().values())
    show("".join(f"{e.name:{width}}  {e.question}\n" for e in entries().values()))


def explained(term: str) -> str:
    """Returns the explanation of a word of the output, wrapped to the terminal. Raises :class:`UsageError`
    if there is none."""
    from dbdyno.conduct.explanation import explanation

    text = explanation(term)
    columns = screen.width()
    return text if columns is None else "\n".join(_wrapped(line, columns) for line in text.splitlines())


def _wrapped(line: str, columns: int) -> str:
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.fill(
        line,
        max(columns, 20),
        subsequent_indent=f"{indent}  ",
        break_on_hyphens=False,
        break_long_words=False,
    )
