"""Words of the CPU profile as it is derived: tables ``cpu_profile`` and ``cpu_stacks``."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

KERNEL, UNKNOWN = "kernel", "unknown"
NOT_SAMPLED, OTHERS = "not sampled", "others"


def frame_text() -> pl.Expr:
    """A frame of a stack, of ``module`` and ``name``; characters with a meaning in stacks are replaced."""
    module, name = (
        pl.col(n).str.replace_all(r"[;\r\n]", ":").str.replace_all("`", "'") for n in ("module", "name")
    )
    return pl.concat_str(module, name, separator="`")


class Frame(NamedTuple):
    """A frame of a stack, read."""

    module: str
    function: str


def frame_of(text: str) -> Frame:
    module, _, function = text.partition("`")
    return Frame(module, function or module)
