"""Tables ``cpu_profile`` and ``cpu_stacks``: CPU time by code, session, wait event and statement. Pure.

Samples of a task stand for its exact time on a CPU, so the rows of each kind add up to ``run.user`` and
``run.system`` of the ledger. Counts of samples by task and mode are fitted to both by raking. Time of tasks
or modes without a sample is a row of its own, "not sampled".

Intervals are those of a share among n samples of unequal weight, with n the effective sample size (Kish,
Survey Sampling, 1965). Lost samples may belong to any row: each lower end assumes that none does, each
upper end that all do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from dbdyno.account.losses import inside, lost_samples
from dbdyno.account.making import makes
from dbdyno.account.window.cells import key
from dbdyno.model.results.cpu_profile import KERNEL, LABELS, NOT_SAMPLED, OTHERS, UNKNOWN, frame_text, labels
from dbdyno.model.results.ledger_rows import account_rows, groups
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.tables import Tables, conform, empty
from dbdyno.model.sources.code_areas import CodeAreas, parsed, plain_name
from dbdyno.model.units import NS_PER_S
from dbdyno.stats.estimates import interval
from dbdyno.stats.raking import Floats, ipf

MOST, MOST_STACKS = 500, 5_000
"""Functions and stacks that are kept by cell and group; all others become one row."""
_MODES = ("user", "kernel")
_GROUP = ["scope", "who"]
_RATES = {"per_call_ns": "calls_per_s", "per_work_ns": "work_per_s"}
_SUMMED = ("aas", "kernel", "total", "total_kernel")


@makes("cpu_profile", "cpu_stacks", reads=("ledger", "rates"))
def cpu_profile(
    cells: Sequence[RawCell], tables: Tables, areas: Callable[[], CodeAreas]
) -> dict[str, pl.DataFrame]:
    """Returns both tables of these cells. Reads ``task_cpu`` (of the ledger), ``ledger`` and ``rates``;
    ``areas`` loads the code areas of the server's program."""
    by_table: dict[str, list[pl.DataFrame]] = {name: [empty(name)] for name in ("cpu_profile", "cpu_stacks")}
    for cell in cells:
        if cell.height("profile_samples"):
            measured = {
                n: tables[n].filter(pl.col("cell") == cell.id) for n in ("task_cpu", "ledger", "rates")
            }
            for name, frame in _cell_profiles(cell, measured, areas()).items():
                keyed = frame.with_columns(**{k: pl.lit(v) for k, v in key(cell).items()})
                by_table[name].append(conform(name, keyed))
    return {name: pl.concat(frames) for name, frames in by_table.items()}


def _cell_profiles(cell: RawCell, cut: Tables, areas: CodeAreas) -> dict[str, pl.DataFrame]:
    """Returns both tables of one cell, without its key."""
    samples = _weighted(_samples(cell, cut["task_cpu"]), cut)
    samples = samples._replace(whole=samples.whole.with_columns(lost=pl.lit(lost_samples(cell), pl.Float64)))
    code = code_of(cell, samples.seen, areas)
    rows = pl.concat([bounded(rows_by(samples, code), samples.whole), not_sampled(samples)], how="diagonal")
    whole = pl.concat([stacks(samples.seen, code), _not_sampled_stacks(samples)], how="diagonal")
    return {"cpu_profile": per_unit(rows, cut["rates"]), "cpu_stacks": whole}


# The samples of the window, and what each stands for.


class Weighted(NamedTuple):
    seen: pl.DataFrame  # a row a task, mode, label, stack: group, session, n, cuts, aas
    rest: pl.DataFrame  # not sampled: group, mode, aas
    whole: pl.DataFrame  # per group: sampled (aas), effective, lost (share)


