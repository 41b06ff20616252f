"""The command ``help``: pages, sections, commands and words, and their layout."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from tests.on_terminal import on_terminal

from dbdyno.cli import manual, topics
from dbdyno.cli.app import app
from dbdyno.model.text.visible import visible

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
TOPICS = {
    str(page.relative_to(DOCS).with_suffix(""))
    for folder in ("", *topics.FOLDERS)
    for page in (DOCS / folder).glob("*.md")
}


def ask(*words: str) -> Result:
    return CliRunner().invoke(app, ["help", *words], env={"COLUMNS": "80"})


def test_the_list_has_every_page_once() -> None:
    lines = ask().output.splitlines()
    listed = [found[1] for line in lines if (found := re.match(r"  (\S+)", line))]
    assert sorted(listed) == sorted(TOPICS - {"index"})
    assert max(map(len, lines)) <= 80


def test_the_wheel_has_the_folders_of_the_topics() -> None:
    """Other folders of docs are for developers."""
    include = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["maturin"]["include"]
    patterns = [entry for entry in include if isinstance(entry, str)]  # the others are of one format alone
    folders = [re.fullmatch(r"python/dbdyno/docs/(?:(.+)/)?\*\.md", pattern) for pattern in patterns]
    assert sorted(f[1] or "" for f in folders if f) == sorted(["", *topics.FOLDERS])
    assert {p.name for p in DOCS.iterdir() if p.is_dir() and any(p.glob("*.md"))} <= {
        *topics.FOLDERS,
        "adding",
        "decisions",
    }


@pytest.mark.parametrize("topic", sorted(TOPICS))
def test_a_page_fits_a_terminal_and_loses_no_word(topic: str) -> None:
    text = manual.rendered(manual.pages()[topic], 80)
    prose = [line for line in text.splitlines() if not line.startswith("    ")]
    assert max(map(len, prose)) <= 80
    source = (DOCS / f"{topic}.md").read_text("utf-8")
    left_out = r"<!--.*?-->|!\[[^\]]*\]\([^)]*\)|\]\([^)]*\)|\[[^\]]*\.md\]|```\w+|\S{30,}"
    source = re.sub(left_out, "", source, flags=re.DOTALL)
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


def test_equations_are_shown_as_they_stand() -> None:
    within, block = r"With $x_i \ge 0$ for $PGHOST, `$1` and $2", r"\frac{\sum_i x_i \\ y}{n_*} * 2_*"
    markdown = f"{within}\n\n$$\n{block}\n$$\n"
    assert manual.rendered(markdown, 60).splitlines() == [
        r"With `x_i \ge 0` for $PGHOST, `$1` and $2",
        "",
        f"    {block}",
    ]


def test_links_of_a_page_in_a_folder_are_commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "docs" / "guides").mkdir(parents=True)
    for name in ("compare", "guides/upgrade", "guides/capacity"):
        links = "[terms](../compare.md#verdicts), [capacity.md](capacity.md), [more](../../README.md)"
        (tmp_path / "docs" / f"{name}.md").write_text(f"# Page {name}\n\n{links}\n")
    manual.pages.cache_clear()
    monkeypatch.setattr("dbdyno.cli.topics.resources.files", lambda _package: tmp_path)
    try:
        assert [*manual.pages()] == ["compare", "guides/capacity", "guides/upgrade"]
        shown = ask("guides/upgrade").output
        assert "terms (`dbdyno help compare verdicts`), `dbdyno help guides/capacity`, more" in shown
        assert ask("upgrade").output == ask("docs/guides/upgrade.md").output == shown
        assert ask("compare").output.startswith("Page compare")
    finally:
        manual.pages.cache_clear()


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
