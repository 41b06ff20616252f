"""Words of the output explained: heads of columns, columns of tables, terms, and the claims about them."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

from dbdyno.conclude.catalogue import Entry, entries, entry, readable
from dbdyno.conclude.thresholds import criterion
from dbdyno.model.errors import UsageError, did_you_mean
from dbdyno.model.schema.tables import DERIVED, RAW

if TYPE_CHECKING:
    from dbdyno.model.sources.wait_advice import WaitAdvice
    from dbdyno.model.sources.wait_families import WaitFamilies

_MOST = 12  # claims that are listed


class Word(NamedTuple):
    """See words.toml."""

    names: tuple[str, ...]
    text: str
    claims: tuple[str, ...]  # how their ids begin
    page: str


def explanation(asked: str, families: WaitFamilies | None = None, advice: WaitAdvice | None = None) -> str:
    """What ``asked`` is, then the claims about it; of a wait event, ``class/event``, by the ``families`` and
    the ``advice`` of an engine. Raises :class:`UsageError`: nothing is called so."""
    if families is not None and (event := _event(asked.strip(), families, advice)):
        return event
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


def explained(found: Entry) -> str:
    """Returns an entry as text for a terminal."""
    page = [f"docs/{found.page}"] if found.page else []
    says = [readable(s) for s in found.sentences()]
    parts = [("Made when", [criterion(found)]), ("Says", says), ("Advice", found.advices()), ("See", page)]
    lines = [f"{found.name} ({found.level})", found.question]
    for title, texts in parts:
        lines += ["", f"{title}:", *(f"  {t}" for t in texts)] if texts else []
    return "\n".join(lines)


def _event(asked: str, families: WaitFamilies, advice: WaitAdvice | None) -> str:
    """Empty: not a wait event, in any case of its letters, of a class that the engine has."""
    of, slash, name = asked.partition("/")
    own = next((n for n in families.root if n.casefold() == of.casefold()), None)
    if not slash or not name or own is None:
        return ""
    label, known_ones = f"{own}/{name}", [*families.root, *(advice.root if advice is not None else ())]
    if label not in known_ones:  # as the engine spells it
        label = next((n for n in known_ones if n.casefold() == label.casefold()), label)
    family = families.of(label)
    known = advice.of(label) if advice is not None else None
    lines = [f"{label}: a wait event; sessions wait {_document()['families'][family]} (family {family})"]
    if known is not None and known.what:
        lines.append(f"  They wait for {known.what}.")
    if known is not None and known.advice:
        lines.append(f"  Advice: {known.advice}")
    return "\n".join([*lines, "  docs/concepts.md"])


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
    return tuple(
        Word(tuple(w["names"]), w["text"], tuple(w.get("claims", ())), w["page"]) for w in _document()["word"]
    )


@cache
def _document() -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath("words.toml").read_text(encoding="utf-8"))
