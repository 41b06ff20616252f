"""The command line: words in, tables out. No measuring, no arithmetic of its own."""

import os
import sys

try:
    from dbdyno.lazy import EXIT_INTERRUPTED, INTERRUPTED, at_once, quick_end
except KeyboardInterrupt:  # no handler stands yet, and nothing was begun
    os.write(2, b"interrupted\n")
    os._exit(130)


def main() -> None:
    """Entry point of the program ``dbdyno``."""
    quick_end()
    try:
        with at_once():
            from dbdyno.cli.app import main as run
        run()
    except KeyboardInterrupt:  # before and after what is done there
        os.write(2, INTERRUPTED)
        sys.exit(EXIT_INTERRUPTED)


__all__ = ["main"]
