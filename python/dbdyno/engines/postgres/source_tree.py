"""Parts of the server's program: directories of PostgreSQL's sources.

``code_areas.txt`` is made by tools/code_areas.py.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

from dbdyno.engines.postgres.wait_events import PROGRAM
from dbdyno.model.sources.code_areas import CodeAreas, parsed


@cache
def code_areas() -> CodeAreas:
    text = resources.files("dbdyno.engines.postgres").joinpath("code_areas.txt").read_text("utf-8")
    return parsed(text, PROGRAM, ("src/backend", "src/common", "src/port", "src/timezone", "src/include"))