def _samples(cell: RawCell, tasks: pl.DataFrame) -> pl.DataFrame:
    """Counts samples by task, mode, labels and stack, one row each, with the task's session and CPU time.
    Tasks without a known CPU time are left out; tasks that ran but have no sample keep one row with a null
    count."""
    by = ["pid", "tid", "mode", *LABELS, "stack"]
    counted = (
        cell.scan("profile_samples")
        .filter(inside(cell))
        .with_columns(**labels())
        .group_by(by)
        .agg(n=pl.len().cast(pl.Int64), cuts=pl.col("cut").cast(pl.Int64).sum())
    )
    known = tasks.drop_nulls("run").unique(["pid", "tid"], keep="last", maintain_order=True)
    known = known.select("pid", "tid", "session", *_GROUP, "run").with_row_index("task")
    return known.join(counted.collect(), on=["pid", "tid"], how="left", maintain_order="left").filter(
        pl.col("n").is_not_null() | ((pl.col("run") > 0) & (pl.col("scope") != "beside"))
    )


def _weighted(samples: pl.DataFrame, cut: Tables) -> Weighted:
    """Gives each sample its weight in seconds per second, group by group, and sums the time without
    samples."""
    seen, rest, whole = [], [], []
    for (scope, who), group in samples.group_by(_GROUP, maintain_order=True):
        mode = pl.col("mode")
        counts = group.group_by("task", "run", maintain_order=True).agg(
            pl.col("n").filter(mode == m).sum().alias(m) for m in _MODES
        )
        n = counts.select(_MODES).to_numpy().astype(np.float64)
        mass, left = _masses(n, counts["run"].to_numpy(), _targets(cut["ledger"], str(scope)))
        weight = np.divide(mass, n, out=np.zeros_like(mass), where=n > 0)
        each = [
            counts.select("task", mode=pl.lit(m), weight=pl.Series(weight[:, i], dtype=pl.Float64))
            for i, m in enumerate(_MODES)
        ]
        weighted = group.drop_nulls("n").join(pl.concat(each), on=["task", "mode"], maintain_order="left")
        seen.append(weighted.with_columns(aas=pl.col("n") * pl.col("weight")))
        rest += [{"scope": scope, "who": who, "mode": m, "aas": a} for m, a in left.items() if a > 0]
        # Kish's effective sample size (sum w)^2 / sum w^2, where n samples share each weight.
        squares = float((mass * weight).sum())
        effective = mass.sum() ** 2 / squares if squares > 0 else None
        whole.append({"scope": scope, "who": who, "sampled": float(mass.sum()), "effective": effective})
    schema: dict[str, Any] = {"scope": pl.String, "who": pl.String}
    return Weighted(
        pl.concat(seen) if seen else samples.drop_nulls("n").with_columns(aas=pl.lit(0.0)),
        pl.DataFrame(rest, schema=schema | {"mode": pl.String, "aas": pl.Float64}),
        pl.DataFrame(whole, schema=schema | {"sampled": pl.Float64, "effective": pl.Float64}),
    )


def _targets(ledger: pl.DataFrame, scope: str) -> Floats | None:
    """Returns ``run.user`` and ``run.system`` summed over the sessions; None for other scopes, which have
    no such accounts, and where one is unknown."""
    if scope != "rung":
        return None
    halves = [account_rows(ledger, name)["aas"].to_list() for name in ("run.user", "run.system")]
    known = all(len(f) == 1 and f[0] is not None for f in halves)
    return np.array([f[0] for f in halves], dtype=np.float64) if known else None


