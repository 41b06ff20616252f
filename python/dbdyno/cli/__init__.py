"""The command line: words in, tables out. No measuring, no arithmetic of its own."""

import sys

from dbdyno.lazy import EXIT_INTERRUPTED, at_once, quick_end


def main() -> None:
    """Entry point of the program ``dbdyno``."""
    quick_end()
    try:
        with at_once():
            from dbdyno.cli.app import main as run
        run()
    except KeyboardInterrupt:  # before and after what is done there
        sys.exit(EXIT_INTERRUPTED)


__all__ = ["main"]
