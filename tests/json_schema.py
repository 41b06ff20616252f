"""Validates what ``--json`` prints against docs/json.schema.json, and allows no further key."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from tests.fakery import ROOT

PATH = ROOT / "docs" / "json.schema.json"


@cache
def published() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(PATH.read_text("utf-8"))
    return schema


def closed(schema: Any) -> Any:
    """Returns a schema whose objects may have the named keys alone."""
    if isinstance(schema, list):
        return [closed(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {k: closed(v) for k, v in schema.items()}
    is_object = isinstance(schema.get("properties"), dict) and schema.get("type") == "object"
    return {"additionalProperties": False, **inner} if is_object else inner


@cache
def validator(command: str) -> Draft202012Validator:
    """Returns the validator of what a command prints. Raises :class:`KeyError` for one without ``--json``."""
    schema = closed(published())
    return Draft202012Validator({"$ref": f"#/$defs/{_name(command)}", "$defs": schema["$defs"]})


def command_of(words: Sequence[str]) -> str | None:
    """Returns the command with ``--json`` that a command line names; None if it names none."""
    named = [word for word in words if not word.startswith("-")]
    commands = (" ".join(named[:n]) for n in (2, 1))
    return next((c for c in commands if _name(c) in published()["$defs"]), None)


def check(words: Sequence[str], text: str) -> None:
    """Raises :class:`AssertionError` if the command line asks for JSON and printed something else, or a key
    that the schema does not have."""
    command = command_of(words)
    if "--json" not in words or command is None or not text:
        return
    lines = text.splitlines() if command == "snapshot" and "--every" in words else [text]
    for line in lines:
        error = best_match(validator(command).iter_errors(json.loads(line, parse_constant=_refused)))
        assert error is None, (
            f"dbdyno {' '.join(words)}: {error.json_path}: {error.message[:500]}\n"
            "declare it in the type of the document (tools/json_documents.py), then run tools/json_schema.py"
        )


def _name(command: str) -> str:
    return f"command-{command.replace(' ', '-')}"


def _refused(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")
