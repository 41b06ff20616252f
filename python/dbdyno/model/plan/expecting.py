"""The user's expectation of the kind of reads that a test makes."""

from __future__ import annotations

from dbdyno.model.plan.flagged import flagged
from dbdyno.model.plan.literals import Expected
from dbdyno.model.plan.pacing import Strict


class Expecting(Strict):
    """The key of a recipe for the expected kind of reads."""

    expect: Expected | None = flagged("expect")
