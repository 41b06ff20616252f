"""Words of sentences about noise."""

from __future__ import annotations

import shlex

from dbdyno.model.engine.environment import Environment
from dbdyno.model.plan.plan import Plan
from dbdyno.model.units import fine_percent, significant

COARSE = 0.5
"""From this difference on it is named as a factor: that of +80 % is the same as that of -44 %."""


def size(share: float) -> str:
    """Returns a difference in words: ``2.6 %``, ``a factor of 1.8``."""
    return fine_percent(share) if share < COARSE else f"a factor of {significant(1 + share, 2)}"


def noise_command(
    plan: Plan,
    sessions: int,
    environment: Environment | None = None,
    variant: str = "",
    *,
    elsewhere: bool = False,
) -> str:
    """Returns the command that measures the noise of the plan's first variant, on the server of ``variant``.

    A server that dbdyno does not start is named by a placeholder: its address may hold a password.
    ``elsewhere`` says whether there is one where the ``environment`` is not known yet.
    """
    experiment = plan.experiment
    files = [f"-f {shlex.quote(str(s.file))}" for s in experiment.mix if s.file]
    words = files or [experiment.workload or ""]
    for given in (experiment.params, experiment.variables):
        words += [shlex.quote(f"{name}={value}") for name, value in given.items()]
    words.append(f"--sessions {sessions}")
    if elsewhere if environment is None else not environment.server_of(variant).embedded:
        words.append("--dsn DSN")
    elif environment is not None and (programs := environment.programs.get(variant)):
        words.append(f"--pg-bin {shlex.quote(programs)}")
    return " ".join(["dbdyno noise", *words])
