"""Fills the criteria of claims with the constants that decide: slots such as ``{locks.BOUND:percent}``.

A slot names a module, a constant in it and a format of the catalogue. The module is one of
:mod:`dbdyno.conclude.run`, else of :mod:`dbdyno.conclude` (``scaling.smt``), else of another room
(``stats.cliff``). It is imported only when the text is needed, because checks import the catalogue and an
import at the top would be circular.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from string import Formatter
from types import ModuleType

from dbdyno.conclude.catalogue import FORMATS, Entry, with_nouns
from dbdyno.model.errors import DbdynoError
from dbdyno.model.units import format_given

_ROOMS = ("dbdyno.conclude.run", "dbdyno.conclude", "dbdyno")
_EXACT: Mapping[str, Callable[[float], str]] = {
    "percent": lambda share: f"{format_given(100 * share)} %",
    "number": format_given,
}
"""Formats that would round a figure, in a form for constants, which are exact."""


def criterion(entry: Entry) -> str:
    """Returns the ``when`` text of a claim. Raises as :func:`filled` does."""
    return filled(entry.when, f"claim {entry.name}")


def filled(text: str, source: str) -> str:
    """Returns ``text`` with its slots replaced by the constants that they name. Raises DbdynoError, which
    names ``source`` and the slot, if there is no such module, constant or format."""
    try:
        parts = list(Formatter().parse(text))
    except ValueError as error:
        raise DbdynoError(f"{source}: {error}: {text!r}", "a slot is {module.CONSTANT:format}") from error
    words = []
    for literal, name, spec, conversion in parts:
        words.append(literal)
        if name is None:
            continue
        try:
            words.append(_shown(_constant(name), spec or "", conversion))
        except LookupError as error:
            slot = f"{name}!{conversion}" if conversion else name
            problem = f"{source}, slot {{{slot}:{spec}}}: {error.args[0]}"
            raise DbdynoError(problem, "a slot is {module.CONSTANT:format}") from error
    return "".join(words)


def _constant(name: str) -> float:
    """Returns the number with this dotted name. Raises LookupError if there is none."""
    path, _, constant = name.rpartition(".")
    module = _module(path)
    value = getattr(module, constant, None)
    if constant.startswith("_") or value is None:
        raise LookupError(f"{module.__name__} has no constant {constant!r}")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise LookupError(f"{constant} of {module.__name__} is not a number")
    return value


def _module(path: str) -> ModuleType:
    for room in _ROOMS if path else ():
        name = f"{room}.{path}"
        try:
            return import_module(name)
        except ModuleNotFoundError as error:
            if not f"{name}.".startswith(f"{error.name}."):
                raise  # the module exists, and imports one that does not
    raise LookupError(f"no module {path!r} in {', '.join(_ROOMS)}")


def _shown(value: float, spec: str, conversion: str | None) -> str:
    """Returns a constant in a format of the catalogue, without zeros that only show precision."""
    noun = spec.startswith("#") and len(spec) > 1
    if conversion or not (noun or spec in FORMATS):
        raise LookupError(f"unknown format; use #noun or one of {', '.join(FORMATS)}")
    if spec in _EXACT:
        return _EXACT[spec](value)
    whole = int(value) if noun and value == int(value) else value
    number, space, unit = with_nouns(f"{{value:{spec}}}", value=whole).partition(" ")
    return (number.rstrip("0").rstrip(".") if "." in number else number) + space + unit
