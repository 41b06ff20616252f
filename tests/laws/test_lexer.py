"""The script lexer: no text is lost, and no literal or comment is split."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbdyno.engines.postgres.sql_tokens import Unterminated, tokens

_INSIDE = st.text(alphabet="ab;:'\"$/*-\\ \n(", max_size=12)


def split(text: str, *, standard_strings: bool = True) -> list[str]:
    """Returns pieces that end with a semicolon outside of parentheses and of all that is quoted."""
    pieces, start, depth = [], 0, 0
    for token in tokens(text, standard_strings=standard_strings):
        depth = max(0, depth + {"open": 1, "close": -1}.get(token.kind, 0))
        if token.kind == "end" and depth == 0:
            pieces.append(text[start : token.end])
            start = token.end
    return [*pieces, text[start:]] if start < len(text) else pieces


def _plain(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _escaped(text: str) -> str:
    return "E'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _dollar(text: str) -> str:
    return "$q$" + text.replace("$q$", "") + "$q$"


def _line(text: str) -> str:
    return "--" + text.replace("\n", " ") + "\n"


def _block(text: str) -> str:
    return "/* " + text.replace("/*", "").replace("*/", "").rstrip("/*") + " */"


QUOTED = st.builds(
    lambda make, text: make(text), st.sampled_from([_plain, _escaped, _name, _dollar, _line, _block]), _INSIDE
)
STATEMENT = st.lists(
    st.one_of(QUOTED, st.sampled_from([" select ", "x", "1", " + ", "::int", "$1"])), max_size=6
)


@given(st.text(alphabet="abE;:'\"$/*-\\ \n()1&uU", max_size=40))
def test_pieces_join_to_the_text(text: str) -> None:
    try:
        assert "".join(split(text)) == text
        assert "".join(text[t.start : t.end] for t in tokens(text)) == text
    except Unterminated as e:
        assert 0 <= e.args[1] < len(text)


@given(st.lists(STATEMENT, min_size=1, max_size=4))
def test_literals_names_and_comments_are_not_split(statements: list[list[str]]) -> None:
    texts = [" ".join(parts) + ";" for parts in statements]
    assert split("".join(texts)) == texts


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("select 1; select 2", ["select 1;", " select 2"]),
        ("select 'a;b';", ["select 'a;b';"]),
        ("select e'\\';';", ["select e'\\';';"]),
        ("select 'a\\';b", ["select 'a\\';", "b"]),
        ("select 'a'\n'b;c';", ["select 'a'\n'b;c';"]),
        ("select E'a'\n'b\\';c';", ["select E'a'\n'b\\';c';"]),
        ("do $a$ ; $b$ ; $a$; x", ["do $a$ ; $b$ ; $a$;", " x"]),
        ("select a$1$b; c$1$;", ["select a$1$b;", " c$1$;"]),
        ("/* a /* ; */ ; */;", ["/* a /* ; */ ; */;"]),
        ("-- a;b\n;", ["-- a;b\n;"]),
        ("create rule r as do (a; b);", ["create rule r as do (a; b);"]),
        ('select "a"";b";', ['select "a"";b";']),
        ("select U&'\\0061;';", ["select U&'\\0061;';"]),
    ],
)
def test_documented_texts_are_split_as_documented(text: str, pieces: list[str]) -> None:
    """The texts are from PostgreSQL, "Lexical Structure", 4.1."""
    assert split(text) == pieces


def test_backslashes_escape_where_strings_do_not_conform() -> None:
    assert split("select 'a\\';b';", standard_strings=False) == ["select 'a\\';b';"]


@pytest.mark.parametrize(
    ("text", "at"), [("x 'a", 2), ('"a', 0), ("x $$a$", 2), (" /* /* */", 1), ("E'\\'", 0)]
)
def test_what_has_no_end_says_where_it_begins(text: str, at: int) -> None:
    with pytest.raises(Unterminated) as caught:
        list(tokens(text))
    assert caught.value.args[1] == at
