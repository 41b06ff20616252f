"""What it all means: the table of rungs, and findings in words with numbers, evidence and cure. Pure."""

from dbdyno.analyze.findings import findings
from dbdyno.analyze.rungs import rungs

__all__ = ["findings", "rungs"]