def _masses(n: Floats, run: Floats, targets: Floats | None) -> tuple[Floats, dict[str | None, float]]:
    """Returns CPU time by task (row) and mode (column), and the time without samples by mode, in seconds per
    second.

    ``n``: samples by task and mode; ``run``: CPU time of each task; ``targets``: CPU time of each mode,
    which adds up to that of the tasks; None if unknown, and the time without samples has mode None.
    """
    counted, mass = n.sum(axis=0), np.zeros_like(n)
    if counted.sum() == 0:
        if targets is None:
            return mass, {None: float(run.sum())}
        return mass, dict(zip(_MODES, targets.tolist(), strict=True))
    met = n.sum(axis=1) > 0
    if targets is None:
        mass[met] = n[met] * (run[met] / n[met].sum(axis=1))[:, None]
        return mass, {None: float(run[~met].sum())}
    part = float(run[~met].sum() / run.sum()) if run.sum() > 0 else 0.0
    columns = np.where(counted > 0, targets * (1.0 - part), 0.0)
    # Raking needs equal sums of rows and columns. The floor avoids a division by zero.
    rows = run[met] * (columns.sum() / max(float(run[met].sum()), 1e-300))
    # Raking changes only the margins: the odds between modes within a task stay those of its samples.
    mass[met] = ipf(n[met], np.zeros(int(met.sum()), dtype=np.int64), rows, columns[None, :])
    left = targets - mass.sum(axis=0)
    # Differences below 1e-12 are rounding errors of the fit, not time.
    return mass, dict(zip(_MODES, np.where(left > 1e-12, left, 0.0).tolist(), strict=True))


# The code that the samples met.


class Code(NamedTuple):
    functions: pl.DataFrame  # fn, name, module, text
    paths: pl.DataFrame  # stack, position, fn: of the samples' stacks
    leaves: pl.DataFrame  # stack, mode -> fn: where the time itself went


def code_of(cell: RawCell, seen: pl.DataFrame, areas: CodeAreas) -> Code:
    """Returns the functions, stacks and leaves of the samples ``seen``. Functions 0 and 1 are unknown code
    in the kernel and in user mode."""
    stacks = seen.select("stack").unique()
    paths = cell.tables["profile_stacks"].join(stacks, on="stack", how="semi")
    used_frames = cell.tables["profile_frames"].join(paths.select("frame").unique(), on="frame", how="semi")
    frames = _frames_with_modules(used_frames, areas)
    extra = [{"name": UNKNOWN, "module": KERNEL}, {"name": UNKNOWN, "module": UNKNOWN}]
    functions = pl.concat([pl.DataFrame(extra), frames.select("name", "module")]).unique(maintain_order=True)
    functions = functions.with_row_index("fn").with_columns(text=frame_text())
    frames = frames.join(functions, on=["name", "module"], maintain_order="left")
    paths = paths.join(frames.select("frame", "kind", "fn"), on="frame").sort("stack", "position")
    return Code(functions, paths, _leaves(seen, paths))


def _frames_with_modules(frames: pl.DataFrame, areas: CodeAreas) -> pl.DataFrame:
    """Returns each frame's function and module. Areas of the kernel and of the server's program count as
    modules, a kernel module is ``kernel:ext4``, and libraries lose ``.so`` and version."""
    kernel = kernel_areas()
    names: list[str] = []
    modules: list[str] = []
    for function, module, source in frames.select("function", "module", "source").iter_rows():
        name = plain_name(function) if function else None
        known_areas = areas if module == areas.program else kernel if module == KERNEL else None
        part = known_areas.of(name, source) if known_areas is not None else None
        names.append(name or UNKNOWN)
        modules.append(f"{module}:{part}" if part else (module or UNKNOWN).partition(".so")[0])
    return frames.select("frame", "kind", name=pl.Series(names, dtype=pl.String)).with_columns(
        module=pl.Series(modules, dtype=pl.String)
    )


@cache
def kernel_areas() -> CodeAreas:
    """Loads the subsystems of Linux by the prefixes of well-known function names."""
    return parsed(resources.files("dbdyno.account").joinpath("kernel_areas.txt").read_text("utf-8"))


def _leaves(seen: pl.DataFrame, paths: pl.DataFrame) -> pl.DataFrame:
    """Returns the function that was executing, by stack and mode. A kernel sample whose stack has only
    user frames counts as unknown kernel code."""
    last = paths.filter(pl.col("position") == pl.col("position").min().over("stack"))
    both = seen.select("stack", "mode").unique(maintain_order=True)
    both = both.join(last.select("stack", "kind", "fn"), on="stack", how="left", maintain_order="left")
    outside = (pl.col("mode") == "kernel") & (pl.col("kind").fill_null("user") == "user")
    return both.select(
        "stack",
        "mode",
        fn=pl.when(outside).then(0).otherwise(pl.col("fn").fill_null(1)).cast(pl.UInt32),
        outside=outside | pl.col("fn").is_null(),
    )


