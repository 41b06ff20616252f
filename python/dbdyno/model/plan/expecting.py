"""What the user says that a test is meant to be."""

from __future__ import annotations

from typing import Literal

from dbdyno.model.plan.pacing import Strict

Expected = Literal["disk", "cache", "memory"]


class Expecting(Strict):
    """Keys of a recipe."""

    expect: Expected | None = None
    """What is to be tested: disk (reads are to be physical), cache (the server's own), or memory (that or the
    page cache; tables are read into them before each measurement); a claim follows where it is not so."""
