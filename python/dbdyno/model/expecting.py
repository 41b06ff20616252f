"""What the user says that a test is meant to be."""

from __future__ import annotations

from typing import Literal

from dbdyno.model.pacing import Strict

Expected = Literal["disk", "cache"]


class Expecting(Strict):
    """Keys of a recipe."""

    expect: Expected | None = None
    """What is to be tested: disk (reads are to be physical) or cache; a claim follows where they are not."""
