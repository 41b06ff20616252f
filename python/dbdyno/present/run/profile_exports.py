"""Exports the CPU profile: pprof (profile.proto) and the processed format of the Firefox profiler.

Folded stacks are in :mod:`dbdyno.present.charts.flame`. CPU time is that of the measured window.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from dbdyno.model.results.cpu_profile import LABELS, Frame, frame_of
from dbdyno.model.units import NS_PER_S
from dbdyno.present.charts.flame import whose

# Field numbers of the messages: https://github.com/google/pprof/blob/main/proto/profile.proto


def pprof(rows: pl.DataFrame, wall_s: float, start_ns: int, kind: str = "cpu") -> bytes:
    """Returns a gzipped ``Profile``: samples and nanoseconds of each stack, labelled by wait event and
    statement.

    ``start_ns`` counts since 1970; ``kind`` of time is cpu or sleep.
    """
    texts = _StringTable()
    functions: dict[Frame, int] = {}
    samples = []
    columns = ("who", "stack", "aas", "samples", *LABELS)
    for who, stack, aas, count, *labels in rows.select(columns).iter_rows():
        frames = [Frame("", whose(who)), *(frame_of(f) for f in stack.split(";"))]
        places = [functions.setdefault(f, len(functions) + 1) for f in reversed(frames)]
        labelled = zip(("thread", *LABELS), (whose(who), *labels), strict=True)
        named = [(3, _message((1, texts.number(k)), (2, texts.number(v)))) for k, v in labelled]
        values = [count, round(aas * wall_s * NS_PER_S)]
        samples.append(_message((1, _packed(places)), (2, _packed(values)), *named))
    sample_types = (("samples", "count"), (kind, "nanoseconds"))
    kinds = [_message((1, texts.number(a)), (2, texts.number(b))) for a, b in sample_types]
    defined = [
        _message((1, n), (2, texts.number(f.function)), (4, texts.number(f.module)))
        for f, n in functions.items()
    ]
    places_ = [_message((1, n), (4, _message((1, n)))) for n in functions.values()]
    whole = _message(
        *((1, k) for k in kinds),
        *((2, s) for s in samples),
        *((4, p) for p in places_),
        *((5, f) for f in defined),
        *((6, t.encode()) for t in texts),
        (9, start_ns),
        (10, round(wall_s * NS_PER_S)),
        (11, kinds[1]),
        (12, 1),
        (14, texts.number(kind)),
    )
    return gzip.compress(whole, mtime=0)


def _message(*fields: tuple[int, int | bytes]) -> bytes:
    """Encodes fields as a message of Protocol Buffers: numbers as varints, bytes with their length in
    front."""
    encoded = bytearray()
    for number, value in fields:
        if isinstance(value, int):
            encoded += _varint(number << 3) + _varint(value)
        else:
            encoded += _varint(number << 3 | 2) + _varint(len(value)) + value
    return bytes(encoded)


def _packed(values: Iterable[int]) -> bytes:
    return b"".join(map(_varint, values))


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


class _StringTable(dict[str, int]):
    """Indexes of texts; index 0 is the empty text, as profile.proto requires."""

    def __init__(self) -> None:
        super().__init__({"": 0})

    def number(self, text: str) -> int:
        return self.setdefault(text, len(self))


# https://github.com/firefox-devtools/profiler/blob/main/docs-developer/processed-profile-format.md

_VERSION = {"version": 24, "preprocessedProfileVersion": 46}
_CATEGORIES = (("User", "blue"), ("Kernel", "orange"))


def firefox(rows: pl.DataFrame, product: str, wall_s: float, start_ms: float) -> bytes:
    """Returns JSON with one thread for the sessions and one per kind of server process, in milliseconds of
    CPU."""
    meta = {
        **_VERSION,
        "product": product,
        "interval": 1.0,
        "startTime": start_ms,
        "processType": 0,
        "stackwalk": 1,
        "debug": False,
        "symbolicated": True,
        "pausedRanges": [],
        "markerSchema": [],
        "usesOnlyOneStackType": True,
        "doesNotUseFrameImplementation": True,
        "sourceCodeIsNotOnSearchfox": True,
        "extensions": {"length": 0, "baseURL": [], "id": [], "name": []},
        "categories": [{"name": n, "color": c, "subcategories": ["Other"]} for n, c in _CATEGORIES],
        "sampleUnits": {"time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns"},
    }
    threads = [
        _thread(whose(str(who)), own, wall_s, n == 0)
        for n, ((who,), own) in enumerate(rows.group_by(["who"], maintain_order=True))
    ]
    return json.dumps({"meta": meta, "libs": [], "pages": [], "threads": threads}).encode()


def _thread(name: str, rows: pl.DataFrame, wall_s: float, first: bool) -> dict[str, Any]:
    texts: dict[str, int] = {}
    frames: dict[Frame, int] = {}
    stacks: dict[tuple[int | None, int], int] = {}
    last, weights = [], []
    for text, aas in rows.select("stack", "aas").iter_rows():
        place: int | None = None
        for part in text.split(";"):
            frame = frames.setdefault(frame_of(part), len(frames))
            place = stacks.setdefault((place, frame), len(stacks))
        last.append(place)
        weights.append(aas * wall_s * 1e3)
    modules = {m: n for n, m in enumerate(dict.fromkeys(f.module for f in frames))}
    category = [int(f.module.startswith("kernel")) for f in frames]

    def number(word: str) -> int:
        return texts.setdefault(word, len(texts))

    n, size = len(frames), len(last)
    funcs = {
        "name": [number(f.function) for f in frames],
        "isJS": [False] * n,
        "relevantForJS": [False] * n,
        "resource": [modules[f.module] for f in frames],
        **_null_columns(n, "fileName", "lineNumber", "columnNumber"),
    }
    resources = {"name": [number(m) for m in modules], "type": [1] * len(modules)}
    return {
        "name": name,
        "isMainThread": first,
        "processType": "default",
        "processName": name,
        "pid": "1",
        "tid": name,
        "processStartupTime": 0.0,
        "processShutdownTime": None,
        "registerTime": 0.0,
        "unregisterTime": None,
        "pausedRanges": [],
        "frameTable": _table(
            n,
            {
                "address": [-1] * n,
                "inlineDepth": [0] * n,
                "category": category,
                "subcategory": [0] * n,
                "func": list(range(n)),
                **_null_columns(n, "nativeSymbol", "innerWindowID", "implementation", "line", "column"),
            },
        ),
        "funcTable": _table(n, funcs),
        "resourceTable": _table(len(modules), {**resources, **_null_columns(len(modules), "lib", "host")}),
        "stackTable": _table(
            len(stacks),
            {
                "prefix": [p for p, _ in stacks],
                "frame": [f for _, f in stacks],
                "category": [category[f] for _, f in stacks],
                "subcategory": [0] * len(stacks),
            },
        ),
        "samples": _table(
            size,
            {
                "stack": last,
                "time": [1e3 * wall_s * i / size for i in range(size)],
                "weight": weights,
            },
        )
        | {"weightType": "tracing-ms"},
        "markers": _table(0, {k: [] for k in ("category", "data", "endTime", "name", "phase", "startTime")}),
        "nativeSymbols": _table(0, {k: [] for k in ("address", "functionSize", "libIndex", "name")}),
        "stringArray": list(texts),
    }


def _table(length: int, columns: Mapping[str, Any]) -> dict[str, Any]:
    return {"length": length, **columns}


def _null_columns(length: int, *names: str) -> dict[str, Sequence[Any]]:
    return {name: [None] * length for name in names}
