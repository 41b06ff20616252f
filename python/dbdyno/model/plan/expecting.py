"""What the user says that a test is meant to be."""

from __future__ import annotations

from dbdyno.model.plan.flagged import flagged
from dbdyno.model.plan.literals import Expected
from dbdyno.model.plan.pacing import Strict


class Expecting(Strict):
    """Keys of a recipe."""

    expect: Expected | None = flagged("expect")