# Rows.

_SUMS = (
    pl.col("aas").sum(),
    pl.col("aas").filter(pl.col("mode") == "kernel").sum().alias("kernel"),
    pl.col("n").sum().alias("samples"),
)


def rows_by(weighted: Weighted, code: Code) -> pl.DataFrame:
    """Returns the rows of all kinds, without intervals."""
    seen = weighted.seen
    kinds = {"session": pl.col("session").cast(pl.String), **{n: pl.col(n) for n in ("mode", *LABELS)}}
    frames = [
        seen.group_by(*_GROUP, name=name, maintain_order=True).agg(*_SUMS).with_columns(by=pl.lit(by))
        for by, name in kinds.items()
        if seen.height
    ]
    return pl.concat([*frames, _by_truncation(seen), *_rows_by_code(seen, code)], how="diagonal")


def _by_truncation(seen: pl.DataFrame) -> pl.DataFrame:
    """Returns whole and truncated stacks as two rows. The time of a group of samples is divided by their
    numbers."""
    part = pl.col("cuts") / pl.col("n")
    both = [
        seen.with_columns(aas=pl.col("aas") * p, n=n, name=pl.lit(name))
        for name, p, n in (("whole", 1 - part, pl.col("n") - pl.col("cuts")), ("cut", part, pl.col("cuts")))
    ]
    rows = pl.concat(both, how="vertical_relaxed").filter(pl.col("n") > 0)
    return rows.group_by(*_GROUP, "name", maintain_order=True).agg(*_SUMS).with_columns(by=pl.lit("stack"))


def _rows_by_code(seen: pl.DataFrame, code: Code) -> Iterator[pl.DataFrame]:
    """Yields time by function and by module: self time, and total time with callees. Recursion counts
    once."""
    stacks = seen.group_by(*_GROUP, "stack", "mode", maintain_order=True).agg(pl.col("aas", "n").sum())
    stacks = stacks.join(code.leaves, on=["stack", "mode"], maintain_order="left")
    names_by_fn = code.functions.select("fn", "name", "module")
    leaves = stacks.filter("outside").select("stack", "fn").unique()
    members = pl.concat([code.paths.select("stack", "fn"), leaves]).unique().join(names_by_fn, on="fn")
    for by, names in (("function", ["name", "module"]), ("module", ["module"])):
        own = stacks.join(names_by_fn, on="fn", maintain_order="left").group_by(*_GROUP, *names).agg(*_SUMS)
        containing = members.select("stack", *names).unique().join(stacks.drop("fn"), on="stack")
        totals = containing.group_by(*_GROUP, *names).agg(
            *(e.alias(n) for e, n in zip(_SUMS[:2], ("total", "total_kernel"), strict=True))
        )
        rows = totals.join(own, on=[*_GROUP, *names], how="left").with_columns(
            pl.col("aas", "kernel").fill_null(0.0), pl.col("samples").fill_null(0), by=pl.lit(by)
        )
        rows = rows.sort("aas", "total", *names, descending=[True, True, *(False for _ in names)])
        yield rows.with_columns(name="module") if by == "module" else _largest_functions(rows)


def _largest_functions(rows: pl.DataFrame) -> pl.DataFrame:
    """Keeps the first :data:`MOST` functions of each group by self or by total time. The others become one
    row without a total, as totals of nested calls overlap."""
    # A leaf function matters by its self time, a caller only by its total time.
    places = [pl.col(n).rank("ordinal", descending=True).over(_GROUP) for n in ("aas", "total")]
    rows = rows.with_columns(kept=pl.min_horizontal(places) <= MOST)
    rest = rows.filter(~pl.col("kept")).group_by(*_GROUP, "by", maintain_order=True)
    others = rest.agg(pl.col("aas", "kernel", "samples").sum()).with_columns(name=pl.lit(OTHERS))
    return pl.concat([rows.filter("kept").drop("kept"), others], how="diagonal")


