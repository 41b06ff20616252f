"""Every path of the repository that a document names exists.

A path is a relative link, or a word in backquotes that has the suffix of a source file, ends with a slash,
or has a slash and begins with a folder of the repository. Blocks of code are left out: they name the
reader's files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("python/dbdyno", "crates", "docs", "tests", "tools", "benchmarks", "workloads", "packaging")
PAGES = [
    *sorted(p for p in ROOT.glob("*.md") if p.name != "CHANGELOG.md"),  # which names what was removed
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(p for folder in SOURCES for p in (ROOT / folder).rglob("README.md")),
]
_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_WORD = re.compile(r"`([^`]+)`")
_PATH = re.compile(r"(?!-)[\w.*{},-]+(/[\w.*{},-]+)*/?")  # no root, home, variable, scheme or space
_SUFFIX = re.compile(r"[\w*}]\.(py|pyi|rs|toml|sql|md|sh|c|h|js|css|html|txt|json|csv|tree|png|svg)$")
_STANDS_FOR_ANY = re.compile(r"\b(NAME|ROOM|N)\b")
_MADE = (".venv", "build", "dist", "target")
"""Folders that a build makes."""
ELSEWHERE = {
    "run.json": "in the folder of a stored run",
    "cli/o": "a head of a column",
    "triggers/0001.json": "in the folder of a stored run",
    "captures/": "in the folder of a stored run",
    "heapam.c": "a source of PostgreSQL",
    "bigger-is-better.json": "in the folder of an export",
    "smaller-is-better.json": "in the folder of an export",
}
"""Names that look like a path of the repository, with their real place."""


def broken_links(text: str, folder: Path) -> list[str]:
    """Returns links and paths of a document in ``folder`` that lead nowhere."""
    links = [link for link in links_of(text) if not leads(link, folder, text)]
    return [*links, *(path for path in named_paths(text, folder) if not exists(path, folder))]


def links_of(text: str) -> list[str]:
    """Returns relative links and those within the document."""
    return [link for link in _LINK.findall(_BLOCK.sub("", text)) if not re.match(r"[a-z]+:", link)]


def leads(link: str, folder: Path, text: str) -> bool:
    """Returns whether the file exists, from the document's folder alone, and has the heading of the link."""
    name, _, heading = link.partition("#")
    if not (folder / name).exists():
        return False
    return not heading or heading in headings((folder / name).read_text("utf-8") if name else text)


def headings(text: str) -> set[str]:
    """Returns names of headings in links, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", _BLOCK.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in titles}


def named_paths(text: str, folder: Path) -> Iterator[str]:
    """Yields words in backquotes that are paths of the repository, for a document in ``folder``."""
    for path in (word.partition("::")[0] for word in words(text)):
        first = path.split("/")[0]
        if not _PATH.fullmatch(path) or first in _MADE or path in ELSEWHERE:
            continue
        below = "/" in path and any((base / first).is_dir() for base in bases(folder))
        if _SUFFIX.search(path) or path.endswith("/") or below:
            yield path


def words(text: str) -> Iterator[str]:
    """Yields words in backquotes, paragraph by paragraph, because one that is never closed ends with its
    paragraph."""
    for paragraph in _BLOCK.sub("\n", text).split("\n\n"):
        yield from _WORD.findall(paragraph)


def bases(folder: Path) -> tuple[Path, ...]:
    """Returns folders that a path may start from."""
    return folder, ROOT, ROOT / "python" / "dbdyno"


def exists(path: str, folder: Path) -> bool:
    """Returns whether the path, or one that fits its pattern, exists below any of the bases."""
    pattern = _STANDS_FOR_ANY.sub("*", path)
    if "*" in pattern:
        return any(any(base.glob(pattern)) for base in bases(folder))
    return any((base / pattern).exists() for base in bases(folder))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_path_of_a_document_exists(page: Path) -> None:
    assert broken_links(page.read_text(encoding="utf-8"), page.parent) == []


def test_every_document_is_reached_by_links_from_the_readme() -> None:
    reached, ahead = set[Path](), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        reached.add(page)
        names = (link.partition("#")[0] for link in links_of(page.read_text("utf-8")))
        links = {(page.parent / name).resolve() for name in names if name}
        listed = {p for folder in links if folder.is_dir() for p in folder.glob("*.md")}
        ahead += [
            p for p in links | listed if p.suffix == ".md" and p.is_file() and p not in {*reached, *ahead}
        ]
    assert {p for p in PAGES if p.is_relative_to(ROOT / "docs")} - reached == set()


def test_every_exception_is_needed() -> None:
    named = {word for page in PAGES for word in words(page.read_text(encoding="utf-8"))}
    assert set(ELSEWHERE) <= named


@pytest.mark.parametrize(
    "text",
    [
        "see [terms](no-such-page.md#terms)",
        "[from the root](docs/concepts.md)",
        "[heading](concepts.md#no-such-heading)",
        "# Terms\n[below](#no-such-heading)",
        "`python/dbdyno/no_such_module.py`",
        "`no_such_module.py`",
        "`conclude/no-such-folder/`",
        "`no-such-folder/`",
        "`python/dbdyno/no_such_room`",
        "`tests/*/no_such_*.py`",
        "`engines/NAME/no_such.toml`",
        "`tests/docs/no_such.py::test_a`",
        "`a code of\ntwo lines` in `no_such.py`",
    ],
)
def test_a_path_that_does_not_exist_is_reported(text: str) -> None:
    assert len(broken_links(text, ROOT / "docs")) == 1


@pytest.mark.parametrize(
    "text",
    [
        "[rule](concepts.md#the-counting-rule)",
        "# Terms, and `more`\n[below](#terms-and-more)",
        "`concepts.md`",
        "`conclude/catalogue/`",
        "`tests/docs/test_*.py`",
        "`engines/NAME/README.md`",
        "`tests/docs/test_paths.py::named_paths`",
    ],
)
def test_a_path_that_exists_is_accepted(text: str) -> None:
    assert [*links_of(text), *named_paths(text, ROOT / "docs")] and broken_links(text, ROOT / "docs") == []


@pytest.mark.parametrize(
    "text",
    [
        "[site](https://example.org/a.md)",
        "`/proc/PID/stat.txt`",
        "`~/.config/dbdyno/config.toml`",
        "`$XDG_CACHE_HOME/dbdyno/a.toml`",
        "`calls/s`",
        "`IO/DataFileRead`",
        "`.venv/bin/dbdyno`",
        "`dbdyno compare old.txt new.txt`",
        "```\ncat no_such.txt\n```",
    ],
)
def test_what_is_no_path_of_the_repository_is_left_out(text: str) -> None:
    assert broken_links(text, ROOT / "docs") == []
