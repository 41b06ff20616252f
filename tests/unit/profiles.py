"""Raw tables of a CPU profile made by hand: samples of the tasks of a cell with known shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.tables import conform

Stack = Sequence[str]
"""The root first; a frame is ``module`function``, ``kernel`vfs_read`` one of the kernel."""

EXEC = ("postgres`main", "postgres`ExecScan")
QUERY = 42
"""Query id of all samples; those of stack ``read`` are under IO/DataFileRead."""
STACKS: dict[str, Stack] = {
    "scan": (*EXEC, "postgres`heapgettup"),
    "lock": (*EXEC, "postgres`LWLockAttemptLock"),
    "copy": (*EXEC, "libc.so.6`memcpy@@GLIBC_2.14"),
    "read": (*EXEC, "libc.so.6`pread64", "kernel`vfs_read", "kernel:ext4`ext4_file_read_iter"),
    "again": ("postgres`main", "postgres`ExecScan", "postgres`ExecScan", "postgres`heapgettup.isra.0"),
}


def with_profile(
    cell: RawCell, shares: Mapping[str, float], n: int = 2000, seed: int = 1, **fixed: Any
) -> RawCell:
    """``cell`` with ``n`` samples of its sessions, each of a stack of :data:`STACKS` by ``shares``."""
    rng = np.random.default_rng(seed)
    tasks = cell.tables["tasks"].filter(pl.col("role") == "session").unique(["pid", "tid"]).sort("pid")
    names = list(shares)
    drawn = rng.choice(len(names), n, p=np.array(list(shares.values())) / sum(shares.values()))
    places = rng.integers(0, tasks.height, n)
    reads = pl.Series(drawn).is_in([n for n, s in enumerate(names) if s == "read"])
    last = np.array([STACKS[s][-1].startswith("kernel") for s in names])
    columns = {c: tasks[c].gather(places) for c in ("session", "pid", "tid", "role")}
    samples = pl.DataFrame(columns).with_columns(
        t_ns=pl.Series(np.sort(rng.integers(cell.meta.t0_ns, cell.meta.t1_ns, n))),
        cpu=pl.lit(0),
        mode=pl.Series(np.where(last[drawn], "kernel", "user")),
        wait_class=pl.select(pl.when(reads).then(pl.lit("IO"))).to_series(),
        wait_event=pl.select(pl.when(reads).then(pl.lit("DataFileRead"))).to_series(),
        label_status=pl.lit("ok"),
        query_id=pl.lit(QUERY),
        query_status=pl.lit("ok"),
        stack=pl.Series(drawn),
        cut=pl.lit(False),
    )
    samples = samples.with_columns(**{k: pl.lit(v) for k, v in fixed.items()})
    return with_tables(cell, samples, [STACKS[s] for s in names])


def with_tables(cell: RawCell, samples: pl.DataFrame, stacks: Sequence[Stack]) -> RawCell:
    frames = {text: n for n, text in enumerate(dict.fromkeys(f for s in stacks for f in s))}
    paths = [
        {"stack": n, "position": p, "frame": frames[f]}
        for n, stack in enumerate(stacks)
        for p, f in enumerate(reversed(stack))
    ]
    functions = [
        {
            "frame": n,
            "function": text.partition("`")[2] or None,
            "module": text.partition("`")[0],
            "kind": "kernel" if text.startswith("kernel") else "user",
        }
        for text, n in frames.items()
    ]
    by_name = {
        "profile_samples": samples,
        "profile_stacks": pl.DataFrame(paths),
        "profile_frames": pl.DataFrame(functions),
    }
    return replace(cell, tables={**cell.tables, **{n: conform(n, t) for n, t in by_name.items()}})
