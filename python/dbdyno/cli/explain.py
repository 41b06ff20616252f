"""``dbdyno explain``: what a claim means."""

from __future__ import annotations

import click


@click.command("explain")
@click.argument("claim", metavar="[ID]", required=False)
def explain(claim: str | None) -> None:
    """Explain a claim: its question, criterion, sentences and advice. Without ID, list all claims.

    \b
    Examples:
      dbdyno explain
      dbdyno explain cpu-wait
    """
    from dbdyno.conclude.catalogue import entries, entry, explained

    if claim is not None:
        click.echo(explained(entry(claim)))
        return
    width = max(len(e.name) for e in entries().values())
    for e in entries().values():
        click.echo(f"{e.name:{width}}  {e.question}")
