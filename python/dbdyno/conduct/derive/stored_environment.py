"""The environment of a stored run, in the form that the present version writes."""

from __future__ import annotations

from dbdyno.engines import helpers, product
from dbdyno.model.engine.environment import Environment
from dbdyno.store import Run


def environment_of(record: Run) -> Environment:
    """Returns the stored environment; for older runs, adds the product's name and the server's helpers."""
    stored = record.environment
    if stored.server.product:
        return stored
    engine = stored.server.engine
    known = {"product": product(engine), "helpers": helpers(engine)}
    server = stored.server.model_copy(update=known)
    return stored.model_copy(update={"server": server})
