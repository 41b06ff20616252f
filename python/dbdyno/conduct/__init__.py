"""The conductor: alone knows the order in time and causes effects. A run is ``run``, then ``rebuild``."""

from typing import TYPE_CHECKING

from dbdyno.lazy import lazy

if TYPE_CHECKING:
    from dbdyno.conduct.derive import derive
    from dbdyno.conduct.observation import (
        Observed,
        observation_of,
        observation_plan,
        observe_server,
        observed_target,
    )
    from dbdyno.conduct.observed import Cost
    from dbdyno.conduct.observed import words as whom_in_words
    from dbdyno.conduct.prepare import EXTRA_CONNECTIONS
    from dbdyno.conduct.progress import (
        Look,
        NullObservationListener,
        NullProgressListener,
        ObservationListener,
        ProgressListener,
    )
    from dbdyno.conduct.rebuild import derived_of, raw_tables, rebuild, reported, results_of
    from dbdyno.conduct.request import (
        Request,
        experiment_of,
        find_recipe,
        make_plan,
        recipe_text,
        recipes,
        workloads,
    )
    from dbdyno.conduct.run import run
    from dbdyno.conduct.selftest import selftest
    from dbdyno.conduct.shown import shown

__all__ = [
    "EXTRA_CONNECTIONS",
    "Cost",
    "Look",
    "NullObservationListener",
    "NullProgressListener",
    "ObservationListener",
    "Observed",
    "ProgressListener",
    "Request",
    "derive",
    "derived_of",
    "experiment_of",
    "find_recipe",
    "make_plan",
    "observation_of",
    "observation_plan",
    "observe_server",
    "observed_target",
    "raw_tables",
    "rebuild",
    "recipe_text",
    "recipes",
    "reported",
    "results_of",
    "run",
    "selftest",
    "shown",
    "whom_in_words",
    "workloads",
]

lazy(__name__)
