"""Regression of CPU time on work: the cost of a unit of work, and the CPU used in the background.
Pure."""

from dbdyno.conclude.regression.ladder import cpu_per_work, likely_knees
from dbdyno.conclude.regression.regress import regress

__all__ = ["cpu_per_work", "likely_knees", "regress"]
