"""Frames and tables as they are sent over a channel: see crates/dyno-agent/README.md.

All of it was written by another host. Before anything else reads it, every length is limited, and a table
has the columns of the schema, with values for the same number of rows.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from dbdyno.model.schema.column import Column
from dbdyno.model.schema.instants import instants
from dbdyno.model.schema.rawtables import RAW
from dbdyno.model.schema.tables import CoreColumn

_LENGTHS = struct.Struct("<II")
MOST_HEADER_BYTES = 16 << 20
"""Header of an answer. Parsed it takes at most 400 MB (empty lists). The texts of a profile are some MB."""
MOST_BODY_BYTES = 1 << 30
MOST_RATIO, _SMALL_BYTES = 100, 16 << 20
"""Limit of unpacking a part of a watch's tables: this multiple of its size, and a constant. Measured were
multiples of 7 to 14, for 100 to 1000 working, sleeping or traced tasks; zlib can reach 1000."""
MOST_TABLES_BYTES = 2 << 30
"""All unpacked parts of a watch together: the limit of one file of a run."""
MOST_INSTANT_NS = 1 << 61
"""73 years: differences of two instants, also mapped ones, then still fit in 64 bits."""


class WrongAnswer(Exception):
    """No valid answer of an agent; the text follows the name of the host in a message."""


class Frame(NamedTuple):
    header: Mapping[str, Any]
    body: bytes


def pack(header: Mapping[str, Any], body: bytes = b"") -> bytes:
    """Returns a frame as bytes."""
    text = json.dumps(header, separators=(",", ":")).encode()
    return _LENGTHS.pack(len(text), len(body)) + text + body


class Frames:
    """Splits the bytes received into frames.

    ``most_body_bytes``: the maximum length of the body for a header, called before any of the body is kept.
    """

    def __init__(
        self, most_body_bytes: Callable[[Mapping[str, Any]], int] = lambda _: MOST_BODY_BYTES
    ) -> None:
        self._most_body_bytes = most_body_bytes
        self._read = bytearray()
        self._header: Mapping[str, Any] | None = None
        self._body_bytes = 0

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yields the frames that ``data`` completes. Raises :class:`WrongAnswer`."""
        self._read += data
        while self._has_header() and self._header is not None and len(self._read) >= self._body_bytes:
            header, self._header = self._header, None
            yield Frame(header, self._take(self._body_bytes))

    def _has_header(self) -> bool:
        """Returns whether the header of the next frame is complete."""
        if self._header is None and len(self._read) >= _LENGTHS.size:
            header, body = _LENGTHS.unpack_from(self._read)
            _check_lengths(header, body)
            if len(self._read) >= _LENGTHS.size + header:
                self._header = _object(self._take(_LENGTHS.size + header)[_LENGTHS.size :])
                self._body_bytes = body
                if body > (most := self._most_body_bytes(self._header)):
                    raise WrongAnswer(f"{body} bytes behind an answer that has {most} at most")
        return self._header is not None

    def _take(self, length: int) -> bytes:
        with memoryview(self._read) as read:
            taken = bytes(read[:length])
        del self._read[:length]
        return taken


def _check_lengths(header: int, body: int) -> None:
    if header > MOST_HEADER_BYTES or body > MOST_BODY_BYTES:
        raise WrongAnswer(f"no frame, or one of {header} + {body} bytes")


def _object(text: bytes) -> Mapping[str, Any]:
    try:
        value = from_json(text, allow_inf_nan=False)
    except ValueError as e:
        raise WrongAnswer(f"a header that is no JSON: {e}") from None
    if not isinstance(value, dict):
        raise WrongAnswer("a header that is no JSON object")
    return value


# Tables.

Tables = dict[str, dict[str, CoreColumn]]
_Bytes = Annotated[int, Field(strict=True, ge=0, le=MOST_BODY_BYTES)]
_Name = Annotated[str, Field(strict=True, max_length=100)]
_Texts = Annotated[list[Annotated[str, Field(strict=True)]], Field(fail_fast=True)]
_Described = tuple[_Name, _Name, _Bytes, _Bytes | None, _Texts | None]
Description = Annotated[
    list[tuple[_Name, Annotated[list[_Described], Field(fail_fast=True)]]],
    Field(max_length=len(RAW), fail_fast=True),
]
"""Describes tables before their values: ``(table, [(column, type, bytes, validity, texts), ...])``."""
_DESCRIPTION = TypeAdapter[Any](Description)
_WIDTH = {"i64": 8, "f64": 8, "bool": 1, "str": 4}


