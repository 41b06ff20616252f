"""How the statements of a call are sent: with a validation before each, and with values in the text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dbdyno.engines.postgres.lexer import tokens
from dbdyno.model.variant import DriverSetup

Statement = Mapping[str, Any]  # of docs/core.md: {"sql": ..., "params": [...]}


def as_sent(call: Sequence[Statement], driver: DriverSetup, *, standard_strings: bool) -> list[Statement]:
    """The statements of a call as the driver is to send them."""
    sent = list(call)
    if driver.validation:
        validation: Statement = {"sql": driver.validation, "params": []}
        sent = [s for statement in sent for s in (validation, statement)]
    if driver.protocol == "simple":
        sent = [{"sql": _with_values(s, standard_strings=standard_strings), "params": []} for s in sent]
    return sent


def _with_values(statement: Statement, *, standard_strings: bool) -> str:
    """Its text with a literal for each ``$n``. As the parameter had, the literal has no type of its own: the
    server reads both as what the place wants. A ``$n`` in a string, name or comment is none."""
    text, params = statement["sql"], statement["params"]
    if not params:
        return str(text)
    pieces = []
    for token in tokens(text, standard_strings=standard_strings):
        word = text[token.start : token.end]
        if token.kind == "number" and word[0] == "$":
            value = params[int(word[1:]) - 1]
            word = "NULL" if value is None else literal(value)
        pieces.append(word)
    return "".join(pieces)


def literal(value: str) -> str:
    """An SQL string, safe under any standard_conforming_strings."""
    if "\\" in value:
        return " E'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
    return "'" + value.replace("'", "''") + "'"
