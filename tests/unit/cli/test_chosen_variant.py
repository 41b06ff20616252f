"""Which measurement the options of ``show`` choose, with a variant; marks of live lines."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import polars as pl
import pytest
from rich.console import Console
from tests.unit.report_results import World, results

from dbdyno.cli.live import LiveProgress
from dbdyno.cli.runs import chosen
from dbdyno.model.errors import UsageError

RUN = results(World(rungs=(1, 4), repeats=2, variants=("base", "second")))


def test_a_variant_is_shown_at_its_highest_load_or_at_the_chosen_one() -> None:
    cells = [chosen(RUN, None, sessions, None, "second") for sessions in (None, 1)]
    assert [c is not None and c.partition("-")[2] for c in cells] == ["lio-second-s4-r1", "lio-second-s1-r1"]


def test_a_wrong_variant_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        chosen(RUN, None, None, None, "secon")
    assert caught.value.cure == "did you mean 'second'?"
    with pytest.raises(UsageError, match="by its load"):
        chosen(RUN, "0001", None, None, "second")


def test_a_mark_in_live_lines_is_explained_once() -> None:
    rungs = RUN.tables["rungs"].with_columns(status=pl.lit("client"))
    run = replace(RUN, tables={**RUN.tables, "rungs": rungs})
    out = StringIO()
    progress = LiveProgress(run.plan, Console(file=out, width=100))
    progress.measured(run)
    progress.measured(run)
    assert out.getvalue().count("* limited by the client: in no conclusion") == 1
