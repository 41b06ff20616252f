"""``python -m dbdyno``."""

from dbdyno.cli import main

main()
