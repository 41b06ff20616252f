"""How the statements of a call are sent: with a validation before each, and with values in the text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dbdyno.engines.postgres import scripts
from dbdyno.engines.postgres.connect import Connection
from dbdyno.engines.postgres.scripts import tokens
from dbdyno.model.errors import UsageError
from dbdyno.model.plan import DriverSetup

LONGEST_PIPELINE_BYTES = 64 * 1024  # docs/core.md: more might not fit into the sockets' buffers
_FRAME_BYTES = 64  # of a statement's messages besides text and values

Statement = Mapping[str, Any]  # of docs/core.md: {"sql": ..., "params": [...]}


def as_sent(call: Sequence[Statement], driver: DriverSetup, *, standard_strings: bool) -> list[Statement]:
    """The statements of a call as the driver is to send them."""
    sent = list(call)
    if driver.validation:
        validation: Statement = {"sql": driver.validation, "params": []}
        sent = [s for statement in sent for s in (validation, statement)]
    if driver.protocol == "simple":
        sent = [{"sql": _with_values(s, standard_strings=standard_strings), "params": []} for s in sent]
    if driver.pipeline and len(sent) > 1:
        _check_length(sent, prepared=driver.protocol == "prepared")
    return sent


def check(connection: Connection, driver: DriverSetup) -> None:
    """Lets the server parse the validation. Raises :class:`UsageError` where it cannot be one."""
    if not driver.validation:
        return
    _, statements = scripts.as_workload(connection, driver.validation, "validation")
    if len(statements) != 1:
        raise UsageError(
            f"validation: {driver.validation!r} is {len(statements)} statements",
            "one goes before each statement of a call, such as SELECT 1",
        )


def _check_length(call: Sequence[Statement], *, prepared: bool) -> None:
    texts = [t for s in call for t in (*s["params"], *([] if prepared else [s["sql"]]))]
    size = sum(len(t.encode()) for t in texts if t is not None) + _FRAME_BYTES * len(call)
    if size > LONGEST_PIPELINE_BYTES:
        raise UsageError(
            f"a call of {len(call)} statements is {size:,} bytes; at most {LONGEST_PIPELINE_BYTES:,} can be "
            "sent in one go",
            "pipeline = false, or fewer or shorter statements",
        )


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
