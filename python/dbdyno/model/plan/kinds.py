"""The kinds of runs, by which checks and parts of documents say where they apply."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dbdyno.model.plan.plan import Plan

DATABASE = "database"
"""A load of our own on a database."""
OBSERVATION = "observation"
"""An existing workload of a database."""
COMMANDS = "commands"
"""Executions of commands."""
OF_SERVERS = (DATABASE, OBSERVATION)
"""Kinds whose sessions a server serves."""


def kind_of(plan: Plan) -> str:
    """Returns the kind of a run."""
    if plan.jobs:
        return COMMANDS
    return DATABASE if plan.experiment.observation is None else OBSERVATION
