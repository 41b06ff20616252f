"""Frames and tables as they go over a channel: see crates/dyno-agent/README.md."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dbdyno.model.tables import CoreColumn

_LENGTHS = struct.Struct("<II")
MOST_HEADER_BYTES = 64 << 20
MOST_BODY_BYTES = 1 << 30


class NoFrame(Exception):
    """What came is none."""


class Frame(NamedTuple):
    header: Mapping[str, Any]
    body: bytes


def packed(header: Mapping[str, Any], body: bytes = b"") -> bytes:
    """A frame as bytes."""
    text = json.dumps(header, separators=(",", ":")).encode()
    return _LENGTHS.pack(len(text), len(body)) + text + body


class Frames:
    """Takes bytes as they come, and has the frames that are whole."""

    def __init__(self) -> None:
        self._read = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that ``data`` completes. Raises :class:`NoFrame`."""
        self._read += data
        while len(self._read) >= _LENGTHS.size:
            header, body = _LENGTHS.unpack_from(self._read)
            if header > MOST_HEADER_BYTES or body > MOST_BODY_BYTES:
                raise NoFrame(f"a frame of {header} + {body} bytes")
            start, end = _LENGTHS.size + header, _LENGTHS.size + header + body
            if len(self._read) < end:
                return
            yield Frame(_object(self._read[_LENGTHS.size : start]), bytes(self._read[start:end]))
            del self._read[:end]


def _object(text: bytes | bytearray) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise NoFrame("a header that is no JSON object")
    return found


Tables = dict[str, dict[str, CoreColumn]]


def unpacked(body: bytes) -> Tables:
    """Tables that come as a compressed frame."""
    ((header, values),) = Frames().feed(zlib.decompress(body))
    return tables(header["tables"], values)


def tables(described: Sequence[Any], body: bytes) -> Tables:
    """Tables of an answer, as the core hands them over."""
    made: Tables = {}
    at = 0

    def take(length: int) -> bytes:
        nonlocal at
        at += length
        return body[at - length : at]

    for table, columns in described:
        made[table] = {}
        for name, kind, length, known, texts in columns:
            values = take(length)
            validity = None if known is None else take(known)
            made[table][name] = (kind, values if texts is None else (values, texts), validity)
    return made
