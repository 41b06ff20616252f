"""Anybody's table of sessions and throughput, read from CSV: text -> headings -> points -> ladder."""

from dbdyno.store.ladder_csv.ladder import Columns, ladder_of, read_ladder

__all__ = ["Columns", "ladder_of", "read_ladder"]