def unpack(body: bytes, most_bytes: int = MOST_TABLES_BYTES) -> tuple[Tables, int]:
    """Returns the tables of a compressed frame, and its unpacked size.

    Raises :class:`WrongAnswer`, also if they are larger than ``most_bytes``, or than real tables of this
    packed size can be.
    """
    content = _inflate(body, min(most_bytes, _SMALL_BYTES + MOST_RATIO * len(body)))
    if len(content) < _LENGTHS.size:
        raise WrongAnswer("a part of tables that is no frame")
    header_bytes, body_bytes = _LENGTHS.unpack_from(content)
    _check_lengths(header_bytes, body_bytes)
    if len(content) != _LENGTHS.size + header_bytes + body_bytes:
        raise WrongAnswer(f"a part of tables of {len(content)} bytes that is no frame")
    values = memoryview(content)[_LENGTHS.size :]
    header = _object(bytes(values[:header_bytes]))
    try:
        described = _DESCRIPTION.validate_python(header.get("tables"))
    except ValidationError as e:
        raise WrongAnswer(f"no description of tables: {first_fault(e)}") from None
    return tables(described, values[header_bytes:]), len(content)


def _inflate(body: bytes, most_bytes: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        content = stream.decompress(body, most_bytes)
    except zlib.error as e:
        raise WrongAnswer(f"a part of tables that cannot be unpacked: {e}") from None
    if stream.unconsumed_tail:
        size, limit = len(body), most_bytes >> 20
        raise WrongAnswer(f"a part of tables whose {size} bytes are more than {limit} MiB when unpacked")
    if not stream.eof or stream.unused_data:
        raise WrongAnswer("a part of tables that is cut off, or has more behind it")
    return content


def first_fault(error: ValidationError) -> str:
    """Returns the first place where a value is not of its type, and the reason."""
    fault = error.errors(include_input=False, include_url=False, include_context=False)[0]
    place = ".".join(str(part)[:40] for part in fault["loc"])
    return f"{place}: {fault['msg']}" if place else fault["msg"]


def tables(described: Sequence[Any], body: bytes | memoryview) -> Tables:
    """Returns the tables of an answer in the form of the core. ``described``: a :data:`Description`.

    Raises :class:`WrongAnswer` if they do not match the schema, or the values do not match their
    description.
    """
    result: Tables = {}
    rest = memoryview(body)
    for table, columns in described:
        if table not in RAW or table in result:
            raise WrongAnswer(f"table {table}, which it has not, or twice")
        result[table] = {}
        expected = {c.name: c for c in RAW[table]}
        rows = None
        for name, kind, length, validity, texts in columns:
            column = expected.pop(name, None)
            if column is None or column.type != kind or (kind == "str") != (texts is not None):
                raise WrongAnswer(f"column {name} of table {table}, which has none of that name and type")
            values, rest = rest[:length], rest[length:]
            valid, rest = (None, rest) if validity is None else (bytes(rest[:validity]), rest[validity:])
            rows = length // _WIDTH[kind] if rows is None else rows
            if (
                len(values) != rows * _WIDTH[kind]
                or length != len(values)
                or _number(valid) not in (None, rows)
            ):
                raise WrongAnswer(f"column {name} of table {table} with another number of values")
            _check(table, column, values, valid, texts)
            result[table][name] = (kind, values if texts is None else (values, texts), valid)
        if missing := [name for name, c in expected.items() if not c.null]:
            raise WrongAnswer(f"table {table} without its column {missing[0]}")
    if rest:
        raise WrongAnswer(f"{len(rest)} bytes behind its tables")
    return result


def _number(valid: bytes | None) -> int | None:
    return None if valid is None else len(valid)


def _check(
    table: str, column: Column, values: memoryview, valid: bytes | None, texts: Sequence[str] | None
) -> None:
    """Raises :class:`WrongAnswer` for a forbidden NULL, an unknown text or a time out of range."""
    import numpy as np  # here, since not every answer has tables

    null = valid is not None and 0 in valid
    if texts is not None:
        codes: Any = np.frombuffer(values, dtype="<i4")
        if codes.size and codes.max() >= len(texts):
            raise WrongAnswer(f"column {column.name} of table {table} with a text that is not there")
        null = null or bool(codes.size and codes.min() < 0)
    if null and not column.null:
        raise WrongAnswer(f"NULL in column {column.name} of table {table}")
    if column.name in instants(table) and values:
        times: Any = np.frombuffer(values, dtype="<i8")
        if times.min() < -MOST_INSTANT_NS or times.max() > MOST_INSTANT_NS:
            raise WrongAnswer(f"column {column.name} of table {table} with a time out of range")
