"""Machine against machine: two ladders of the same work, compared at equal load and at their peaks. Pure."""

from dbdyno.conclude.machines.compare import machines
from dbdyno.conclude.machines.pairing import pairs

__all__ = ["machines", "pairs"]
