"""Machine against machine: two ladders of the same work, compared at equal load and at their peaks. Pure."""

from dbdyno.analyze.machines.compare import machines
from dbdyno.analyze.machines.pairing import pairs

__all__ = ["machines", "pairs"]
