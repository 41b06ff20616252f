"""Decodes the wait event word of a backend: class in the top byte, id in the low 16 bits.

PostgreSQL, src/include/utils/wait_event.h: every process stores the word at ``*my_wait_event_info``. Names by
version are in ``14.toml`` ... ``18.toml``, generated from the sources by ``tools/wait_event_names.py``.
A version without one is sampled by SQL, under the names that the server gives.
Events and lock tranches of extensions get their ids at run time and have no name here.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from dbdyno.engines.postgres import versions
from dbdyno.model.sources.wait_advice import WaitAdvice
from dbdyno.model.sources.wait_families import Family, WaitFamilies

PROGRAM = "postgres"
SYMBOL = "my_wait_event_info"


class Words(NamedTuple):
    """Names of wait event classes and wait events of a version."""

    classes: dict[int, str]  # top byte -> class
    events: dict[int, tuple[str, str]]  # word -> class, event


@cache
def words(major: int) -> Words | None:
    """Returns the words of a version, None if its names are unknown."""
    if not resources.files(__name__).joinpath(f"{major}.toml").is_file():
        return None
    data = tomllib.loads(_text(f"{major}.toml"))
    return Words(
        classes={code: name for name, code in data["classes"].items()},
        events={
            code << 24 | number: (name, event)
            for name, code in data["classes"].items()
            for number, event in enumerate(data["names"][name])
            if event
        },
    )


@cache
def event_names() -> frozenset[str]:
    """Returns the names of the events of all versions, ``class/event``."""
    files = (f.name for f in resources.files(__name__).iterdir())
    majors = (int(name.removesuffix(".toml")) for name in files if name.removesuffix(".toml").isdigit())
    known = filter(None, map(words, majors))
    return frozenset("/".join(names) for one in known for names in one.events.values())


@cache
def families() -> WaitFamilies:
    """Returns the families of the events of all versions."""
    return WaitFamilies.model_validate(tomllib.loads(_text("families.toml")))


@cache
def advice() -> WaitAdvice:
    """Returns advice for events in which sessions wait for each other, and the earlier names of events."""
    by_event = tomllib.loads(_text("advice.toml"))
    renamed = {new: {**by_event.get(old, {}), "earlier": old} for new, old in versions.RENAMED_EVENTS.items()}
    return WaitAdvice.model_validate(by_event | renamed)


def word_spec(major: int, statement: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """Returns ``word`` of ``_core.Watch`` (docs/core.md), None if the words of this version are unknown.

    ``statement`` is where the query id of a backend is.
    """
    known = words(major)
    if known is None:
        return None
    return {
        "program": PROGRAM,
        "symbol": SYMBOL,
        "names": [[word, *names] for word, names in known.events.items()],
        "classes": [[code, name] for code, name in known.classes.items()],
        "client": [w for w, names in known.events.items() if families().of("/".join(names)) is Family.CLIENT],
        "statement": statement,
    }


def _text(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