def bounded(rows: pl.DataFrame, whole: pl.DataFrame) -> pl.DataFrame:
    """Adds 95 % intervals. Lost samples widen them upward: they may all belong to the row."""
    rows = rows.join(whole, on=_GROUP, how="left", maintain_order="left")
    ends: dict[str, pl.Expr] = {}
    for column, before in (("aas", ""), ("total", "total_")):
        low, high = interval(rows[column] / rows["sampled"], rows["effective"])
        kept = pl.col("sampled") * (1 - pl.col("lost"))
        missing = pl.col("sampled") * pl.col("lost")
        ends |= {f"{before}low": low * kept, f"{before}high": high * kept + missing}
    # Without any sampled time there is no share to bound.
    ends = {n: pl.when(pl.col("sampled") > 0).then(e).fill_nan(None) for n, e in ends.items()}
    return rows.with_columns(**ends, status=pl.lit("ok"))


def not_sampled(weighted: Weighted) -> pl.DataFrame:
    """Returns the time without samples: one row in each kind."""
    kernel = pl.col("aas").filter(pl.col("mode") == "kernel").sum()
    rest = weighted.rest.group_by(_GROUP, maintain_order=True).agg(
        pl.col("aas").sum(), kernel=pl.when(pl.col("mode").is_not_null().all()).then(kernel)
    )
    kinds = pl.DataFrame({"by": ["mode", "session", *LABELS, "stack", "function", "module"]})
    rows = rest.join(kinds, how="cross").join(weighted.whole, on=_GROUP, how="left", maintain_order="left")
    both = {"total": "aas", "low": "aas", "high": "aas", "total_low": "aas", "total_high": "aas"}
    return rows.with_columns(
        name=pl.lit(NOT_SAMPLED),
        samples=pl.lit(0, pl.Int64),
        status=pl.lit(NOT_SAMPLED),
        total_kernel="kernel",
        **both,
    )


def per_unit(rows: pl.DataFrame, rates: pl.DataFrame) -> pl.DataFrame:
    """Adds self time per call and per unit of work."""
    known = dict(rates.filter(pl.col("scope") == "rung").select("name", "value").iter_rows())
    rows = rows.with_columns(
        (pl.col("aas") * NS_PER_S / known[rate] if known.get(rate) else pl.lit(None, pl.Float64)).alias(name)
        for name, rate in _RATES.items()
    )
    return rows.drop("sampled")


# Stacks.


def stacks(seen: pl.DataFrame, code: Code) -> pl.DataFrame:
    """Returns whole stacks in folded form, root first; the rarest become one row."""
    texts = code.paths.join(code.functions.select("fn", "text"), on="fn", maintain_order="left")
    folded = texts.group_by("stack", maintain_order=True).agg(pl.col("text").reverse().str.join(";"))
    each = seen.group_by(*_GROUP, *LABELS, "stack", "mode", maintain_order=True)
    rows = each.agg(pl.col("aas", "n").sum())
    rows = rows.join(code.leaves, on=["stack", "mode"], maintain_order="left").join(
        folded, on="stack", how="left"
    )
    rows = rows.join(code.functions.select("fn", leaf="text"), on="fn", maintain_order="left")
    own = (
        pl.when("outside")
        .then(pl.concat_str("text", "leaf", separator=";", ignore_nulls=True))
        .otherwise("text")
    )
    rows = rows.group_by(*_GROUP, *LABELS, stack=own, mode="mode").agg(
        pl.col("aas").sum(), samples=pl.col("n").sum()
    )
    place = pl.col("aas").rank("ordinal", descending=True).over(_GROUP)
    rest = pl.lit(f"{UNKNOWN}`[{OTHERS}]")
    rows = rows.with_columns(stack=pl.when(place <= MOST_STACKS).then("stack").otherwise(rest))
    kept = rows.group_by(*_GROUP, *LABELS, "stack", "mode").agg(pl.col("aas", "samples").sum())
    return kept.sort(*_GROUP, "aas", "stack", *LABELS, descending=[False, False, True, False, False, False])


