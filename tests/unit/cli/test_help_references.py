"""References to the documentation lead to a topic of ``dbdyno help`` that exists, with its section if one is
named."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import click
import pytest
from tests.unit.cli.test_cli import COMMANDS

from dbdyno.cli import manual, topics
from dbdyno.conclude.catalogue import entries
from dbdyno.conclude.words import explanation, words

PACKAGE = Path(str(resources.files("dbdyno")))
_REFERENCE = re.compile(r"\bdbdyno help (?!lists\b|all\b)([a-z][\w/-]*)((?: [a-z][\w-]*)*)(\))?")


@functools.cache
def texts() -> list[tuple[str, str]]:
    """Returns texts that users may see, with their place: strings of the code that are no docstrings, help
    texts, templates, and the catalogue's files."""
    return list(_texts())


def _texts() -> Iterator[tuple[str, str]]:
    for file in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(file.read_text("utf-8"))
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                yield f"{file.relative_to(PACKAGE)}:{node.lineno}", node.value
    for path, command in COMMANDS.items():
        yield " ".join(path), command.help or ""
        yield from ((" ".join(path), p.help or "") for p in command.params if isinstance(p, click.Option))
    for file in sorted(PACKAGE.rglob("*.toml")):
        yield (
            str(file.relative_to(PACKAGE)),
            re.sub(r"^\s*#.*", "", file.read_text("utf-8"), flags=re.MULTILINE),
        )


def test_no_text_refers_to_a_file_that_an_installed_program_does_not_have() -> None:
    allowed = {"cli/topics.py", "conclude/catalogue/__main__.py"}
    """They handle the names of files; the second writes one of them."""
    named = [place for place, text in texts() if re.search(r"\bdocs/", text)]
    assert [place for place in named if place.partition(":")[0] not in allowed] == []


def test_every_reference_of_a_text_leads_to_a_topic() -> None:
    references = [(place, *found.groups()) for place, text in texts() for found in _REFERENCE.finditer(text)]
    assert len(references) > 10
    known = {*manual.pages(), *(path[0] for path in COMMANDS)}
    assert [r for r in references if r[1] not in known and topics.by_last_part(r[1]) is None] == []
    # in parentheses stands nothing but the reference; elsewhere a sentence may go on
    sections = [(place, topic, name) for place, topic, name, end in references if name and end]
    assert sections
    assert [s for s in sections if manual.section(s[1], s[2]) is None] == []


@pytest.mark.parametrize(
    "page", sorted({e.page for e in entries().values()} | {w.page for w in words()} - {""})
)
def test_a_page_of_a_claim_or_a_word_is_a_topic(page: str) -> None:
    assert not page or page.removesuffix(".md") in manual.pages()


def test_an_explanation_names_the_command_that_shows_its_page() -> None:
    assert all("\n  dbdyno help " in explanation(e.id) for e in entries().values() if e.page)
    assert all(re.search(r"^  dbdyno help \w+", explanation(w.names[0]), re.MULTILINE) for w in words())


def test_a_link_within_the_documentation_leads_to_a_section() -> None:
    """Rendered, a link to ``ledger.md#the-method`` is the command ``dbdyno help ledger the method``."""
    for topic, text in manual.pages().items():
        for found in re.finditer(r"\]\(([\w/-]+)\.md#([\w-]+)\)", text):
            assert manual.section(found[1], found[2]) is not None, (topic, found[0])
