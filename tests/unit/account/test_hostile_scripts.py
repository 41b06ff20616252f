"""Scripts that nobody would write: each ends at once, with its commands or an error that names the limit.

The time limit is far above what a machine needs under any load, and far below what an algorithm takes that is
not linear.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from dbdyno import _core
from dbdyno.account.script_statements import normalised
from dbdyno.engines.postgres import script_check
from dbdyno.engines.postgres.sql_tokens import Unterminated, tokens
from dbdyno.engines.postgres.statements import without_passwords
from dbdyno.model.errors import ScriptError
from dbdyno.model.plan.driving import DriverSetup, PlannedScript
from dbdyno.model.sources.code_areas import CodeAreas, plain_name

MANY = 50_000


@pytest.fixture(autouse=True)
def in_time() -> Iterator[None]:
    """Ends a test that hangs in Python; one that hangs in the core fails when it returns."""

    def late(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError("longer than 30 s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def read(text: str, protocol: str = "simple") -> dict[str, Any]:
    result: dict[str, Any] = json.loads(_core.read_script("a.sql", text, False, protocol, []))
    return result


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\\if 1\n" * MANY + "select 1;\n" + "\\endif\n" * MANY, "more than 100 \\if are nested"),
        ("\\set x " + "(" * MANY + "1" + ")" * MANY, "more than 200 levels"),
        ("\\set x " + "- " * MANY + "1", "more than 200 levels"),
        ("\\set x " + "not " * MANY + "1", "more than 200 levels"),
        ("\\set x " + "case when 1 then " * MANY + "1" + " end" * MANY, "more than 200 levels"),
        ("\\set x least(" + "1," * MANY + "1)", "It takes 1 to 1000"),
        ("select 1;\n" * 100_000, "more than 10000 commands"),
        ("\\if 1\n" + "\\elif 1\n" * MANY + "\\endif\n", "more than 10000 commands"),
        ("select '" + "x" * (17 << 20) + "';", "at most 16777216 are allowed"),
        ("\\set x " + "9" * 1_000_000, "Write a smaller number"),
        ("\\" + "x" * 1_000_000, "unknown command"),
        ("/*" * MANY, "comment without an end"),
    ],
)
def test_a_limit_is_named_with_file_and_line(text: str, message: str) -> None:
    script = PlannedScript(name="a.sql", text=text)
    with pytest.raises(ScriptError, match=r"^a\.sql:\d+:\d+: ") as caught:
        script_check.commands(script, DriverSetup(protocol="simple"))
    shown = f"{caught.value.message} {caught.value.cure}"
    assert message in shown
    assert len(shown) < 1500  # not the line of megabytes


@pytest.mark.parametrize(
    ("text", "protocol", "count"),
    [
        ("\\if 1\n" * 100 + "select 1;\n" + "\\endif\n" * 100, "simple", 101),
        ("\\set x 1" + " + :y" * MANY, "simple", 1),
        ("\\set x 1" + " + \\\n 1" * MANY, "simple", 1),
        ("select 1;\n" * 10_000, "prepared", 10_000),
        ("select " + "':a' " * 300_000 + ";", "simple", 1),
        ("select ':a';\n" * 9_000 + "select 1 as b \\gset p\n" * 900, "prepared", 9_900),
        ("/*" * 100_000 + "*/" * 100_000 + "select 1;", "simple", 1),
        ("select $$" + "$a" * MANY + "$$;", "simple", 1),
        ("select " + "(" * MANY + ")" * MANY + ";", "simple", 1),
        ("select '" + "x" * 10_000_000 + "';", "simple", 1),
    ],
)
def test_a_long_script_is_read(text: str, protocol: str, count: int) -> None:
    result = read(text, protocol)
    assert result["error"] is None
    assert len(result["commands"]) == count


def test_lines_are_counted_from_the_top() -> None:
    result = read("select 1;\n\n-- no\nselect\n2;\\set x 1\n\\if 1\nselect 3;\n\\endif")
    assert [c["line"] for c in result["commands"]] == [1, 4, 5, 6, 7]


@pytest.mark.parametrize(
    "text",
    [
        "select 'a'\n" + " \n" * MANY + "x",
        "select 'a'\n" + "--x\n \n" * MANY + "x",
        "/*" * MANY + "*/" * MANY,
        "$a" * MANY,
        "(" * MANY,
        "select E'" + "\\\\" * MANY + "'",
        ":" * MANY,
    ],
)
def test_tokens_add_up_to_the_text_however_long(text: str) -> None:
    assert "".join(text[t.start : t.end] for t in tokens(text)) == text


def test_an_unterminated_token_is_an_error_however_long() -> None:
    for text in ("/*" * MANY, "'" + "x" * MANY, "$$" + "$a" * MANY, '"' * (MANY + 1)):
        with pytest.raises(Unterminated):
            list(tokens(text))


def test_statements_of_a_server_are_compared_and_cleaned_at_once() -> None:
    assert normalised("select 1 " + "/* " * 200_000) == "select ?"
    blanks = "alter role a password" + " " * 200_000
    assert without_passwords(blanks + "x") == blanks + "x"
    assert without_passwords("alter role a password = 'secret'").endswith("password = '...'")


def test_names_of_functions_lose_their_copies_at_once() -> None:
    assert plain_name("f.isra.0.constprop.1@plt") == "f"
    assert plain_name("f" + "@a" * MANY + "\nx") == "f"
    assert CodeAreas("p", {}, {"Exec": "executor"}).of("Exec" + "x" * 1_000_000) == "executor"
