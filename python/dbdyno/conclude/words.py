"""Explains words of the output: column heads, columns of tables, terms, and the claims about them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

from dbdyno.conclude.catalogue import Entry, entries, entry, readable
from dbdyno.conclude.thresholds import criterion
from dbdyno.model.errors import UsageError, near_names, nearest
from dbdyno.model.schema.tables import DERIVED, RAW

if TYPE_CHECKING:
    from dbdyno.model.sources.wait_advice import WaitAdvice
    from dbdyno.model.sources.wait_families import WaitFamilies

_MOST_LISTED = 12  # claims, columns


class Word(NamedTuple):
    """An entry of words.toml."""

    group: str  # its part of the glossary
    names: tuple[str, ...]
    text: str
    example: str
    advice: str
    claims: tuple[str, ...]  # prefixes of their ids
    page: str


def explanation(
    name: str,
    families: WaitFamilies | None = None,
    advice: WaitAdvice | None = None,
    events: Collection[str] = (),
) -> str:
    """Returns the explanation of the word ``name``, then a list of the claims about it. A wait event,
    ``class/event``, is explained by the ``families`` and the ``advice`` of an engine, which also knows the
    names of its ``events``. Raises :class:`UsageError` if no entry has this name, or if an event without a
    known name has almost that of another one."""
    if families is not None and (event := _event(name.strip(), families, advice, events)):
        return event
    wanted = _plain(name)
    own = _claim(name) or _claim("-".join(wanted.split()))
    word = _word(wanted, exactly=own is not None)
    lines = [] if word is None else [word.text, f"  Example: {word.example}"]
    lines += [f"  What to do: {word.advice}"] if word is not None and word.advice else []
    lines += [] if word is None else [f"  {topic(word.page)}"]
    lines += [] if word is not None or own is not None else _columns(name.strip())
    if own is not None:
        return "\n".join([*lines, "", explained(own, defined=True)] if lines else [explained(own)])
    about = [] if word is None else [n for n in entries() if n.startswith(word.claims or ("?",))]
    if not about and (word is None or wanted == _plain(word.names[0])):
        about = [e.name for e in entries().values() if wanted and _mentions(e, wanted)]
    if not lines and not about:
        cure = f"{near_names(name, names())} dbdyno explain lists all claims, dbdyno help all topics"
        raise UsageError(f"nothing is called {name!r}", cure.strip())
    if about:
        width = max(map(len, about[:_MOST_LISTED]))
        lines += ["", "Claims about it (dbdyno explain ID):"] if lines else ["Claims (dbdyno explain ID):"]
        lines += [f"  {id:{width}}  {entry(id).question}" for id in about[:_MOST_LISTED]]
    return "\n".join(lines)


def names() -> list[str]:
    """Returns all names that :func:`explanation` knows: of words, then of claims."""
    return [*(name for word in words() for name in word.names), *entries()]


def topic(page: str) -> str:
    """Returns the command that shows a page of the documentation: ``dbdyno help ledger``."""
    return f"dbdyno help {page.removesuffix('.md')}"


def explained(entry: Entry, *, defined: bool = False) -> str:
    """Returns an entry as text for a terminal, with the definition of its word unless that is ``defined``
    before."""
    page = [topic(entry.page)] if entry.page else []
    says = ("Example", [examples().get(entry.id, "")])
    if entry.id not in examples():
        says = _with_slots("Says", entry.sentences())
    parts = [
        *(("Made when", [criterion(entry)]), says),
        *(_with_slots("What to do", entry.advices()), ("See", page)),
    ]
    word = None if defined else next((w for w in words() if entry.id in w.claims), None)
    level = "claim" if entry.level == "note" else f"claim; {entry.level}"
    lines = [f"{entry.name} ({level})", entry.question, *(["", word.text] if word is not None else [])]
    for title, texts in parts:
        lines += ["", f"{title}:", *(f"  {t}" for t in texts)] if texts else []
    return "\n".join(lines)


def _with_slots(title: str, templates: Iterable[str]) -> tuple[str, list[str]]:
    """Returns templates for readers, and a title that says what their marks mean, if there are any."""
    texts = [readable(t) for t in templates]
    slots = " (words in < > stand for figures and names of the run)" if "<" in "".join(texts) else ""
    return f"{title}{slots}", texts


def _event(name: str, families: WaitFamilies, advice: WaitAdvice | None, events: Collection[str]) -> str:
    """Returns the explanation of a wait event, in any case of its letters, or "" if the engine has no such
    class. An unknown name may be that of an extension's event, unless it is spelled almost like another."""
    wait_class, slash, event = name.partition("/")
    own = next((n for n in families.root if n.casefold() == wait_class.casefold()), None)
    if not slash or not event or own is None:
        return ""
    label = f"{own}/{event}"
    known_ones = [*families.root, *(advice.root if advice is not None else ()), *events]
    if label not in known_ones:  # the output has the engine's own spelling, not the user's
        label = next((n for n in known_ones if n.casefold() == label.casefold()), label)
    if events and label not in known_ones:
        of_class = [n.partition("/")[2] for n in known_ones if n.startswith(f"{own}/")]
        if (near := nearest(event, of_class)) is not None:
            raise UsageError(f"no wait event {label!r}", f"did you mean '{own}/{near}'?")
    family = families.of(label)
    waits = _document()["families"][family]
    known = advice.of(label) if advice is not None else None
    is_known = not events or label in known_ones
    what = "a wait event" if is_known else "not a wait event of the server itself; if an extension has it"
    lines = [f"{label}: {what}; sessions wait {waits} (family {family})"]
    if known is not None and known.what:
        lines.append(f"  They wait for {known.what}.")
    if known is not None and known.earlier:
        lines.append(f"  Earlier versions show {known.earlier} for these waits.")
    own_advice = "" if known is None else known.advice
    if to_do := own_advice or _document()["advice"].get(family, ""):
        lines.append(f"  What to do: {to_do}")
    return "\n".join([*lines, f"  {topic('concepts')}"])


