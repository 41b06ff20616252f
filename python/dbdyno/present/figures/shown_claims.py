"""Chooses the claims that are shown first, and puts those that say the same of several things together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile

from dbdyno.model.results.claim import Claim
from dbdyno.model.results.results import Results
from dbdyno.model.units import counted
from dbdyno.present.document.document import Column, Row, Table, word
from dbdyno.present.figures import figures, headline

Group = tuple[Claim, ...]
"""Claims of one severity whose sentences differ in their values only; usually a single one."""

SEVERITIES = ("invalid", "warning", "note", "good")
GRAVE = ("invalid", "warning")
_ABOUT = ("throughput", "time")
"""Subjects of the claims that are shown first. All others are details, or about how it was measured."""
MOST = 3
"""Most claims that are shown at once."""
MUCH = 0.05
"""Share of time from which on the claims of one severity come by their share, before those without any."""
_NAMED = 3
"""Most warnings that the line of measurement quality names."""


def by_severity(results: Results) -> list[Group]:
    """Returns all claims that are not part of the lead, the gravest first."""
    elsewhere = headline.claims_shown_elsewhere(results)
    groups: dict[object, list[Claim]] = figures.grouped(
        (_structure(c), c) for c in results.findings if c not in elsewhere
    )
    return sorted(map(tuple, groups.values()), key=lambda g: SEVERITIES.index(g[0].severity))


def _structure(claim: Claim) -> object:
    """Returns what is the same in all claims of a group."""
    constant = tuple((name, "" if name else text) for name, text in claim.pieces)
    return (claim.severity, constant or claim.text, bool(claim.subject))


def first(results: Results) -> list[Group]:
    """Returns what says most about throughput and time: at most :data:`MOST`. Unusable measurements are
    always among them."""
    above = headline.doubts(results)
    groups = [g for g in by_severity(results) if g[0] not in above]
    groups = [
        g
        for g in groups
        if g[0].severity == "invalid"
        or (
            g[0].about in _ABOUT
            and g[0].severity in ("warning", "note")
            and g[0].id not in headline.PARAGRAPH  # of several variants: the table has their figures
        )
    ]
    sessions = dict(results.tables["windows"].select("cell", "sessions").rows())
    groups.sort(key=lambda g: (SEVERITIES.index(g[0].severity), -_much(g[0], sessions), _place(g[0])))
    return groups[:MOST]


def _much(claim: Claim, sessions: Mapping[str, int]) -> float:
    """Returns the share of time that the claim is about; 0 if it is small, or the claim is of other things.
    The unit says what it is a share of: "of session time". A warning of seconds per second is of as many as
    the most ``sessions`` of its cells."""
    value = claim.value
    if value is None:
        return 0.0
    share = value.value if value.unit.startswith("of ") and value.unit.endswith(" time") else 0.0
    if value.unit == "s/s" and claim.severity in GRAVE:
        share = (
            value.value / max((sessions.get(c) or 1 for c in claim.cells), default=1) if claim.cells else 0.0
        )
    return share if share >= MUCH else 0.0


def _place(claim: Claim) -> int:
    return _ABOUT.index(claim.about) if claim.about in _ABOUT else len(_ABOUT)


def warnings(results: Results, others: Iterable[Group]) -> str:
    """Returns ``2 warnings (steal 1.5 % at 2 sessions, samples lost or late)``; "" without warnings among
    ``others``."""
    grave = [g for g in others if g[0].severity in GRAVE and g[0] not in headline.doubts(results)]
    if not grave:
        return ""
    words = [g[0].short or g[0].id.replace("-", " ") for g in grave[:_NAMED]]
    words += ["..."] if len(grave) > _NAMED else []
    return f"{counted(len(grave), 'warning')} ({', '.join(words)})"


def text(group: Group) -> str:
    """Returns the first sentence of a group with the number of others."""
    others = len(group) - 1
    return group[0].text + (f" ({others:,} more like this)" if others else "")


def together(group: Group) -> Claim | Table:
    """Returns the claims of a group as one sentence if they differ in one value, else as a table: the first
    one's sentence, and below it a column for each value that differs."""
    columns = _differing(group)
    if len(columns) > 1:
        pieces = _named_pieces(group[0])
        worded = any(c.isalpha() for name, text in pieces if name not in columns for c in text)
        title = f"{group[0].text} Likewise:" if worded else ""
        grave = group[0].severity if group[0].severity in GRAVE else ""
        title = f"{grave.capitalize()}: {title}".rstrip(": ") if grave else title
        rows = [
            Row([word(t.strip(" ,")) for t in texts], grave) for texts in zip(*columns.values(), strict=True)
        ]
        rows = rows[1:] if worded else rows
        return Table(title, [Column(head, wraps=True) for head in columns], rows)
    joined = _joined(list(dict.fromkeys(next(iter(columns.values()), ("",)))))
    words = "".join(joined if n in columns else t for n, t in _named_pieces(group[0]))
    if joined and not any(n in columns for n, _ in _named_pieces(group[0])):  # subjects alone differ
        words = f"{joined}: {words}"
    cells = tuple(dict.fromkeys(cell for c in group for cell in c.cells))
    return group[0].model_copy(update={"text": words, "cells": cells, "value": None})


def _joined(values: Sequence[str]) -> str:
    """Returns the values in a list, the words that all begin with once: ``of a, b, c``."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(min(values), max(values), strict=False))
    begin = "".join("".join(c for c, _ in same).rpartition(" ")[:2])
    rest = [v.removeprefix(begin) for v in values]
    return begin + ("; " if any("," in v for v in rest) else ", ").join(rest)


_VARIANT = "variant"


def _differing(group: Group) -> dict[str, list[str]]:
    """Returns the values that differ, by the name of their column: the subject, then slots."""
    columns: dict[str, list[str]] = {}
    subjects = [c.subject for c in group]
    if len(set(subjects)) > 1:
        parts = [s.rpartition(f", {_VARIANT} ") for s in subjects]
        variants = len({before for before, _, _ in parts}) == 1 and all(mark for _, mark, _ in parts)
        columns[_VARIANT if variants else ""] = [p[2] for p in parts] if variants else subjects
    named = [_named_pieces(c) for c in group]
    for n, (name, _) in enumerate(named[0]):
        texts = [pieces[n][1] for pieces in named]
        if name and len(set(texts)) > 1:
            columns.setdefault(name, texts)
    return columns


def _named_pieces(claim: Claim) -> list[tuple[str, str]]:
    """Returns the pieces of a sentence with the names of slots in words."""
    return [(name.replace("_", " "), words) for name, words in claim.pieces]
