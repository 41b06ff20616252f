"""The command line: words in, tables out. No measuring, no arithmetic of its own."""

from dbdyno.cli.app import main

__all__ = ["main"]
