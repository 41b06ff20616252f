"""CPU on work: what a unit of work costs, and what is used in the background. Loads scipy. Pure."""

from dbdyno.analyze.regression.ladder import cpu_per_work
from dbdyno.analyze.regression.regimes import likely_knees
from dbdyno.analyze.regression.regress import regress

__all__ = ["cpu_per_work", "likely_knees", "regress"]