def _plain(text: str) -> str:
    return " ".join(text.casefold().replace("_", " ").split())


def _word(wanted: str, *, exactly: bool) -> Word | None:
    """Returns the word of this name; unless ``exactly``, else of the name with another unit or number, as in
    ``CPU WAIT%``."""
    by_name = {_plain(name): word for word in reversed(words()) for name in word.names}
    bare = re.sub(r"^% (of )?|\s*%$|/s$| per second$", "", wanted)
    forms = (wanted, wanted.replace("-", " "), bare, f"{bare}%", bare.removesuffix("s"), f"{bare}s")
    return next((by_name[form] for form in forms[: 1 if exactly else None] if form in by_name), None)


def _mentions(claim: Entry, wanted: str) -> bool:
    """Returns whether the claim's question contains the word, or its id has the word as a part."""
    return f" {wanted} " in f" {claim.question.casefold().strip('?')} " or wanted in claim.id.split("-")


def _claim(name: str) -> Entry | None:
    try:
        return entry(name)
    except UsageError:
        return None


def _columns(name: str) -> list[str]:
    """Returns one line per meaning of a column of this name, with the tables that have it in that meaning."""
    tables_by_doc: dict[str, list[str]] = {}
    for table, columns in {**RAW, **DERIVED}.items():
        for column in columns:
            if column.name == name:
                tables_by_doc.setdefault(column.doc, []).append(table)
    return [f"{name}: {doc} ({', '.join(tables[:_MOST_LISTED])})" for doc, tables in tables_by_doc.items()][
        :_MOST_LISTED
    ]


@cache
def words() -> tuple[Word, ...]:
    return tuple(
        Word(
            w["group"],
            tuple(w["names"]),
            w["text"],
            w["example"],
            w.get("advice", ""),
            tuple(w.get("claims", ())),
            w["page"],
        )
        for w in _document()["word"]
    )


def examples() -> dict[str, str]:
    """Returns a sentence as runs have it, by the id of the claim."""
    return {id: claim["example"] for id, claim in _document()["claim"].items()}


@cache
def _document() -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath("words.toml").read_text(encoding="utf-8"))
