"""The command line: parses arguments, calls ``conduct``, prints the results. It measures and computes
nothing itself."""

import os
import sys

try:
    from dbdyno.lazy import EXIT_INTERRUPTED, INTERRUPTED, at_once, quick_end
except KeyboardInterrupt:  # no signal handler is installed yet, and there is nothing to undo
    os.write(2, b"interrupted\n")
    os._exit(130)


def main() -> None:
    """Entry point of the program ``dbdyno``."""
    quick_end()
    try:
        with at_once():
            from dbdyno.cli.app import main as run
        run()
    except KeyboardInterrupt:  # outside of the handlers of app.main
        os.write(2, INTERRUPTED)
        sys.exit(EXIT_INTERRUPTED)


__all__ = ["main"]
