"""Expressions of scripts have pgbench's values: real pgbench is the oracle."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dbdyno import _core
from tests import expressions
from tests.db import pgbench

if TYPE_CHECKING:
    from tests.conftest import Servers

pytestmark = pytest.mark.db


def _ours(text: str) -> str | None:
    try:
        return _core.evaluate_script(f"\\set x {text}", expressions.VARIABLES, 1)["x"]
    except ValueError as error:
        if str(error).startswith("script:"):
            raise
        return None


def _draw(count: int, failing: int) -> tuple[list[str], list[str]]:
    """Returns ``count`` expressions with a value and ``failing`` ones without.

    Leaves out what cannot be read (a comparison of a comparison, a number beyond 64 bits), and abs(),
    which for a boolean is an arbitrary number in pgbench.
    """
    draw = random.Random(15)
    valued: list[str] = []
    valueless: list[str] = []
    while len(valued) < count or len(valueless) < failing:
        text = expressions.expression(draw, draw.randrange(1, 4))
        if "abs(" in text:
            continue
        try:
            (valueless if _ours(text) is None else valued).append(text)
        except ValueError as error:
            assert "comparison of a comparison" in str(error) or "9223372036854775808" in str(error), text
    return valued[:count], valueless[:failing]


def test_random_expressions_have_the_values_of_pgbench(servers: Servers, tmp_path: Path) -> None:
    valued, valueless = _draw(280, 30)
    texts = [f":text_{i}" for i in range(len(expressions.TEXTS))]
    valued += ["abs(-7)", "abs(2.5 - 7)", *(text for text in texts if _ours(text) is not None)]
    valueless += [text for text in texts if _ours(text) is None]
    groups = [valued, *([text] for text in valueless)]  # an error ends a client
    theirs = expressions.of_pgbench(pgbench.program(), servers.dsn(18), groups, tmp_path)
    together = zip([*valued, *valueless], theirs, strict=True)
    differing = [(text, want, _ours(text)) for text, want in together if want != _ours(text)]
    assert differing[:1] == []


@pytest.mark.parametrize(
    "text", ["1 < 2 < 3", "(1", "1 +", "abs()", "mod(1)", "foo(1)", "case 1 end", "1;", "x"]
)
def test_what_pgbench_does_not_read_is_an_error_with_its_place(tmp_path: Path, text: str) -> None:
    assert expressions.parses(pgbench.program(), "1", tmp_path)
    assert not expressions.parses(pgbench.program(), text, tmp_path)
    with pytest.raises(ValueError, match=r"^script:1:\d+: "):
        _core.evaluate_script(f"\\set x {text}", expressions.VARIABLES, 1)
