"""The command ``help``: pages, sections, commands and words, and their layout."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from tests.on_terminal import on_terminal

from dbdyno.cli import manual
from dbdyno.cli.app import app
from dbdyno.model.text.visible import visible

DOCS = Path(__file__).parents[3] / "docs"


def ask(*words: str) -> Result:
    return CliRunner().invoke(app, ["help", *words], env={"COLUMNS": "80"})


def test_the_list_has_every_page_once() -> None:
    lines = ask().output.splitlines()
    listed = [found[1] for line in lines if (found := re.match(r"  (\S+)", line))]
    assert sorted(listed) == sorted({page.stem for page in DOCS.glob("*.md")} - {"index"})
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("topic", sorted(page.stem for page in DOCS.glob("*.md")))
def test_a_page_fits_a_terminal_and_loses_no_word(topic: str) -> None:
    text = manual.rendered(manual.pages()[topic], 80)
    prose = [line for line in text.splitlines() if not line.startswith("    ")]
    assert max(map(len, prose)) <= 80
    source = (DOCS / f"{topic}.md").read_text("utf-8")
    source = re.sub(r"<!--.*?-->|\]\([^)]*\)|\[[^\]]*\.md\]|```\w+|\S{30,}", "", source, flags=re.DOTALL)
    shown = re.sub(r"\s", "", text)
    assert [word for word in re.findall(r"\b[a-z]{5,30}\b", source) if word not in shown] == []
    assert visible(text) == text


def test_a_page_is_laid_out_for_a_terminal() -> None:
    markdown = (
        "# Terms\n\nSee [ledger.md](ledger.md#the-method) and [the `margin`](compare.md).\n\n"
        "| word | meaning |\n|---|---|\n| `LIO` | a logical I/O |\n\n```sh\na  --b | [c](d.md)\n```\n"
    )
    assert manual.rendered(markdown, 60).splitlines() == [
        "Terms",
        "=====",
        "",
        "See `dbdyno help ledger the method` and the `margin`",
        "(`dbdyno help compare`).",
        "",
        "word    meaning",
        "─────────────────────",
        "`LIO`   a logical I/O",
        "",
        "    a  --b | [c](d.md)",
    ]


def test_a_table_that_is_too_wide_becomes_a_block_per_row() -> None:
    text = manual.rendered("| setting | value |\n|---|---|\n| shared_buffers | 128MB |\n", 18)
    assert text.split() == ["shared_buffers", "value:", "128MB"]


def test_a_section_is_found_by_its_words_or_its_anchor_and_ends_before_the_next() -> None:
    by_words, by_anchor = ask("concepts", "The", "counting"), ask("concepts#the-counting-rule")
    assert by_words.output == by_anchor.output
    assert by_words.output.startswith("The counting rule\n---")
    assert not re.search("^The ledger$", by_words.output, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("compare", "Comparison:"), ("docs/ledger.md", "The ledger"), ("run", "Usage: dbdyno run "),
        ("server start", "Usage: dbdyno server start "), ("cluster status", "Usage: dbdyno cluster status "),
        ("CPU WAIT", "CPU WAIT: "), ("eff%", "Efficiency: "), ("cpu-wait", "cpu-wait ("),
        ("IO/WalSync", "IO/WalSync: a wait event"),
    ],
)  # fmt: skip
def test_a_topic_is_a_page_else_a_command_else_a_word(words: str, first: str) -> None:
    assert ask(*words.split()).output.startswith(first)


def test_a_page_and_the_command_of_its_name_refer_to_each_other() -> None:
    assert ask("compare").output.splitlines()[-1] == "Options of the command: `dbdyno compare --help`"
    for name in set(app.list_commands(click.Context(app))) & set(manual.pages()):
        options = CliRunner().invoke(app, [name, "--help"]).output
        assert options.splitlines()[-1].strip() == f"Documentation: dbdyno help {name}"
    assert "Documentation:" not in CliRunner().invoke(app, ["runs", "--help"]).output


@pytest.mark.parametrize(
    ("typed", "near"),
    [("ledgr", "'ledger'"), ("obsrve", "'observe'"), ("kne", "'knee'"), ("ledger nothing", "sections: ")],
)
def test_an_unknown_topic_names_near_ones(typed: str, near: str) -> None:
    error = ask(*typed.split()).exception
    assert near in (getattr(error, "cure", "") or "")


def test_on_a_terminal_a_page_goes_through_the_pager(tmp_path: Path) -> None:
    env = {"PAGER": f"cat > {tmp_path}/paged", "LESS": ""}
    code, shown = on_terminal("help", "ledger", columns=70, env=env)
    paged = (tmp_path / "paged").read_text("utf-8")
    assert (code, shown.strip()) == (0, "")
    assert "\x1b[1m" in paged and "The ledger" in paged
    lines = re.sub("\x1b\\[[0-9;]*m", "", paged).splitlines()
    assert max(len(line) for line in lines if not line.startswith("    ")) <= 70


def test_without_a_pager_or_on_a_dumb_terminal_a_page_is_printed() -> None:
    for env in ({"PAGER": "no-such-program"}, {"TERM": "dumb"}):
        code, shown = on_terminal("help", "config", env=env)
        assert code == 0 and "Configuration" in shown
