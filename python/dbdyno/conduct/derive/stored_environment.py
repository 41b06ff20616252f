"""The environment of a stored run, in the form that the present version writes."""

from __future__ import annotations

from dbdyno.engines import helpers, product
from dbdyno.model.engine.environment import Environment
from dbdyno.store import Run


def environment_of(record: Run) -> Environment:
    """Returns the environment as it was stored; of older runs with the system's name and its helpers."""
    found = record.environment
    if found.server.product:
        return found
    engine = found.server.engine
    known = {"product": product(engine), "helpers": helpers(engine)}
    server = found.server.model_copy(update=known)
    return found.model_copy(update={"server": server})
