"""Stores the document of a terminal as JSON beside the tables of a run, and loads it.

Only the first option of a choice is stored. Charts and drawings are replaced by empty ones: a page draws
them from the tables. Nothing stored is ever drawn, so a manipulated document cannot bring code into a
page.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache, partial
from math import isfinite
from typing import Any, Literal, get_args, get_origin, get_type_hints

from dbdyno.present.document.document import Chart, Choice, Document, Drawing, Flame, Strip

Reader = Callable[[Any], Any]
_DRAWN = (Chart, Drawing, Flame, Strip)
_EMPTY = Drawing("")


def dumped(shown: Document) -> bytes:
    """Returns JSON: a NamedTuple becomes a list, a dataclass an object of its type and its non-default
    fields."""
    return json.dumps(_plain(shown), allow_nan=False, separators=(",", ":")).encode()


def loaded(content: bytes) -> Document:
    """Parses a document. Raises :class:`ValueError` if the content is none, or was written by another
    version."""
    try:
        document: Document = _reader(Document)(json.loads(content))
    except (TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"not a document: {error}") from error
    return document


def _plain(value: Any) -> Any:
    if isinstance(value, Choice):
        value = replace(value, options=value.options[:1])
    if is_dataclass(value):
        kept = {f.name: getattr(value, f.name) for f in fields(value) if getattr(value, f.name) != f.default}
        return {"type": type(value).__name__, **{name: _plain(v) for name, v in kept.items()}}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(_EMPTY if isinstance(v, _DRAWN) else v) for v in _without_defaults(value)]
    if value is None or isinstance(value, str | int):  # bool is an int
        return value
    return float(value) if isfinite(value) else None


def _without_defaults(value: Sequence[Any]) -> list[Any]:
    """Returns a NamedTuple without trailing default values; any other sequence unchanged."""
    kept, defaults = list(value), list(getattr(value, "_field_defaults", {}).values())
    while defaults and kept[-1] == defaults.pop():
        kept.pop()
    return kept


@cache
def _reader(kind: Any) -> Reader:
    """Returns a function that converts JSON to a value of this type.

    The function raises TypeError or ValueError if the JSON has another type.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Sequence:
        return partial(_list, _reader(inner[0]))
    if origin is Literal:
        return partial(_word, inner)
    if is_dataclass(kind) or any(map(is_dataclass, inner)):
        return partial(_object, {k.__name__: k for k in inner or (kind,)})
    if hasattr(kind, "_fields"):
        return partial(_tuple, kind, [_reader(k) for k in get_type_hints(kind).values()])
    if origin is tuple:
        return partial(_tuple, lambda *values: values, [_reader(k) for k in inner])
    kinds = set(inner or (kind,))
    return partial(_scalar, kinds | {int} if float in kinds else kinds)


def _list(read: Reader, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("no list")
    return [read(v) for v in value]


def _word(known: tuple[str, ...], value: Any) -> Any:
    if value not in known:
        raise ValueError(f"none of {known}")
    return value


def _object(known: Mapping[str, Any], value: Any) -> Any:
    """Returns an instance of one of these dataclasses. Its readers are created lazily, because sections
    nest."""
    given = dict(value)
    kind = known.get(str(given.pop("type", "")))
    if kind is None:
        raise ValueError(f"none of {', '.join(known)}")
    if kind in _DRAWN:
        return _EMPTY
    reads = _fields(kind)
    return kind(**{name: reads[name](v) for name, v in given.items()})


@cache
def _fields(kind: Any) -> Mapping[str, Reader]:
    return {name: _reader(k) for name, k in get_type_hints(kind).items()}


def _tuple(make: Callable[..., Any], reads: Sequence[Reader], value: Any) -> Any:
    if not isinstance(value, list) or len(value) > len(reads):
        raise TypeError("no list of so many")
    return make(*[read(v) for read, v in zip(reads, value, strict=False)])


def _scalar(kinds: set[type], value: Any) -> Any:
    if type(value) not in kinds or (type(value) is float and not isfinite(value)):
        raise TypeError(f"none of {kinds}")
    return value
