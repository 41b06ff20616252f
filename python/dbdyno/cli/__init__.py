"""The command line: words in, tables out. No measuring, no arithmetic of its own."""

from dbdyno.cli.early import at_once


def main() -> None:
    """Entry point of the program ``dbdyno``."""
    with at_once():
        from dbdyno.cli.app import main as run
    run()


__all__ = ["main"]
