"""A document of a run of commands in their words: :mod:`dbdyno.model.text.command_words`."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from dbdyno.model.results.comparison import Comparison
from dbdyno.model.results.results import Results
from dbdyno.model.text.command_words import in_words, name_in_words
from dbdyno.present.document.document import Cell, Chart, Document, Row, Table
from dbdyno.present.figures.figures import of_commands

T = TypeVar("T")
_WORDS = {"title", "text", "caption", "note", "head", "name", "label", "advice", "evidence"}
"""Fields that people read; all others are ids, data and drawings."""
_OF_DATABASES = {"LOCK", "CLNT", "held twice", "server's cache"}
"""Columns that commands have nothing for."""
_ROWS_OF_DATABASES = {
    *("work/s", "work per call", "scaling", "Top SQL", "wait chains", "client", "sleep, by wait"),
    *("wait event word", "snapshots", "Encryption", "DB time", "CPU and CPU WAIT"),
}
_PROSE = {
    *("figure", "how it is obtained", "source", "status", "quantity", "quantity: source", "why"),
    *("what it reads", "why not, and the cure"),
}
"""Columns whose cells are sentences and names of ours."""


def worded(results: Results, made: T) -> T:
    """``made``, blocks or a document, as it is; of commands in their words."""
    return _worded(made) if of_commands(results) else made


def of_comparison(made: Comparison | None, shown: Document) -> Document:
    """``shown``, which ``made`` is part of, in the words of what was compared."""
    return shown if made is None or not made.commands else _worded_document(shown)


def _worded_document(shown: Document) -> Document:
    made: Document = _worded(shown)
    return made


def _worded(x: Any) -> Any:
    if isinstance(x, Cell):
        return x._replace(text=name_in_words(x.text), note=in_words(x.note))
    if isinstance(x, Chart):
        return replace(_fields(x), spec=_spec(x.spec))
    if isinstance(x, Table):
        return _fields(_without_databases(x))
    if is_dataclass(x) or hasattr(x, "_fields"):
        return _fields(x)
    if isinstance(x, list):
        return [_worded(y) for y in x]
    return tuple(map(_worded, x)) if isinstance(x, tuple) else x


def _fields(x: Any) -> Any:
    names = x._fields if hasattr(x, "_fields") else [f.name for f in fields(x)]
    new = {}
    for name in names:
        value = getattr(x, name)
        new[name] = in_words(value) if name in _WORDS and isinstance(value, str) else _worded(value)
    return type(x)(**new)


def _spec(x: Any, key: str = "") -> Any:
    """Titles of a chart's axes, the labels of what is drawn, and what it is for those who do not see it."""
    if isinstance(x, dict):
        return {k: _spec(v, k) for k, v in x.items()}
    if isinstance(x, list):
        return [_spec(v) for v in x]
    return in_words(x) if isinstance(x, str) and key in ("title", "label", "description") else x


def _without_databases(of: Table) -> Table:
    kept = [n for n, c in enumerate(of.columns) if c.head not in _OF_DATABASES]
    rows: list[Row] = []
    for row in of.rows:
        if row.cells and row.cells[0].text.partition(":")[0] in _ROWS_OF_DATABASES:
            continue
        pairs = [(of.columns[n], row.cells[n]) for n in kept]
        cells = [c._replace(text=in_words(c.text)) if h.head in _PROSE else c for h, c in pairs]
        rows.append(row._replace(cells=cells))
    return replace(of, columns=[of.columns[n] for n in kept], rows=rows)
