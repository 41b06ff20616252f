"""Texts to compress and to sort, the same for each size on any machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dbdyno.engines.command.shipped import cache

_MIB = 1 << 20
_LETTERS = np.frombuffer(b"etaoinshrdlcumwfgypbvk", dtype=np.uint8)
_BYTES_A_WORD, _WORDS = 4, 1 << 16
_WORDS_A_LINE = 16


def text(mib: int) -> Path:
    """Returns a file of ``mib`` MiB of invented words, whose frequencies follow Zipf's law as in natural
    language."""
    return cache.cached(f"text-{mib}.txt", lambda path: _write(path, mib))


def _write(path: Path, mib: int) -> None:
    draw = np.random.RandomState(17)  # legacy: its numbers never change
    vocabulary = _LETTERS[draw.randint(0, len(_LETTERS), (5000, _BYTES_A_WORD))]
    vocabulary[:, -1] = ord(" ")
    vocabulary[::_WORDS_A_LINE, -1] = ord("\n")
    table = vocabulary[draw.zipf(1.2, _WORDS) % len(vocabulary)]
    with path.open("wb") as file:
        for _ in range(mib):
            picked = np.frombuffer(draw.bytes(_MIB // _BYTES_A_WORD * 2), dtype="<u2")
            file.write(table[picked].tobytes())