def _not_sampled_stacks(weighted: Weighted) -> pl.DataFrame:
    """Returns the time without samples as stacks of one frame."""
    none = {n: pl.lit(NOT_SAMPLED) for n in LABELS}
    stack = pl.lit(f"{UNKNOWN}`[{NOT_SAMPLED}]")
    return weighted.rest.with_columns(stack=stack, samples=pl.lit(0, pl.Int64), **none)


# Several cells together.


@makes("cpu_profile", stage="total")
def total_by_code(tables: Tables) -> pl.DataFrame:
    """Returns ``cpu_profile`` over all repeats of a load together."""
    return cpu_profile_total(tables["windows"], tables["cpu_profile"])


def cpu_profile_total(windows: pl.DataFrame, table: pl.DataFrame, name: str = "cpu_profile") -> pl.DataFrame:
    """Returns means over all usable cells of a workload, variant and load together (cell ``all``),
    weighted by wall time."""
    frames = [empty(name)]
    for head, cells in groups(windows):
        walls = pl.DataFrame({"cell": [w["cell"] for w in cells], "wall_s": [w["wall_s"] for w in cells]})
        rows = table.join(walls, on="cell", maintain_order="left")
        if rows.height:
            whole_s = float(rows.select("cell", "wall_s").unique()["wall_s"].sum())
            frames.append(
                conform(
                    name,
                    _mean_over_cells(rows, whole_s).with_columns(**{k: pl.lit(v) for k, v in head.items()}),
                )
            )
    return pl.concat(frames)


def _mean_over_cells(rows: pl.DataFrame, whole_s: float) -> pl.DataFrame:
    """Returns means of one load over its cells, with intervals that follow from all samples together."""
    part = pl.col("wall_s") / whole_s
    each = rows.filter(pl.col("by") == "stack").with_columns(part=part, ok=pl.col("status") == "ok")
    sampled = (
        each.filter("ok")
        .group_by("cell", *_GROUP)
        .agg(pl.col("aas").sum(), pl.col("effective", "lost", "part").first())
    )
    mass = pl.col("aas") * pl.col("part")
    whole = sampled.group_by(_GROUP).agg(
        # Effective sizes of independent cells combine as those of strata: (sum m)^2 / sum(m^2 / n).
        sampled=mass.sum(),
        effective=mass.sum() ** 2 / (mass**2 / pl.col("effective")).sum(),
        lost=(mass * pl.col("lost").fill_null(0.0)).sum() / mass.sum(),
    )
    by = [*_GROUP, "by", "name", "module", "status"]
    per = [_mean(n, part) for n in _RATES]
    summed = [(pl.col(n) * part).sum().alias(n) for n in _SUMMED if n in rows.columns]
    sums = rows.group_by(by, maintain_order=True).agg(*summed, pl.col("samples").sum(), *per)
    sums = sums.sort(*_GROUP, "by", "aas", "total", descending=[False, False, False, True, True])
    ok = bounded(sums.filter(pl.col("status") == "ok"), whole)
    no = sums.filter(pl.col("status") != "ok").join(whole, on=_GROUP, how="left")
    both = dict.fromkeys(("low", "high", "total_low", "total_high"), "aas")
    bounded_rows = pl.concat([ok, no.with_columns(**both)], how="diagonal")
    return bounded_rows.drop("sampled").with_columns(
        pl.when(pl.col("name") != OTHERS).then(n).alias(n)
        for n in ("total", "total_kernel")
        if n in rows.columns
    )


def _mean(name: str, part: pl.Expr) -> pl.Expr:
    """Returns the weighted mean of a column: NULL if one of its values is. A cell without a row counts as
    0."""
    return pl.when(pl.col(name).is_not_null().all()).then((pl.col(name) * part).sum()).alias(name)
