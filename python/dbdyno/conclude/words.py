"""Words of the output explained: heads of columns, columns of tables, terms, and the claims about them."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import NamedTuple

from dbdyno.conclude.catalogue import Entry, entries, entry, explained
from dbdyno.model.errors import UsageError, did_you_mean
from dbdyno.model.tables import DERIVED, RAW

_MOST = 12  # claims that are listed


class Word(NamedTuple):
    """See words.toml."""

    names: tuple[str, ...]
    text: str
    claims: tuple[str, ...]  # how their ids begin
    page: str


def explanation(asked: str) -> str:
    """What ``asked`` is, then the claims about it. Raises :class:`UsageError`: nothing is called so."""
    wanted = _plain(asked)
    word = next((w for w in words() if wanted in map(_plain, w.names)), None)
    own = _claim(asked) or _claim("-".join(wanted.split()))
    found = [] if word is None else [word.text, f"  docs/{word.page}"]
    found += [] if word is not None or own is not None else _columns(asked.strip())
    if own is not None:
        return "\n".join([*found, *([""] if found else []), explained(own)])
    about = [] if word is None else [n for n in entries() if n.startswith(word.claims or ("?",))]
    about = about or [e.name for e in entries().values() if wanted and _holds(e, wanted)]
    if not found and not about:
        names = [*entries(), *(n for w in words() for n in w.names)]
        raise UsageError(
            f"nothing is called {asked!r}", f"{did_you_mean(asked, names)}; dbdyno explain lists all claims"
        )
    if about:
        width = max(map(len, about[:_MOST]))
        found += ["", "Claims about it (dbdyno explain ID):"] if found else ["Claims (dbdyno explain ID):"]
        found += [f"  {name:{width}}  {entry(name).question}" for name in about[:_MOST]]
    return "\n".join(found)


def _plain(text: str) -> str:
    return " ".join(text.casefold().replace("_", " ").split())


def _holds(claim: Entry, wanted: str) -> bool:
    """Whether its question has the word, or its id a part of it."""
    return f" {wanted} " in f" {claim.question.casefold().strip('?')} " or wanted in claim.id.split("-")


def _claim(name: str) -> Entry | None:
    try:
        return entry(name)
    except UsageError:
        return None


def _columns(name: str) -> list[str]:
    """A column of tables, by what each says of it."""
    said: dict[str, list[str]] = {}
    for table, columns in {**RAW, **DERIVED}.items():
        for column in columns:
            if column.name == name:
                said.setdefault(column.doc, []).append(table)
    return [f"{name}: {doc} ({', '.join(tables[:_MOST])})" for doc, tables in said.items()][:_MOST]


@cache
def words() -> tuple[Word, ...]:
    text = resources.files(__package__).joinpath("words.toml").read_text(encoding="utf-8")
    return tuple(
        Word(tuple(w["names"]), w["text"], tuple(w.get("claims", ())), w["page"])
        for w in tomllib.loads(text)["word"]
    )
