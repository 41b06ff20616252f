"""Checks the gateway's answers: much of their content comes from nodes, which are not trusted."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from dbdyno.model.text.visible import one_line, shortened

_T = TypeVar("_T")
_MOST_WORDS, _MOST_TEXT, _MOST_NODES = 500, 255, 10_000
_NOT_UNDERSTOOD = "the node's answer is not understood"

_Id = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{1,128}(\+[0-9]{1,6})?$")]
_Text = Annotated[str, StringConstraints(min_length=1, max_length=_MOST_TEXT), AfterValidator(one_line)]
_Ns = Annotated[int, Field(ge=0, lt=1 << 63)]


class _Plain(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class Connected(_Plain):
    ray: _Text  # version
    authenticated: bool | None  # whether the cluster requires a token; None: unknown


class FoundNode(_Plain):
    id: _Id
    address: _Text
    hostname: _Text
    name: _Text
    resources: dict[str, float]


class _Facts(_Plain):
    """See ``actor.AgentProcess.facts``."""

    python: _Text
    hostname: _Text
    arch: Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]{1,32}$")]  # becomes part of a file's name
    cpus: Annotated[int, Field(ge=1, le=1_000_000)]
    uid: Annotated[int, Field(ge=0, lt=1 << 32)]
    pid: Annotated[int, Field(ge=1, lt=1 << 31)]
    boot_id: Annotated[str, StringConstraints(pattern=r"^[0-9a-f-]{1,64}$")] | None
    since_1970_ns: _Ns
    nice: Annotated[int, Field(ge=-20, le=19)]


_VALUES: dict[str, TypeAdapter[Any]] = {
    "facts": TypeAdapter(_Facts),
    "start": TypeAdapter(None),
    "owns": TypeAdapter(bool),
    "reach": TypeAdapter(_Ns),
    "free_cpus": TypeAdapter(Annotated[dict[_Id, float], Field(max_length=_MOST_NODES)]),
}
"""Method of the actor -> checker of its value."""
_CONNECTED = TypeAdapter(Connected)
_NODES = TypeAdapter(Annotated[list[FoundNode], Field(max_length=_MOST_NODES)])
_CLEANED = TypeAdapter(dict[_Text, bool])


class NotUnderstood(Exception):
    """An answer of the gateway has the wrong form."""


def connected(value: object) -> Connected:
    """Raises :class:`NotUnderstood`, like the functions below."""
    return _check(_CONNECTED, value)


def nodes(value: object) -> list[FoundNode]:
    return _check(_NODES, value)


def cleaned(value: object) -> dict[str, bool]:
    return _check(_CLEANED, value)


def by_node(value: object, requested: Collection[str], method: str) -> dict[str, dict[str, Any]]:
    """Returns the result of an actor's method on each node, by id: ``{"ok": value}`` or ``{"error":
    message}``.

    A value of the wrong form becomes an error.
    """
    if not isinstance(value, dict) or value.keys() != set(requested):
        raise NotUnderstood
    return {node: _answer(value[node], _VALUES[method]) for node in requested}


def error(answer: object) -> tuple[str, list[str]]:
    """Returns kind and lines of an error of the gateway itself."""
    if not isinstance(answer, dict) or answer.keys() != {"error"}:
        raise NotUnderstood
    parts = answer["error"]
    if not isinstance(parts, list) or len(parts) != 2:
        raise NotUnderstood
    return words(parts[0]), [words(line) for line in str(parts[1]).strip().splitlines() if line.strip()]


def words(value: object) -> str:
    """Returns an untrusted text as one line that can be shown."""
    return shortened(one_line(str(value)), _MOST_WORDS)


def _answer(value: object, adapter: TypeAdapter[Any]) -> dict[str, Any]:
    if isinstance(value, dict) and value.keys() == {"error"}:
        return {"error": words(value["error"])}
    if isinstance(value, dict) and value.keys() == {"ok"}:
        try:
            checked = adapter.validate_python(value["ok"], strict=True)
        except ValidationError:
            return {"error": _NOT_UNDERSTOOD}
        return {"ok": checked.model_dump() if isinstance(checked, BaseModel) else checked}
    return {"error": _NOT_UNDERSTOOD}


def _check(adapter: TypeAdapter[_T], value: object) -> _T:
    try:
        return adapter.validate_python(value, strict=True)
    except ValidationError as e:
        raise NotUnderstood from e
