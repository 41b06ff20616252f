"""The conductor: alone knows the order in time and causes effects. The story of a run is ``run.py``."""

from dbdyno.conduct.catalogue import find_recipe, recipes, workloads
from dbdyno.conduct.derive import derive
from dbdyno.conduct.request import Request, experiment_of, make_plan
from dbdyno.conduct.run import rebuild, results_of, run
from dbdyno.conduct.teller import Teller

__all__ = [
    "Request",
    "Teller",
    "derive",
    "experiment_of",
    "find_recipe",
    "make_plan",
    "rebuild",
    "recipes",
    "results_of",
    "run",
    "workloads",
]
