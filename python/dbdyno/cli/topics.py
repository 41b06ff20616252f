"""The topics of ``dbdyno help``: pages of the documentation, by their paths without the suffix."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable

FOLDERS = ("start", "guides", "coming-from", "how-it-works")
"""Folders of docs whose pages are topics, too, as in guides/upgrade. pyproject.toml has them in the wheel.
Other folders are for developers."""


def files() -> dict[str, Traversable]:
    """Returns the file of each topic, in alphabetical order."""
    docs = resources.files("dbdyno").joinpath("docs")
    folders = {"": docs} | {f"{name}/": docs.joinpath(name) for name in FOLDERS}
    pages = {
        prefix + file.name.removesuffix(".md"): file
        for prefix, folder in folders.items()
        if folder.is_dir()
        for file in folder.iterdir()
        if file.name.endswith(".md")
    }
    return dict(sorted(pages.items()))


def named(word: str) -> str | None:
    """Returns the topic of a word, its name or its file's, with an anchor or not; None if there is none."""
    topic = _name(word)
    return topic if topic in files() else None


def by_last_part(word: str) -> str | None:
    """Returns the only topic within a folder that has this name: guides/upgrade for upgrade."""
    fitting = [topic for topic in files() if topic.partition("/")[2] == _name(word)]
    return fitting[0] if len(fitting) == 1 else None


def _name(word: str) -> str:
    return word.partition("#")[0].casefold().removeprefix("docs/").removesuffix(".md")
