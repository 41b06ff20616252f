"""Words and columns of the CPU profile as it is derived: tables ``cpu_profile`` and ``cpu_stacks``."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from dbdyno.model.column import CELL, Column
from dbdyno.model.column import column as _c

KERNEL, UNKNOWN = "kernel", "unknown"
NOT_SAMPLED, OTHERS = "not sampled", "others"
_WHOSE = (
    _c("scope", "str", "rung (all sessions in sum) | helper (server processes working for all) | beside"),
    _c("who", "str", "rung | the role of a helper or of who is beside"),
)

CPU_PROFILE: tuple[Column, ...] = (
    *CELL,
    *_WHOSE,
    _c(
        "by",
        "str",
        "module | function | session | wait | mode | stack: rows of a kind add up to the ledger's",
    ),
    _c(
        "name",
        "str",
        "function, module, session, class/event, user or kernel, whole or cut stack; not sampled; others",
        null=True,
    ),
    _c("module", "str", "of a function: program or library, its part behind a colon (kernel:vfs)", null=True),
    _c("aas", "f64", "seconds on a CPU per second, without callees"),
    _c("low", "f64", "lower end of its interval", null=True),
    _c("high", "f64", "upper end of its interval", null=True),
    _c("kernel", "f64", "of which in the kernel", null=True),
    _c("total", "f64", "with callees; recursion counts once", null=True),
    _c("total_low", "f64", "lower end of its interval", null=True),
    _c("total_high", "f64", "upper end of its interval", null=True),
    _c("total_kernel", "f64", "of which in the kernel", null=True),
    _c("per_call_ns", "f64", "CPU time per call of the driver, without callees", null=True),
    _c("per_work_ns", "f64", "CPU time per unit of work, without callees", null=True),
    _c("samples", "i64", "samples, without callees"),
    _c("effective", "f64", "how many samples of equal weight all samples of who are worth", null=True),
    _c("status", "str", "ok | not sampled"),
)
CPU_STACKS: tuple[Column, ...] = (
    *CELL,
    *_WHOSE,
    _c("stack", "str", "frames, root first, separated by semicolons: module`function"),
    _c("mode", "str", "user | kernel; NULL: unknown", null=True),
    _c("aas", "f64", "seconds on a CPU per second"),
    _c("samples", "i64", "samples"),
)


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
