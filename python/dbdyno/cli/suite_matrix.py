"""The matrix of a stored suite: found by its id, printed, judged by rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dbdyno import conduct, present
from dbdyno.cli import screen
from dbdyno.cli.options import open_store, print_json

if TYPE_CHECKING:
    from pathlib import Path

    from dbdyno.cli.gate_options import Judged
    from dbdyno.model.results.suite import SuiteMatrix


def suite_named(store: Path | None, wanted: str) -> SuiteMatrix | None:
    """Returns the matrix of a suite if ``wanted`` names one."""
    from dbdyno.store import default_root, find_suite

    id = find_suite(default_root() if store is None else store, wanted)
    return None if id is None else conduct.matrix_of(open_store(store), id, screen.note)


def print_matrix(matrix: SuiteMatrix, judged: Judged, *, as_json: bool) -> None:
    """Prints the matrix, unless ``judged`` is all that is to be printed."""
    if as_json:
        print_json(judged.data(present.suite_record(matrix)))
    elif not judged.alone:
        screen.out().print(present.printed(present.suite_brief(matrix)))
